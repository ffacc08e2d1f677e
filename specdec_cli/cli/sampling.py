"""The options that say how tokens are drawn. Law: what is not given is the target's own value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specdec_cli.cli import complete
from specdec_cli.cli.options import option
from specdec_cli.kinds import DEFAULT_RULE, rule_names
from specdec_cli.request import one_name, parse_bias, sampling_flags

TARGETS_OWN = "the target's own"


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How tokens are drawn; None is the target's own value."""

    temp: Annotated[
        float | None, option(metavar="T", env="TEMP", help="Temperature; 0 is greedy.", show_default=TARGETS_OWN)
    ] = None
    top_p: Annotated[
        float | None,
        option(
            metavar="P",
            env="TOP_P",
            help="Sample from the best tokens that hold this mass.",
            show_default=TARGETS_OWN,
            advanced=True,
        ),
    ] = None
    seed: Annotated[
        int | None,
        option(
            metavar="N",
            env="SEED",
            help="Same seed, same text up to rounding, for every K and drafter (rule coupled).",
            show_default="a new one",
        ),
    ] = None
    rule: Annotated[
        str,
        option(
            metavar="NAME",
            callback=one_name("--rule", rule_names()),
            env="RULE",
            help="Above temperature 0: token, block, coupled or match; auto is coupled under --seed, else block.",
            autocompletion=complete.one_of(rule_names()),
            advanced=True,
        ),
    ] = DEFAULT_RULE
    top_k: Annotated[
        int | None,
        option(
            metavar="N", env="TOP_K", help="Sample from the N best tokens.", show_default=TARGETS_OWN, advanced=True
        ),
    ] = None
    min_p: Annotated[
        float | None,
        option(
            metavar="P",
            env="MIN_P",
            help="Leave out tokens less likely than this share of the best.",
            show_default=TARGETS_OWN,
            advanced=True,
        ),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        option(
            metavar="X",
            env="REPETITION_PENALTY",
            help="Over 1: tokens already in prompt or answer are less likely.",
            show_default=TARGETS_OWN,
            advanced=True,
        ),
    ] = None
    presence_penalty: Annotated[
        float | None,
        option(
            metavar="X",
            env="PRESENCE_PENALTY",
            help="Taken from the logits of tokens the answer has used.",
            show_default=TARGETS_OWN,
            advanced=True,
        ),
    ] = None
    frequency_penalty: Annotated[
        float | None,
        option(
            metavar="X",
            env="FREQUENCY_PENALTY",
            help="Taken from the logits of tokens the answer has used, once for each use.",
            show_default=TARGETS_OWN,
            advanced=True,
        ),
    ] = None
    logit_bias: Annotated[
        list[str] | None, option(metavar="ID=V", help="Add V to a token's logit; repeatable.", advanced=True)
    ] = None

    def values(self) -> dict[str, float | None]:
        """The flags by the names of `request.BOUNDS`. Raises: UsageError for one out of its bounds."""
        penalties = self.repetition_penalty, self.presence_penalty, self.frequency_penalty
        return sampling_flags(self.temp, self.top_p, self.top_k, self.min_p, *penalties)

    def bias(self) -> tuple[tuple[int, float], ...]:
        """Raises: UsageError for an entry that is not ID=VALUE."""
        return parse_bias(tuple(self.logit_bias or ()))
