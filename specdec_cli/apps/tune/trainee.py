"""Who is trained: the pair's draft model, its head, or new Medusa heads; and how each is made, loaded and listed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from specdec_cli.apps.tune.documents import PIECE, SAID
from specdec_cli.core.errors import Refused, UsageError
from specdec_cli.core.kinds import HEADS, LOOKUP, MODEL, TRAINED, TRANSLATED, DrafterKind
from specdec_cli.engine.experts import experts_a_token
from specdec_cli.engine.heads.cached_head import CachedHead
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.training import (
    KEPT_LOGIT_ARRAYS,
    KEPT_VALUES,
    DraftStudent,
    HeadStudent,
    Student,
    matrices,
    value_bytes,
)
from specdec_cli.models.heads import read_head
from specdec_cli.pairs.files import DraftHead, find
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session.load import beside
from specdec_cli.session.ready import prove
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.slot import Slot

# Weights in float32 while they learn: they, their gradient and two averages of it.
COPIES = 4


class Trainee:
    """`spec` names the pair as it was asked for, `pair` has its weights."""

    what: str
    made: str
    new = False

    def __init__(self, spec: PairSpec, pair: LoadedPair, k: int, seed: int) -> None:
        self.spec, self.pair, self.k, self.seed = spec, pair, k, seed

    @abstractmethod
    def student(self) -> Student:
        """Made anew. Raises: Refused, NotAvailable."""

    @property
    @abstractmethod
    def learning_bytes(self) -> int:
        """Bytes of its weights while it learns."""

    @property
    @abstractmethod
    def piece_bytes(self) -> int:
        """Bytes of the values that a step keeps of one piece."""

    def _logit_bytes(self, vocab_size: int, tokens: int) -> int:
        return 4 * KEPT_LOGIT_ARRAYS * vocab_size * tokens

    @property
    def others(self) -> tuple[DrafterKind, ...]:
        """Who else drafts for this target without any training."""
        return ()

    def before(self) -> LoadedPair:
        """The pair before any training."""
        return self.pair

    def after(self, folder: Path) -> LoadedPair:
        """The pair with what is in `folder`. Raises: NotAvailable, Refused."""
        return prove(self.pair, DraftHead(read_head(folder, folder.name)))

    def listed(self, place: Path) -> Pair:
        """The pair with what was kept in `place`, for models.toml."""
        return replace(
            self.spec.pair, draft=str(place), draft_revision=None, draft_adapter=None, draft_bytes=None, drafter=None
        )

    @property
    def same_cost(self) -> bool:
        """Whether a round costs the same after training as before."""
        return True

    @property
    def cost(self) -> str:
        """What it will cost more once it is trained, if it will."""
        return ""


class DraftTrainee(Trainee):
    """The pair's draft model under an adapter."""

    what = "draft"
    made = "its draft tuned"

    def student(self) -> Student:
        base = replace(self.spec, pair=replace(self.spec.pair, draft_adapter=None))
        return DraftStudent(find(base).checkpoints[1], self.seed)

    @property
    def learning_bytes(self) -> int:
        """In float32, of what may be 16 bits; the adapter is small."""
        return 2 * self._draft.weight_bytes

    @property
    def piece_bytes(self) -> int:
        tokens = PIECE + SAID
        network = self._draft.network
        experts = experts_a_token(network.module, network.read_shares)
        kept = value_bytes(network.module.layers, tokens, experts=experts)
        return kept + self._logit_bytes(self._draft.vocab_size, tokens)

    @property
    def _draft(self) -> CachedModel:
        return cast(CachedModel, self.pair.first.draft)

    @property
    def cost(self) -> str:
        if self.same_cost:
            return ""
        many = len(self._matrices)
        return (
            f"{self._draft.name} is packed or in 16 bits, so an adapter stays beside its {many} matrices: "
            f"{2 * many} products more in each of its steps"
        )

    @property
    def _matrices(self) -> Sequence[Any]:
        """Those that get an adapter."""
        return [part for layer in self._draft.network.module.layers for part in matrices(layer)]

    def after(self, folder: Path) -> LoadedPair:
        return beside(self.pair, self.listed(folder))

    def listed(self, place: Path) -> Pair:
        return replace(self.spec.pair, draft_adapter=str(place))

    @property
    def same_cost(self) -> bool:
        """An adapter of a float32 draft is added to its matrices on loading."""
        return self._draft.dtype == "float32" and not any("scales" in part for part in self._matrices)


class HeadTrainee(Trainee):
    """The head that the pair has."""

    what = "head"
    made = "its head tuned"

    def student(self) -> Student:
        files = find(self.spec).head
        assert files is not None
        return HeadStudent.of_files(files, self.pair.first.target, self.k)

    @property
    def learning_bytes(self) -> int:
        return 2 * COPIES * self._head.weight_bytes

    @property
    def piece_bytes(self) -> int:
        head = self._head.head
        experts = experts_a_token(head.module, head.read_shares)
        kept = value_bytes([head.module], PIECE + SAID, self.k, experts)
        return kept + self._logit_bytes(self.pair.first.target.vocab_size, self.k * SAID)

    @property
    def _head(self) -> CachedHead:
        return cast(CachedHead, self.pair.first.draft)


class MedusaTrainee(Trainee):
    """New heads, K of them."""

    what = "medusa"
    made = "Medusa heads trained"
    new = True

    def student(self) -> HeadStudent:
        return HeadStudent.medusa(self.pair.first.target, self.k)

    @property
    def learning_bytes(self) -> int:
        return 4 * COPIES * self.k * self._width**2

    @property
    def piece_bytes(self) -> int:
        tokens = PIECE + SAID
        kept = 4 * KEPT_VALUES * 3 * self.k * self._width * tokens  # of each head: product, its SiLU, sum
        return kept + self._logit_bytes(self.pair.first.target.vocab_size, self.k * SAID)

    @property
    def _width(self) -> int:
        return self.pair.first.target.network.hidden.output_head.hidden_size

    @property
    def others(self) -> tuple[DrafterKind, ...]:
        return (LOOKUP, MODEL) if self.pair.first.draft else (LOOKUP,)

    def before(self) -> LoadedPair:
        return replace(self.pair, first=Slot(self.pair.first.target, self.student().cached()), costs={})


def require_gradient(learner: CachedModel | CachedHead, name: str) -> None:
    """Raises: Refused for recurrent layers: their kernels have no gradient on Metal, and without these one step of
    training keeps the state of every token, some 37 GB for 18 layers (mlx-lm issues 482 and 1217)."""
    recurrent = [kind for kind in learner.cache_kinds if not kind.endswith("KVCache")]
    if recurrent:
        raise Refused(
            f"{name} has recurrent layers ({recurrent[0]}), which cannot be trained: their kernel has no gradient",
            "--what medusa trains new heads for its target",
        )


def learning(what: str | None, pair: Pair, kind: str | None, draft: str | None) -> str:
    """What of `pair`, whose `draft` is of this kind, is to be trained; without `what`, what drafts.

    Raises: UsageError, Refused for what the pair has not.
    """
    if what is None and kind is None:
        raise UsageError(f"{pair.name} has no draft to train", "--what medusa trains new heads for its target")
    what = what or ("head" if kind in HEADS else "draft")
    if what == "draft" and kind != MODEL.name:
        has = f"{draft} is a head ({kind})" if kind else f"{pair.name} has no draft model"
        has = f"{draft} has another tokenizer than its target" if kind == TRANSLATED.name else has
        raise Refused(f"{has}, and --what draft trains a draft model", f"name one: --target {pair.target} --draft ID")
    if what == "head" and kind not in HEADS:
        raise Refused(f"{pair.name} has no head to train", "--what medusa trains new heads for its target")
    return what


def trainee(what: str | None, spec: PairSpec, pair: LoadedPair, k: int, seed: int) -> Trainee:
    """Who learns `what`. Raises: as `learning`, and Refused for layers without a gradient."""
    what = learning(what, pair.pair, pair.draft_kind, pair.names[1])
    if what != "medusa" and pair.first.draft:
        require_gradient(pair.first.draft, str(pair.names[1]))
    kinds: tuple[type[Trainee], ...] = (DraftTrainee, HeadTrainee, MedusaTrainee)
    return dict(zip(TRAINED, kinds, strict=True))[what](spec, pair, k, seed)
