"""Heads of families beyond Qwen's: found by their tensors, and their proposals those of the published equations.

The oracle: `fakes.plain_head`, numpy without a cache, which shares the target's hidden states alone.
"""

import mlx.core as mx
import numpy as np
import pytest

from fakes.plain_head import PlainHead
from fakes.raw_families import CONFIGS, NAMES, raw_family
from fakes.raw_qwen import write_checkpoint
from specdec_cli.engine.drafters.base import finished
from specdec_cli.engine.drafters.stepwise import HeadDrafter
from specdec_cli.engine.heads.cached_head import CachedHead, Head
from specdec_cli.engine.heads.load_head import load_head
from specdec_cli.engine.load import load
from specdec_cli.engine.sampling.acceptance import greedy
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import read_head

K, ROUNDS, SIZE = 4, 30, 64
PROMPT = [(7 * i) % 89 + 3 for i in range(11)]


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name == "mimo" else pytest.mark.slow) for name in CONFIGS],
)
def case(request, tmp_path_factory):
    """(family, target, its head's files, embedding and output head, the oracle)."""
    family, root = request.param, tmp_path_factory.mktemp(request.param)
    trunk, own = raw_family(family)
    target = load(read_checkpoint(write_checkpoint(root / "target", trunk, CONFIGS[family]), "t"))
    files = read_head(write_checkpoint(root / "head", own, CONFIGS[family]), "m")
    own_scores = own.get(f"{NAMES[family][0]}.shared_head.head.weight", trunk["lm_head.weight"])
    return family, target, files, (trunk["model.embed_tokens.weight"], own_scores), PlainHead(family, own)


def verdict(index):
    """(accepted, correction): each number of accepted tokens 0 … K comes six times in 30 rounds."""
    return (3 * index) % (K + 1), (11 * index) % 89 + 3


def played(case, recipe=None):
    """[(the head's proposals, the context, the states before its last token)] of each round, verdicts scripted."""
    _, target, files, _, _ = case
    target = target.fresh()
    module = load_head(files, SIZE)
    module.recipe = recipe or module.recipe
    head = CachedHead(Head(module, target.network, "m"))
    drafter, context, found = HeadDrafter(head, target, greedy(target.vocab_size)), [*PROMPT, 5], []
    for chunk in target.prefill(context):
        drafter.commit(context[: target.length + 1], chunk.hidden)
    for index in range(ROUNDS):
        draft = finished(drafter.propose(context, K)).tokens.tolist()
        states = target.fresh().forward(mx.array(context[:-1])).hidden
        found.append((draft, list(context), np.array(states, np.float64)))
        output, (accepted, correction) = target.outputs(context, mx.array(draft, dtype=mx.int32)), verdict(index)
        context += [*draft[:accepted], correction]
        target.commit(context, len(context) - 1)
        drafter.commit(context, output.hidden[: accepted + 1])
        assert head.cached <= len(context) - 1
    return found


def test_every_proposal_is_the_equations_after_every_number_of_accepted_tokens(case):
    embedding, output_head = (part.astype(np.float64) for part in case[3])
    counts = [verdict(index)[0] for index in range(ROUNDS)]
    assert all(counts.count(accepted) >= 5 for accepted in range(K + 1))
    for draft, context, states in played(case):
        expected, lead = case[4].proposals(embedding, output_head, context, states, K)
        assert lead > 1e-4  # no near-tie decides
        assert draft == expected
