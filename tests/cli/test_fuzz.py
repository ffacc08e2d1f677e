"""The attacks of whoever tried the tool hardest, again and at random, from a seed.

Law: an exit code of the contract; on a failure two lines, the second a hint; no traceback and no name of Python's.
FUZZ_SEED sets another seed; a failure names the case.
"""

from __future__ import annotations

import json
import os
import random
import re

import pytest

from fakes.attacks import VALUES, damaged_folders, damaged_lines
from fakes.models import tiny_folder

pytestmark = pytest.mark.slow
SEED = int(os.environ.get("FUZZ_SEED", "16"))
CODES = {0, 1, 2, 3, 4, 5, 130}
PYTHON = re.compile(
    r"Traceback|\b[A-Z]\w*(Error|Exception|Warning)\b|NoneType|<class |object at 0x|failed unexpectedly"
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp("whole") / "model", seed=1)
    (folder / "generation_config.json").write_text('{"eos_token_id": 2, "temperature": 0.5, "top_p": 0.9}')
    index = {"metadata": {}, "weight_map": {"a": "model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def required(found, case, codes=CODES):
    """That this is what a person may be shown."""
    code, out, err = found
    lines = err.splitlines()
    assert code in codes, (case, found)
    assert not PYTHON.search(err), (case, err)
    verdict = code in (4, 5) and out.startswith("{") and not err  # of `check --json`: it is the answer
    if code not in (0, 130) and not verdict:
        kinds = [line.partition(": ")[0] for line in lines if line.startswith(("error: ", "hint: "))]
        assert kinds == ["error", "hint"] and lines[-1].startswith("hint: "), (case, err)
    return code


def test_a_damaged_model_folder_is_answered_for_or_named(specdec, whole, tmp_path):
    """58 kinds of damage ended in exit 1 and a name of Python's."""
    dice, seen = random.Random(SEED), []
    work = tmp_path / "work"
    for number, case in zip(range(110), damaged_folders(whole, work, dice), strict=False):
        line = ("check", "--target", work, "--draft", whole, "--json")
        if number % 2:
            line = ("run", "--target", work, "--draft", whole, "-k", "2", "-n", "3", "-q", "hi")
        seen.append(required(specdec(*line), (number, case), {0, 2, 3, 4, 5}))
    assert seen.count(3) > 20 and seen.count(0) > 5  # the attacks attack, and not everything is refused


def test_a_damaged_trace_plays_or_is_refused_by_its_line(specdec, tmp_path):
    dice, path = random.Random(SEED), tmp_path / "trace.jsonl"
    assert specdec("run", "-p", "demo", "-k", "2", "-n", "6", "-q", "--trace", path, "def f")[0] == 0
    good = path.read_text()
    for number in range(60):
        path.write_bytes(data := damaged_lines(good, dice))
        found = specdec("replay", path, "--plain", "--speed", "1000")
        required(found, (number, data[:300]), {0, 2})


OWN = ("K", "PAIR", "TEMP", "SEED", "MAX_TOKENS", "DRAFTER", "RULE", "KV_BITS", "MODELS", "TOP_P")
ENVIRONMENT = (*(f"SPECDEC_{name}" for name in OWN), "HF_HOME", "HF_ENDPOINT", "COLUMNS", "TERM")


def test_any_environment_is_taken_or_refused(specdec, monkeypatch):
    dice = random.Random(SEED)
    for number in range(40):
        with monkeypatch.context() as patch:
            for name in dice.sample(ENVIRONMENT, 3):
                patch.setenv(name, str(dice.choice(VALUES)).replace("\0", ""))
            case = {name: os.environ.get(name) for name in ENVIRONMENT}
            required(specdec("run", "-n", "2", "-q", "--raw", "def"), (number, case))
