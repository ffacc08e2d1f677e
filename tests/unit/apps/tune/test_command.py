"""`specdec tune`: what it refuses, what it predicts, and what it keeps."""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
from types import SimpleNamespace

import mlx.core as mx
import pytest

from specdec_cli.apps.tune import figures, screen, training
from specdec_cli.apps.tune.figures import Evaluation, Judgement, Measured, Trained, TuningProgress
from specdec_cli.apps.tune.kept import workplace
from specdec_cli.core.errors import UsageError
from specdec_cli.core.stats import Stats
from specdec_cli.engine.heads import load_head
from specdec_cli.pairs.limits import HEADROOM
from specdec_cli.pairs.pair import Pair
from specdec_cli.pairs.registry import add_pair, load_registry, packaged_file, user_file
from specdec_cli.pairs.tuned import tuned_folder


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
    monkeypatch.setattr(figures, "PIECES", 4)
    monkeypatch.setattr(figures, "SAID", 16)
    monkeypatch.setattr(Measured, "nothing_to_gain", "")  # costs of tiny networks are noise
    target, draft = tiny_pair
    return "--target", target, "--draft", draft


@pytest.fixture
def trained(monkeypatch):
    """A training whose adapter is written at once, and the judgement that a test sets."""

    def run(self, parts):
        (self._kept.folder / training.BEST).mkdir(mode=0o700)
        self._student.save(self._kept.folder / training.BEST)
        return Trained((Evaluation(0, 0.5), Evaluation(1, 0.6, 1.5)), best=1, words=0, ended="the time was up")

    monkeypatch.setattr(training.Training, "run", run)
    return lambda refusal: monkeypatch.setattr(Judgement, "refusal", refusal)


def test_too_little_text_of_files_and_of_chats_is_refused_as_the_target_reads_it(specdec, tmp_path):
    """What needs no weights to be refused is in the table of refusals."""
    (tmp_path / "short.txt").write_text("a")
    message = "too little text: 0 documents of more than 64 tokens, and 1 more are shorter; 16 are needed"
    assert specdec.refused("tune", "-p", "demo", "--text", tmp_path / "short.txt")[:2] == (2, message)
    message = "too little text: 0 documents of more than 64 tokens; 16 are needed"
    assert specdec.refused("tune", "-p", "demo", "--chats")[:2] == (2, message)


def test_what_was_tuned_is_not_lost_to_a_name_that_differs_by_case_alone(specdec, tmp_path):
    """On a Mac's disk `--out Mine` took the folder of the pair `mine`, and the pair was gone."""
    (tuned_folder() / "mine").mkdir(parents=True)
    (tmp_path / "text.txt").write_text("a")
    told = specdec.refused("tune", "-p", "demo", "--text", tmp_path / "text.txt", "--out", "Mine")
    assert told[:2] == (2, "--out Mine is mine but for its case, which would be lost")


def test_heads_are_no_new_version_of_a_draft_that_was_tuned(specdec, tmp_path):
    """They took its name and its folder, though nobody had compared the two."""
    (tuned_folder() / "Mine-medusa").mkdir(parents=True)
    (tmp_path / "text.txt").write_text("a")
    adapter = str(tuned_folder() / "mine")
    add_pair(user_file(), Pair("mine", "specdec:demo/target", "specdec:demo/draft", draft_adapter=adapter))
    told = specdec.refused("tune", "-p", "mine", "--text", tmp_path / "text.txt", "--what", "medusa")
    assert told[:2] == (2, "--out mine-medusa is Mine-medusa but for its case, which would be lost")


@pytest.mark.slow
@pytest.mark.macos
def test_a_prediction_is_a_table_and_nothing_is_written(specdec, text, models):
    code, out, _ = specdec("tune", *models, "--text", text, "--predict-only")
    assert code == 0 and not [*tuned_folder().iterdir()]
    assert [line.split()[0] for line in out.splitlines() if line[0] != " "] == [
        "documents",
        "accepted",
        "per",
        "speed",
        "near",
    ]
    assert re.search(r"documents +5 judged, 2 watched, 13 to learn from; seed 0", out), out
    assert max(map(len, out.splitlines())) <= 80


def test_no_end_of_a_share_is_further_than_a_share_can_be():
    """Of new heads, on five documents: 4.3 % (-7.6–16.2)."""
    few = {str(at): Stats(4, 4, 8, accepted, rejected_n=4 - accepted) for at, accepted in enumerate((0, 0, 1))}
    out = io.StringIO()
    screen.print_prediction(out, Measured(2, few, 0, 1.0, 0.1, 1.0))
    assert "(0.0–" in out.getvalue()


@pytest.mark.slow
def test_nothing_to_gain_is_a_normal_end(specdec, text, models, monkeypatch):
    monkeypatch.setattr(Measured, "nothing_to_gain", "it is always right")
    code, _, err = specdec("tune", *models, "--text", text)
    assert code == 0 and err.splitlines()[-1] == "nothing to gain: it is always right"
    assert not [*tuned_folder().iterdir()]


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
    assert sorted(path.name for path in place.iterdir()) == [
        "adapter_config.json",
        "adapters.safetensors",
        "tuned.json",
    ]
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
def test_a_full_disk_and_too_little_memory_are_two_lines_and_leave_nothing(
    specdec, text, models, monkeypatch, device_says
):
    def full(*_):
        raise RuntimeError("[write] Unable to write 2948 bytes to file.")

    with monkeypatch.context() as disk:
        disk.setattr(mx, "save_safetensors", full)
        code, _, err = specdec("tune", *models, "--text", text)
        assert code == 1 and "watched-0.safetensors: Input/output error\n" in err
        disk.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
        code, _, err = specdec("tune", *models, "--text", text)
    assert code == 5 and "watched-0.safetensors: No space left on device\nhint: free some space first" in err
    assert list(tuned_folder().iterdir()) == []
    device_says(usable_bytes=int(5_000_000 / HEADROOM))  # the pair needs 3, its training 6.6
    code, _, err = specdec("tune", *models, "--text", text)
    assert code == 5 and "; 5.0 MB are usable\nhint: specdec tune --predict-only" in err


@pytest.mark.slow
def test_new_heads_become_a_pair_that_drafts_with_them_and_rm_deletes_both(specdec, text, models, trained, monkeypatch):
    trained("")
    monkeypatch.setattr(load_head, "FLOOR", -1.0)  # they have not learned anything
    target = models[1]
    code, out, err = specdec("tune", *models, "--text", text, "--what", "medusa", "--write", "--out", "heads")
    assert code == 0 and "kept as the pair heads" in err and "to the verdict" in err
    beside = out[out.index("beside ") :].splitlines()
    assert re.fullmatch(r"beside +accepted +tokens a pass +over plain decoding *", beside[0])
    assert re.fullmatch(r"the text itself +([\d.]+ %|–) +[\d.]+ +[\d.]+× *", beside[1])
    assert beside[2].startswith("the pair's draft ")
    assert re.search(r"at each position +(\d+ ){3} +(\d+ ){2}\d+ *$", out, re.M)  # K 3
    place = tuned_folder() / "heads"
    assert sorted(path.name for path in place.iterdir()) == ["config.json", "model.safetensors", "tuned.json"]
    pair = load_registry(packaged_file(), user_file()).pairs["heads"]
    assert (pair.target, pair.draft, pair.draft_adapter) == (str(target), str(place), None)
    code, out, _ = specdec("run", "-p", "heads", "--raw", "-n", "8", "-k", "2", "--json", "x")
    drafters = {json.loads(line).get("drafter") for line in out.splitlines() if '"round"' in line}
    assert code == 0 and drafters == {"none", "medusa"}
    assert "Medusa heads trained on 13 documents" in specdec("pairs")[1]
    code, _, err = specdec("rm", "heads")
    assert code == 2 and "the models that it was tuned on stay\nerror: there is no terminal to ask on: Delete" in err
    code, _, err = specdec("rm", "heads", "--yes")
    assert code == 0 and not place.exists() and "heads" not in load_registry(packaged_file(), user_file()).pairs
    assert re.search(r"freed [\d.]+ kB\nheads was removed from", err)


@pytest.mark.slow
def test_without_write_the_command_that_lists_it_is_named_with_the_targets_adapter_to_which_it_is_bound(
    specdec, text, models, trained, tmp_path, monkeypatch
):
    trained("")
    assert specdec("tune", *models, "--text", text, "--out", "first")[0] == 0
    own = tmp_path / "my adapter"  # both models are of one shape
    shutil.move(tuned_folder() / "first", own)
    tuned = "tune", *models, "--adapter", own, "--text", text, "--out"
    _, _, err = specdec(*tuned, "second")
    place = tuned_folder() / "second"
    listed = f"pairs add second --target {models[1]} --adapter '{own}' --draft {models[3]} --draft-adapter {place}"
    assert listed in err and place.is_dir() and not user_file().exists()
    (tmp_path / "models").symlink_to(models[1].parent)
    monkeypatch.chdir(tmp_path)
    near = "tune", "--target", "models/target", "--draft", "models/draft", "--adapter", own.name, "--text", text
    assert specdec(*near, "--out", "mine", "--write")[0] == 0
    monkeypatch.chdir(text)  # what is kept is found from anywhere
    pair = load_registry(packaged_file(), user_file()).pairs["mine"]
    assert (pair.target, pair.draft) == (f"{tmp_path}/models/target", f"{tmp_path}/models/draft")
    assert (pair.target_adapter, pair.draft_adapter) == (str(own), str(tuned_folder() / "mine"))
    line = "run", "-p", "mine", "--raw", "-n", "4", "x"
    assert specdec(*line)[0] == 0
    weights = bytearray((own / "adapters.safetensors").read_bytes())
    weights[-1] ^= 1
    (own / "adapters.safetensors").write_bytes(weights)
    code, message, hint = specdec.refused(*line)
    assert code == 4 and message.startswith("mine was tuned for another target: ")
    assert hint == "specdec rm mine removes it; specdec tune makes another"
    assert specdec("pairs", "remove", "mine", "--yes")[2].splitlines()[-1].endswith("specdec rm mine deletes it")
    assert specdec("rm", "mine", "--yes")[0] == 0 and not (tuned_folder() / "mine").exists()
    assert specdec.refused("rm", "mine")[1].startswith("no pair named mine")


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_live_line_fits_and_has_curves_where_there_is_room(width, monkeypatch):
    monkeypatch.setattr("specdec_cli.terminal.panel.status.can_draw", lambda _: True)
    for module in ("apps.tune.screen", "terminal.panel.status"):
        monkeypatch.setattr(f"specdec_cli.{module}.terminal_size", lambda _: (width, 24))
    looks, err = tuple(Evaluation(25 * at, at / 40, 5 - at / 10) for at in range(40)), io.StringIO()
    with screen.tune_progress(err, "training") as report:
        report(TuningProgress("learning", 59.0, 990, 1000, 3.2, looks))
        line = re.findall(r"\x1b\[\?7l(step [^\x1b\r]*)", err.getvalue())[-1]
    assert line.startswith("step 990 of 1000 · 0:59 left") and ("agrees 0.0 → 97.5 %" in line) == (width > 60)
    assert len(line) <= width and ("█" in line) == (width > 80)


def test_one_training_at_a_time_and_what_was_left_long_ago_is_deleted(monkeypatch):
    with workplace({"what": "draft"}) as work:
        folder = work.folder
        assert folder.stat().st_mode & 0o777 == 0o700
        with pytest.raises(UsageError, match="the same training is under way"), workplace({"what": "draft"}):
            pass
        with workplace({"what": "head"}) as other:
            assert other.folder != folder
    assert not folder.exists()
    for failure in (OSError("full"), UsageError("refused", "")):
        with pytest.raises(type(failure)), workplace({"what": "draft"}):
            raise failure
        assert not folder.exists()
    for failure in (MemoryError, SystemExit):
        with pytest.raises(failure), workplace({"what": "draft"}):
            raise failure
        assert folder.exists()
    (folder / "lesson-0.safetensors").touch()
    with workplace({"what": "draft"}) as again:
        assert again.folder == folder and [path.name for path in folder.iterdir()] == ["lesson-0.safetensors"]
    folder.mkdir()
    os.utime(folder, (0, 0))
    with workplace({"what": "head"}):
        assert not folder.exists()


def test_where_lookups_find_nothing_they_have_no_rate():
    out = io.StringIO()
    nothing = {f"{n}": Stats(emitted_tokens=10, rounds=10) for n in range(2)}
    screen.print_beside(out, {"the text itself": Measured(2, nothing, 0, 0.01, 0.0, 0.01)})
    assert re.search(r"^the text itself +– +1.00 +1.00×", out.getvalue(), re.M)
