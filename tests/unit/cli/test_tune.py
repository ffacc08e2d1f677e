"""`specdec tune`: what it refuses, what it predicts, and what it keeps."""

from __future__ import annotations

import errno
import random
import re

import pytest

from specdec_cli.engine.training import Lesson
from specdec_cli.pairs.registry import load_registry, packaged_file, user_file
from specdec_cli.pairs.tuned import tuned_folder
from specdec_cli.tune import predict, training
from specdec_cli.tune.figures import Judgement, Look, Measured, Trained


@pytest.fixture
def text(tmp_path):
    """A folder of 20 documents of 150 letters."""
    folder = tmp_path / "text"
    folder.mkdir()
    for number in range(20):
        draw = random.Random(number)
        (folder / f"{number:02}.txt").write_text("".join(draw.choice("abcdef \n") for _ in range(150)))
    return folder


@pytest.fixture
def models(tiny_pair, monkeypatch):
    """Options of the tiny pair, and little to measure."""
    monkeypatch.setattr(predict, "PIECES", 4)
    monkeypatch.setattr(predict, "SAID", 16)
    monkeypatch.setattr(Measured, "nothing_to_gain", "")  # costs of tiny networks are noise
    target, draft = tiny_pair
    return "--target", target, "--draft", draft


@pytest.fixture
def trained(monkeypatch):
    """A training whose adapter is written at once, and the judgement that a test sets."""

    def run(self, parts):
        (self._folder / training.BEST).mkdir()
        self._student.save(self._folder / training.BEST)
        return Trained((Look(0, 0.5), Look(1, 0.6, 1.5)), best=1, words=0, ended="its time was over")

    monkeypatch.setattr(training.Training, "run", run)
    return lambda refusal: monkeypatch.setattr(Judgement, "refusal", refusal)


def test_what_cannot_be_tuned_on_is_refused_in_two_lines(specdec, text, tiny_pair, tmp_path):
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "short").mkdir()
    (tmp_path / "short/a.txt").write_text("a")
    more = "name more: specdec tune --text FOLDER --text FILE …"
    assert specdec.refused("tune") == (2, "there is no text to tune on", more)
    assert specdec.refused("tune", "--chats", "--text", text)[:2] == (2, "--text and --chats were both given")
    code, message, hint = specdec.refused("tune", "--text", tmp_path / "gone")
    assert (code, message, hint) == (2, f"--text {tmp_path}/gone does not exist", "name files, or folders of them")
    code, message, hint = specdec.refused("tune", "--text", tmp_path / "latin.txt")
    assert message == f"--text {tmp_path}/latin.txt is not UTF-8: byte 0xe9 at 3" and "iconv" in hint
    code, message, _ = specdec.refused("tune", "-p", "demo", "--text", tmp_path / "short")
    assert message == "too little text: 0 documents of more than 64 tokens, and 1 more are shorter; 16 are needed"
    code, message, _ = specdec.refused("tune", "-p", "demo", "--chats")
    assert (code, message) == (2, "too little text: 0 documents of more than 64 tokens; 16 are needed")
    alone = "--target", tiny_pair[0]
    code, message, hint = specdec.refused("tune", *alone, "--text", text)
    assert (code, message) == (2, "target has no draft to train") and "--what medusa" in hint
    code, message, hint = specdec.refused("tune", *alone, "--text", text, "--what", "draft")
    assert code == 4 and message == "target has no draft model, and --what draft trains a draft model"
    assert specdec.refused("tune", *alone, "--text", text, "--what", "head")[1] == "target has no head to train"
    code, message, _ = specdec.refused("tune", "-p", "demo-hybrid", "--text", text, "--what", "draft")
    assert message.endswith("hybrid is a head (mtp), and --what draft trains a draft model")
    for name, word in {"a b": "not a valid name", "demo": "names another pair", "qwen3-8b": "names another"}.items():
        assert word in specdec.refused("tune", "-p", "demo", "--text", text, "--out", name)[1]
    assert specdec.refused("tune", "--text", text, "--minutes", "0")[1] == "--minutes 0 is below 1"


@pytest.mark.slow
def test_a_prediction_is_a_table_and_nothing_is_written(specdec, text, models):
    code, out, _ = specdec("tune", *models, "--text", text, "--predict-only")
    assert code == 0 and not tuned_folder().exists()
    assert [line.split()[0] for line in out.splitlines() if line[0] != " "] == [
        "documents",
        "accepted",
        "per",
        "speed",
        "near",
    ]
    assert re.search(r"documents +5 judged, 2 watched, 13 to learn from; seed 0", out), out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.slow
def test_nothing_to_gain_is_a_normal_end(specdec, text, models, monkeypatch):
    monkeypatch.setattr(Measured, "nothing_to_gain", "it is always right")
    code, _, err = specdec("tune", *models, "--text", text)
    assert code == 0 and err.splitlines()[-1] == "nothing to gain: it is always right"
    assert not tuned_folder().exists()


@pytest.mark.slow
def test_what_does_not_pay_is_deleted_with_its_reason(specdec, text, models, trained):
    trained("acceptance fell on documents it never saw")
    code, out, err = specdec("tune", *models, "--text", text, "--write")
    assert code == 0 and err.splitlines()[-1] == "not kept: acceptance fell on documents it never saw"
    assert "tokens a pass" in out and list(tuned_folder().iterdir()) == [] and not user_file().exists()


@pytest.mark.slow
def test_what_pays_becomes_a_pair_that_runs_and_can_be_tuned_again(specdec, text, models, trained):
    trained("")
    for _ in range(2):
        assert specdec("tune", *models, "--text", text, "--write", "--out", "mine")[0] == 0
    place = tuned_folder() / "mine"
    assert sorted(path.name for path in place.iterdir()) == ["adapter_config.json", "adapters.safetensors"]
    assert {path.stat().st_mode & 0o77 for path in [place, *place.iterdir()]} == {0}
    pair = load_registry(packaged_file(), user_file()).pairs["mine"]
    assert (pair.target, pair.draft, pair.draft_adapter) == (str(models[1]), str(models[3]), str(place))
    assert specdec("run", "-p", "mine", "--raw", "-n", "4", "x", "--drafter", "model")[0] == 0
    (place / "adapters.safetensors").unlink()
    assert (
        specdec.refused("run", "-p", "mine", "--raw", "-n", "4", "x")[1]
        == f"adapter {place} has no adapters.safetensors"
    )


@pytest.mark.slow
def test_without_write_it_names_the_option_that_uses_it(specdec, text, models, trained):
    trained("")
    _, _, err = specdec("tune", *models, "--text", text)
    place = tuned_folder() / "target-tuned"
    assert f"--draft-adapter {place} 'your prompt'" in err and place.is_dir() and not user_file().exists()


@pytest.mark.slow
def test_a_full_disk_and_too_little_memory_are_two_lines_and_leave_nothing(specdec, text, models, monkeypatch):
    def full(self, path):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Lesson, "save", full)
    code, _, err = specdec("tune", *models, "--text", text)
    assert code == 5 and "No space left on device\nhint: free some space first" in err
    assert list(tuned_folder().iterdir()) == []
    monkeypatch.setattr(training, "limit_bytes", lambda usable: 1_000_000)
    code, _, err = specdec("tune", *models, "--text", text)
    assert code == 5 and "; 1.0 MB are usable\nhint: specdec tune --predict-only" in err
