"""Heads that draft cheaper than they were stored: packed like their target, and over some of its tokens."""

import pytest
from mlx.utils import tree_flatten

from fakes.counting import CONFIG, SMALL, counting_folder, counting_tensors
from fakes.packed import packed_folder
from fakes.raw_qwen import write_checkpoint
from specdec_cli.engine.heads.shortlist import Shortlist
from specdec_cli.pairs.check import judge
from specdec_cli.pairs.files import resolve
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session import load as heads
from unit.session.test_heads import HEAD_CONFIG, head_alone, loaded, said, trunk


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The target without its head; the target with it."""
    root = tmp_path_factory.mktemp("heads")
    text = SMALL | {"mtp_num_hidden_layers": 0}
    bare = counting_folder(root / "bare", trunk(counting_tensors()), CONFIG | {"text_config": text})
    return bare, counting_folder(root / "whole")


@pytest.fixture
def kept(folders, tmp_path, monkeypatch):
    """A head that specdec took out of org/counting, in 16 bits."""
    monkeypatch.setattr("specdec_cli.hub.cache.heads_folder", lambda: tmp_path / "heads")
    folder = write_checkpoint(tmp_path / "heads" / "org--counting", head_alone(counting_tensors()), HEAD_CONFIG)
    (folder / "source.json").write_text("{}")
    return "head:org/counting"


@pytest.mark.parametrize("bits", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_a_kept_head_is_packed_like_its_target_checked_as_such_and_keeps_the_words(folders, kept, tmp_path, bits):
    target = packed_folder(tmp_path / "packed", folders[0], bits)
    found = loaded(target, kept)
    head = found.first.draft.head
    assert {module.bits for _, module in head.module.named_modules() if hasattr(module, "bits")} == {bits}
    assert head.agreement.share > 0.7 and head.agreement.words == 32
    exact = loaded(folders[0], kept)
    assert head.step_bytes < 0.6 * exact.first.draft.head.step_bytes
    for k in (1, 3, 8):
        drafted, rounds, _ = said(found.session(), k=k, drafter="model")
        assert drafted == said(found.session(), k=0)[0]
        assert any(round.accepted for round in rounds)


def test_a_verdict_counts_a_kept_head_as_packed(folders, kept, tmp_path):
    sizes = []
    for target in (folders[0], packed_folder(tmp_path / "packed", folders[0], 4)):
        pair = Pair("counting", str(target), kept)
        verdict = judge(resolve(PairSpec(pair), "headers", offline=True), 64)
        sizes.append(verdict.memory.footprints[-1].weight_bytes)
    head = loaded(target, kept).first.draft.head.module
    assert sizes[1] < 0.3 * sizes[0]
    assert sizes[1] <= sum(value.nbytes for _, value in tree_flatten(head.parameters()))


def test_drafts_are_cut_where_that_promises_a_gain(folders, monkeypatch):
    asked = []

    def cut(output_head, texts, always):
        asked.append((len(texts), set(always)))
        return Shortlist(output_head, 128, always)

    monkeypatch.setattr(heads, "shortlist_for", cut)
    found = loaded(folders[1], drafter="mtp")
    ((texts, always),) = asked
    assert texts == 1 and always == set(found.tokenizer.stop_tokens)
    assert found.first.draft.head.shortlist.first == 128
    for k in (1, 4, 8):
        drafted, rounds, _ = said(found.session(), k=k, drafter="mtp")
        assert drafted == said(found.session(), k=0)[0] and any(round.accepted for round in rounds)
