"""Weights that compute no numbers: the reply ends in two lines, and nothing of it stays in the caches."""

import mlx.core as mx
import pytest

from fakes.drafting import open_session
from fakes.models import tiny_folder
from specdec_cli.engine.failure import NotFinite, is_finite, witness
from specdec_cli.events import Finish
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Request


def spoiled(folder, value, name="model.layers.0.mlp.down_proj.weight"):
    path = str(folder / "model.safetensors")
    weights = dict(mx.load(path))
    weights[name] = weights[name] * 0 + value
    mx.eval(weights)
    mx.save_safetensors(path, weights)
    return folder


def _session(target, draft):
    return open_session(Pair("p", str(target), str(draft)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("k", [0, 3])
def test_a_target_that_computes_no_numbers_is_refused_before_a_token(tmp_path, value, k):
    """It answered with id 0 until the end of the reply, and exit 0."""
    target, draft = spoiled(tiny_folder(tmp_path / "t"), value), tiny_folder(tmp_path / "d")
    session = _session(target, draft)
    with pytest.raises(NotFinite, match=r"the target .*t computes values that are no numbers") as caught:
        list(session.reply([5, 6, 7], Request(max_tokens=8, k=k)))
    assert caught.value.exit_code == 3 and session.slot.target.length == 0


def test_a_draft_that_computes_no_numbers_is_named(tmp_path):
    target, draft = tiny_folder(tmp_path / "t"), spoiled(tiny_folder(tmp_path / "d"), float("nan"))
    request = Request(max_tokens=8, k=3, rule="token", sampling={"temperature": 1.0})
    with pytest.raises(NotFinite, match="the draft computes values") as caught:
        list(_session(target, draft).reply([5, 6, 7], request))
    assert "--drafter none" in caught.value.hint


def test_sound_weights_are_not_refused(tmp_path):
    """The control: neither masked tokens nor a bias of a billion make a pass suspect."""
    session = _session(tiny_folder(tmp_path / "t"), tiny_folder(tmp_path / "d", noise=0.05))
    sampling = {"temperature": 1.0, "top_k": 2}
    request = Request(max_tokens=8, k=3, rule="token", sampling=sampling, logit_bias=((5, -1e9),))
    assert isinstance(list(session.reply([5, 6, 7], request))[-1], Finish)


@pytest.mark.parametrize("kind", [mx.float32, mx.float16, mx.bfloat16])
def test_one_value_that_is_no_number_shows_in_the_witness(kind):
    sound = mx.random.normal((3, 5000)).astype(kind)
    assert is_finite(witness(sound).item())
    for bad in (float("nan"), float("inf")):
        rows = mx.concatenate([sound, mx.full((3, 1), bad, dtype=kind)], axis=1)
        assert not is_finite(witness(rows).item())
    assert not is_finite(witness(mx.full((2, 9), -mx.inf, dtype=kind)).item())
