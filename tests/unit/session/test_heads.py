"""Heads from files into conversations: found and tried; what is wrong with them, in two lines."""

from dataclasses import replace

import pytest
from mlx.utils import tree_flatten

from fakes.counting import CONFIG, SMALL, counting_folder, counting_tensors, random_head
from fakes.device import FakeMemory
from fakes.raw_qwen import MOE, config_of, raw_tensors, write_checkpoint
from specdec_cli.core.errors import DoesNotFit
from specdec_cli.core.events import Finish, RoundDone, Start
from specdec_cli.core.request import Request
from specdec_cli.models.tokenizer_files import read_alike
from specdec_cli.pairs.check import judge
from specdec_cli.pairs.files import find
from specdec_cli.pairs.fit import Fit, Footprint
from specdec_cli.pairs.limits import HEADROOM
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session.load import beside, load

PROMPT = "count with me"


def trunk(tensors):
    return {name: value for name, value in tensors.items() if not name.startswith("mtp.")}


def head_alone(tensors):
    return {name: value for name, value in tensors.items() if name.startswith("mtp.")}


HEAD_CONFIG = CONFIG | {"model_type": "qwen3_5_mtp", "block_size": 3}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The target without its head; the target with it; the head alone, in a folder without a tokenizer."""
    root = tmp_path_factory.mktemp("heads")
    text = SMALL | {"mtp_num_hidden_layers": 0}
    bare = counting_folder(root / "bare", trunk(counting_tensors()), CONFIG | {"text_config": text})
    whole = counting_folder(root / "whole")
    return bare, whole, write_checkpoint(root / "head", head_alone(counting_tensors()), HEAD_CONFIG)


def loaded(target, draft=None, drafter=None, **more):
    pair = Pair("counting", str(target), None if draft is None else str(draft))
    return load(pair, drafter=drafter, **more)


def said(session, **options):
    events = list(session.reply(PROMPT, Request(max_tokens=30, **options)))
    rounds = [event.round for event in events if isinstance(event, RoundDone)]
    assert isinstance(events[0], Start) and isinstance(events[-1], Finish)
    return [token for round in rounds for token in round.emitted], rounds, events[0]


def test_a_heads_weights_are_wired_with_its_targets(folders, monkeypatch):
    fake, (bare, _, head) = FakeMemory().install(monkeypatch), folders
    monkeypatch.setenv("SPECDEC_WIRE", "1")
    slot = loaded(bare, head).first
    arrays = [
        *tree_flatten(slot.target.network.module.parameters()),
        *tree_flatten(slot.draft.head.module.parameters()),
    ]
    assert fake.wired_limits == [0, sum(array.nbytes for _, array in arrays)]


@pytest.mark.parametrize("drafter", ["mtp", "auto"])
def test_the_targets_own_head_drafts_if_it_is_asked_for_or_proves_itself(folders, drafter):
    found = loaded(folders[1], drafter=drafter)
    assert found.draft_kind == "mtp" and found.first.draft.head.agreement.share > 0.9
    _, rounds, _ = said(found.session(), k=3, drafter=drafter)
    assert any(round.drafter == "mtp" and round.accepted for round in rounds)


@pytest.mark.parametrize("name", ["._model.safetensors", "._tokenizer.json", "._tokenizer.model"])
def test_what_macos_keeps_beside_files_on_a_disk_without_attributes_is_no_part_of_a_model(tmp_path, name):
    folder = counting_folder(tmp_path / "m")
    (folder / name).write_bytes(b"\0\5\x16\7")
    assert loaded(folder, drafter="auto").draft_kind == "mtp"
    assert read_alike(folder, counting_folder(tmp_path / "n"))


def test_one_that_nobody_asked_for_is_left_alone_with_a_line_that_says_why(tmp_path):
    told = []
    found = loaded(counting_folder(tmp_path / "m", random_head(counting_tensors())), drafter="auto", tell=told.append)
    assert found.draft_kind is None and "no head drafts: the MTP head of" in told[-1]
    assert said(found.session(), drafter="auto")[0] == said(found.session(), k=0)[0]


def test_a_head_that_is_announced_and_not_there_is_told_of_where_nobody_asked_for_it(tmp_path):
    folder = counting_folder(tmp_path / "m", trunk(counting_tensors()))
    told = []
    assert loaded(folder, drafter="auto", tell=told.append).draft_kind is None
    assert told == [
        f"no head drafts: {folder} announces an MTP head (mtp_num_hidden_layers is 1), but none of its 1 weight files "
        "holds one"
    ]


def test_a_head_counts_in_what_has_to_fit(folders, device_says):
    whole = folders[1]
    alone = Fit.of(find(PairSpec(Pair("counting", str(whole), None), "none"))).at(64)
    device_says(usable_bytes=10 * alone.peak_bytes)
    assert loaded(whole, drafter="mtp", reserve_tokens=64).draft_kind == "mtp"
    device_says(usable_bytes=int(alone.peak_bytes / HEADROOM) + 1000)  # for the target alone
    assert loaded(whole, drafter="none", reserve_tokens=64).draft_kind is None
    with pytest.raises(DoesNotFit, match=r"\(head\) need"):
        loaded(whole, drafter="mtp", reserve_tokens=64)
    told = []
    assert loaded(whole, drafter="auto", reserve_tokens=64, tell=told.append).draft_kind is None
    assert "no head drafts:" in told[0] and "usable" in told[0]
    # What a bench has beside it counts without the head as well.
    more = Fit.of(find(PairSpec(Pair("c", str(whole), None)))).holding((Footprint("n", alone.peak_bytes, 0, 0),))
    with pytest.raises(DoesNotFit):
        more.require(64, told.append)
    # The bug: check refused the pair that runs.
    verdict = judge(Fit.of(find(PairSpec(Pair("c", str(whole), None)))), 64)
    assert (verdict.exit_code, verdict.head, verdict.warnings[-1]) == (0, None, told[0])
    assert judge(Fit.of(find(PairSpec(Pair("c", str(whole), None), "mtp"))), 64).exit_code == 5


def test_a_head_beside_another_draft_is_checked_too(folders):
    bare, _, head = folders
    plain = loaded(bare, drafter="ngram")
    other = beside(plain, replace(plain.pair, draft=str(head)))
    assert other.draft_kind == "mtp" and other.names[1] == str(head)
    assert said(other.session(), k=2, drafter="model")[0] == said(plain.session(), k=0)[0]


def test_a_head_of_a_mixture_is_judged_by_what_it_and_its_target_read(tmp_path):
    """The bug: all experts of both, and rows as of a dense target."""
    folder = counting_folder(tmp_path / "moe", raw_tensors(moe=True), config_of(moe=True) | {"dtype": "float32"})
    files = find(PairSpec(Pair("m", str(folder), None, k=1)), weights="headers", offline=True)
    found = judge(Fit.of(files), None)
    tensors, share = raw_tensors(moe=True), MOE["num_experts_per_tok"] / MOE["num_experts"]
    read = {name: value.nbytes * (share if ".experts." in name else 1) for name, value in tensors.items()}
    head = sum(size for name, size in read.items() if name.startswith("mtp."))
    target = found.memory.footprints[0].weight_bytes - sum(
        value.nbytes * (1 - share) for name, value in tensors.items() if ".experts." in name and "mtp." not in name
    )
    experts = sum(size for name, size in read.items() if ".experts." in name and "mtp." not in name)
    row = 0.25 + (0.9 - 0.25) * experts / target
    assert found.break_even == pytest.approx(1 + (head + tensors["lm_head.weight"].nbytes) / target + row, rel=0.01)
