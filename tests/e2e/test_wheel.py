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


def test_the_wheel_holds_the_registry_the_demo_pairs_documents_and_pages_but_no_tests_and_no_pictures(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"specdec_cli/models.toml", "specdec_cli/engine/families.toml"} <= names
    for part in ("target", "draft", "hybrid"):
        for file in ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"):
            assert f"specdec_cli/demo/{part}/{file}" in names
    assert not [name for name in names if name.startswith("tests/")]
    documents = {name for name in names if name.startswith("specdec_cli/docs/")}
    assert documents == {f"specdec_cli/docs/{path.name}" for path in (ROOT / "specdec_cli/docs").glob("*.md")}
    assert len(documents) >= 8
    files = (path for path in (ROOT / "specdec_cli/terminal/pages").rglob("*") if path.is_file())
    pages = {path.relative_to(ROOT).as_posix() for path in files}
    assert pages == {name for name in names if name.startswith("specdec_cli/terminal/pages/")}


@pytest.mark.parametrize(("folders", "most"), [(("target", "draft"), 24e6), (("hybrid",), 6e6)])
def test_the_demo_pairs_stay_small(wheel, folders, most):
    infos = zipfile.ZipFile(wheel).infolist()
    sizes = [info.file_size for info in infos for name in folders if f"/demo/{name}/" in info.filename]
    assert 1e6 < sum(sizes) <= most


def test_the_wheel_is_hardly_more_than_the_demo_weights_which_are_half_precision_already(wheel):
    """8 bits would halve it, and change 97 of 512 tokens of the demo target's own answers."""
    weights = [path.stat().st_size for path in (ROOT / "specdec_cli/demo").glob("*/model.safetensors")]
    assert wheel.stat().st_size < sum(weights)
