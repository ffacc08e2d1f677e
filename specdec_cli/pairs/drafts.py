"""Which of the models here could draft for a target: by configurations and sizes first, then by tokenizers.

No weight is read. Two tokenizers whose files differ are compared entry by entry, once: the answer is kept.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import platformdirs

from specdec_cli import hub
from specdec_cli.core import jsonfile
from specdec_cli.core.errors import SpecdecError
from specdec_cli.core.progress import OnStep, Step, unseen
from specdec_cli.models.checkpoint import Checkpoint, read_checkpoint
from specdec_cli.models.tokenizer_files import read_alike
from specdec_cli.models.vocab import VocabVerdict
from specdec_cli.pairs.files import ModelFiles, PairFiles
from specdec_cli.pairs.fingerprint import tokenizers_print
from specdec_cli.pairs.pair import Pair, PairSpec

# Pairs that gain have drafts of about a fifteenth of the target's bytes; those are compared first.
BEST_RATIO = 15.0
LEAST_RATIO = 2.0
# Names of models that embed or rank texts; those of sentence-transformers have a file of their modules as well.
SCORES = re.compile(r"embed|rerank", re.IGNORECASE)
MOST_COMPARED = 8
MOST_KEPT = 1000


@dataclass(frozen=True, slots=True)
class FoundDraft:
    """A model here that can draft for a target; of `ratio` times as many bytes."""

    model: hub.FoundModel
    ratio: float

    @property
    def smaller(self) -> str:
        """How much."""
        return f"{self.ratio:.{self.ratio < 10:d}f} times smaller"

    @property
    def option(self) -> str:
        """What to add to a command, and why."""
        return f"{shlex.join(('--draft', self.model.target))} ({self.smaller})"


def find_drafts(target: Checkpoint, models: Sequence[hub.FoundModel], report: OnStep = unseen) -> list[FoundDraft]:
    """Those of `models` whose network is smaller, of the target's family, and whose tokenizer agrees; best size first.

    `report` hears how many tokenizers were compared. Raises: NotAvailable if the target's tokenizer cannot be read.
    """
    size_bytes, (family, size) = sum(path.stat().st_size for path in target.weights), _network(target.config)
    found = [FoundDraft(model, size_bytes / model.size_bytes) for model in models if model.size_bytes]
    found = [draft for draft in found if draft.ratio >= LEAST_RATIO and not draft.model.problem]
    found = [draft for draft in found if not _scores_texts(draft.model)]
    networks = [_network(jsonfile.read_or_empty(draft.model.folder / "config.json")) for draft in found]
    found = [draft for draft, (its, least) in zip(found, networks, strict=True) if its == family and 0 < least < size]
    found.sort(key=lambda draft: (abs(math.log(draft.ratio / BEST_RATIO)), draft.model.name))
    agreed, compared = [], found[:MOST_COMPARED]
    for number, draft in enumerate(compared, 1):
        report(Step("comparing tokenizers", number, len(compared), note=draft.model.name))
        agreed += [draft] * _agree(target, draft.model)
    return agreed


def _scores_texts(model: hub.FoundModel) -> bool:
    """Whether it was trained to embed or rank texts: such a network has a language model's shape, and guesses badly."""
    return bool(SCORES.search(model.name)) or (model.folder / "modules.json").is_file()


def _network(config: Mapping[str, Any]) -> tuple[str, int]:
    """(its family, about how many weights of it a token passes): qwen3 of qwen3 and of qwen3_moe; 0 if it is not said.

    A model and what it is quantized to have the same.
    """
    nested = config.get("text_config")
    values = nested if isinstance(nested, Mapping) and "model_type" in nested else config
    family = str(values.get("model_type")).partition("_")[0]
    sizes = [next((values[key] for key in keys if type(values.get(key)) is int), 0) for keys in SIZES]
    return family, math.prod(sizes) * sizes[0]


# By the names that configurations give them.
SIZES = (("hidden_size", "n_embd", "d_model"), ("num_hidden_layers", "n_layer", "n_layers"))


def _agree(target: Checkpoint, model: hub.FoundModel) -> bool:
    """Whether both tokenizers have the same words. Raises: NotAvailable if the target's cannot be read."""
    try:
        draft = read_checkpoint(hub.locate(model.target), model.target)
    except (SpecdecError, OSError):
        return False
    pair = PairSpec(Pair(target.name, target.name, draft.name))
    found = compared(PairFiles(pair, ModelFiles(target), ModelFiles(draft)))
    return found is None or not found.differs


def compared(files: PairFiles) -> VocabVerdict | None:
    """`files.vocab` of two tokenizers that differ in a file: to read two takes seconds, so it is kept.

    None where the draft has the target's, and where there is no draft model. Raises: NotAvailable if the target's
    cannot be read; a draft's that cannot be is incompatible.
    """
    models = files.checkpoints
    try:
        if len(models) == 1 or read_alike(*(model.folder for model in models)):
            return None
        kept, key = jsonfile.read_or_empty(compared_file()), tokenizers_print(*models)
    except OSError as error:
        return VocabVerdict("incompatible", str(error))
    with suppress(LookupError, TypeError):  # it was not compared, or by another version
        return VocabVerdict(**kept[key])
    files.tokenizer.table()
    try:
        found = files.vocab
    except SpecdecError as error:
        found = VocabVerdict("incompatible", error.message)
    assert found is not None  # there are two
    with suppress(OSError):
        compared_file().parent.mkdir(parents=True, exist_ok=True)
        kept = {**dict([*kept.items()][-MOST_KEPT:]), key: asdict(found)}
        jsonfile.replace_text(compared_file(), json.dumps(kept, indent=1))
    return found


def compared_file() -> Path:
    """Which tokenizers agree, as compared before."""
    return platformdirs.user_cache_path("specdec") / "tokenizers.json"
