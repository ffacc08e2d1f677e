"""Who is trained: the pair's draft model, its head, or new Medusa heads; and how each is made, loaded and listed."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import cast

from specdec_cli.core.errors import Refused, UsageError
from specdec_cli.core.kinds import HEADS, LOOKUP, MODEL, TRAINED, DrafterKind
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.training import DraftStudent, HeadStudent, Student
from specdec_cli.models.heads import read_head
from specdec_cli.pairs.files import resolve
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session.load import under_adapter, with_head
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
        """Bytes that its training takes."""

    @property
    def others(self) -> tuple[DrafterKind, ...]:
        """Who else drafts for this target without any training."""
        return ()

    def before(self) -> LoadedPair:
        """The pair before any training."""
        return self.pair

    def after(self, folder: Path) -> LoadedPair:
        """The pair with what is in `folder`. Raises: NotAvailable, Refused."""
        return with_head(self.pair, read_head(folder, folder.name))

    def listed(self, place: Path) -> Pair:
        """The pair with what was kept in `place`, for models.toml."""
        return replace(
            self.spec.pair, draft=str(place), draft_revision=None, draft_adapter=None, draft_bytes=None, drafter=None
        )

    @property
    def same_cost(self) -> bool:
        """Whether a round costs the same after training as before."""
        return True


class DraftTrainee(Trainee):
    """The pair's draft model under an adapter."""

    what = "draft"
    made = "its draft tuned"

    def student(self) -> Student:
        base = replace(self.spec, pair=replace(self.spec.pair, draft_adapter=None))
        return DraftStudent(resolve(base).checkpoints[1], self.seed)

    @property
    def learning_bytes(self) -> int:
        """In float32, of what may be 16 bits; the adapter is small."""
        return 2 * cast(CachedModel, self.pair.first.draft).weight_bytes

    def after(self, folder: Path) -> LoadedPair:
        return under_adapter(self.pair, str(folder))

    def listed(self, place: Path) -> Pair:
        return replace(self.spec.pair, draft_adapter=str(place))

    @property
    def same_cost(self) -> bool:
        """An adapter of a float32 draft is added to its matrices on loading."""
        return cast(CachedModel, self.pair.first.draft).dtype == "float32"


class HeadTrainee(Trainee):
    """The head that the pair has."""

    what = "head"
    made = "its head tuned"

    def student(self) -> Student:
        files = resolve(self.spec).head
        assert files is not None
        return HeadStudent.of_files(files, self.pair.first.target, self.k)

    @property
    def learning_bytes(self) -> int:
        return 2 * COPIES * (self.pair.first.draft.weight_bytes if self.pair.first.draft else 0)


class MedusaTrainee(Trainee):
    """New heads, K of them."""

    what = "medusa"
    made = "Medusa heads trained"
    new = True

    def student(self) -> HeadStudent:
        return HeadStudent.medusa(self.pair.first.target, self.k)

    @property
    def learning_bytes(self) -> int:
        size = self.pair.first.target.network.hidden.output_head.hidden_size
        return 4 * COPIES * self.k * size * size

    @property
    def others(self) -> tuple[DrafterKind, ...]:
        return (LOOKUP, MODEL) if self.pair.first.draft else (LOOKUP,)

    def before(self) -> LoadedPair:
        return replace(self.pair, first=Slot(self.pair.first.target, self.student().cached()), costs={})


def trainee(what: str | None, spec: PairSpec, pair: LoadedPair, k: int, seed: int) -> Trainee:
    """What is to be trained; without `what`, what drafts. Raises: UsageError, Refused for what the pair has not."""
    kind, target = pair.draft_kind, pair.pair.target
    if what is None and kind is None:
        raise UsageError(f"{pair.pair.name} has no draft to train", "--what medusa trains new heads for its target")
    what = what or ("draft" if kind == MODEL.name else "head")
    if what == "draft" and kind != MODEL.name:
        has = f"{pair.names[1]} is a head ({kind})" if kind else f"{pair.pair.name} has no draft model"
        raise Refused(f"{has}, and --what draft trains a draft model", f"name one: --target {target} --draft ID")
    if what == "head" and kind not in HEADS:
        raise Refused(f"{pair.pair.name} has no head to train", "--what medusa trains new heads for its target")
    kinds: tuple[type[Trainee], ...] = (DraftTrainee, HeadTrainee, MedusaTrainee)
    return dict(zip(TRAINED, kinds, strict=True))[what](spec, pair, k, seed)
