"""Every family of heads, over targets of several kinds: what it proposes is what its published equations propose.

A table of families × properties. An oracle keeps no cache: one pass of the target over the whole verified text, and the
head's equations over all of it, once for each drafted token. For the MTP heads of Qwen it shares mlx-lm's decoder layer
with the drafter; for those of DeepSeek, GLM and MiMo (`PlainHead`) and for Medusa nothing. Assistants are
compared with another runtime's recorded proposals (`test_assistant`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import pytest

from fakes.heads import agreeing_head, cached_head, random_medusa, tiny_head, tiny_target
from fakes.raw_families import CONFIGS, NAMES, raw_family
from fakes.raw_qwen import write_checkpoint
from specdec_cli.engine.drafters.base import finished
from specdec_cli.engine.drafters.stepwise import HeadDrafter
from specdec_cli.engine.heads.cached_head import CachedHead, Head
from specdec_cli.engine.heads.load_head import load_head
from specdec_cli.engine.heads.mtp import Recipe
from specdec_cli.engine.hidden import OutputHead
from specdec_cli.engine.load import load
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import greedy
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import read_head

K, SIZE = 4, 64
PROMPT = [(7 * i) % 89 + 3 for i in range(13)]
NEAR = 1e-4  # what leads by less may be rounded elsewise


def states(target, context):
    """[T - 1, D], float64: what the target's output head reads at each verified position."""
    return np.array(target.fresh().forward(mx.array(context[:-1])).hidden, np.float64)


@dataclass(frozen=True)
class Case:
    """`oracle(context, k)` gives the k best tokens after `context` and the least lead of one over the second.

    `recurrent`: it keeps a cache, in which the states of a plain round wait.
    """

    target: CachedModel
    head: CachedHead
    oracle: Callable[[Sequence[int], int], tuple[list[int], float]]
    recurrent: bool = True


def qwen(name="qwen3_5", recipe=None):
    """The MTP head of Qwen3.5, over a target of any kind, read by the usual recipe or by another."""
    target = tiny_target(name)
    head = tiny_head(recipe=recipe) if recipe else agreeing_head(target)
    read = recipe or Recipe()
    output_head = target.network.hidden.output_head

    def norm(values, module):
        values = np.array(values, np.float64)
        return values / np.sqrt((values**2).mean(-1, keepdims=True) + 1e-6) * np.array(module.weight, np.float64)

    def oracle(context, k):
        hidden, tokens, leads = states(target, context), list(context[1:]), []
        for _ in range(k):
            embedded = norm(output_head.embed(mx.array(tokens)), head.pre_fc_norm_embedding)
            pair = [embedded, norm(hidden, head.pre_fc_norm_hidden)]
            joined = np.concatenate(pair if read.embedding_first else pair[::-1], -1) @ np.array(head.fc.weight).T
            raw = np.array(head.layers[0](mx.array(joined.astype(np.float32))[None], "causal", None)[0])
            out = norm(raw, head.norm)[-1:]
            scores = np.array(output_head.logits(mx.array(out.astype(np.float32)))[0])
            leads.append(np.diff(np.sort(scores)[-2:])[0])
            tokens.append(int(scores.argmax()))
            hidden = np.concatenate([hidden, out if read.carries == "normed" else raw[-1:]])
        return tokens[-k:], min(leads)

    return Case(target, cached_head(target, head), oracle)


FIRST = {"mimo": "state"}  # all others join token and state in this order


CARRIES_RAW = {"deepseek_v3"}


class PlainHead:
    """MTP heads from the published equations, in numpy and float64, without a cache and without any code of ours.

    DeepSeek-V3 (arXiv:2412.19437): attention over latents in section 2.1.1, the experts in 2.1.2 (equations 12 to 16,
    and its node-limited routing), the head in 2.2 (equations 21 to 23), all unfolded as written there. GLM-4.5 and MiMo
    have grouped-query attention in place of latents. Rotary positions are relative, so they start at 0.
    """

    def __init__(self, family, tensors):
        self.family, self.config = family, CONFIGS[family]
        self.path, self.names = NAMES[family]
        self._tensors = {name: value.astype(np.float64) for name, value in tensors.items()}

    def get(self, name):
        return self._tensors[f"{self.path}.{name}"]

    def linear(self, x, name):
        bias = self._tensors.get(f"{self.path}.{name}.bias", 0.0)
        return x @ self.get(f"{name}.weight").T + bias

    def norm(self, x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * self.get(f"{name}.weight")

    def proposals(self, embedding, output_head, context, hidden, k):
        """(the k best tokens after `context`, the least lead of one over the second); `hidden` [T - 1, D]."""
        tokens, leads = list(context[1:]), []
        for _ in range(k):
            parts = [self.norm(embedding[tokens], self.names["token"]), self.norm(hidden, self.names["state"])]
            joined = np.concatenate(parts[::-1] if FIRST.get(self.family) == "state" else parts, axis=-1)
            raw = self.layer(self.linear(joined, self.names["fc"]))
            out = self.norm(raw, self.names["norm"])
            scores = output_head @ out[-1]
            leads.append(np.diff(np.sort(scores)[-2:])[0])
            tokens.append(int(scores.argmax()))
            hidden = np.concatenate([hidden, (raw if self.family in CARRIES_RAW else out)[-1:]])
        return tokens[-k:], min(leads)

    def layer(self, x):
        attention = self.latent if "kv_lora_rank" in self.config else self.grouped
        x = x + attention(self.norm(x, "input_layernorm"))
        inner = self.norm(x, "post_attention_layernorm")
        return x + (self.experts(inner) if "n_routed_experts" in self.config else self.gated(inner, "mlp"))

    def gated(self, x, name):
        gate = self.linear(x, f"{name}.gate_proj")
        return self.linear(gate / (1 + np.exp(-gate)) * self.linear(x, f"{name}.up_proj"), f"{name}.down_proj")

    def experts(self, x):
        """Equations 12 to 16: affinities are sigmoids, the bias decides on the choice and not on the weight."""
        c = self.config
        affinity = 1 / (1 + np.exp(-self.linear(x, "mlp.gate")))
        biased = affinity + self.get("mlp.gate.e_score_correction_bias")
        found = self.gated(x, "mlp.shared_experts")
        for row in range(len(x)):
            groups = np.sort(biased[row].reshape(c["n_group"], -1))[:, -2:].sum(-1)
            members = np.repeat(groups >= np.sort(groups)[-c["topk_group"]], c["n_routed_experts"] // c["n_group"])
            chosen = np.argsort(np.where(members, biased[row], -np.inf))[-c["num_experts_per_tok"] :]
            weights = affinity[row, chosen] / affinity[row, chosen].sum() * c["routed_scaling_factor"]
            for expert, weight in zip(chosen, weights, strict=True):
                found[row] += weight * self.gated(x[row], f"mlp.experts.{expert}")
        return found

    def latent(self, x):
        """Keys and values of every head are made of the latent, as in training: nothing is absorbed."""
        c, heads, rows = self.config, self.config["num_attention_heads"], len(x)
        plain, turned = c["qk_nope_head_dim"], c["qk_rope_head_dim"]
        queries = self.linear(self.norm(self.linear(x, "self_attn.q_a_proj"), "self_attn.q_a_layernorm"),
                              "self_attn.q_b_proj").reshape(rows, heads, plain + turned)  # fmt: skip
        both = self.linear(x, "self_attn.kv_a_proj_with_mqa")
        latent = self.norm(both[:, : c["kv_lora_rank"]], "self_attn.kv_a_layernorm")
        unfolded = self.linear(latent, "self_attn.kv_b_proj").reshape(rows, heads, plain + c["v_head_dim"])
        shared = rotated(both[:, None, c["kv_lora_rank"] :], turned, c["rope_theta"], pairs=True)
        keys = np.concatenate([unfolded[..., :plain], np.repeat(shared, heads, axis=1)], axis=-1)
        turned_queries = rotated(queries[..., plain:], turned, c["rope_theta"], pairs=True)
        queries = np.concatenate([queries[..., :plain], turned_queries], axis=-1)
        return self.linear(attended(queries, keys, unfolded[..., plain:]), "self_attn.o_proj")

    def grouped(self, x):
        c, heads, few = self.config, self.config["num_attention_heads"], self.config["num_key_value_heads"]
        size = c.get("head_dim", c["hidden_size"] // heads)
        made = {name: self.linear(x, f"self_attn.{name}_proj").reshape(len(x), -1, size) for name in "qkv"}
        if c.get("use_qk_norm"):
            made |= {name: self.norm(made[name], f"self_attn.{name}_norm") for name in "qk"}
        width = int(size * c.get("partial_rotary_factor", 1.0))
        queries, keys = (rotated(made[name], width, c["rope_theta"]) for name in "qk")
        keys, values = (np.repeat(one, heads // few, axis=1) for one in (keys, made["v"]))
        return self.linear(attended(queries, keys, values), "self_attn.o_proj")


def rotated(x, width, base, pairs=False):
    """`x` [T, heads, size] with its first `width` channels turned by position: in pairs of neighbours, or of halves."""
    angles = np.outer(np.arange(len(x)), base ** (-np.arange(0, width, 2) / width))[:, None]
    turning, rest = x[..., :width], x[..., width:]
    first, second = (turning[..., ::2], turning[..., 1::2]) if pairs else np.split(turning, 2, axis=-1)
    found = [first * np.cos(angles) - second * np.sin(angles), first * np.sin(angles) + second * np.cos(angles)]
    joined = np.stack(found, axis=-1).reshape(turning.shape) if pairs else np.concatenate(found, axis=-1)
    return np.concatenate([joined, rest], axis=-1)


def attended(queries, keys, values):
    """[T, heads x size] of [T, heads, size] each, causal."""
    scores = np.einsum("qhd,khd->hqk", queries, keys) / np.sqrt(queries.shape[-1])
    scores = np.where(np.tri(len(queries), dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, values).reshape(len(queries), -1)


def published(family, folder):
    """A family beyond Qwen's, found by its tensors in folders as its original repository stores them."""
    trunk, own = raw_family(family)
    target = load(read_checkpoint(write_checkpoint(folder / "target", trunk, CONFIGS[family]), "t"))
    files = read_head(write_checkpoint(folder / "head", own, CONFIGS[family]), "m")
    scores = own.get(f"{NAMES[family][0]}.shared_head.head.weight", trunk["lm_head.weight"])
    parts = [part.astype(np.float64) for part in (trunk["model.embed_tokens.weight"], scores)]
    head = CachedHead(Head(load_head(files, SIZE), target.network, "m"))
    plain = PlainHead(family, own)
    return Case(target, head, lambda context, k: plain.proposals(*parts, context, states(target, context), k))


def medusa(name="qwen3_5"):
    """arXiv 2401.10774, equation 1: head s scores h + SiLU(W_s h) of the last state by the target's output head."""
    target = tiny_target(name)
    output_head = target.network.hidden.output_head
    heads = random_medusa(output_head.hidden_size, K)
    for block in heads.blocks:
        block.layers[0].weight = 4 * block.layers[0].weight

    def oracle(context, k):
        state, found = states(target, context)[-1], []
        for block in heads.blocks:
            product = np.array(block.layers[0].weight, np.float64) @ state
            scored = state + product / (1 + np.exp(-product))
            found.append(int(output_head.logits(mx.array(scored[None]))[0].argmax().item()))
        return found[:k], np.inf

    return Case(target, cached_head(target, heads, recent=1), oracle, recurrent=False)


FAMILIES = {
    **{name: lambda folder, name=name: qwen(name) for name in ("qwen3_5", "qwen3")},
    "mimo": lambda folder: published("mimo", folder),
    "medusa": lambda folder: medusa(),
    "raw carried": lambda folder: qwen(recipe=Recipe(carries="raw")),
    "state first": lambda folder: qwen(recipe=Recipe(embedding_first=False)),
}
SLOW = {
    **{name: lambda folder, name=name: qwen(name) for name in ("qwen3_5_moe", "qwen3_next", "gemma3_text")},
    **{name: lambda folder, name=name: published(name, folder) for name in CONFIGS if name != "mimo"},
    "medusa over a window": lambda folder: medusa("gemma3_text"),
}
EACH = [*FAMILIES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


@pytest.fixture(scope="module", params=EACH)
def case(request, tmp_path_factory):
    return (FAMILIES | SLOW)[request.param](tmp_path_factory.mktemp("family"))


class Played:
    """A conversation with the target and the head of a case, round by round, with verdicts that the test scripts."""

    def __init__(self, case, context=PROMPT, head=None, target=None):
        self.target, self.head = target or case.target.fresh(), head or case.head.fresh()
        self.drafter, self.context = HeadDrafter(self.head, self.target, greedy(case.target.vocab_size)), [*context]

    def read(self):
        """As a session does: the head hears of each chunk of the prompt; the first round drafts nothing."""
        self.target.reuse(self.context)
        self.target.commit(self.context, min(self.target.length, self.drafter.keeps(self.context)))
        for chunk in self.target.prefill(self.context):
            self.drafter.commit(self.context[: self.target.length + 1], chunk.hidden)
        self.round(0, 0, 5)
        return self

    def round(self, k, accepted, correction):
        """Propose k tokens, accept so many of them; returns what was proposed."""
        draft = finished(self.drafter.propose(self.context, k)) if k else None
        tokens = draft.tokens if draft else mx.array([], dtype=mx.int32)
        output = self.target.outputs(self.context, tokens)
        self.context += [*tokens.tolist()[:accepted], correction]
        self.target.commit(self.context, len(self.context) - 1)
        self.drafter.commit(self.context, None if output.hidden is None else output.hidden[: accepted + 1])
        return tokens.tolist()


def verdicts(k):
    """Each number of accepted tokens 0 … k three times, in an order that mixes them."""
    step = 3 if (k + 1) % 3 else 2
    counts = [(step * i + (i // (k + 1) if step == 2 else 0)) % (k + 1) for i in range(3 * (k + 1))]
    assert all(counts.count(accepted) == 3 for accepted in range(k + 1))
    return [(accepted, (11 * i) % 89 + 3) for i, accepted in enumerate(counts)]


@pytest.mark.parametrize("k", [K, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2, 8))])
def test_every_proposal_is_the_equations_after_every_number_of_accepted_tokens(case, k):
    played, seen = Played(case).read(), set()
    for accepted, correction in verdicts(k if case.recurrent else min(k, K)):
        before = list(played.context)
        proposed, (expected, lead) = played.round(k, accepted, correction), case.oracle(before, k)
        assert proposed == expected or lead < NEAR
        seen |= set(proposed)
        assert played.head.length == len(played.context) - 1 == played.target.length or not case.recurrent
        assert not case.recurrent or played.head.cached <= len(before) - 1 + k - 1
        assert case.recurrent or played.head.nbytes < 5 * 4 * SIZE * (K + 1)
    assert len(seen) > 4


def test_states_that_nobody_handed_over_are_read_again_and_a_copy_drafts_the_same(case):
    """The prompt was read without the head, as by another drafter of the same conversation."""
    played = Played(case)
    for _ in played.target.prefill(played.context):
        pass
    played.round(0, 0, 5)
    steps = list(played.drafter.propose(played.context, 3))
    assert steps[-1] is None and played.target.length == len(played.context) - 1
    before, length = list(played.context), len(played.context)
    twin = Played(case, before, played.head.copy(length), played.target.copy(length))
    expected, lead = case.oracle(before, 3)
    assert played.round(3, 2, 9) == expected or lead < NEAR
    assert twin.round(3, 1, 7) == expected or lead < NEAR


def test_another_recipe_is_another_proposal():
    """Negative control: none of the recipes fails, they only guess badly."""
    recipes = [qwen(recipe=recipe) for recipe in (Recipe(carries="raw"), Recipe(embedding_first=False))]
    usual = qwen(recipe=Recipe())
    context = Played(usual).read().context
    found = [tuple(case.oracle(context, K)[0]) for case in (usual, *recipes)]
    assert len(set(found)) == 3


@pytest.mark.parametrize("kept", [3, 6, 8])
def test_after_a_cut_amid_states_that_wait_every_proposal_is_that_of_a_head_that_read_the_text(kept):
    """Plain rounds leave the states waiting; then the end of the text is another."""
    case = qwen("qwen3")
    old, new = PROMPT[:10], [*PROMPT[: kept + 1], 50, 51, 52, 53]

    def read(context):
        return case.target.fresh().forward(mx.array(context[:-1])).hidden

    cut, fresh = case.head.fresh(), case.head.fresh()
    cut.hand_over(old, read(old))
    begin = cut.reuse(new)
    assert begin == cut.length == kept
    cut.hand_over(new, read(new)[begin:])
    fresh.hand_over(new, read(new))
    assert cut.cached == fresh.cached == 0
    ours, theirs = (one.logits(one.first().scored) for one in (cut, fresh))
    assert mx.allclose(ours, theirs, atol=1e-5)


def test_a_draft_of_medusa_reads_the_output_head_once(monkeypatch):
    """All its states are known at once; each token read the output head again, 0.35 GB in an 8B target of 4 bits."""
    played, products, logits = Played(medusa()).read(), [], OutputHead.logits
    monkeypatch.setattr(
        OutputHead, "logits", lambda self, rows: (products.append(rows.shape[0]), logits(self, rows))[1]
    )
    for k in (1, 3, K + 3):
        played.round(0, 0, 5)
        products.clear()
        assert finished(played.drafter.propose(played.context, k)).tokens.size == products[0] == min(k, K)
        assert len(products) == 1
