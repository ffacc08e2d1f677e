"""Rollback of every cache kind: after any sequence of guesses, refusals, interruptions and turns, the logits are those
of a fresh computation by mlx-lm's own caches."""

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from mlx_lm.models.cache import QuantizedKVCache, RotatingKVCache, make_prompt_cache

from conformance.architectures import architectures, tiny_network
from specdec_cli.core.errors import SpecdecError
from specdec_cli.core.request import MAX_ROWS
from specdec_cli.engine.cache import cache_kinds
from specdec_cli.engine.cache import rollback as caches_module
from specdec_cli.engine.cache.rollback import Recorder
from specdec_cli.engine.cache.window import WindowKVCache
from specdec_cli.engine.model import CachedModel

NOTHING = mx.array([], dtype=mx.int32)
TOKEN = st.integers(3, 99)
TEXT = st.tuples(st.integers(1, 120), st.integers(0, 999)).map(lambda drawn: text(*drawn))
KINDS = {
    "KVCache": ("qwen3", None),
    "QuantizedKVCache": ("qwen3", 8),
    "WindowKVCache": ("gemma3_text", None),
    "window without full layers": ("gpt_oss", None),
    "ArraysCache": ("mamba2", None),
    "gated delta rule and KVCache": ("qwen3_5", None),
    "recurrence and window": ("recurrent_gemma", None),
    "two readers of one state": ("rwkv7", None),
    "ChunkedKVCache": ("llama4", None),
    "CacheList with a state": ("falcon_h1", None),
    "CacheList with a window": ("baichuan_m1", None),
    "CacheList of KVCaches": ("deepseek_v32", None),
    "shared KV": ("gemma3n", None),
    "a kind nobody knows": ("deepseek_v41", None),
    "a ring nobody knows": ("gemma3_text", None),
}


def text(tokens, seed=0):
    """That many ids without a pattern."""
    return [3 + (seed * 31 + i * i * 7 + i) % 97 for i in range(tokens)]


class Ring(RotatingKVCache):
    """Written to in place, over its oldest position, and of a type that no code knows."""


def with_rings(kind):
    def make_cache(network):
        return [Ring(16) if type(c) is RotatingKVCache else c for c in kind.make_cache(network)]

    return type(kind.__name__, (kind,), {"make_cache": make_cache})


class Turns(RuleBasedStateMachine):
    """One conversation with one network; `fresh` never sees specdec's caches."""

    architecture = "qwen3"
    kv_bits = None
    unknown_ring = False
    recent = None

    @initialize(prompt=TEXT)
    def start(self, prompt):
        found = architectures()[self.architecture]
        # Groups of quantized keys are at least 32 wide.
        wide = replace(found, config={**found.config, "head_dim": 32}) if self.kv_bits else found
        self.network = tiny_network(wide, 1)
        if self.unknown_ring:
            self.network.__class__ = with_rings(type(self.network))
        self.model = CachedModel(self.network, "m", kv_bits=self.kv_bits, recent=self.recent)
        self.context = prompt
        for _ in self.model.prefill(prompt):
            pass

    def fresh(self, ids, rows):
        layers = make_prompt_cache(self.network)
        if self.kv_bits:
            layers = [QuantizedKVCache(group_size=32, bits=self.kv_bits) for _ in layers]
        passes = [self.network(mx.array([ids[i : i + rows]]), cache=layers)[0] for i in range(0, len(ids), rows)]
        return np.array(mx.concatenate(passes))

    def compare(self, logits, ids):
        """With one pass over all, or one token at a time: a sparse attention's choice can be a tie between the two."""
        found, ids, tolerance = np.array(logits), ids[self.model.origin :], 0.05 if self.kv_bits else 2e-3
        for rows in (len(ids), 1):
            expected = self.fresh(ids, rows)[-len(found) :]
            allowed = tolerance * max(1, np.abs(expected).max())
            if rows > 1 and np.abs(found - expected).max() <= allowed:
                return
        np.testing.assert_allclose(found, expected, atol=allowed)

    @rule(pending=st.lists(TOKEN, max_size=5), share=st.floats(0, 1), correction=TOKEN)
    def a_round(self, pending, share, correction):
        """A draft of up to five, some of it accepted."""
        logits = self.model.logits(self.context, mx.array(pending, dtype=mx.int32))
        self.compare(logits, self.context + pending)
        self.context = self.context + pending[: round(share * len(pending))] + [correction]
        self.model.commit(self.context, len(self.context) - 1)

    @rule(ahead=st.lists(TOKEN, min_size=1, max_size=4), kept=st.integers(0, 4))
    def drafting(self, ahead, kept):
        """What a draft does: one token a pass, then some of them taken back."""
        self.model.logits(self.context, NOTHING)
        for token in ahead[:-1]:
            self.model.extend(mx.array([token]))
        self.context = self.context + ahead[:kept]
        self.model.commit(self.context, len(self.context) - 1)

    @rule(kept=st.floats(0, 1), said=TEXT, chunks=st.integers(0, 20))
    def a_new_turn(self, kept, said, chunks):
        """Another continuation of what was said before; its prefill may be interrupted after some chunks."""
        self.context = self.context[: int(kept * len(self.context))] + said
        assert self.model.reuse(self.context) < len(self.context)
        for _, _ in zip(self.model.prefill(self.context), range(chunks), strict=False):
            pass

    @rule()
    def a_forward_that_raises(self):
        """The caches have grown when it happens: they and the memo no longer agree."""

        def broken(ids, cache):
            self.network(ids, cache=cache)
            raise RuntimeError("out of memory")

        self.model.network.module = broken
        with pytest.raises(RuntimeError, match="out of memory"):
            self.model.extend(mx.array([3]))
        self.model.network.module = self.network
        assert self.model.length == self.model.origin

    @invariant()
    def nothing_beyond_the_context_is_held(self):
        if hasattr(self, "model"):
            assert self.model.length < len(self.context)
            if self.recent:
                assert self.model.length - self.model.origin <= 2 * self.recent + MAX_ROWS
            else:
                assert not self.model.origin

    def teardown(self):
        if hasattr(self, "model"):
            self.compare(self.model.logits(self.context, NOTHING), self.context)


def histories(kind, recent=None, **more):
    name, bits = KINDS[kind]
    how = {"architecture": name, "kv_bits": bits, "unknown_ring": "ring" in kind, "recent": recent}
    machine = type("Turns", (Turns,), how)
    sizes = {"max_examples": 10, "stateful_step_count": 8} | more
    run_state_machine_as_test(machine, settings=settings(deadline=None, **sizes))


@pytest.fixture(autouse=True)
def _short_chunks(device_says):
    """Prefills of a few tokens are already in many chunks."""
    device_says(prefill_tokens=7)


QUICK = ("KVCache", "ArraysCache")
# Plain caches once more.
MORE = ("CacheList of KVCaches", "shared KV")
EACH = [
    pytest.param(kind, marks=() if kind in QUICK else pytest.mark.full if kind in MORE else pytest.mark.slow)
    for kind in KINDS
]


@pytest.mark.parametrize("kind", EACH)
def test_any_history_gives_the_logits_of_a_fresh_computation(kind):
    histories(kind)


@pytest.mark.parametrize(
    ("kind", "recent"),
    [
        *(pytest.param(kind, 8, marks=() if kind == "KVCache" else pytest.mark.full) for kind in KINDS),
        *(pytest.param(kind, 33, marks=pytest.mark.full) for kind in KINDS),
    ],
)
def test_a_draft_of_the_last_tokens_computes_what_a_fresh_short_context_gives(kind, recent):
    """The context of the draft begins where the model says, and never holds much more than twice as many tokens."""
    histories(kind, recent)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
def test_many_long_histories_give_the_logits_of_a_fresh_computation(kind):
    histories(kind, max_examples=60, stateful_step_count=20)


def leave_out_one(recorder, recording, tokens, recompute=Recorder.recompute):
    """A recomputation that misses its last token."""
    recompute(recorder, recording, tokens - 1)


def share_arrays(part):
    """A snapshot that mlx's in-place writes reach."""
    return dict(vars(part))


@pytest.mark.slow
def test_the_test_rejects_a_draft_that_never_begins_anew(monkeypatch):
    monkeypatch.setattr(CachedModel, "_holds", lambda model, context, kept: True)
    with pytest.raises((AssertionError, ValueError, ExceptionGroup)):
        histories("KVCache", 8, phases=[Phase.generate], max_examples=150, stateful_step_count=12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "owner", "name", "broken"),
    [
        ("gated delta rule and KVCache", Recorder, "recompute", leave_out_one),
        ("WindowKVCache", WindowKVCache, "reaches", lambda window, position: True),
        ("a ring nobody knows", cache_kinds, "saved", share_arrays),
        ("ArraysCache", caches_module, "put_back", lambda parts, states: None),
        ("KVCache", cache_kinds.KVCache, "trim", lambda cache, tokens: tokens),
    ],
)
def test_the_test_rejects_broken_rollbacks(kind, owner, name, broken, monkeypatch):
    """Negative controls for the histories above."""
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises((AssertionError, ValueError, SpecdecError, ExceptionGroup)):
        histories(kind, phases=[Phase.generate], max_examples=150, stateful_step_count=12)
