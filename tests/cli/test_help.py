"""The two helps of a command, and `specdec help`: topics and documents, in a pipe and on a terminal."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

DOCS = Path(__file__).parents[2] / "specdec_cli/docs"
KEPT = {key: value for key, value in os.environ.items() if key not in ("PAGER", "LESS", "NO_COLOR", "COLUMNS")}
HEAVY = {"mlx", "mlx_lm", "transformers", "huggingface_hub", "numpy"}


def terminal(*arguments, rows=24, **environment):
    return pexpect.spawn(
        sys.executable,
        ["-m", "specdec_cli", *arguments],
        env=KEPT | {"TERM": "xterm-256color"} | environment,
        encoding="utf-8",
        dimensions=(rows, 80),
        timeout=60,
    )


def all_of(process):
    process.expect(pexpect.EOF)
    process.close()
    assert process.exitstatus == 0
    return process.before


def test_every_document_is_a_topic_with_one_line(specdec):
    code, out, err = specdec("help")
    topics = [line.split("\t") for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [topic[0] for topic in topics] == sorted(path.stem for path in DOCS.glob("*.md"))
    assert all(len(topic) == 2 and topic[1].endswith(".") for topic in topics)


@pytest.mark.slow
def test_on_a_terminal_the_topics_fit_80_columns_and_say_how_to_go_on():
    lines = all_of(terminal("help", "--plain")).splitlines()
    assert lines[0].startswith("bench         Which K, and which draft?")
    assert lines[-1].startswith("specdec help TOPIC shows one") and max(map(len, lines)) <= 80


def test_a_pipe_gets_the_document_as_it_is(specdec):
    assert specdec("help", "how-it-works") == (0, (DOCS / "how-it-works.md").read_text("utf-8"), "")


@pytest.mark.slow
def test_a_long_document_goes_through_the_users_pager(tmp_path):
    pager = tmp_path / "pager"
    pager.write_text('#!/bin/sh\necho "pager $1, LESS $LESS"\ncat\n')
    pager.chmod(0o755)
    out = all_of(terminal("help", "bench", PAGER=f"{pager} -x"))
    assert out.startswith("pager -x, LESS -R") and "\x1b[1" in out and "```" not in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "environment", "plain"),
    [
        (500, {"PAGER": "false"}, ()),  # it fits the screen
        (24, {"PAGER": "false", "TERM": "dumb"}, ()),
        (24, {"PAGER": "false"}, ("--plain",)),
    ],
)
def test_without_a_pager_the_document_is_printed(rows, environment, plain):
    out = all_of(terminal("help", "how-it-works", *plain, rows=rows, **environment))
    assert "How it works" in out and "How K is chosen" in out and "**" not in out
    assert ("\x1b" in out) == (not plain and environment.get("TERM") != "dumb")


def test_help_of_a_command_is_its_help(specdec):
    assert specdec("help", "run") == specdec("run", "--help")
    assert specdec("help", "pairs", "add") == specdec("pairs", "add", "--help")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("how-it-work",), "the nearest: specdec help how-it-works"),
        (("pairs", "ad"), "the nearest: specdec help pairs add"),
        (("../docs/bench",), "the nearest: specdec help bench"),
    ],
)
def test_an_unknown_topic_is_a_usage_error_that_names_the_nearest(specdec, words, hint):
    assert specdec.refused("help", *words) == (2, f"there is no topic {' '.join(words)}", hint)


def options(text):
    """Long options in a help text."""
    return set(re.findall(r"^│ (--[\w-]+)", text, re.M))


@pytest.mark.parametrize("name", ["run", "chat", "bench"])
def test_h_shows_the_dozen_usual_options_and_help_all_of_them(specdec, name):
    short, every = specdec(name, "-h")[1], specdec(name, "--help")[1]
    assert options(short) < options(every) and 10 <= len(options(short)) <= 16
    assert "Advanced" not in short and "Advanced" in every
    assert f"{len(options(every) - options(short))} more options: specdec {name} --help" in short


def test_60_columns_cut_no_option(specdec, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    out = specdec("run", "-h")[1]
    assert "--num-draft-tokens" in out and "…" not in out and "--no-panel: none" in " ".join(out.split())


@pytest.mark.slow
def test_a_document_is_shown_without_heavy_imports():
    script = (
        "import sys; sys.argv = ['specdec', 'help', 'bench']\n"
        "from specdec_cli.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"assert not {HEAVY} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
