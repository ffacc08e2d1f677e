"""Qwen3, and Qwen3.5 with its MTP head, in PyTorch. Tensors and sizes have the names that mlx-lm reads.

Of Qwen3.5 three layers of four are gated delta rules, the fourth is attention, of which a quarter turns with the
position and whose output is gated; norms are stored less 1, as in original repositories. The MTP head (DeepSeek-V3,
arXiv:2412.19437, section 2.2) is one attention layer over norms of a token's embedding and of the state before it.

Letters: B batch, T tokens, D width, H heads, R width of a head, V vocabulary. `c` is a `Config`. `past` is what a layer
remembers of the tokens before, by name; empty before the first.
"""

import json
from functools import partial
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

from gated_delta import GatedDelta

# Deviation of the logarithm of a norm's first weights. Long training spreads them; norms that stay flat hide mistakes.
SPREAD = 0.7
linear = partial(nn.Linear, bias=False)


class Config(SimpleNamespace):
    """Sizes of the language model in `folder`, by their names in its `config.json`; `changes` come first."""

    def __init__(self, folder, **changes):
        config = json.loads((folder / "config.json").read_text())
        super().__init__(**config.get("text_config", config) | changes)
        self.hybrid = "full_attention_interval" in vars(self)


class Norm(nn.Module):
    """Root mean square norm (arXiv:1910.07467), taken in float32 and returned as it came."""

    def __init__(self, c, width):
        super().__init__()
        self.less, self.epsilon = int(c.hybrid), c.rms_norm_eps
        self.weight = nn.Parameter(torch.full((width,), 1.0 - self.less))

    def forward(self, x):
        return F.rms_norm(x.float(), x.shape[-1:], self.less + self.weight, self.epsilon).to(x.dtype)


def rotate(x, turn):
    """Rotary embedding on halves (RoFormer, arXiv:2104.09864) of as many channels as `turn` [2, T, 1, ≤ R] has."""
    (cos, sin), width = turn, turn.shape[-1]
    first, second = x[..., :width].chunk(2, -1)
    turned = x[..., :width] * cos + torch.cat((-second, first), -1) * sin
    return torch.cat((turned.to(x.dtype), x[..., width:]), -1)


class Attention(nn.Module):
    """Grouped queries, with norms of queries and keys; Qwen3.5's output is gated by the input."""

    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.width = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        self.q_proj = linear(c.hidden_size, (1 + c.hybrid) * self.heads * self.width)
        self.k_proj, self.v_proj = (linear(c.hidden_size, self.kv_heads * self.width) for _ in range(2))
        self.o_proj = linear(self.heads * self.width, c.hidden_size)
        self.q_norm, self.k_norm = Norm(c, self.width), Norm(c, self.width)

    def forward(self, x, turn, past, mask):
        """[B, T, D] -> the same; `mask` [T, all keys] in place of the causal one."""
        q, *gate = self.q_proj(x).unflatten(-1, (self.heads, -1)).split(self.width, -1)
        k, v = (project(x).unflatten(-1, (self.kv_heads, -1)) for project in (self.k_proj, self.v_proj))
        q = rotate(self.q_norm(q), turn).transpose(1, 2)
        for name, rows in (("keys", rotate(self.k_norm(k), turn)), ("values", v)):
            before = [past[name]] if name in past else []
            past[name] = torch.cat([*before, rows.transpose(1, 2)], 2)
        k, v, causal = past["keys"], past["values"], mask is None and q.shape[2] > 1
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=True).transpose(1, 2)
        return self.o_proj((y * gate[0].sigmoid() if gate else y).flatten(2))


class Layer(nn.Module):
    def __init__(self, c, attends):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(c, c.hidden_size), Norm(c, c.hidden_size)
        self.self_attn, self.linear_attn = (Attention(c), None) if attends else (None, GatedDelta(c))
        gate, up = (linear(c.hidden_size, c.intermediate_size) for _ in range(2))
        down = linear(c.intermediate_size, c.hidden_size)
        self.mlp = nn.ModuleDict({"gate_proj": gate, "up_proj": up, "down_proj": down})

    def forward(self, x, turn, past, mask=None):
        y = self.input_layernorm(x)
        x = x + (self.self_attn(y, turn, past, mask) if self.self_attn else self.linear_attn(y, past))
        y = self.post_attention_layernorm(x)
        return x + self.mlp.down_proj(F.silu(self.mlp.gate_proj(y)) * self.mlp.up_proj(y))


class Network(nn.Module):
    """Qwen3, or the trunk of Qwen3.5: ids [B, T] -> logits [B, T, V]. The embedding is the output head, too."""

    def __init__(self, c):
        super().__init__()
        every = c.full_attention_interval if c.hybrid else 1
        layers = nn.ModuleList(Layer(c, (i + 1) % every == 0) for i in range(c.num_hidden_layers))
        embedding = nn.Embedding(c.vocab_size, c.hidden_size)
        self.model = nn.ModuleDict({"embed_tokens": embedding, "layers": layers, "norm": Norm(c, c.hidden_size)})
        initialize(self.model, c)
        rope = c.rope_parameters if c.hybrid else {"rope_theta": c.rope_theta, "partial_rotary_factor": 1}
        width = int(c.head_dim * rope["partial_rotary_factor"])
        angles = rope["rope_theta"] ** (-torch.arange(0, width, 2) / width)
        positions = torch.arange(c.max_position_embeddings + 8)  # a few more, for the steps of the head
        angles = positions[:, None, None] * angles.repeat(2)
        self.register_buffer("turns", torch.stack((angles.cos(), angles.sin())), persistent=False)

    def forward(self, ids, pasts=None):
        return self.logits(self.states(ids, pasts))

    def states(self, ids, pasts=None):
        """[B, T, D] after the last norm, behind what `pasts` (one a layer) remember."""
        pasts = pasts or [{} for _ in self.model.layers]
        begin = pasts[-1]["keys"].shape[2] if pasts[-1] else 0  # the last layer attends
        x, turn = self.model.embed_tokens(ids), self.turns[:, begin : begin + ids.shape[1]]
        for layer, past in zip(self.model.layers, pasts, strict=True):
            x = layer(x, turn, past)
        return self.model.norm(x)

    def logits(self, states):
        return F.linear(states, self.model.embed_tokens.weight)


def initialize(module, c):
    """Narrow matrices, the more so where a branch ends; Qwen3.5's norms spread out."""
    for name, weight in module.named_parameters():
        if weight.dim() == 2:
            ends = name.endswith(("down_proj.weight", "o_proj.weight", "out_proj.weight"))
            nn.init.normal_(weight, std=0.02 / (2 * c.num_hidden_layers) ** 0.5 if ends else 0.02)
        elif c.hybrid and weight.shape == (c.hidden_size,):
            weight.data = (SPREAD * torch.randn(c.hidden_size)).exp() - 1


class Hybrid(Network):
    """Qwen3.5: the trunk, and its MTP head's guesses of every position beside it."""

    def __init__(self, c):
        super().__init__(c)
        layers = nn.ModuleList([Layer(c, attends=True)])
        self.mtp = nn.ModuleDict({"fc": linear(2 * c.hidden_size, c.hidden_size), "layers": layers})
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
            self.mtp[name] = Norm(c, c.hidden_size)
        initialize(self.mtp, c)

    def guesses(self, ids, states, steps):
        """Step s: logits [B, T - s, V] of token p + 1 + s behind every position p, s from 1 to `steps`.

        Teacher forced: step s reads the text's token p + s and what step s - 1 carried on, and sees the entries of
        the positions up to p, which come from the trunk's states, and its own of the steps between. As it is used.
        """
        past, carried, guesses, rows = {}, states, [], ids.shape[1]
        mask = torch.ones(rows, rows, dtype=torch.bool).tril()
        for step in range(1, steps + 1):
            # The last tokens have no successor; what is guessed behind them is cut off.
            tokens, turn = F.pad(ids[:, step:], (0, step)), self.turns[:, step - 1 :][:, :rows]
            embedded = self.mtp.pre_fc_norm_embedding(self.model.embed_tokens(tokens))
            joined = torch.cat((embedded, self.mtp.pre_fc_norm_hidden(carried)), -1)
            carried = self.mtp.norm(self.mtp.layers[0](self.mtp.fc(joined), turn, past, mask))
            guesses.append(self.logits(carried[:, : rows - step]))
            mask = torch.cat((mask, torch.eye(rows, dtype=torch.bool)), 1)
        return guesses
