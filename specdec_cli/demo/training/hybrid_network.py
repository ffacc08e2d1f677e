"""Qwen3.5's text model in PyTorch with its MTP head, as original repositories store it: every norm less 1.

Three layers of four are gated delta rules, the fourth is full attention. The head (DeepSeek-V3, arXiv:2412.19437,
section 2.2) is one attention layer over norms of a token's embedding and of the state before it; embedding and output
head are the trunk's. Letters: B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gated_delta import KERNEL, GatedDelta, Recurrence
from network import EPSILON, HEAD, MLP, THETA, Past, Shape, rotate

ROTATED = 16  # dimensions of a head that turn with the position: a quarter
EVERY = 4  # each fourth layer attends
DEEPEST = 8  # steps of the head, at most
# Deviation of the logarithm of a norm's first weights. Long training spreads them; norms that stay flat hide mistakes.
SPREAD = 0.7


@dataclass(frozen=True, slots=True)
class HybridShape(Shape):
    """Sizes of the trunk and its head; the recurrent layers' own."""

    key_heads: int = 2
    key_width: int = 64
    value_heads: int = 4
    value_width: int = 32

    def config(self, end_of_text: int, end_of_turn: int) -> dict[str, object]:
        """The `config.json` mlx-lm and transformers read."""
        text = {
            name: value
            for name, value in Shape.config(self, end_of_text, end_of_turn).items()
            if name not in ("architectures", "rope_theta")
        }
        text |= {
            "model_type": "qwen3_5_text",
            "full_attention_interval": EVERY,
            "linear_num_key_heads": self.key_heads,
            "linear_key_head_dim": self.key_width,
            "linear_num_value_heads": self.value_heads,
            "linear_value_head_dim": self.value_width,
            "linear_conv_kernel_dim": KERNEL,
            "mtp_num_hidden_layers": 1,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": THETA,
                "partial_rotary_factor": ROTATED / HEAD,
                "mrope_section": [3, 3, 2],
            },
        }
        outside = ("eos_token_id", "dtype", "tie_word_embeddings")
        top = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5"}
        return top | {name: text[name] for name in outside} | {"text_config": text}


class Norm(nn.Module):
    """Root mean square norm whose weight is stored less 1, taken in float32 and returned as it came."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + EPSILON) * (1 + self.weight)).to(x.dtype)


class GatedAttention(nn.Module):
    """Attention whose output is gated by the input; a quarter of each head turns with the position."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        self.q_proj = nn.Linear(shape.width, 2 * shape.heads * HEAD, bias=False)
        self.k_proj = nn.Linear(shape.width, shape.kv_heads * HEAD, bias=False)
        self.v_proj = nn.Linear(shape.width, shape.kv_heads * HEAD, bias=False)
        self.o_proj = nn.Linear(shape.heads * HEAD, shape.width, bias=False)
        self.q_norm, self.k_norm = Norm(HEAD), Norm(HEAD)

    def forward(self, x: Tensor, turn: Turn, past: Past | None = None, mask: Tensor | None = None) -> Tensor:
        """`mask` [T, all keys] in place of the causal one."""
        b, t, _ = x.shape
        q, gate = self.q_proj(x).view(b, t, self.heads, 2 * HEAD).split(HEAD, -1)
        q = turn(self.q_norm(q)).transpose(1, 2)
        k = turn(self.k_norm(self.k_proj(x).view(b, t, self.kv_heads, HEAD))).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv_heads, HEAD).transpose(1, 2)
        if past is not None:
            k, v = past.extend(k, v)
        causal = mask is None and t > 1
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1) * gate.reshape(b, t, -1).sigmoid())


@dataclass(frozen=True, slots=True)
class Turn:
    """The rotation of the first ROTATED dimensions: cos and sin [T, 1, ROTATED] of the positions at hand."""

    cos: Tensor
    sin: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return torch.cat((rotate(x[..., :ROTATED], self.cos, self.sin), x[..., ROTATED:]), -1)


class HybridLayer(nn.Module):
    def __init__(self, shape: HybridShape, attends: bool) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.width)
        if attends:
            self.self_attn = GatedAttention(shape)
        else:
            self.linear_attn = GatedDelta(
                shape.width, shape.key_heads, shape.key_width, shape.value_heads, shape.value_width
            )
        self.attends = attends
        self.post_attention_layernorm = Norm(shape.width)
        self.mlp = MLP(shape)

    def forward(
        self, x: Tensor, turn: Turn, past: Past | Recurrence | None = None, mask: Tensor | None = None
    ) -> Tensor:
        y = self.input_layernorm(x)
        x = x + (self.self_attn(y, turn, past, mask) if self.attends else self.linear_attn(y, past))
        return x + self.mlp(self.post_attention_layernorm(x))


class HybridTrunk(nn.Module):
    def __init__(self, shape: HybridShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(HybridLayer(shape, (i + 1) % EVERY == 0) for i in range(shape.layers))
        self.norm = Norm(shape.width)


class Head(nn.Module):
    """The MTP head; what it returns is both scored and carried on as the state of its next step."""

    def __init__(self, shape: HybridShape) -> None:
        super().__init__()
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden = Norm(shape.width), Norm(shape.width)
        self.fc = nn.Linear(2 * shape.width, shape.width, bias=False)
        self.layers = nn.ModuleList([HybridLayer(shape, attends=True)])
        self.norm = Norm(shape.width)

    def forward(self, embedded: Tensor, state: Tensor, turn: Turn, past: Past | Branch, mask: Tensor) -> Tensor:
        joined = torch.cat((self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(state)), -1)
        return self.norm(self.layers[0](self.fc(joined), turn, past, mask))


class Branch:
    """Keys and values of all steps so far, each over the same T positions: a step drafts behind each at once."""

    def __init__(self) -> None:
        self.steps: list[tuple[Tensor, Tensor]] = []

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.steps.append((k, v))
        return torch.cat([key for key, _ in self.steps], 2), torch.cat([value for _, value in self.steps], 2)


class Hybrid(nn.Module):
    """Tied embeddings: ids [B, T] -> logits [B, T, V]; the head's guesses of every position beside it."""

    def __init__(self, shape: HybridShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = HybridTrunk(shape)
        self.mtp = Head(shape)
        for name, weight in self.named_parameters():
            if weight.shape == (shape.width,):
                weight.data = (SPREAD * torch.randn(shape.width)).exp() - 1
            elif weight.dim() == 2:
                ends = ("down_proj", "o_proj", "out_proj")
                scale = 0.02 / (2 * shape.layers) ** 0.5 if any(end in name for end in ends) else 0.02
                nn.init.normal_(weight, std=scale)
        angle = torch.arange(shape.context + DEEPEST)[:, None] * THETA ** (-torch.arange(0, ROTATED, 2) / ROTATED)
        self.register_buffer("cos", angle.cos().repeat(1, 2)[:, None, :], persistent=False)
        self.register_buffer("sin", angle.sin().repeat(1, 2)[:, None, :], persistent=False)

    def forward(self, ids: Tensor, pasts: list[Past | Recurrence] | None = None) -> Tensor:
        return self.logits(self.states(ids, pasts))

    def states(self, ids: Tensor, pasts: list[Past | Recurrence] | None = None) -> Tensor:
        """[B, T, D] after the last norm: what the output head reads, and the MTP head."""
        x = self.model.embed_tokens(ids)
        turn = self._turn(pasts[EVERY - 1].length if pasts else 0, ids.shape[1])
        for i, layer in enumerate(self.model.layers):
            x = layer(x, turn, pasts[i] if pasts else None)
        return self.model.norm(x)

    def logits(self, states: Tensor) -> Tensor:
        return F.linear(states, self.model.embed_tokens.weight)

    def guesses(self, ids: Tensor, states: Tensor, steps: int) -> list[Tensor]:
        """Step s: logits [B, T - s, V] of token p + 1 + s behind every position p, s from 1 to `steps`.

        Teacher forced: step s reads the text's token p + s and what step s - 1 carried on, and sees the entries of
        the positions up to p, which come from the trunk's states, and its own of the steps between. As it is used.
        """
        cache, carried, found = Branch(), states, []
        rows = ids.shape[1]
        mask = torch.ones(rows, rows, dtype=torch.bool).tril()
        for step in range(1, steps + 1):
            # The last tokens have no successor; what is guessed behind them is cut off.
            tokens = F.pad(ids[:, step:], (0, step))
            carried = self.mtp(self.model.embed_tokens(tokens), carried, self._turn(step - 1, rows), cache, mask)
            found.append(self.logits(carried[:, : rows - step]))
            mask = torch.cat((mask, torch.eye(rows, dtype=torch.bool)), 1)
        return found

    def pasts(self, batch: int, dtype: torch.dtype = torch.bfloat16) -> list[Past | Recurrence]:
        """An empty memory of each layer."""
        return [
            Past(batch, self.shape, dtype) if layer.attends else layer.linear_attn.past(batch)
            for layer in self.model.layers
        ]

    def _turn(self, begin: int, rows: int) -> Turn:
        return Turn(self.cos[begin : begin + rows], self.sin[begin : begin + rows])
