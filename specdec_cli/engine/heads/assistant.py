"""Gemma 4's assistants: a few layers of queries that attend to the target's own keys and values.

As transformers' `gemma4_assistant` computes them. A step reads the target's scaled embedding of a token beside a state:
at first the target's own, after its final norm, then what the step before projected back. All steps of a draft stand at
the position of the bonus token before it, whose key nobody has yet: so nothing is kept, and nothing taken back.
Letters: B conversations, T tokens, D hidden size, d the assistant's own, V its vocabulary, C centroids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import gemma4_text

from specdec_cli.core.kinds import ASSISTANT
from specdec_cli.core.request import MAX_K
from specdec_cli.engine.heads.mtp import Config, HeadModule, HeadPass, Tensors

ORDER = "masked_embedding.token_ordering"
# What an assistant's layers never have, whatever its configuration leaves out.
PLAIN = {"hidden_size_per_layer_input": 0, "enable_moe_block": False, "use_double_wide_mlp": False}


class Trunk(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """Layers without keys of their own, and the embedding that is their output head."""

    def __init__(self, args: gemma4_text.ModelArgs) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(args.vocab_size, args.hidden_size)
        self.layers = [gemma4_text.DecoderLayer(args, at) for at in range(args.num_hidden_layers)]
        self.norm = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)


class Centroids(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """C clusters of as many tokens each, of which the `best` are scored token by token.

    All others have one score, one less than the least: what is drawn is drawn from that.
    """

    def __init__(self, size: int, vocab_size: int, clusters: int, best: int) -> None:
        super().__init__()
        self.centroids = nn.Linear(size, clusters, bias=False)
        self.token_ordering = mx.zeros((vocab_size,), mx.int32)
        self.best = best

    def __call__(self, states: mx.array, embedding: nn.Module) -> mx.array:
        """Scores [B, T, V] of `states` [B, T, d]."""
        clusters, (batch, tokens) = self.centroids(states), states.shape[:2]
        chosen = mx.stop_gradient(mx.argpartition(clusters, kth=-self.best, axis=-1)[..., -self.best :])
        ids = self.token_ordering.reshape(clusters.shape[-1], -1)[chosen].reshape(batch, tokens, -1)
        scores = (states[..., None, :] @ embedding(ids).swapaxes(-1, -2)).squeeze(-2)
        others = mx.broadcast_to(scores.min(-1, keepdims=True) - 1, (batch, tokens, self.token_ordering.size))
        return mx.put_along_axis(others, ids, scores, axis=-1)


class Scores(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """An assistant's output head: its embedding, of all tokens or of those in the best clusters."""

    def __init__(self, embedding: nn.Module, centroids: Centroids | None) -> None:
        super().__init__()
        self.embedding, self.centroids = embedding, centroids

    def __call__(self, states: mx.array) -> mx.array:
        if self.centroids is not None:
            return self.centroids(states, self.embedding)
        scores: mx.array = self.embedding.as_linear(states)
        return scores


class Assistant(HeadModule):
    """Names are those of its tensors."""

    kind = ASSISTANT.name
    most = MAX_K
    shown = True

    def __init__(self, args: gemma4_text.ModelArgs, width: int, centroids: Centroids | None = None) -> None:
        """`width` is that of the target's states."""
        super().__init__()
        self.model = Trunk(args)
        self.pre_projection = nn.Linear(2 * width, args.hidden_size, bias=False)
        self.post_projection = nn.Linear(args.hidden_size, width, bias=False)
        self.masked_embedding = centroids
        self.depth = args.num_hidden_layers
        self._scale = width**0.5

    @property
    def output(self) -> Scores:
        """Its own output head."""
        return Scores(self.model.embed_tokens, self.masked_embedding)

    @property
    def shares(self) -> Mapping[str, float]:
        """Of the embedding a step reads the rows of the best clusters."""
        if self.masked_embedding is None:
            return {}
        return {"model.embed_tokens": self.masked_embedding.best / self.masked_embedding.centroids.weight.shape[0]}

    def __call__(self, embedded: mx.array, hidden: mx.array, cache: Any = None, step: int = 0) -> HeadPass:
        """The last pairs [B, T, D], as many as queries what is `shown` in place of a cache is for."""
        pairs = mx.concatenate([embedded * self._scale, hidden], axis=-1)[:, -cache.queries :]
        states = self.pre_projection(pairs)
        for layer in self.model.layers:
            rows = cache.rows[layer.layer_type]
            shared = rows.keys, rows.values
            states, _, _ = layer(states, rows.mask, rows, shared_kv=shared, offset=cache.position)
        scored = self.model.norm(states)
        return HeadPass(scored, self.post_projection(scored))

    def guesses(self, embedded: mx.array, hidden: mx.array, steps: int, shown: Any = None) -> list[mx.array]:
        """As `MtpHead.guesses`; all steps see what is `shown`, and stand where the first one does."""
        found = list[mx.array]()
        for s in range(steps):
            step = self(mx.roll(embedded, -s, 1), hidden, shown)
            found.append(step.scored)
            hidden = step.carried
        return found


class AssistantBuild:
    """As `mtp.Build`: of the whole configuration, whose `text_config` is the assistant's own."""

    def convert(self, config: Config, tensors: Tensors) -> Tensors:
        """As they are stored. Raises: ValueError for clusters that do not hold each token once."""
        if (order := tensors.get(ORDER)) is None:
            return tensors
        if not mx.array_equal(mx.sort(order), mx.arange(order.size)).item():
            raise ValueError(f"{ORDER} does not name each of {order.size} tokens once")
        return tensors | {ORDER: order.astype(mx.int32)}

    def head(self, config: Config, dense: bool, hidden_size: int) -> Assistant:
        """An empty one. Raises: ValueError, KeyError, TypeError, AttributeError for an unfit configuration."""
        values = dict(config["text_config"]) | PLAIN
        values["num_kv_shared_layers"] = values["num_hidden_layers"]
        args = gemma4_text.ModelArgs.from_dict(values)
        centroids = None
        if config.get("use_ordered_embeddings"):
            clusters, best = int(config["num_centroids"]), int(config["centroid_intermediate_top_k"])
            if args.vocab_size % clusters or not 0 < best <= clusters:
                raise ValueError(f"{best} of {clusters} clusters do not divide {args.vocab_size} tokens")
            centroids = Centroids(args.hidden_size, args.vocab_size, clusters, best)
        return Assistant(args, hidden_size, centroids)


ASSISTANT_BUILD = AssistantBuild()
