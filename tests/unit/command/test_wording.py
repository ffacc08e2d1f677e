"""What a person reads after a slip: the option or variable by name, an example that works, and no wild guess."""

from __future__ import annotations

import io
import shutil
import sys

import pytest

from fakes.models import other_letters, tiny_folder
from specdec_cli.command.command import ask
from specdec_cli.core.errors import SpecdecError


def test_an_unknown_variable_gets_one_line_with_the_nearest_one(specdec, monkeypatch):
    """`specdec help environment` promised it, and nothing was said."""
    monkeypatch.setenv("SPECDEC_TEMPP", "1")
    monkeypatch.setenv("SPECDEC_ZZZZZ", "1")
    monkeypatch.setenv("SPECDEC_DEBUG", "0")
    code, _, err = specdec("pairs")
    assert (code, err.splitlines()) == (
        0,
        [
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


def test_the_verdict_on_a_refused_pair_comes_first(specdec, tmp_path, tiny_pair):
    odd = tiny_folder(tmp_path / "odd", seed=1)
    (odd / "tokenizer.json").write_bytes(other_letters((odd / "tokenizer.json").read_bytes()))
    code, out, _ = specdec("check", "--target", tiny_pair[0], "--draft", odd)
    assert code == 4 and out.startswith("refused ") and out.index("hint ") < out.index("break-even ")
    shutil.rmtree(odd)
    code, out, _ = specdec("check", "--target", tiny_pair[0], "--draft", tiny_pair[1])
    assert code == 0 and out.startswith("pair ") and out.index("runs ") > out.index("memory ")


def test_a_draft_length_beside_nobody_who_drafts_is_told(specdec):
    said = "-k 4 has no effect: --drafter none drafts nothing\n"
    assert said in specdec("run", "--raw", "-n", "2", "--drafter", "none", "-k", "4", "hi")[2]
    for quiet in (["-q", "-k", "4"], ["-k", "0"], []):
        assert "no effect" not in specdec("run", "--raw", "-n", "2", "--drafter", "none", *quiet, "hi")[2]


def test_no_rate_is_told_of_fewer_than_five_tokens(specdec):
    """`2 tokens in 2 passes · 1293 tok/s`."""
    assert "tok/s" not in specdec("run", "--raw", "-n", "4", "-k", "0", "def f")[2]
    assert " tok/s" in specdec("run", "--raw", "-n", "5", "-k", "0", "def f")[2]


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
    monkeypatch.setattr("specdec_cli.terminal.terminal.is_terminal", lambda stream: True)
    ask("Remove qwen (a target and its draft) from /root/models.toml?", False)
    rows = capsys.readouterr().err.splitlines()
    assert [row.split()[-1] for row in rows] == ["draft)", "[y/N]"] and max(map(len, rows)) <= 40


def test_the_end_of_the_input_is_no_answer(monkeypatch):
    monkeypatch.setattr(sys, "stdin", Keyboard(""))
    with pytest.raises(KeyboardInterrupt):
        ask("Replace it?", False)
