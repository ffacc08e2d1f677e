"""The benchmarks' inflated hybrid: the demo hybrid's function, its head's included, at another cost."""

from __future__ import annotations

import json

import mlx.core as mx
import pytest

from benchmarks.inflate_hybrid import TOLERANCE, distance, inflate, inflated_folder, logits, sample_tokens
from fakes.drafting import open_session
from specdec_cli.hub import locate
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Request

pytestmark = pytest.mark.slow  # big matrices

HYBRID = locate("specdec:demo/hybrid")
SIZES = {"copies": 2, "intermediate_size": 384, "layers": 16}


@pytest.fixture(scope="module")
def inflated(tmp_path_factory):
    return inflated_folder(HYBRID, tmp_path_factory.mktemp("inflated") / "hybrid", **SIZES)


def raw():
    config = json.loads((HYBRID / "config.json").read_text())
    return config, mx.load(str(HYBRID / "model.safetensors"))


def test_inflated_logits_are_the_originals(inflated):
    """float32, TOLERANCE = 1e-3 on logits of up to 15: the order of sums costs 2e-5 (measured)."""
    tokens = sample_tokens(HYBRID, 200)
    assert distance(logits(inflated, tokens), logits(HYBRID, tokens)) < TOLERANCE


def test_every_tensor_grows_and_the_head_with_the_target(inflated):
    before, after = raw()[1], mx.load(str(inflated / "model.safetensors"))
    assert after["mtp.fc.weight"].shape == tuple(2 * size for size in before["mtp.fc.weight"].shape)
    assert {value.shape[0] for name, value in after.items() if "up_proj" in name} == {384}
    writers = [name for name in after if "o_proj" in name or "out_proj" in name]
    silent = [int(name.split(".")[2]) for name in writers if not mx.any(after[name]).item()]
    assert sorted(silent) == [4, 5, 6, 7, 12, 13, 14, 15]


@pytest.mark.parametrize("k", [pytest.param(1, marks=pytest.mark.full), 3])
def test_an_inflated_hybrid_answers_with_the_originals_rounds(inflated, k):
    """The same tokens, the same drafts of the head and the same acceptance, round by round."""
    rounds = []
    for folder in (HYBRID, inflated):
        session = open_session(Pair("pair", str(folder), None), drafter="mtp")
        prompt = session.raw_tokens("def read_lines(path):\n")
        events = list(session.reply(prompt, Request(max_tokens=24, k=k, drafter="mtp"), raw=True))
        rounds.append([(e.round.draft, e.round.accepted, e.text) for e in events if e.event == "round"])
    assert rounds[0] == rounds[1] and sum(len(draft) for draft, *_ in rounds[0]) >= 8


@pytest.mark.parametrize("forgotten", ["mlp.down_proj", "self_attn.o_proj", "linear_attn.out_proj"])
def test_a_writer_that_forgets_a_copy_changes_the_function(forgotten, inflated, tmp_path):
    """Negative control: a writer that leaves out one of the copies of the stream."""
    weights = mx.load(str(inflated / "model.safetensors"))
    for name, value in weights.items():
        if forgotten in name:
            half = value.shape[0] // 2
            weights[name] = mx.concatenate([value[:half], mx.zeros_like(value[half:])])
    for path in inflated.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    mx.save_safetensors(str(tmp_path / "model.safetensors"), weights)
    tokens = sample_tokens(HYBRID, 20)
    assert distance(logits(tmp_path, tokens), logits(HYBRID, tokens)) > 100 * TOLERANCE


@pytest.mark.parametrize(
    ("change", "sizes", "reason"),
    [
        ({"model_type": "qwen3"}, {}, "only a Qwen3.5"),
        ({}, {"layers": 14}, "no whole periods"),
        ({}, {"layers": 4}, "fewer than before"),
        ({}, {"intermediate_size": 128}, "shrink"),
    ],
)
def test_what_might_not_keep_its_function_is_refused(change, sizes, reason):
    config, weights = raw()
    with pytest.raises(ValueError, match=reason):
        inflate(config | change, weights, **SIZES | sizes)


def test_an_unknown_tensor_or_a_missing_head_is_refused():
    config, weights = raw()
    with pytest.raises(ValueError, match="bias is not known"):
        inflate(config, weights | {"model.layers.0.mlp.up_proj.bias": mx.zeros(4)}, **SIZES)
    with pytest.raises(ValueError, match="no head"):
        inflate(config, {name: value for name, value in weights.items() if "mtp" not in name}, **SIZES)
