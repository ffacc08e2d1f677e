"""`run --predict FILE`: fewer passes for the same answer, and refused where it would be left aside."""

import json

import pytest

RUN = ("run", "--raw", "-p", "demo", "-n", "48", "def read_lines(path):\n")


@pytest.mark.slow
def test_the_same_answer_in_fewer_passes(specdec, tmp_path):
    _, plain, _ = specdec(*RUN, "-q", "-k", "0")
    file = tmp_path / "expected.py"
    file.write_text(plain)
    code, out, _ = specdec(*RUN, "--json", "-k", "8", "--drafter", "ngram", "--predict", str(file))
    finish = json.loads(out.splitlines()[-1])
    assert code == 0 and finish["text"] == plain.removesuffix("\n")
    assert finish["stats"]["accepted_by"]["prediction"] > 24 > finish["stats"]["rounds"]


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("--predict", "missing"), "--predict missing cannot be read: No such file", "name a file of what you expect"),
        (("--predict", "latin1"), "latin1 is not UTF-8", "convert it first"),
        (("--predict", "text", "--drafter", "model"), "--drafter model looks nothing up", "take --drafter ngram or"),
    ],
)
def test_what_cannot_be_used_is_refused_before_any_model(specdec, tmp_path, monkeypatch, arguments, message, hint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin1").write_bytes(b"caf\xe9")
    (tmp_path / "text").write_text("caf\u00e9")
    code, out, err = specdec(*RUN, *arguments)
    assert (code, out) == (2, "") and message in err and hint in err


def test_a_prediction_outweighs_the_drafter_that_a_pair_names(specdec, tmp_path):
    """The demo pair names its draft, so README's own example was refused."""
    (tmp_path / "text").write_text("def f(): pass")
    arguments = ("run", "--raw", "-p", "demo", "-n", "2", "--json", "--predict", tmp_path / "text", "def f")
    code, out, _ = specdec(*arguments)
    assert (code, json.loads(out.splitlines()[0])["drafter"]) == (0, "auto")
    assert json.loads(specdec(*arguments, "-k", "0")[1].splitlines()[0])["drafter"] == "none"
