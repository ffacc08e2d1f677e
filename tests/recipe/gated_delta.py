"""The gated delta rule (Yang, Kautz, Hatamizadeh, arXiv:2412.06464) and the layer of Qwen3.5 around it.

Per head, with a state S [K, D]:  S_t = a_t S_(t-1) + k_t (b_t (v_t - a_t k_t S_(t-1)));  o_t = q_t S_t.
Law: `gated_delta` is that recurrence, computed for `chunk` tokens at once (the paper's WY form), in float32.
Letters: B batch, T tokens, H heads, K key width, D value width, N chunks, C tokens of a chunk.
"""

from math import log

import torch
import torch.nn.functional as F
from torch import nn


def gated_delta(q, k, v, log_decay, beta, state, chunk=32):
    """q, k [B, H, T, K], v [B, H, T, D], log_decay, beta [B, H, T], state [B, H, K, D] -> o [B, H, T, D], state after.

    Within a chunk one triangular system gives what every token writes, so only chunks follow one another."""
    tokens = q.shape[2]
    chunk = min(chunk, tokens)

    def cut(x):
        """[B, H, T, X] -> [B, H, N, C, X]. Padding is of decay 1 and beta 0, which leaves the state as it is."""
        return F.pad(x, (0, 0, 0, -tokens % chunk)).unflatten(2, (-1, chunk))

    q, k, v, log_decay, beta = map(cut, (q, k, v, log_decay[..., None], beta[..., None]))
    decay = log_decay[..., 0].cumsum(-1)  # [B, H, N, C], from the chunk's begin to each token, inclusive
    lower = torch.ones(chunk, chunk, dtype=torch.bool).tril()
    between = (decay[..., :, None] - decay[..., None, :]).masked_fill(~lower, float("-inf")).exp()
    system = (beta * (k @ k.transpose(-1, -2)) * between).tril(-1)
    sides = torch.cat((beta * v, beta * decay.exp()[..., None] * k), -1)
    solved = torch.linalg.solve_triangular(system, sides, upper=False, unitriangular=True)
    written, against = solved.split((v.shape[-1], k.shape[-1]), -1)
    seen = (q @ k.transpose(-1, -2)) * between
    q_decayed = q * decay.exp()[..., None]
    k_decayed = (k * (decay[..., -1:] - decay).exp()[..., None]).transpose(-1, -2)
    remains = decay[..., -1].exp()[..., None, None]
    outputs = []
    by_chunk = (x.unbind(2) for x in (written, against, q_decayed, seen, remains, k_decayed))
    for write, wrong, query, others, remain, key in zip(*by_chunk, strict=True):
        write = write - wrong @ state
        outputs.append(query @ state + others @ write)
        state = remain * state + key @ write
    return torch.cat(outputs, 2)[:, :, :tokens], state


class GatedDelta(nn.Module):
    """Qwen3.5's linear attention: a short convolution, the gated delta rule, and a gated norm."""

    def __init__(self, c):
        super().__init__()
        heads, self.kernel, self.epsilon = c.linear_num_value_heads, c.linear_conv_kernel_dim, c.rms_norm_eps
        self.heads, self.key_heads, self.key_width = heads, c.linear_num_key_heads, c.linear_key_head_dim
        keys, values = self.key_heads * self.key_width, heads * c.linear_value_head_dim
        self.widths = keys, keys, values
        self.in_proj_qkv = nn.Linear(c.hidden_size, sum(self.widths), bias=False)
        self.in_proj_z = nn.Linear(c.hidden_size, values, bias=False)
        self.in_proj_b, self.in_proj_a = (nn.Linear(c.hidden_size, heads, bias=False) for _ in range(2))
        self.conv1d = nn.Conv1d(sum(self.widths), sum(self.widths), self.kernel, groups=sum(self.widths), bias=False)
        # As the paper's code begins: decay rates in (0, 16), time steps in 0.001 … 0.1.
        self.A_log = nn.Parameter(torch.empty(heads).uniform_(0.1, 16).log())
        step = torch.empty(heads).uniform_(log(1e-3), log(0.1)).exp()
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.norm = nn.RMSNorm(c.linear_value_head_dim, self.epsilon)  # stored whole, unlike Qwen3.5's other norms
        self.out_proj = nn.Linear(values, c.hidden_size, bias=False)

    def forward(self, x, past):
        """[B, T, width] -> the same. `past` gets the convolution's last inputs and the state."""
        q, k, v = self._convolve(self.in_proj_qkv(x), past).float().split(self.widths, -1)
        q, k = self._unit(q) * self.key_width**-0.5, self._unit(k)
        v = v.unflatten(-1, (self.heads, -1))
        log_decay = -self.A_log.exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias)
        state = past["state"] if "state" in past else torch.zeros(len(x), self.heads, self.key_width, v.shape[-1])
        by_head = (y.transpose(1, 2) for y in (q, k, v, log_decay, self.in_proj_b(x).float().sigmoid()))
        with torch.autocast("cpu", enabled=False):
            output, past["state"] = gated_delta(*by_head, state)
        gate = F.silu(self.in_proj_z(x).view(v.shape).float())
        return self.out_proj((self.norm(output.transpose(1, 2)) * gate).to(x.dtype).flatten(2))

    def _convolve(self, x, past):
        """The causal convolution of every channel, each for itself, and SiLU."""
        before = past["inputs"] if "inputs" in past else x.new_zeros(len(x), self.kernel - 1, x.shape[-1])
        rows = torch.cat((before.to(x.dtype), x), 1)
        past["inputs"] = rows[:, 1 - self.kernel :]
        taps, t = self.conv1d.weight[:, 0].to(x.dtype), x.shape[1]
        return F.silu(sum(rows[:, i : i + t] * taps[:, i] for i in range(self.kernel)))

    def _unit(self, x):
        """[B, T, key heads × K] -> [B, T, H, K], of length 1, each key head as often as value heads share it."""
        x = x.unflatten(-1, (self.key_heads, -1))
        unit = x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + self.epsilon)
        return unit.repeat_interleave(self.heads // self.key_heads, 2)
