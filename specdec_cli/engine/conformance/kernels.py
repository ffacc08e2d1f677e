"""Families of real models in the precisions they run in: does a rolled-back target pass say what one row says?

Agreement is up to rounding. What rounding does is measured on the same text, one row against several, and is
capped by what it does against float32; a lost rollback has to show far above it. Text is given, never generated: a
near-tie that rounding flips cannot make two texts of one. The reference is mlx-lm's own caches, one row at a time.
Letters: T tokens of the text, V vocabulary size.
"""

from __future__ import annotations

import tomllib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from specdec_cli.engine import device
from specdec_cli.engine.conformance.suite import RAISED, Outcome, Status, tiny_network
from specdec_cli.engine.load import Architecture
from specdec_cli.engine.model import CachedModel

PRECISIONS = ("bfloat16", "4 bits")
GROUP_SIZE, BITS = 64, 4
NO_EXPERTS = "mlx's CPU multiplies experts in float32 or quantized only (mlx/backend/cpu/masked_mm.cpp, GatherMM)"
# Of the text, read before the first round.
PROMPT_TOKENS = 9
# (K, accepted) of every round: 2 to 16 rows, which take different kernels; all, some and none accepted.
ROUNDS = ((3, 1), (15, 9), (4, 2), (1, 0), (7, 7), (7, 0), (3, 3), (3, 0), (4, 4))
TOKENS = PROMPT_TOKENS + sum(accepted + 1 for _, accepted in ROUNDS)
# Twice the measured change: another alignment of the same passes rounds differently, by as much again.
MARGIN = 2.0
# The cap, in changes of one row against float32: several rows may be off as far in the other direction, and half more.
CAP = 3.0
# A lost rollback that shows less than so many times the allowance proves nothing.
CONTRAST = 3.0
# Of a rejected draft, left in the caches to see what that would change.
LOST_TOKENS = 4
BFLOAT16_EPSILON = 2.0**-8


@dataclass(frozen=True, slots=True)
class Family:
    """A tiny `architecture` with the sizes of released models; `about` names the kind, `width` its sizes.

    `experts`: it mixes experts. `query_scale` is what the norm of its queries is multiplied by.
    """

    name: str
    about: str
    width: str
    architecture: Architecture
    experts: bool = False
    query_scale: float = 1.0

    @property
    def model_type(self) -> str:
        return str(self.architecture.config["model_type"])

    def proves(self, precision: str) -> str:
        """The one thing that a pass shows."""
        return f"kernels real models use: {precision}, {self.width}"


@dataclass(frozen=True, slots=True)
class Agreement:
    """Largest changes of any token's gap to the best one, in logits, over all rows of the text.

    `found`: rolled-back passes against one row. `measured`: several rows against one, nothing rolled back. `float32`:
    one row against float32. `one_rounding`: of the largest logit. `lost`: what a lost rollback changes.
    """

    found: float
    measured: float
    float32: float
    one_rounding: float
    lost: float

    @property
    def allowed(self) -> float:
        """Twice the measured change and at least one rounding, but never more than float32 allows."""
        return min(max(MARGIN * self.measured, self.one_rounding), max(CAP * self.float32, self.one_rounding))

    @property
    def detail(self) -> str:
        found, allowed, lost = (f"{change:.2g}" for change in (self.found, self.allowed, self.lost))
        return f"largest change of a gap {found} logits, allowed {allowed}, a lost rollback {lost}"


@cache
def families() -> dict[str, Family]:
    """All families by name."""
    found = {}
    for name, entry in tomllib.loads(files(__package__).joinpath("families.toml").read_text("utf-8")).items():
        architecture = Architecture(name, entry["config"], entry.get("window"), entry.get("gain", 1.0))
        more = {key: entry[key] for key in ("experts", "query_scale") if key in entry}
        found[name] = Family(name, entry["about"], entry["width"], architecture, **more)
    return found


def check_family(family: Family, precision: str) -> Outcome:
    """Feed one text in rounds that are rolled back, and compare every row with mlx-lm's one-row decoding."""
    name, proves = f"{family.model_type}, {precision}", family.proves(precision)
    if family.experts and precision == "bfloat16" and device.backend() == "cpu":
        return Outcome(name, "refused", detail=NO_EXPERTS, proves=proves)
    network = network_in(family, precision)
    target = CachedModel(network, family.name)
    found = agreement(network, target, text(target.vocab_size))
    shows = found.lost > CONTRAST * found.allowed
    status: Status = "wrong" if not found.found <= found.allowed else "pass" if shows else "idle"
    accepted = sum(accepted for _, accepted in ROUNDS)
    rejected = sum(accepted < k for k, accepted in ROUNDS)
    detail = f"{family.about}: {found.detail}"
    return Outcome(name, status, target.cache_kinds, accepted, rejected, detail, proves)


def network_in(family: Family, precision: str) -> nn.Module:
    """The family's network in bfloat16, its matrices in 4 bits where `precision` says so."""
    network = tiny_network(family.architecture, 1)
    queries = [(path, value) for path, value in tree_flatten(network.parameters()) if path.endswith("q_norm.weight")]
    network.load_weights([(path, family.query_scale * value) for path, value in queries], strict=False)
    network.set_dtype(mx.bfloat16)

    def fits(_: str, module: nn.Module) -> bool:
        return hasattr(module, "to_quantized") and module.weight.shape[-1] % GROUP_SIZE == 0

    if precision == "4 bits":
        nn.quantize(network, GROUP_SIZE, BITS, class_predicate=fits)
    mx.eval(network.parameters())
    return network


def text(vocab_size: int) -> list[int]:
    """T + 1 token ids without a short period."""
    return [(7 * at * at + 5 * at) % (vocab_size - 3) + 3 for at in range(TOKENS + 1)]


def agreement(network: nn.Module, target: CachedModel, ids: Sequence[int]) -> Agreement:
    """`target`, over `network`, against mlx-lm's own caches over the same `network`, which ends in float32."""
    one = passes(network, [[token] for token in ids[:TOKENS]])
    several = passes(network, blocks(ids))
    ours, at = rolled_back(target, ids)
    lost, after = _without_rollback(network, ids)
    largest = float(mx.max(mx.abs(one)))
    network.set_dtype(mx.float32)  # matrices of 4 bits keep their numbers, and their scales become float32
    exact = passes(network, [[token] for token in ids[:TOKENS]])
    return Agreement(
        found=largest_change(ours, one[at:]),
        measured=largest_change(several, one),
        float32=largest_change(one, exact),
        one_rounding=2 * BFLOAT16_EPSILON * largest,
        lost=largest_change(lost, one[after:]),
    )


def passes(network: nn.Module, chunks: Sequence[Sequence[int]]) -> mx.array:
    """Logits [T, V] in float32 of `chunks` fed one after another into mlx-lm's own caches."""
    caches, rows = make_prompt_cache(network), list[mx.array]()
    for chunk in chunks:
        rows.append(network(mx.array([list(chunk)]), cache=caches)[0].astype(mx.float32))
        mx.eval(rows[-1])
    return mx.concatenate(rows)


def blocks(ids: Sequence[int]) -> list[list[int]]:
    """The text in passes of the rounds' own row counts."""
    sizes, chunks, at = deque([PROMPT_TOKENS, *(k + 1 for k, _ in ROUNDS)]), [], 0
    while at < TOKENS:
        chunks.append(list(ids[at : min(at + sizes[0], TOKENS)]))
        at += sizes[0]
        sizes.rotate(-1)
    return chunks


def rolled_back(target: CachedModel, ids: Sequence[int]) -> tuple[mx.array, int]:
    """(logits of every row after tokens of the text alone, the first one's position): what rounds decide on."""
    context, rows = list(ids[:PROMPT_TOKENS]), []
    deque(target.prefill(context), maxlen=0)
    for k, accepted in ROUNDS:
        text = [*ids, *ids][len(context) : len(context) + k]  # its first tokens are right, the others wrong
        wrong = [(token + 1 + i) % target.vocab_size for i, token in enumerate(text)]
        logits = target.logits(context, target.ids(text[:accepted] + wrong[accepted:]))
        rows.append(logits[: accepted + 1].astype(mx.float32))
        mx.eval(rows[-1])
        context += ids[len(context) : len(context) + accepted + 1]
        target.commit(context, len(context) - 1)
    return mx.concatenate(rows), PROMPT_TOKENS - 1


def _without_rollback(network: nn.Module, ids: Sequence[int]) -> tuple[mx.array, int]:
    """(logits [.., V] of the text after a rejected draft that stayed in the caches, the first one's position)."""
    at = PROMPT_TOKENS + 2
    wrong = [(token + 1) % len(ids) for token in ids[at : at + LOST_TOKENS]]
    kept = passes(network, [list(ids[:at]), wrong, list(ids[at:TOKENS])])
    return kept[at + len(wrong) :], at


def largest_change(found: mx.array, reference: mx.array) -> float:
    """The largest change, over all rows [.., V], of any token's gap to the reference's best token."""
    change = found - reference[: len(found)]
    best = mx.argmax(reference[: len(found)], axis=-1, keepdims=True)
    return float(mx.max(mx.abs(change - mx.take_along_axis(change, best, axis=-1))))


def run_families(known: Sequence[Family], precisions: Sequence[str] = PRECISIONS) -> Iterator[Outcome]:
    """Run `check_family` on each family and precision. A family that raises counts as wrong, and the run goes on."""
    for family in known:
        for precision in precisions:
            try:
                yield check_family(family, precision)
            except RAISED as error:
                name = f"{family.model_type}, {precision}"
                yield Outcome(name, "wrong", detail=f"{type(error).__name__}: {error}", proves=family.proves(precision))
            mx.clear_cache()
