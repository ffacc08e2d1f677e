"""Who may draft and who may judge, with the facts that others need of them (pure).

Law: a drafter is one class and one line of DRAFTERS, a rule one class and one line of RULES; nobody compares a name.
The classes are named here and imported when they are made, so that `--help` and the displays need no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from importlib import import_module
from typing import Any, Literal

K = int | Literal["auto"]
# Before a repository's id: the draft is the head that was taken out of it.
HEAD = "head:"


class Need(Enum):
    """What a drafter cannot do without."""

    DRAFT_MODEL = auto()
    TARGET_HIDDEN = auto()


@dataclass(frozen=True, slots=True)
class DrafterKind:
    """One drafter. `make` is "module:callable" of a function `Parts -> Drafter | None`, empty where only lookups draft.

    `uses` are the parts it works with; `without_draft` drafts in its place where a pair has no draft model.
    `learns`: what it drafts is judged by its position in the draft, so `-k auto` learns rates by position from it.
    `draft_alone`: it is the pair's draft that drafts, so the kind that this is of takes its place.
    `mixed`: several kinds draft in its name, each round one of them.
    `about` is empty where nobody need choose it: another stands for it.
    `looks_up`: it drafts from text that was there before, and so from what a caller predicts.
    """

    name: str
    make: str
    uses: frozenset[Need] = frozenset()
    without_draft: str | None = None
    learns: bool = False
    draft_alone: bool = False
    mixed: bool = False
    drafts: bool = True
    looks_up: bool = False
    about: str = ""

    @property
    def uses_draft(self) -> bool:
        """Whether it works with the pair's draft model."""
        return Need.DRAFT_MODEL in self.uses

    @property
    def reads_hidden(self) -> bool:
        """Whether it is a head: a network that reads the target's hidden states."""
        return Need.TARGET_HIDDEN in self.uses

    @property
    def by_network(self) -> bool:
        """Whether it works with the pair's draft, be it a model or a head."""
        return bool(self.uses)

    @property
    def needs_draft(self) -> bool:
        """Whether nothing at all is drafted without a draft model."""
        return self.without_draft is not None and not DRAFTERS[self.without_draft].drafts


@dataclass(frozen=True, slots=True)
class RuleKind:
    """One acceptance rule. `make` is "module:callable" of a function `Sampler -> AcceptanceRule`.

    `same_noise`: the draft draws with the target's noise, so that a draft token is accepted exactly if it is the token
    of the finished text; a finished answer then tells the rounds of every K.
    """

    name: str
    make: str
    same_noise: bool = False


_DRAFT = frozenset({Need.DRAFT_MODEL})
NONE = DrafterKind("none", "", drafts=False, about="plain decoding")
LOOKUP = DrafterKind("ngram", "", looks_up=True, about="the text itself")
# fmt: off
MODEL = DrafterKind("model", "specdec_cli.engine.drafters.stepwise:make_network", _DRAFT, NONE.name, learns=True,
                    draft_alone=True, about="the pair's draft")
TRANSLATED = DrafterKind("translated", "specdec_cli.engine.drafters.stepwise:make_network", _DRAFT, NONE.name,
                         learns=True, draft_alone=True)
MTP = DrafterKind("mtp", "specdec_cli.engine.drafters.stepwise:make_network", frozenset({Need.TARGET_HIDDEN}),
                  NONE.name, learns=True, about="the target's own head")
MEDUSA = DrafterKind("medusa", "specdec_cli.engine.drafters.stepwise:make_network", frozenset({Need.TARGET_HIDDEN}),
                     NONE.name, learns=True, about="Medusa heads of the target")
ASSISTANT = DrafterKind("gemma4_assistant", "specdec_cli.engine.drafters.stepwise:make_network",
                        frozenset({Need.TARGET_HIDDEN}), NONE.name, learns=True, about="Gemma 4's assistant")
AUTO = DrafterKind("auto", "specdec_cli.engine.drafters.stepwise:make_network", _DRAFT, LOOKUP.name, mixed=True,
                   looks_up=True, about="the better of both")
# fmt: on
# Drafts in every round of a constrained answer that can use it, beside whoever was chosen; nobody chooses it.
FORCED = DrafterKind("grammar", "", about="what the schema or grammar forces")
# Lookups in what the caller predicted; part of every drafter that looks up.
PREDICTED = DrafterKind("prediction", "", about="what was predicted")
# What `--drafter` takes, every kind that rounds may name included; and the kinds of heads among them.
_DRAFTERS = MODEL, LOOKUP, AUTO, TRANSLATED, MTP, MEDUSA, ASSISTANT, NONE
DRAFTERS: dict[str, DrafterKind] = {kind.name: kind for kind in _DRAFTERS}
HEADS: dict[str, DrafterKind] = {kind.name: kind for kind in (MTP, MEDUSA, ASSISTANT)}
# Who drafts where neither the request nor the pair says.
DEFAULT_DRAFTER = AUTO.name

_RULES = "specdec_cli.engine.sampling.acceptance"
GREEDY = RuleKind("greedy", f"{_RULES}:Greedy", same_noise=True)
BLOCK = RuleKind("block", f"{_RULES}:block")
COUPLED = RuleKind("coupled", f"{_RULES}:Coupled", same_noise=True)
RULES: dict[str, RuleKind] = {
    kind.name: kind
    for kind in (RuleKind("token", f"{_RULES}:token"), BLOCK, COUPLED, RuleKind("match", f"{_RULES}:Match"))
}
DEFAULT_RULE = "auto"
# What `specdec tune --what` trains.
TRAINED = ("draft", "head", "medusa")
# Why `-k auto` has decoded plainly in a reply that may have ended before a look at drafting could pay.
UNTRIED = "too few tokens so far to try drafting"


def rule_names() -> tuple[str, ...]:
    """What `--rule` takes."""
    return (DEFAULT_RULE, *RULES)


@dataclass(frozen=True, slots=True)
class Drafting:
    """Who drafts, and how long. Law: `k` is 0 exactly if `kind` drafts nothing, whichever of the two was asked for."""

    kind: DrafterKind
    k: K


def drafter_at(name: str | None, ks: Sequence[K]) -> str | None:
    """`name`; where every K that was asked for is 0, the name of plain decoding."""
    return NONE.name if ks and not any(ks) else name


def drafting(name: str, k: K, draft: str | None = MODEL.name) -> Drafting:
    """Who drafts, and how long, where the drafter `name` and `k` are asked for. At K = 0 nobody does.

    `draft` is the kind of the pair's draft, None where it has none: then another drafter takes its place.
    """
    kind = DRAFTERS[drafter_at(name, (k,)) or name]
    lacks = draft != kind.name if kind.reads_hidden else draft is None
    if kind.without_draft is not None and lacks:
        kind = DRAFTERS[kind.without_draft]
    elif draft is not None and kind.draft_alone:
        kind = DRAFTERS[draft]
    return Drafting(kind, k if kind.drafts else 0)


def effective_rule(name: str, seed: int | None, temperature: float) -> RuleKind:
    """`auto`: coupled under a seed, else block. At temperature 0 every rule is the same equality."""
    if temperature == 0.0:
        return GREEDY
    if name == DEFAULT_RULE:
        return BLOCK if seed is None else COUPLED
    return RULES[name]


def kind_of(name: str) -> DrafterKind:
    """The kind of that name, also of one that only an older or newer specdec knows, as in a trace."""
    return (DRAFTERS | {FORCED.name: FORCED}).get(name) or DrafterKind(name, "")


def learns_from(drafter: str) -> bool:
    """Whether rounds of this drafter teach acceptance by position; it is False for plain rounds."""
    return kind_of(drafter).learns


def import_named(path: str) -> Any:
    """What `path`, "module:name", names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
