"""The same proposals as another runtime's: mlx-vlm 0.7.10, recorded by tests/tools/record_mtp.py.

Both read the same checkpoint in its original layout, each with its own loader, models and drafter.
"""

import json
from pathlib import Path

import mlx.core as mx
import pytest

from fakes.raw_qwen import config_of, raw_tensors, write_checkpoint
from specdec_cli.engine.drafters.stepwise import MtpDrafter
from specdec_cli.engine.heads.cached import CachedHead, Head
from specdec_cli.engine.heads.load import load_head
from specdec_cli.engine.load import load
from specdec_cli.engine.sampling.acceptance import greedy
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import find_head

RECORDED = json.loads((Path(__file__).parent / "mlx_vlm_mtp.json").read_text())
K = 4


def proposals(folder, rounds, k, **more):
    """What the head of `folder` proposes in each of the recorded `rounds`, whose tokens are taken as they are."""
    checkpoint = read_checkpoint(folder, "m")
    target, files = load(checkpoint), find_head(checkpoint)
    head = CachedHead(
        Head(load_head(files, target.network.hidden.output_head.hidden_size, **more), target.network, "m")
    )
    drafter = MtpDrafter(head, target, greedy(target.vocab_size))
    context, found = [*RECORDED["prompt"], RECORDED["bonus"]], []
    for chunk in target.prefill(context):
        drafter.commit(context[: target.length + 1], chunk.hidden)
    for round in rounds:
        found.append(drafter.propose(context, k).tokens.tolist())
        output = target.outputs(context, mx.array(round["draft"], dtype=mx.int32))
        context += [*round["draft"][: round["accepted"]], round["next"]]
        target.commit(context, len(context) - 1)
        drafter.commit(context, output.hidden[: round["accepted"] + 1])
    return found


@pytest.fixture(scope="module", params=["dense", "moe"])
def case(request, tmp_path_factory):
    """(a folder in the original layout, its name in the recording)."""
    moe = request.param == "moe"
    folder = write_checkpoint(tmp_path_factory.mktemp(request.param), raw_tensors(moe), config_of(moe))
    return folder, request.param


def test_every_proposal_is_mlx_vlms(case):
    """All four of each round, where mlx-vlm reads accepted tokens again with the target's states as well."""
    folder, name = case
    rounds = RECORDED["cases"][f"{name} refed"]
    assert min(round["lead"] for round in rounds) > 1e-4  # no near-tie decides
    assert proposals(folder, rounds, K) == [round["draft"] for round in rounds]


def test_a_wrong_shift_of_the_norms_is_seen(case):
    """Negative control."""
    folder, name = case
    rounds = RECORDED["cases"][f"{name} refed"]
    assert proposals(folder, rounds, K, zero_centred=False) != [round["draft"] for round in rounds]
