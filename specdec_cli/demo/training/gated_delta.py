"""The gated delta rule (Yang, Kautz, Hatamizadeh, arXiv:2412.06464) and the layer of Qwen3.5 around it.

Per head, with a state S [K, D]:  S_t = a_t S_(t-1) + k_t (b_t (v_t - a_t k_t S_(t-1)));  o_t = q_t S_t.
Law: `chunked` is `stepped`, computed for CHUNK tokens at once (the paper's WY form), in float32.
Letters: B batch, T tokens, H heads, K key width, D value width, N chunks, C tokens of a chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHUNK = 32
KERNEL = 4
EPSILON = 1e-6


def stepped(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The definition, token by token. q, k [B, H, T, K], v [B, H, T, D], log_decay, beta [B, H, T], state [B, H, K, D].

    Returns what is read [B, H, T, D] and the state after it.
    """
    read = []
    for t in range(q.shape[2]):
        state = state * log_decay[:, :, t, None, None].exp()
        key = k[:, :, t, None]
        wrong = v[:, :, t, None] - key @ state
        state = state + key.transpose(-1, -2) @ (wrong * beta[:, :, t, None, None])
        read.append(q[:, :, t, None] @ state)
    return torch.cat(read, 2), state


def chunked(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, state: Tensor, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """As `stepped`: within a chunk one triangular system gives what every token writes, so only chunks are in a row."""
    tokens = q.shape[2]
    chunk = min(chunk, tokens)
    rest = -tokens % chunk
    # A token of decay 1 and beta 0 leaves the state as it is.
    q, k, v, log_decay, beta = (_cut(part, rest, chunk) for part in (q, k, v, log_decay[..., None], beta[..., None]))
    decay = log_decay[..., 0].cumsum(-1)  # [B, H, N, C], from the chunk's begin to each token, inclusive
    lower = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    between = (decay[..., :, None] - decay[..., None, :]).masked_fill(~lower, float("-inf")).exp()
    system = (beta * (k @ k.transpose(-1, -2)) * between).tril(-1)
    sides = torch.cat((beta * v, beta * decay.exp()[..., None] * k), -1)
    written, against = torch.linalg.solve_triangular(system, sides, upper=False, unitriangular=True).split(
        (v.shape[-1], k.shape[-1]), -1
    )
    seen = (q @ k.transpose(-1, -2)) * between
    q_decayed = q * decay.exp()[..., None]
    k_decayed = (k * (decay[..., -1:] - decay).exp()[..., None]).transpose(-1, -2)
    kept = decay[..., -1].exp()[..., None, None]
    read = []
    parts = (part.unbind(2) for part in (written, against, q_decayed, seen, kept, k_decayed))
    for write, wrong, query, others, keep, key in zip(*parts, strict=True):
        write = write - wrong @ state
        read.append(query @ state + others @ write)
        state = keep * state + key @ write
    return torch.cat(read, 2)[:, :, :tokens], state


def _cut(x: Tensor, rest: int, chunk: int) -> Tensor:
    """[B, H, T, X] -> [B, H, N, C, X], with `rest` zeros after the last token."""
    return F.pad(x, (0, 0, 0, rest)).unflatten(2, (-1, chunk))


@dataclass(slots=True)
class Recurrence:
    """What one layer remembers between calls: the last inputs of its convolution [B, KERNEL - 1, …], and S."""

    inputs: Tensor
    state: Tensor


class GatedDelta(nn.Module):
    """Qwen3.5's linear attention: a short convolution, the gated delta rule, and a gated norm."""

    def __init__(self, width: int, key_heads: int, key_width: int, heads: int, value_width: int) -> None:
        super().__init__()
        self.key_heads, self.key_width, self.heads, self.value_width = key_heads, key_width, heads, value_width
        self.keys, self.values = key_heads * key_width, heads * value_width
        mixed = 2 * self.keys + self.values
        self.in_proj_qkv = nn.Linear(width, mixed, bias=False)
        self.in_proj_z = nn.Linear(width, self.values, bias=False)
        self.in_proj_b = nn.Linear(width, heads, bias=False)
        self.in_proj_a = nn.Linear(width, heads, bias=False)
        self.conv1d = nn.Conv1d(mixed, mixed, KERNEL, groups=mixed, bias=False)
        # As the paper's code begins: decay rates in (0, 16), time steps in 0.001 … 0.1.
        self.A_log = nn.Parameter(torch.empty(heads).uniform_(0.1, 16).log())
        step = torch.empty(heads).uniform_(log(1e-3), log(0.1)).exp()
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.norm = GatedNorm(value_width)
        self.out_proj = nn.Linear(self.values, width, bias=False)

    def forward(self, x: Tensor, past: Recurrence | None = None) -> Tensor:
        b, t, _ = x.shape
        mixed = self._convolved(self.in_proj_qkv(x), past)
        q, k, v = mixed.float().split((self.keys, self.keys, self.values), -1)
        q, k = (self._unit(part.view(b, t, self.key_heads, -1)) for part in (q, k))
        v = v.view(b, t, self.heads, -1).transpose(1, 2)
        log_decay = -self.A_log.exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias)
        beta = self.in_proj_b(x).float().sigmoid()
        state = (past or self.past(b)).state
        rule = chunked if t > 1 else stepped
        with torch.autocast("cpu", enabled=False):
            read, state = rule(q * self.key_width**-0.5, k, v, log_decay.transpose(1, 2), beta.transpose(1, 2), state)
        if past is not None:
            past.state = state
        gate = self.in_proj_z(x).view(b, t, self.heads, self.value_width)
        return self.out_proj(self.norm(read.transpose(1, 2), gate).to(x.dtype).reshape(b, t, -1))

    def past(self, batch: int) -> Recurrence:
        """Of nothing read yet."""
        mixed = self.conv1d.weight.shape[0]
        return Recurrence(
            torch.zeros(batch, KERNEL - 1, mixed), torch.zeros(batch, self.heads, self.key_width, self.value_width)
        )

    def _convolved(self, x: Tensor, past: Recurrence | None) -> Tensor:
        """The causal convolution of every channel, each for itself, and SiLU."""
        if past is None:
            before = F.pad(x, (0, 0, KERNEL - 1, 0))
        else:
            before = torch.cat((past.inputs.to(x.dtype), x), 1)
            past.inputs = before[:, 1 - KERNEL :]
        taps, t = self.conv1d.weight[:, 0], x.shape[1]
        return F.silu(sum(before[:, i : i + t] * taps[:, i].to(x.dtype) for i in range(KERNEL)))

    def _unit(self, x: Tensor) -> Tensor:
        """[B, T, key_heads, K] -> [B, H, T, K], of length 1, each key head as often as value heads share it."""
        unit = x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + EPSILON)
        return unit.repeat_interleave(self.heads // self.key_heads, 2).transpose(1, 2)


class GatedNorm(nn.Module):
    """Root mean square norm of what a head reads, times SiLU of the gate, in float32. Not stored less 1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * self.weight
        return normed * F.silu(gate.float())
