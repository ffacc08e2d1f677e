"""`-h` for the usual options, `--help` for all; completions; hints that name the right command."""

import re

import pytest
import typer

from specdec_cli.cli.main import app


def options(text):
    """Long options in a help text."""
    return set(re.findall(r"^│ (--[\w-]+)", text, re.M))


@pytest.mark.parametrize("name", ["run", "chat", "bench"])
def test_h_shows_the_dozen_usual_options_and_help_all_of_them(specdec, name):
    code, short, err = specdec(name, "-h")
    assert (code, err) == (0, "")
    every = specdec(name, "--help")[1]
    assert options(short) < options(every) and 10 <= len(options(short)) <= 16
    assert "Advanced" not in short and "Advanced" in every
    hidden = len(options(every) - options(short))
    assert f"{hidden} more options: specdec {name} --help" in short


def test_h_shows_everything_where_nothing_is_advanced(specdec):
    assert specdec("rm", "-h") == specdec("rm", "--help")
    assert specdec("-h") == specdec("--help")


def test_60_columns_cut_no_option(specdec, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    out = specdec("run", "-h")[1]
    assert "--num-draft-tokens" in out and "…" not in out and "--no-panel: none" in " ".join(out.split())


def walked(command, path=()):
    yield path
    for name, sub in getattr(command, "commands", {}).items():
        yield from walked(sub, (*path, name))


@pytest.mark.parametrize("path", list(walked(typer.main.get_command(app))))
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_no_help_speaks_of_bool(specdec, path, option):
    code, out, _ = specdec(*path, option)
    assert code == 0 and "<bool>" not in out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("specdec run -p dem", ["demo", "demo-hybrid"]),
        ("specdec run --pair qwen3-8b", ["qwen3-8b", "qwen3-8b-8bit"]),
        ("specdec check llama-3", ["llama-3b"]),
        ("specdec pairs use dem", ["demo", "demo-hybrid"]),
        ("specdec run --drafter n", ["ngram", "none"]),
        ("specdec bench --drafter n", ["ngram"]),
        ("specdec chat --rule co", ["coupled"]),
        ("specdec bench --kinds co", ["code"]),
        ("specdec bench --kinds code,ch", ["code,chat"]),
        ("specdec help pa", ["pairs"]),
        ("specdec help ser", ["serve"]),
        ("specdec help re", ["replay"]),
        ("specdec serve --print-config c", ["codex", "claude", "continue"]),
    ],
)
def test_values_complete_in_the_shell(specdec, monkeypatch, words, found):
    monkeypatch.setenv("_SPECDEC_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert specdec()[1].split() == found


def test_a_broken_models_toml_completes_nothing_and_says_nothing(specdec, monkeypatch):
    specdec.models.write_text("schema_version = ")
    for name, value in {
        "_SPECDEC_COMPLETE": "complete_bash",
        "COMP_WORDS": "specdec run -p d",
        "COMP_CWORD": "3",
    }.items():
        monkeypatch.setenv(name, value)
    assert "".join(specdec()[1:]).strip() == ""


EVERY = "specdec --help lists commands, specdec COMMAND --help options"
QUOTED = "put quotes around a prompt of several words"
NUMBER = "Input should be a valid number, unable to parse string as a number"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("rnu",), "No such command 'rnu'. Did you mean 'run'?", EVERY),
        (("--nope",), "No such option: --nope", EVERY),
        (
            ("run", "--temp", "hot", "x"),
            f"Invalid value for '--temp': {NUMBER}: hot",
            "specdec run -h lists its options",
        ),
        (("run", "Why", "is", "it"), "Got unexpected extra argument(s) (is it)", QUOTED),
        (("pairs", "add", "x", "--nope"), "No such option: --nope", "specdec pairs add -h lists its options"),
    ],
)
def test_a_wrong_command_line_is_two_lines(specdec, words, message, hint):
    assert specdec.refused(*words) == (2, message, hint)
