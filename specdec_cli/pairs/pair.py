"""What a pair is, as listed and as asked for (pure). An unknown name is an error that names the nearest known one."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from specdec_cli.core.errors import NotAvailable, UsageError
from specdec_cli.core.kinds import DEFAULT_DRAFTER, DRAFTERS, HEAD, NONE
from specdec_cli.core.request import (
    DEFAULT_K,
    DRAFT_CONTEXT,
    LEAST_DRAFT_CONTEXT,
    MAX_K,
    DraftContext,
    one_name,
    whole,
    within,
)

if TYPE_CHECKING:  # a package that finds mlx its BLAS, which no help waits for
    from specdec_cli.models.vocab import VocabVerdict

DEMO = "demo"
# What a pair may be called.
NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
# What ends the names of quantized models in other formats: -Q4_K_M.gguf, -GGUF. A size tells models of a family apart.
OTHER_FORMAT, SIZED = re.compile(r"[-_.](?:i?q\d|b?f16|gguf).*", re.I), re.compile(r"[a-z].*\d+b")


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and its draft, if any; ids are Hub ids, folders, or `specdec:` paths inside the package.

    Adapters are folders. `source` is the file that lists it; `evidence` who else names these models, with the day.
    """

    name: str
    target: str
    draft: str | None
    k: int | Literal["auto"] = "auto"
    note: str = ""
    target_revision: str | None = None
    draft_revision: str | None = None
    target_bytes: int | None = None
    draft_bytes: int | None = None
    min_memory_gb: float | None = None
    verified: bool = False
    drafter: str | None = None
    stop_repetition: int = 0
    draft_context: DraftContext = DRAFT_CONTEXT
    target_adapter: str | None = None
    draft_adapter: str | None = None
    source: str = "command line"
    evidence: str = ""

    @property
    def expected_k(self) -> int:
        """K for predictions and comparisons that need one number."""
        return DEFAULT_K if self.k == "auto" else self.k

    @property
    def recent(self) -> int | None:
        """Tokens of a context that the draft reads at once, its last ones; None: all of them."""
        return None if self.draft_context == "full" else self.draft_context

    @property
    def run_command(self) -> str:
        """The command that runs this pair: by name where it is listed, else by its models."""
        if self.source != "command line":
            return f"specdec run -p {shlex.quote(self.name)} 'your prompt'"
        return f"specdec run {shlex.join(self.options)} 'your prompt'"

    @property
    def options(self) -> list[str]:
        """The words of a command line that name its models, where no file lists it.

        What only a pair can say comes from one: a revision or adapter of the target's from that of this name, beside
        another draft; a head, or a revision of the draft's, from the one that is found for the target.
        """
        words = ["-p", self.name] if self.of_a_pair else ["--target", self.target]
        if self.draft is None or self.draft.startswith(HEAD) or self.draft_revision:
            return words
        return [*words, "--draft", self.draft]

    @property
    def of_a_pair(self) -> bool:
        """Whether it has a revision or an adapter of the target's, which no option names."""
        return bool(self.target_revision or self.target_adapter)

    @property
    def stored(self) -> list[str]:
        """The words of `specdec pairs add NAME` that list it."""
        head = self.draft is not None and self.draft.startswith(HEAD)
        named = {"--target": self.target, "--target-revision": self.target_revision, "--adapter": self.target_adapter}
        named |= {"--head-from" if head else "--draft": self.draft and self.draft.removeprefix(HEAD)}
        named |= {"--draft-revision": self.draft_revision, "--draft-adapter": self.draft_adapter}
        return [word for option, value in named.items() if value for word in (option, value)]

    @property
    def own_head(self) -> bool:
        """Whether a head among the target's own files drafts."""
        return self.draft is None and self.drafter is not None and DRAFTERS[self.drafter].reads_hidden

    @property
    def has_target_alone(self) -> bool:
        """Whether nothing says what drafts, so that a draft is looked for among the models that are here."""
        return self.draft is None and self.drafter is None

    @property
    def one_source(self) -> bool:
        """Whether the packaged ids rest on a single thread or card, confirmed by nobody else."""
        return self.source == "packaged" and not self.verified and not self.evidence

    @property
    def described(self) -> str:
        """Its models, with the first digits of the commits that are pinned, and their adapters."""
        named = [name if revision is None else f"{name} at {revision[:7]}" for name, revision in self.models]
        adapters = self.target_adapter, self.draft_adapter
        named = [f"{name} under {own}" if own else name for name, own in zip(named, adapters, strict=False)]
        if len(named) > 1:
            return f"{named[0]} with {named[1]}"
        return f"{named[0]} with its own head" if self.own_head else f"{named[0]} without a draft"

    @property
    def models(self) -> tuple[tuple[str, str | None], ...]:
        """(id, pinned revision) of the target and, where there is one, of the draft."""
        target = ((self.target, self.target_revision),)
        return target if self.draft is None else (*target, (self.draft, self.draft_revision))


def require_valid(pair: Pair) -> Pair:
    """The same pair. Raises: UsageError for a value that models.toml would refuse, and for a name that is not text."""
    for name in ("name", "target", "draft", "target_revision", "draft_revision"):
        require_text(name, getattr(pair, name))
    if pair.k != "auto":
        within("k", 0, MAX_K)(whole("k", pair.k))
    if pair.drafter is not None:
        one_name("drafter", tuple(DRAFTERS))(pair.drafter)
    within("stop_repetition", 0)(whole("stop_repetition", pair.stop_repetition))
    if pair.draft_context != "full":
        within("draft_context", LEAST_DRAFT_CONTEXT)(whole("draft_context", pair.draft_context, DRAFT_CONTEXT))
    return pair


def require_text(name: str, value: object) -> None:
    """Raises: UsageError for what is neither a text nor None."""
    if not isinstance(value, str | None):
        raise UsageError(f"{name} {value!r} is not text", "give a name, a Hub id or a folder as text")


@dataclass(frozen=True, slots=True)
class PairSpec:
    """A pair as it was asked for, and who drafts; of its files nothing is known yet.

    `reason` says in a line why it is this pair, or this draft; empty where the user named it. `named`: somebody did.
    """

    pair: Pair
    drafter: str = DEFAULT_DRAFTER
    reason: str = ""
    named: bool = True

    @classmethod
    def of(cls, pair: Pair, drafter: str | None = None) -> PairSpec:
        """Of a pair as it is listed, drafted for by `drafter`, else as it says itself."""
        return cls(pair, drafter or pair.drafter or DEFAULT_DRAFTER)

    def drafted_by(self, drafter: str | None) -> PairSpec:
        """The same, for which `drafter` drafts; None: whoever does already."""
        reason = "" if drafter == NONE.name else self.reason  # why it drafts as it does, and nobody is to draft
        return replace(self, reason=reason, drafter=drafter or self.drafter)

    def reading(self, draft_context: DraftContext | None) -> PairSpec:
        """The same, of whose contexts the draft reads so many tokens; None: what the pair says. Raises: UsageError."""
        if draft_context is None:
            return self
        return replace(self, pair=require_valid(replace(self.pair, draft_context=draft_context)))

    def adapted(self, adapter: str | None) -> PairSpec:
        """The same with this adapter of the target, None: its own."""
        return replace(self, pair=replace(self.pair, target_adapter=adapter or self.pair.target_adapter))


@dataclass(frozen=True, slots=True)
class PairRow:
    """One pair of `specdec pairs`; `size_bytes`, `estimated_bytes` and `fits` are None where unknown.

    `pullable`: a pull brings what is missing of it; a folder that is gone it does not. A model that is here, and no
    listed pair's, has a row of its own: `folder` is where it lies, its pair's source whose that is.
    `recommended`: a pull without a name brings it. `tokenizers`: how they compare, where they are here and differ.
    """

    pair: Pair
    size_bytes: int | None
    downloaded: bool
    fits: bool | None
    default: bool
    estimated_bytes: int | None = None
    pullable: bool = True
    folder: str | None = None
    recommended: bool = False
    tokenizers: VocabVerdict | None = None

    def to_dict(self) -> dict[str, Any]:
        """The `--json` object."""
        names = "name target draft size_bytes estimated_bytes downloaded fits k source evidence verified default note "
        names += "folder recommended"
        found = {name: getattr(self if hasattr(self, name) else self.pair, name) for name in names.split()}
        return found | {"tokenizers": self.tokenizers and asdict(self.tokenizers)}


@dataclass(frozen=True, slots=True)
class Registry:
    """All known pairs by name, the user's over the packaged ones, and the default pair with the `file:line` of it."""

    pairs: Mapping[str, Pair]
    default_pair: str | None
    default_place: str = ""

    def find(self, name: str) -> Pair:
        """Raises: NotAvailable with the nearest names."""
        if name in self.pairs:
            return self.pairs[name]
        otherwise = f"specdec pull {name} makes a pair of it" if "/" in name else "specdec pairs lists them"
        hint = nearest(name, self.pairs, otherwise)
        raise NotAvailable(f"no pair named {name}; {len(self.pairs)} are known", hint)

    def instead_of(self, name: str) -> str:
        """How to get for MLX what other programs call `name`: qwen3:8b, or Qwen3-8B-Q4_K_M.gguf."""
        meant = _letters(OTHER_FORMAT.sub("", name.rpartition("/")[2]))
        twins = (pair.name for pair in self.pairs.values() if SIZED.match(meant) and meant in _letters(pair.target))
        if twin := next(twins, None):
            return f"the same model for MLX: specdec pull {twin}"
        return "look for it at huggingface.co/mlx-community, then: specdec pull ORGANISATION/NAME"


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def nearest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint: the names that hold `name` or are most like it, whatever their case; else `otherwise`, or all of them."""
    names = {one.lower(): one for one in known}
    holding = [one for one in names if name and name.lower() in one]
    near = [names[one] for one in (holding or difflib.get_close_matches(name.lower(), names))[:3]]
    return f"did you mean {' or '.join(near)}?" if near else otherwise or f"known: {', '.join(names.values())}"
