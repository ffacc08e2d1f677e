"""Law: the chunked gated delta rule is the recurrence, and a layer that reads in parts is one that reads at once."""

from types import SimpleNamespace

import pytest

SIZES = SimpleNamespace(
    hidden_size=48,
    linear_num_key_heads=2,
    linear_key_head_dim=32,
    linear_num_value_heads=4,
    linear_value_head_dim=16,
    linear_conv_kernel_dim=4,
    rms_norm_eps=1e-6,
)


def stepped(torch, q, k, v, log_decay, beta, state):
    """The definition, token by token."""
    outputs = []
    for t in range(q.shape[2]):
        state = state * log_decay[:, :, t, None, None].exp()
        key = k[:, :, t, None]
        wrong = v[:, :, t, None] - key @ state
        state = state + key.transpose(-1, -2) @ (wrong * beta[:, :, t, None, None])
        outputs.append(q[:, :, t, None] @ state)
    return torch.cat(outputs, 2), state


def drawn(torch, tokens, seed=0, batch=2, heads=3, key=32, value=16):
    torch.manual_seed(seed)
    q, k = (torch.nn.functional.normalize(torch.randn(batch, heads, tokens, key), dim=-1) for _ in range(2))
    decay, beta = -2 * torch.rand(batch, heads, tokens), torch.rand(batch, heads, tokens)
    return q, k, torch.randn(batch, heads, tokens, value), decay, beta, torch.randn(batch, heads, key, value)


@pytest.mark.parametrize(("tokens", "chunk"), [(1, 32), (32, 32), (64, 32), (75, 32), (75, 16), (20, 32)])
def test_chunks_are_the_recurrence(recipe, tokens, chunk):
    torch, rule = recipe("torch"), recipe("gated_delta")
    given = drawn(torch, tokens)
    for ours, plain in zip(rule.gated_delta(*given, chunk), stepped(torch, *given), strict=True):
        assert float((ours - plain).abs().max()) < 1e-5


def test_equal_keys_that_are_written_whole_do_not_overflow(recipe):
    """The worst case of the triangular system: products of the chunk's own matrix would lose every digit."""
    torch, rule = recipe("torch"), recipe("gated_delta")
    q, k, v, decay, beta, state = drawn(torch, 64)
    k, decay, beta = k[:, :, :1].expand_as(k), torch.zeros_like(decay), torch.ones_like(beta)
    ours, plain = rule.gated_delta(q, k, v, decay, beta, state), stepped(torch, q, k, v, decay, beta, state)
    assert float((ours[0] - plain[0]).abs().max()) < 1e-4


def test_a_wrong_decay_is_noticed(recipe):
    """Negative control."""
    torch, rule = recipe("torch"), recipe("gated_delta")
    q, k, v, decay, beta, state = drawn(torch, 64)
    ours, plain = rule.gated_delta(q, k, v, decay * 1.01, beta, state), stepped(torch, q, k, v, decay, beta, state)
    assert float((ours[0] - plain[0]).abs().max()) > 1e-3


def test_a_layer_that_reads_in_parts_reads_the_same(recipe):
    torch, rule = recipe("torch"), recipe("gated_delta")
    torch.manual_seed(1)
    layer, x = rule.GatedDelta(SIZES), torch.randn(2, 50, 48)
    with torch.no_grad():
        past = {}
        parts = [layer(x[:, :37], past), *(layer(x[:, at : at + 1], past) for at in range(37, 50))]
        assert float((torch.cat(parts, 1) - layer(x, {})).abs().max()) < 1e-5
