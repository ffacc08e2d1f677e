"""From options to a loaded pair: which, what is said meanwhile or after a slip, where nobody chose."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import sys
from dataclasses import replace

import pytest
from typer.main import get_command

from fakes.models import TINY, other_letters, tiny_folder
from fakes.terminal import Terminal
from fakes.world import BIG
from specdec_cli.command.command import ask
from specdec_cli.command.load import introduce_demo, load_session, specify
from specdec_cli.command.options import ModelOptions
from specdec_cli.core.errors import SpecdecError
from specdec_cli.main import app
from specdec_cli.pairs.choose import fitting
from specdec_cli.pairs.files import find
from specdec_cli.pairs.fit import Fit
from specdec_cli.pairs.limits import HEADROOM
from specdec_cli.pairs.pair import DEMO, Pair, Registry
from specdec_cli.system.machine import physical_bytes
from specdec_cli.terminal.panel import status

LINE = "demo pair: it completes Python and knows nothing else; a real one: specdec pull\n"


@pytest.fixture
def models(tiny_pair):
    target, draft = map(str, tiny_pair)
    return ModelOptions(target=target, draft=draft)


@pytest.mark.parametrize(
    ("term", "begins"),
    [("xterm", "\x1b[?2026h\x1b[?25l\x1b[?7lloading ./nobody…\x1b[K\r\x1b[?7h"), ("dumb", "loading ./nobody…\n")],
)
def test_a_terminal_says_what_is_loaded_before_the_pair_is_resolved(specdec, capsys, monkeypatch, term, begins):
    """The bug: it came after seconds of imports, and of reading tokenizers to find a draft."""
    monkeypatch.setenv("TERM", term)
    for command in (["run", "-p", "./nobody", "hi"], ["audit", "-p", "./nobody"], ["bench", "-p", "./nobody"]):
        with monkeypatch.context() as terminal:
            terminal.setattr(sys.stderr, "isatty", lambda: True)
            _, out, err = specdec(*command)
        assert out == "" and err.startswith(begins), err
    assert specdec("run", "-p", "./nobody", "hi")[2].startswith("error:")  # no terminal, no word


def test_how_much_the_draft_reads_is_the_options_else_the_pairs(models):
    assert specify(models).pair.draft_context == 1024
    for value, meant in (("64", 64), ("full", "full")):
        found = specify(replace(models, draft_context=value))
        assert found.pair.draft_context == meant
        session = load_session(found, replace(models, draft_context=value), reserve_tokens=64, shown=False)
        assert session.slot.draft.recent == (None if value == "full" else 64)


@pytest.mark.parametrize(
    ("drafter", "ks", "expected"),
    [(None, (), "auto"), ("ngram", (), "ngram"), ("ngram", (0,), "none"), ("ngram", (0, 4), "ngram")],
)
def test_the_drafter_is_the_options_and_nobody_where_every_k_is_0(models, drafter, ks, expected):
    options = ModelOptions(target=models.target, draft=models.draft, drafter=drafter)
    assert specify(options, ks).drafter == expected


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A target and a draft that were made for contexts of 4096 tokens."""
    root = tmp_path_factory.mktemp("long")
    config = TINY | {"max_position_embeddings": 4096}
    target, draft = (str(tiny_folder(root / name, config, seed=1)) for name in ("target", "draft"))
    return ModelOptions(target=target, draft=draft)


# Each command on a pair, with what needs more than 600 tokens, and an answer that is soon over.
ASKED = {
    "run": ["--raw", "-n", "900", "--regex", "a", "hi"],
    "race": ["--raw", "-n", "900", "hi"],
    "chat": ["--regex", "a", "hi"],
    "audit": ["-n", "900"],
    "bench": ["-n", "900"],
    "tune": ["--text", __file__],
    "pull": ["--max-context", "900"],
}


@pytest.mark.parametrize(
    ("command", "tokens"), [(name, n) for name in ASKED for n in (0, 600) if n == 0 or name != "tune"]
)
def test_what_a_refused_pair_is_told_to_try_is_an_option_of_the_command_and_helps(
    specdec, long, device_says, command, tokens
):
    """Four commands told of options that they have not, and to two `--max-context N` brought the same refusal."""
    fit = Fit.of(find(specify(long))).at(tokens)
    device_says(usable_bytes=int(fit.peak_bytes / HEADROOM) - (0 if tokens else fit.weight_bytes // 2))
    line = [command, "--target", long.target, "--draft", long.draft, *ASKED[command]]
    code, _, err = specdec(*line, stdin=b"")
    hint = err.splitlines()[-1]
    known = {one for option in get_command(app).commands[command].params for one in option.opts}
    assert code == 5 and hint.startswith("hint: ") and {*re.findall(r"--[a-z-]+", hint)} <= known, err
    if bound := re.search(r"--max-context \d+", hint):
        assert tokens and specdec(*line, *bound[0].split(), stdin=b"")[0] == 0
    else:
        assert not tokens or command not in ("run", "chat", "pull")


@pytest.mark.parametrize("spelled", ["./target", "absolute"])
def test_a_folder_in_place_of_a_pairs_name_is_a_target(specdec, tiny_pair, monkeypatch, spelled):
    """`run -p ./model` and `check ./model` knew no pair of that name."""
    monkeypatch.chdir(tiny_pair[0].parent)
    name = str(tiny_pair[0]) if spelled == "absolute" else spelled
    code, out, _ = specdec("run", "-p", name, "--draft", tiny_pair[1], "-n", "2", "--raw", "--json", "hi")
    start = json.loads(out.splitlines()[0])
    assert (code, start["target"], start["draft"]) == (0, name, str(tiny_pair[1]))
    assert specdec("check", name, "--json") == specdec("check", "--target", name, "--json")


def test_a_pair_of_that_name_comes_before_a_folder(tmp_path, monkeypatch):
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    assert specify(ModelOptions(pair="demo")).pair.target == "specdec:demo/target"


def test_the_demo_is_introduced_in_one_line_where_stderr_may_hold_more_than_errors(capsys):
    for name, shown in (("another", True), (DEMO, False), (DEMO, True)):
        introduce_demo(name, shown=shown, plain=True)
    assert capsys.readouterr().err == LINE


def test_an_unknown_variable_gets_one_line_with_the_nearest_one(specdec, monkeypatch):
    """`specdec help environment` promised it, and nothing was said."""
    monkeypatch.setenv("SPECDEC_TEMPP", "1")
    monkeypatch.setenv("SPECDEC_ZZZZZ", "1")
    monkeypatch.setenv("SPECDEC_ADAPTER", "1")  # an option of another command
    monkeypatch.setenv("SPECDEC_DEBUG", "0")
    code, _, err = specdec("pairs")
    assert (code, err.splitlines()) == (
        0,
        [
            "warning: no option reads SPECDEC_ADAPTER; a pair keeps it: specdec pairs add NAME --target ID "
            "--adapter FOLDER …, then -p NAME",
            "warning: no option reads SPECDEC_TEMPP; the nearest: SPECDEC_TEMP",
            "warning: no option reads SPECDEC_ZZZZZ",
        ],
    )
    assert specdec("pairs", "--json")[2] == ""


def test_check_of_a_target_alone_says_one_thing_of_who_drafts(specdec, tiny_pair):
    """stderr: its own text drafts; stdout: --drafter none decodes plainly."""
    code, out, err = specdec("check", tiny_pair[0])
    assert code == 0 and "its own text drafts: --drafter ngram" in err
    assert "the text itself drafts (--drafter ngram)" in out and "--drafter none" not in out + err


def test_a_check_and_a_list_of_pairs_that_take_long_say_so(specdec, tiny_pair, monkeypatch):
    """Files of the Hub are read meanwhile, and up to eight tokenizers for each target: seconds without a word."""
    monkeypatch.setattr(status, "PATIENCE_SECONDS", 0.0)
    first, ended = specdec("check", tiny_pair[0])[2].splitlines()[:2]
    assert (first, ended) == (f"checking {tiny_pair[0]}…", f"checking {tiny_pair[0]}: done in 0 s")
    assert specdec("pairs")[2].splitlines() == ["checking what is here…", "checking what is here: done in 0 s"]


@pytest.mark.parametrize("columns", ["60", "80"])
def test_no_figure_of_a_verdict_is_cut_and_its_command_is_one_line(specdec, tiny_pair, monkeypatch, columns):
    """At 60 columns the memory was "5.…" and "72.1 MB of 23.…"; the command had three, and no copy of it ran."""
    monkeypatch.setenv("COLUMNS", columns)
    named = "--target", str(tiny_pair[0]), "--draft", str(tiny_pair[1])
    code, out, _ = specdec("check", *named)
    *rows, command = out.splitlines()
    assert code == 0 and "…" not in out and max(map(len, rows)) <= int(columns)
    assert shlex.split(command) == ["runs", "specdec", "run", *named, "your prompt"]


def test_the_verdict_on_a_refused_pair_comes_first(specdec, tmp_path, tiny_pair):
    odd = tiny_folder(tmp_path / "odd", seed=1)
    (odd / "tokenizer.json").write_bytes(other_letters((odd / "tokenizer.json").read_bytes()))
    code, out, _ = specdec("check", "--target", tiny_pair[0], "--draft", odd)
    assert code == 4 and out.startswith("refused ") and out.index("hint ") < out.index("break-even ")
    shutil.rmtree(odd)
    code, out, _ = specdec("check", "--target", tiny_pair[0], "--draft", tiny_pair[1])
    assert code == 0 and out.startswith("pair ") and out.index("runs ") > out.index("memory ")


@pytest.fixture
def plainly(specdec, tiny_pair):
    """What stderr gets of a run in which nobody drafts."""
    return lambda *words: specdec("run", "--target", tiny_pair[0], "--drafter", "none", "--raw", *words, "def f")[2]


def test_a_draft_length_beside_nobody_who_drafts_is_told(plainly):
    assert "-k 4 has no effect: --drafter none drafts nothing\n" in plainly("-n", "2", "-k", "4")
    for quiet in (["-q", "-k", "4"], ["-k", "0"], []):
        assert "no effect" not in plainly("-n", "2", *quiet)


@pytest.mark.parametrize("command", ["run", "race"])
def test_what_a_template_would_have_got_is_told_where_none_is_used(specdec, tiny_pair, monkeypatch, command):
    """The system message was dropped without a word; one of a variable is for other lines."""
    named = (command, "--target", tiny_pair[0], "--draft", tiny_pair[1], "--raw", "-n", "2", "def f")
    for option, value in (("system", "You are terse."), ("think", "on")):
        told = f"--{option} has no effect: under --raw no template is used\n"
        assert specdec(*named, f"--{option}", value)[2].count(told) == 1
        assert "no effect" not in specdec(*named, "-q", f"--{option}", value)[2]
    monkeypatch.setenv("SPECDEC_SYSTEM", "You are terse.")
    assert "no effect" not in specdec(*named)[2]


def test_no_rate_is_told_of_fewer_than_five_tokens(plainly):
    """`2 tokens in 2 passes · 1293 tok/s`."""
    assert "tok/s" not in plainly("-n", "4") and " tok/s" in plainly("-n", "5")


class Keyboard(io.StringIO):
    """A terminal at which these lines are typed."""

    def isatty(self):
        return True


@pytest.mark.parametrize(("typed", "agreed"), [("junk\nY\n", True), ("\n", False), ("maybe\nno\n", False)])
def test_junk_at_a_question_is_told_in_our_own_words_and_asked_again(monkeypatch, capsys, typed, agreed):
    """`Error: invalid input`, which is Typer's."""
    monkeypatch.setattr(sys, "stdin", Keyboard(typed))
    if agreed:
        ask("Replace it?", False)
    else:
        with pytest.raises(SpecdecError, match="nothing was done"):
            ask("Replace it?", False)
    said = capsys.readouterr().err
    assert said.startswith("Replace it? [y/N] ") and "Error" not in said
    assert ("is not an answer: type y or n" in said) == (typed[0] in "jm")


def test_a_question_breaks_between_words(monkeypatch, capsys):
    """`models.to⏎ml? [y/N]`."""
    monkeypatch.setattr(sys, "stdin", Keyboard("y\n"))
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    ask("Remove qwen (a target and its draft) from /root/models.toml?", False)
    rows = capsys.readouterr().err.splitlines()
    assert [row.split()[-1] for row in rows] == ["draft)", "[y/N]"] and max(map(len, rows)) <= 40


def test_the_end_of_the_input_is_no_answer(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Keyboard(""))
    with pytest.raises(KeyboardInterrupt):
        ask("Replace it?", False)
    assert capsys.readouterr().err.endswith("[y/N] \n")  # the shell's prompt stood behind the question


SAID = "no models were chosen yet, and the demo pair only continues Python"


GB = 10**9
LISTED = {
    "rumour": Pair("rumour", "org/r", None, min_memory_gb=16, source="packaged"),
    "small": Pair("small", "org/s", "org/t", min_memory_gb=8, target_bytes=3 * GB, draft_bytes=GB, evidence="a, b"),
    "big": Pair("big", "org/b", None, min_memory_gb=64, evidence="a, b"),
}


def test_pairs_without_a_second_source_are_recommended_last(machine_says):
    machine_says(16 * GB)
    known = Registry(LISTED, None)
    assert LISTED["rumour"].one_source and not LISTED["small"].one_source
    assert [pair.name for pair in fitting(known)] == ["small", "rumour"]


@pytest.fixture
def home(world):
    """A Hub whose pair `tiny` is the one for this machine."""
    memory = f"[pairs.tiny]\nmin_memory_gb = {physical_bytes() / GB:.1f}"
    world.models.write_text(world.models.read_text().replace("[pairs.tiny]", memory))
    return world


def asked(world, *arguments):
    return Terminal(world.root, *arguments, **world.environment(HF_HUB_OFFLINE="0")).wait("or d for the demo:")


@pytest.mark.slow
def test_a_person_may_get_the_recommended_pair_and_goes_on_with_it(home):
    screen = asked(home, "run", "-n", "4", "hi")
    assert "Recommended for this machine: tiny" in screen.text() and BIG in screen.text()
    assert "; free on disk: " in screen.text()  # Enter alone downloads
    screen.type("\n")
    code, text = screen.end()
    assert code == 0 and "tiny is here and is now the default pair" in text
    assert 'pair = "tiny"' in home.config.read_text()
    assert text.rindex("4 tokens in") > text.index("default pair")


@pytest.mark.slow
def test_a_pair_that_is_here_already_is_offered_without_the_network(home):
    assert home("pull", "tiny").code == 0
    home.config.unlink()
    before = home.weight_bytes_sent()
    screen = asked(home, "run", "-n", "4", "hi")
    assert "On this machine: tiny" in screen.text()
    screen.type("y\n")
    code, text = screen.end()
    assert code == 0 and "tiny is now the default pair" in text and home.weight_bytes_sent() == before


@pytest.mark.slow
def test_a_person_may_see_the_demo_instead_or_neither(home):
    screen = asked(home, "run", "hi")
    screen.type("what\nn\n")
    code, text = screen.end()
    said = " ".join(text.split())
    assert code == 3 and "what is not an answer: type y, n or d" in said and SAID in said
    screen = asked(home, "chat")
    screen.type("d\n")
    code, text = screen.end()
    assert code == 0 and "A real pair" in text and "specdec pull" in text
    screen = asked(home, "run", "hi")
    screen.type("\x03")
    assert screen.end()[0] == 130


@pytest.mark.slow
def test_the_demo_says_what_the_same_race_counts(specdec):
    code, out, err = specdec("demo")
    rows = dict(line.split("\t") for line in out.splitlines() if "\t" in line)
    assert code == 0 and "same text ✓" in out and err.startswith("demo pair")
    race = specdec("race", "-p", "demo", "--raw", "--json", "-n", "100", "--temp", "0", "def parse_date(text):")[1]
    events = [json.loads(line) for line in race.splitlines()]
    (stats,) = (one["stats"] for one in events if one["event"] == "finish" and one["lane"] == "drafted")
    guessed = f"guessed {stats['draft_n']} tokens in {stats['rounds']} rounds"
    assert f"{guessed}; the target accepted {stats['draft_n_accepted']} of them" in rows["What was accepted"]
    assert f"wrote 100 tokens in {stats['target_passes']} passes" in "".join(rows.values())
    assert rows["A real pair"].startswith("specdec pull (")


@pytest.mark.slow
def test_the_demo_pair_needs_no_network_and_no_cache(world):
    world.models.unlink()
    assert world.without_network("check").code == 0
    assert world.without_network("pairs").code == 0
    assert not (world.root / "hf").exists()
