"""What may be requested of a reply, the bounds, and the values then in effect (pure).

A value out of bounds is refused with the value and the bounds. A value not given is the target's default.
"""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from specdec_cli.core.errors import UsageError
from specdec_cli.core.kinds import DEFAULT_DRAFTER, DEFAULT_RULE, DRAFTERS, K, drafter_at, rule_names

# The one bound on the rows of a decoding pass. Windows keep that much slack, recurrent layers record passes that long.
# The usual pass feeds one emitted token and a draft, at most 32 rows: Apple's GPUs multiply in tiles of 32 rows, so
# between a dozen and 32 rows each further one is nearly free.
MAX_ROWS = 44
# Emitted tokens that a pass may still have to feed before its draft; more of them get a pass of their own.
MAX_UNREAD = 12
# So a draft of any kind (a fixed K, an adaptive one, a lookup) has at most as many tokens as rows are left.
MAX_DRAFT = MAX_ROWS - MAX_UNREAD
# Largest draft length that can be asked for, and the one for predictions that need a single number.
MAX_K, DEFAULT_K = min(16, MAX_DRAFT), 3
KV_BITS = (2, 4, 8)
# A draft reads the last so many tokens of a context, or `full`.
DraftContext = int | Literal["full"]
LEAST_DRAFT_CONTEXT, DRAFT_CONTEXT = 8, 1024
# Value -> (lowest, highest, what is off).
BOUNDS: Mapping[str, tuple[float, float, float]] = {
    "temperature": (0.0, 100.0, 0.0),
    "top_k": (0, 1_000_000_000, 0),
    "top_p": (0.0, 1.0, 1.0),
    "min_p": (0.0, 1.0, 0.0),
    "repetition_penalty": (0.01, 100.0, 1.0),
    "presence_penalty": (-100.0, 100.0, 0.0),
    "frequency_penalty": (-100.0, 100.0, 0.0),
}
# The least of every other number of a request, where one is given. A Request of 0 tokens only reads the prompt.
LEAST = {"max_tokens": 0, "min_tokens": 0, "stop_repetition": 0, "attempt": 0, "max_context": 1, "logprobs": 0}
BIAS_HINT = "ids start at 0, and a value is a number: logit_bias=((42, -5.0),)"
DEFAULTED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


ShapeKind = Literal["schema", "regex", "grammar"]
SHAPES: tuple[ShapeKind, ...] = ("schema", "regex", "grammar")


@dataclass(frozen=True, slots=True)
class Constraint:
    """The shape that an answer must have; a grammar is in llguidance's Lark form. `whole`: thinking included."""

    kind: ShapeKind
    text: str
    whole: bool = False

    @property
    def noun(self) -> str:
        """What a person calls it."""
        return {"schema": "schema", "regex": "regular expression", "grammar": "grammar"}[self.kind]


@dataclass(frozen=True, slots=True)
class Request:
    """Length, stops, drafting and sampling of one reply.

    `max_tokens` 0 only reads the prompt.
    `k` is the draft length; 0 is plain decoding, `auto` chooses each round from measured costs and acceptance.
    `sampling` holds the values of BOUNDS that were asked for; the others are the target's defaults.
    `attempt` counts further answers to one prompt: under a seed, each has noise of its own.
    `constraint` is the shape that the answer must have, if any.
    `stop_repetition`: the answer ends when its last so many tokens repeat one phrase; 0 lets it go on.
    `logprobs`: rounds carry each token's log-probability and that many of the best ones; None: they do not.
    `predict` is text, or its ids, that the answer will probably resemble: it is drafted from, and never shown to the
    model.
    `stop_tokens` end the answer as the target's own do, which `ignore_eos` leaves without effect. Before `min_tokens`
    nothing ends it. `bad_words` are never said.
    """

    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    k: K = "auto"
    drafter: str = DEFAULT_DRAFTER
    max_context: int | None = None
    rule: str = DEFAULT_RULE
    seed: int | None = None
    sampling: Mapping[str, float | None] = field(default_factory=dict)
    logit_bias: tuple[tuple[int, float], ...] = ()
    attempt: int = 0
    logprobs: int | None = None
    stop_repetition: int = 0
    constraint: Constraint | None = None
    predict: str | tuple[int, ...] = ""
    stop_tokens: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    bad_words: tuple[str, ...] = ()


def request_of(options: Mapping[str, Any]) -> Request:
    """The Request of keyword arguments: its own fields, and the sampling values of BOUNDS by name.

    Raises: UsageError for an unknown name, and for no tokens at all.
    """
    known = [field.name for field in fields(Request)]
    for name in options:
        if name not in known and name not in BOUNDS:
            close = nearest(name, [*known, *BOUNDS])
            hint = f"the nearest: {close}" if close else f"known: {', '.join(known)}"
            raise UsageError(f"{name} is not an option of a reply", hint)
    within("max_tokens", 1)(options.get("max_tokens"))
    named = options.get("sampling", {})
    if isinstance(named, Mapping):
        named = {**named, **{name: options[name] for name in options if name in BOUNDS}}
    return replace(Request(), **{name: options[name] for name in options if name in known} | {"sampling": named})


def require_valid(request: Request) -> Request:
    """The same request: one stop text becomes a tuple of it, and the last bias of an id counts.

    Raises: UsageError for a drafter or rule that does not exist, a value out of bounds, and one of another type.
    """
    one_name("drafter", tuple(DRAFTERS))(request.drafter)
    one_name("rule", rule_names())(request.rule)
    for name, low in LEAST.items():
        within(name, low)(getattr(request, name))
    if request.k != "auto":
        within("k", 0, MAX_K)(request.k)
    seed = None if request.seed is None else whole("seed", request.seed)
    if not isinstance(request.sampling, Mapping):
        raise UsageError(f"sampling {request.sampling!r} names no values", "for example: sampling={'temperature': 0.8}")
    effective({}, request.sampling)
    stop, bad_words = _several(request.stop), _several(request.bad_words)
    for name, texts in (("stop", stop), ("bad_words", bad_words)):
        if not all(isinstance(text, str) and text for text in texts):
            raise UsageError(
                f"{name} {texts!r} holds an empty text, or something other than text", f"for example: {name}=('END',)"
            )
    shape = request.constraint
    sound = isinstance(shape, Constraint) and shape.kind in SHAPES and isinstance(shape.text, str)
    if shape is not None and not sound:
        raise UsageError(f"{shape!r} is not a constraint", f"its kind is one of {', '.join(SHAPES)}, its text a string")
    predict = request.predict if isinstance(request.predict, str) else token_ids("predict", request.predict)
    ends = token_ids("stop_tokens", request.stop_tokens)
    for name, ids in (("predict", predict), ("stop_tokens", ends)):
        if ids and not isinstance(ids, str):
            within(f"an id of {name}", 0)(min(ids))
    biases = _sound_bias(request.logit_bias)
    return replace(
        request, stop=stop, bad_words=bad_words, logit_bias=biases, predict=predict, stop_tokens=ends, seed=seed
    )


def _several(value: Any) -> tuple[Any, ...]:
    """Of texts that may be one."""
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else (value,)


def token_ids(name: str, values: Any) -> tuple[int, ...]:
    """Ids in any sequence of whole numbers, an array too. Raises: UsageError for anything else, bytes too."""
    listed = values.tolist() if hasattr(values, "tolist") and not isinstance(values, memoryview) else values
    if isinstance(listed, str | bytes | bytearray | memoryview) or not isinstance(listed, Iterable):
        raise UsageError(f"{name} is a {type(values).__name__}, not a sequence of ids", f"for example: {name} (11, 42)")
    ids = tuple(listed)
    return ids if all(type(token) is int for token in ids) else tuple(whole(f"an id of {name}", one) for one in ids)


def whole(name: str, value: Any, example: int = 7) -> int:
    """The value, of whatever library it is. Raises: UsageError for what is not a whole number."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise UsageError(f"{name} {value!r} is not a whole number", f"for example: {example}")


def _sound_bias(biases: Iterable[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Raises: UsageError for what is no pair of an id and a number."""
    try:
        found = dict(biases)
    except (TypeError, ValueError) as error:
        raise UsageError(f"logit_bias {biases!r} are not pairs", BIAS_HINT) from error
    for token, value in found.items():
        if not (isinstance(token, int) and token >= 0 and isinstance(value, int | float) and not math.isnan(value)):
            raise UsageError(f"logit_bias ({token!r}, {value!r}) is not possible", BIAS_HINT)
    return tuple(found.items())


def looks_up(drafter: str, k: K) -> bool:
    """Whether a prediction is of use to it, or at least no harm: plain decoding may be asked for one."""
    if drafter not in DRAFTERS:  # an unknown one is refused by whoever looks for it
        return True
    kind = DRAFTERS[drafter_at(drafter, (k,)) or drafter]
    return kind.looks_up or not kind.drafts


def require_lookups(predict: str | tuple[int, ...], drafter: str, k: K) -> None:
    """Raises: UsageError for a prediction that a drafter would leave aside."""
    if predict and not looks_up(drafter, k):
        known = " or ".join(f"--drafter {name}" for name, kind in DRAFTERS.items() if kind.looks_up)
        raise UsageError(f"a prediction is looked up, and --drafter {drafter} looks nothing up", f"take {known}")


def defaults(config: Mapping[str, Any]) -> dict[str, float]:
    """The sampling values of a generation_config.json.

    `do_sample` false, or absent without a temperature, means temperature 0. Values that are null or out of bounds are
    ignored: a file may not stop a reply.
    """
    found = {name: config[name] for name in DEFAULTED if _within(name, config.get(name))}
    if not config.get("do_sample", "temperature" in found):
        found["temperature"] = 0.0
    elif "temperature" not in found:
        found["temperature"] = 1.0
    return found


def effective(config: Mapping[str, Any], given: Mapping[str, float | None], typed: str = "") -> dict[str, float]:
    """Every sampling value by name: those `given`, else the model's defaults, else off.

    Raises: UsageError for one out of its bounds; it was `typed` behind that and as its option is spelled, if any was.
    """
    for name, value in given.items():
        one_name("sampling", tuple(BOUNDS))(name)
        if value is not None and not _within(name, value):
            (low, high, off), option = BOUNDS[name], f"{typed}{flag(name)}" if typed else name
            raise UsageError(f"{option} {value} is outside {low:g} to {high:g}", f"off is {option} {off:g}")
    off_values = {name: off for name, (_, _, off) in BOUNDS.items()}
    return off_values | defaults(config) | {name: value for name, value in given.items() if value is not None}


def off(name: str) -> float:
    """The value that turns it off."""
    return BOUNDS[name][2]


def flag(name: str) -> str:
    """The spelling of its option."""
    return {"temperature": "temp"}.get(name, name.replace("_", "-"))


def parse_bias(entries: Iterable[str]) -> tuple[tuple[int, float], ...]:
    """`ID=VALUE` entries as pairs; the last one of an id counts.

    Raises: UsageError for any other entry.
    """
    found: list[tuple[int, float]] = []
    for entry in entries:
        token, _, value = entry.partition("=")
        try:
            found.append((int(token), float(value)))
        except ValueError as error:
            raise UsageError(f"--logit-bias {entry} is not ID=VALUE", "for example: --logit-bias 42=-5") from error
    return _sound_bias(found)


def _within(name: str, value: Any) -> bool:
    low, high, _ = BOUNDS[name]
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def within(option: str, low: int, high: int | None = None) -> Callable[[int | None], int | None]:
    """A check of `option` against bounds. It raises UsageError with the value and the bounds."""

    def check(value: int | None) -> int | None:
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise UsageError(f"{option} {value!r} is not a whole number", f"for example: {option} {low}")
        if value is not None and (value < low or (high is not None and value > high)):
            bounds = f"below {low}" if high is None else f"outside {low} to {high}"
            nearest = low if value < low or high is None else high
            raise UsageError(f"{option} {value} is {bounds}", f"the nearest that works: {option} {nearest}")
        return value

    return check


def parse_k(value: str | None, option: str = "-k") -> K | None:
    """What `option` was given. Raises: UsageError for anything but `auto` and a whole number within bounds."""
    if value is None or value == "auto":
        return None if value is None else "auto"
    try:
        return within(option, 0, MAX_K)(int(value))
    except ValueError as error:
        raise UsageError(f"{option} {value} is neither a whole number nor auto", f"for example: {option} 4") from error


def parse_draft_context(value: str | None) -> DraftContext | None:
    """What --draft-context was given. Raises: UsageError for anything but `full` and a whole number within bounds."""
    if value is None or value == "full":
        return None if value is None else "full"
    try:
        number = within("--draft-context", LEAST_DRAFT_CONTEXT)(int(value))
    except ValueError as error:
        hint = f"for example: --draft-context {DRAFT_CONTEXT}"
        raise UsageError(f"--draft-context {value} is neither a whole number nor full", hint) from error
    assert number is not None
    return number


def one_of(option: str, values: Sequence[int]) -> Callable[[int | None], int | None]:
    """A check of `option` against a list. It raises UsageError with the value and the list."""

    def check(value: int | None) -> int | None:
        if value is not None and value not in values:
            nearest = min(values, key=lambda known: abs(known - value))
            known = ", ".join(map(str, values))
            raise UsageError(f"{option} {value} is none of {known}", f"the nearest that works: {option} {nearest}")
        return value

    return check


# The share of a word's letters that one for which it was mistyped has, too, in their order.
SIMILAR = 0.7


def nearest(word: str, names: Sequence[str]) -> str:
    """The one of `names` that `word` begins or may be a slip for, empty where it is unlike all of them."""
    begun = [name for name in names if len(word) > 1 and name.startswith(word)]
    return next(iter(begun or difflib.get_close_matches(word, names, 1, SIMILAR)), "")


def one_name(option: str, names: Sequence[str]) -> Callable[[str], str]:
    """A check of `option` against names. It raises UsageError with the nearest name."""

    def check(value: str) -> str:
        if value not in names:
            close = nearest(str(value), names)
            hint = f"the nearest: {option} {close}" if close else f"for example: {option} {names[0]}"
            raise UsageError(f"{option} {value} is none of {', '.join(names)}", hint)
        return value

    return check
