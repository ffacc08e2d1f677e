"""Qwen3 in PyTorch, as small as it goes: the names of its tensors are those that mlx-lm's `qwen3` loads.

Letters: B batch, T tokens, D width, H heads, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HEAD = 64
THETA = 10_000.0
EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of one network; `hidden` is the MLP's inner width, `theta` the base of the rotary embedding."""

    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    vocabulary: int
    context: int = 1024
    theta: float = THETA

    def config(self, end_of_text: int, end_of_turn: int) -> dict[str, object]:
        """The `config.json` mlx-lm and transformers read."""
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "intermediate_size": self.hidden,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": HEAD,
            "rms_norm_eps": EPSILON,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.context,
            "rope_theta": self.theta,
            "tie_word_embeddings": True,
            "hidden_act": "silu",
            "attention_bias": False,
            "eos_token_id": [end_of_turn, end_of_text],
            "dtype": "float32",
        }


class RMSNorm(nn.Module):
    """Root mean square norm (arXiv:1910.07467), taken in float32 and returned as it came."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + EPSILON) * self.weight).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        self.q_proj = nn.Linear(shape.width, shape.heads * HEAD, bias=False)
        self.k_proj = nn.Linear(shape.width, shape.kv_heads * HEAD, bias=False)
        self.v_proj = nn.Linear(shape.width, shape.kv_heads * HEAD, bias=False)
        self.o_proj = nn.Linear(shape.heads * HEAD, shape.width, bias=False)
        self.q_norm = RMSNorm(HEAD)
        self.k_norm = RMSNorm(HEAD)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, past: Past | None) -> Tensor:
        b, t, _ = x.shape
        q = rotate(self.q_norm(self.q_proj(x).view(b, t, self.heads, HEAD)), cos, sin).transpose(1, 2)
        k = rotate(self.k_norm(self.k_proj(x).view(b, t, self.kv_heads, HEAD)), cos, sin).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv_heads, HEAD).transpose(1, 2)
        if past is not None:
            k, v = past.extend(k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down_proj = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.width)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.width)
        self.mlp = MLP(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, past: Past | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, past)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.width)


class Network(nn.Module):
    """Tied-embedding Qwen3: ids [B, T] -> logits [B, T, V]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Trunk(shape)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                scale = 0.02 if "down_proj" not in name and "o_proj" not in name else 0.02 / (2 * shape.layers) ** 0.5
                nn.init.normal_(weight, std=scale)
        angle = torch.arange(shape.context)[:, None] * shape.theta ** (-torch.arange(0, HEAD, 2) / HEAD)
        self.register_buffer("cos", angle.cos().repeat(1, 2)[:, None, :], persistent=False)
        self.register_buffer("sin", angle.sin().repeat(1, 2)[:, None, :], persistent=False)

    def forward(self, ids: Tensor, pasts: list[Past] | None = None) -> Tensor:
        begin = pasts[0].length if pasts else 0
        cos, sin = self.cos[begin : begin + ids.shape[1]], self.sin[begin : begin + ids.shape[1]]
        x = self.model.embed_tokens(ids)
        for i, layer in enumerate(self.model.layers):
            x = layer(x, cos, sin, pasts[i] if pasts else None)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)

    def pasts(self, batch: int) -> list[Past]:
        """An empty memory of each layer."""
        return [Past(batch, self.shape, torch.bfloat16) for _ in self.model.layers]


class Past:
    """Keys and values of one layer, [B, kv_heads, T, HEAD], grown in place."""

    def __init__(self, batch: int, shape: Shape, dtype: torch.dtype) -> None:
        self.keys = torch.zeros(batch, shape.kv_heads, shape.context, HEAD, dtype=dtype)
        self.values = torch.zeros_like(self.keys)
        self.length = 0

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        end = self.length + k.shape[2]
        self.keys[:, :, self.length : end], self.values[:, :, self.length : end] = k, v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding on halves (RoFormer, arXiv:2104.09864): x [B, T, H, R], cos and sin [T, 1, R]."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return (x * cos + turned * sin).to(x.dtype)
