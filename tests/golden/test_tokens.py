"""Golden (a): tokens, and what each round drafted and had accepted, of every kind of cache, rule, K and drafter.

Law: what is recorded is compared on every processor. An entry's gaps are the smallest by which target and draft chose
as they did (`margins`); where one is no more than rounding may turn, that part of the entry is not recorded.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import QuantizedKVCache
from mlx_lm.utils import load_model

import specdec_cli as specdec
from golden.margins import measured
from golden.models import ALL, HEADED, TRUE_SIZES, model_folders, true_sized_folders
from golden.record import RECORDING, agree, read, require_same

LONGEST, SHORTEST, LEAST_GAP, KV_BITS = 32, 6, 1e-3, 8
LEAST_KV_GAP = 0.05  # a key that is rounded to 8 bits may step where float32 is rounded elsewise
PROMPT = [(i * i * 7 + i * 3) % 250 + 5 for i in range(14)] * 3
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "state": {"enum": ["open", "closed"]}},
    "required": ["name", "state"],
    "additionalProperties": False,
}
SHAPES = {"free": None, "schema": specdec.Constraint("schema", json.dumps(SCHEMA))}
SEEDED = {rule: {"rule": rule, "seed": 7, "temperature": 0.8} for rule in ("coupled", "token", "block")}
RULES = {"greedy": {"temperature": 0.0}, **SEEDED}
EQUAL = ("greedy", "coupled")  # under these every K and drafter says the same
KS = (1, 4, 8)
DRAFTERS = ("model", "ngram", "mtp")
# The default tier: a plain KV cache, a sliding window, and recurrent layers with an MTP head.
QUICK = ("qwen3", "gemma3_text", "qwen3_5")
# Ten seconds and more each, and their caches are tried by laws of their own.
DEAR = ("gemma3n", "deepseek_v41")
QUICK_CASES = (
    "greedy free model 8",
    "greedy free ngram 4",
    "coupled free model 4",
    "coupled schema model 4",
    "token schema model 4",
    "block free model 4",
)


def cases(name, whole=True):
    """(key, rule, shape, drafter, K); unless `whole` each drafter has one K under a rule and shape, in turns."""
    drafters = DRAFTERS if name in HEADED else DRAFTERS[:2]
    for turn, (rule, shape) in enumerate(product(RULES, SHAPES)):
        yield f"{rule} {shape} none 0", rule, shape, "none", 0
        for place, (drafter, k) in enumerate(product(drafters, KS)):
            if not whole and (place + place // len(KS) + turn) % len(KS):
                continue
            yield f"{rule} {shape} {drafter} {k}", rule, shape, drafter, k
        if rule in EQUAL:
            yield f"{rule} {shape} auto auto", rule, shape, "auto", "auto"


class Loaded:
    """The pairs of one architecture, loaded once each."""

    def __init__(self, folders, bits=None):
        self.folders, self.bits = folders, bits
        self.least_gap = LEAST_KV_GAP if bits else LEAST_GAP
        self._pair = cache(self._load)

    def _load(self, mtp):
        target, draft = self.folders["target"], self.folders.get("draft")
        if mtp:
            target, draft = self.folders.get("whole", target), self.folders.get("head")
        return specdec.load(target=target, draft=draft, drafter="mtp" if mtp else "model", kv_bits=self.bits)

    def asked(self, rule, shape, n, **more):
        return specdec.Request(
            max_tokens=n, constraint=SHAPES[shape],
            rule=RULES[rule].get("rule", "auto"), seed=RULES[rule].get("seed"),
            sampling={"temperature": RULES[rule]["temperature"]}, **more,
        )  # fmt: skip

    def said(self, rule, shape, drafter, k, n):
        """An entry: the tokens and `drafted:accepted` of each round; under `auto` the text alone."""
        asked = self.asked(rule, shape, n, k=k, drafter="model" if drafter == "mtp" else drafter)
        events = list(self._pair(drafter == "mtp").session().reply(PROMPT, asked))
        if k == "auto":
            return {"text": events[-1].text}
        rounds = [event.round for event in events if isinstance(event, specdec.RoundDone)]
        tokens = [token for judged in rounds for token in judged.emitted]
        return {"tokens": tokens, "rounds": " ".join(f"{len(r.draft)}:{r.accepted}" for r in rounds)}

    @cache  # noqa: B019
    def sure(self, rule, shape):
        """How many tokens of plain decoding come before the first near-tie."""
        if rule not in EQUAL:
            return LONGEST
        for n, step in enumerate(self._pair(False).session().plain(PROMPT, self.asked(rule, shape, LONGEST))):
            second, first = np.partition(np.array(step.scores.astype(mx.float32)), -2)[-2:]
            if first - second <= self.least_gap:
                return n
        return LONGEST

    def plain(self, n):
        """mlx-lm's own greedy tokens, the first that ends included."""
        network, _ = load_model(Path(self.folders["target"]))
        caches = [QuantizedKVCache(32, self.bits) for _ in network.layers] if self.bits else None
        tokens = []
        for token, _ in generate_step(mx.array(PROMPT), network, max_tokens=n, prompt_cache=caches):
            tokens.append(int(token))
            if tokens[-1] in (0, 2):
                break
        return tokens


def load_listed(name, root):
    return Loaded(model_folders(name, root), KV_BITS if name.endswith("kv8") else None)


def record(name, loaded):
    """Above temperature 0 without `coupled` a draft decides the words too, so such an entry is left out whole."""
    items = {}
    for key, rule, shape, drafter, k in cases(name):
        for n in (loaded.sure(rule, shape),) if rule in EQUAL else (LONGEST, LONGEST // 2, LONGEST // 4):
            with measured() as gaps:
                said = loaded.said(rule, shape, drafter, k, n)
            if gaps.draft <= loaded.least_gap and rule in EQUAL:
                said.pop("rounds", None)
            elif min(gaps.target, gaps.draft) <= loaded.least_gap:
                continue
            if n >= SHORTEST and (k == "auto" or gaps.target > loaded.least_gap):
                gap, draft_gap = (None if gap == np.inf else round(float(gap), 4) for gap in (gaps.target, gaps.draft))
                items[key] = {"n": n, "gap": gap, "draft_gap": draft_gap, **said}
                break
    agree(f"tokens-{name}", items)


def compare(name, loaded, key, rule, shape, drafter, k):
    entry = {part: value for part, value in read(f"tokens-{name}")["items"][key].items() if not part.endswith("gap")}
    n = entry.pop("n")
    found = loaded.said(rule, shape, drafter, k, n)
    require_same(f"tokens-{name} > {key}", entry, {part: found[part] for part in entry})
    if key == "greedy free none 0":
        require_same(f"tokens-{name} > {key}, by mlx-lm", loaded.plain(n), found["tokens"])


def check(name, loaded, whole=True):
    """The entries as recorded, mlx-lm's own words among them."""
    if RECORDING:
        record(name, loaded)
    items = read(f"tokens-{name}")["items"]
    for key, *case in cases(name, whole):
        if key in items:
            compare(name, loaded, key, *case)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The pairs of the default tier by architecture, each made once."""
    return cache(lambda name: load_listed(name, tmp_path_factory.mktemp(name)))


@pytest.mark.parametrize("key", QUICK_CASES)
@pytest.mark.parametrize("name", QUICK)
def test_tokens_and_rounds_are_as_recorded(name, key, quick):
    key = key.replace("model", "mtp") if name in HEADED else key
    case = next(case for case in cases(name) if case[0] == key)
    assert {"tokens", "rounds"} <= read(f"tokens-{name}")["items"][key].keys()
    compare(name, quick(name), *case)


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        *(pytest.param(name, False, marks=pytest.mark.slow) for name in ALL if name not in (*QUICK, *DEAR)),
        *(pytest.param(name, True, marks=pytest.mark.full) for name in ALL),
    ],
)
def test_every_reply_is_as_recorded(name, whole, tmp_path):
    check(name, load_listed(name, tmp_path), whole or RECORDING)


@pytest.mark.real
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", TRUE_SIZES)
def test_true_vocabularies_are_as_recorded(name, tmp_path):
    check(name, Loaded(true_sized_folders(name, tmp_path)))


@pytest.mark.parametrize("part", ["tokens", "rounds"])
def test_another_token_or_round_is_found(part, quick, monkeypatch):
    """Negative control of the whole way: the prompt's last token is another one, or K is, which moves rounds alone."""
    key, *case = next(case for case in cases("qwen3") if case[0] == "greedy free model 4")
    if part == "tokens":
        monkeypatch.setitem(globals(), "PROMPT", [*PROMPT[:-1], PROMPT[-1] ^ 1])
    else:
        case[-1] = 3
    with pytest.raises(AssertionError, match=f"> {key} > "):
        compare("qwen3", quick("qwen3"), key, *case)
