"""A tiny pair, and documents for it that are split."""

from __future__ import annotations

import random

import pytest

from specdec_cli.apps.tune.documents import Document, split
from specdec_cli.engine.training import DraftStudent
from specdec_cli.pairs.files import find
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session.load import Wishes, load_spec


@pytest.fixture(scope="module")
def spec(tiny_pair):
    return PairSpec(Pair("tiny", *map(str, tiny_pair), k=3), "model")


@pytest.fixture(scope="module")
def pair(spec):
    return load_spec(spec, Wishes())


@pytest.fixture(scope="module")
def parts(pair):
    draw = random.Random(5)
    texts = ["".join(draw.choice("abcdefgh ,.") for _ in range(150)) for _ in range(24)]
    return split([Document(f"{n}", tuple(pair.text_tokens(one))) for n, one in enumerate(texts)], 0)


@pytest.fixture
def student(spec):
    return DraftStudent(find(spec).checkpoints[1], seed=0)
