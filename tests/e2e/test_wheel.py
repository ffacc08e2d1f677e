"""What a wheel holds. That it answers in an empty environment is decided by .ci/run and .github/scripts/wheel.sh."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # builds a wheel

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """From the script of the release, which builds twice and fails where the bytes differ."""
    out = tmp_path_factory.mktemp("dist")
    settings = os.environ | {"BIN": str(Path(sys.executable).parent)}
    subprocess.run([ROOT / ".github/scripts/build.sh", out], check=True, capture_output=True, env=settings)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_the_registry_and_the_demo_pair_but_no_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"specdec_cli/models.toml", "specdec_cli/engine/families.toml"} <= set(names)
    for part in ("target", "draft", "hybrid"):
        for file in ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"):
            assert f"specdec_cli/demo/{part}/{file}" in names
    assert not [name for name in names if name.startswith("tests/")]


def test_the_wheel_holds_the_documents_but_not_their_pictures(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("specdec_cli/docs/")}
    assert names == {f"specdec_cli/docs/{path.name}" for path in (ROOT / "specdec_cli/docs").glob("*.md")}
    assert len(names) >= 8


def test_the_wheel_holds_what_pages_are_made_of(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("specdec_cli/terminal/pages/")}
    files = (path for path in (ROOT / "specdec_cli/terminal/pages").rglob("*") if path.is_file())
    assert names == {path.relative_to(ROOT).as_posix() for path in files}


@pytest.mark.parametrize(("folders", "most"), [(("target", "draft"), 24e6), (("hybrid",), 6e6)])
def test_the_demo_pairs_stay_small(wheel, folders, most):
    infos = zipfile.ZipFile(wheel).infolist()
    sizes = [info.file_size for info in infos for name in folders if f"/demo/{name}/" in info.filename]
    assert 1e6 < sum(sizes) <= most


def test_the_wheel_is_hardly_more_than_the_demo_weights_which_are_half_precision_already(wheel):
    """8 bits would halve it, and change 97 of 512 tokens of the demo target's own answers."""
    weights = [path.stat().st_size for path in (ROOT / "specdec_cli/demo").glob("*/model.safetensors")]
    assert wheel.stat().st_size < sum(weights)
