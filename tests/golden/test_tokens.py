"""Golden (a): tokens, and what each round drafted and had accepted, of every kind of cache, rule, K and drafter.

Recorded on another processor or mlx, greedy tokens are compared with mlx-lm's own, those of a seed with plain decoding.
"""

from __future__ import annotations

import json
from copy import deepcopy
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
from golden.models import ALL, HEADED, TRUE_SIZES, model_folders, true_sized_folders
from golden.record import RECORDING, agree, read, recorded_here, require_same

LONGEST, SHORTEST, LEAST_GAP, KV_BITS = 32, 6, 1e-3, 8
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
        """(tokens before the first near-tie, the smallest gap among them) of plain decoding; None where no gap is."""
        if rule not in EQUAL:
            return LONGEST, None
        smallest, n = np.inf, 0
        for step in self._pair(False).session().plain(PROMPT, self.asked(rule, shape, LONGEST)):
            second, first = np.partition(np.array(step.scores.astype(mx.float32)), -2)[-2:]
            if first - second <= LEAST_GAP:
                return n, round(float(smallest), 4)
            smallest, n = min(smallest, first - second), n + 1
        return LONGEST, round(float(smallest), 4)

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
    items = {}
    for key, rule, shape, drafter, k in cases(name):
        n, gap = loaded.sure(rule, shape)
        if n >= SHORTEST:
            items[key] = {"n": n, "gap": gap, **loaded.said(rule, shape, drafter, k, n)}
    agree(f"tokens-{name}", items)


def check(name, loaded, whole=True):
    """The entries as recorded, mlx-lm's own words among them; elsewhere, each one's tokens as plain decoding's."""
    if RECORDING:
        record(name, loaded)
    file = f"tokens-{name}"
    items, here = read(file)["items"], recorded_here(file)
    for key, rule, shape, drafter, k in cases(name, whole):
        if key not in items or not (here or rule in EQUAL):
            continue
        n = items[key]["n"]
        found = loaded.said(rule, shape, drafter, k, n)
        if here:
            kept = {part: value for part, value in items[key].items() if part not in ("n", "gap")}
            require_same(f"{file} > {key}", kept, found)
        elif "tokens" in found and drafter != "none":
            require_same(
                f"{file} > {key}, elsewhere", loaded.said(rule, shape, "none", 0, n)["tokens"], found["tokens"]
            )
        if key == "greedy free none 0":
            require_same(f"{file} > {key}, by mlx-lm", loaded.plain(n), found["tokens"])


@pytest.mark.parametrize(
    "whole", [pytest.param(False, marks=pytest.mark.slow), pytest.param(True, marks=pytest.mark.full)]
)
@pytest.mark.parametrize("name", ALL)
def test_every_reply_is_as_recorded(name, whole, tmp_path):
    check(name, load_listed(name, tmp_path), whole or RECORDING)


@pytest.mark.real
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", TRUE_SIZES)
def test_true_vocabularies_are_as_recorded(name, tmp_path):
    check(name, Loaded(true_sized_folders(name, tmp_path)))


@pytest.mark.parametrize("name", (*ALL, *TRUE_SIZES))
def test_the_record_is_lossless_and_far_from_ties(name):
    """Greedily and under a seed of `coupled`, every K and drafter said the same; every `auto` too, as text."""
    items = read(f"tokens-{name}")["items"]
    for rule, shape in product(EQUAL, SHAPES):
        said = [value for key, value in items.items() if key.startswith(f"{rule} {shape} ")]
        assert len({tuple(entry["tokens"]) for entry in said if "tokens" in entry}) <= 1
        assert all(entry["gap"] > LEAST_GAP and entry["n"] >= SHORTEST for entry in said)
    drafted = [entry["rounds"] for key, entry in items.items() if key.endswith("model 4")]
    assert any(":1" in rounds or ":2" in rounds for rounds in drafted)


@pytest.mark.parametrize("part", ["tokens", "rounds"])
def test_one_token_or_one_count_changed_is_found(part):
    """Negative control: each entry in turn, one token flipped or one accepted count raised."""
    items = read("tokens-qwen3")["items"]
    for key in [key for key, entry in items.items() if part in entry]:
        changed = deepcopy(items[key])
        if part == "tokens":
            changed["tokens"][-1] ^= 1
        else:
            changed["rounds"] = changed["rounds"][:-1] + str(int(changed["rounds"][-1]) + 1)
        with pytest.raises(AssertionError, match=f"> {part}"):
            require_same(key, items[key], changed)


@pytest.mark.slow
def test_a_reply_that_says_another_token_is_found(tmp_path, monkeypatch):
    """Negative control of the whole way: the prompt's last token is another one."""
    if RECORDING or not recorded_here("tokens-qwen3"):
        pytest.skip("recorded now or elsewhere: nothing is compared with the record")
    monkeypatch.setitem(globals(), "PROMPT", [*PROMPT[:-1], PROMPT[-1] ^ 1])
    with pytest.raises(AssertionError, match="tokens"):
        check("qwen3", load_listed("qwen3", tmp_path))


@pytest.mark.slow
def test_an_exact_prediction_drafts_under_auto_and_changes_no_word():
    pair = specdec.load("demo")
    asked = {"max_tokens": 96, "temperature": 0.0, "raw": True}
    plain = list(pair.session().reply("def read_lines(path):\n", k=0, drafter="none", **asked))[-1]
    auto = {"k": "auto", "drafter": "auto", "predict": plain.text}
    guessed = list(pair.session().reply("def read_lines(path):\n", **auto, **asked))[-1]
    assert guessed.stats["draft_n_accepted"] > 24
    assert guessed.text == plain.text
