"""README and documents: short, complete, and true about the files they name."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README, CONTRIBUTING = ROOT / "README.md", ROOT / ".github/CONTRIBUTING.md"
DOCUMENTS = sorted((ROOT / "specdec_cli/docs").glob("*.md"))


def test_the_readme_stays_short_and_links_every_document():
    text = README.read_text("utf-8")
    assert len(text.splitlines()) <= 90
    assert all(f"(specdec_cli/docs/{path.name})" in text for path in DOCUMENTS)


def test_the_readme_has_one_line_that_runs_it_and_one_that_runs_the_tests():
    text = README.read_text("utf-8")
    assert len(re.findall(r"^python3 -m venv .* && .*/specdec run .*$", text, re.M)) == 1
    assert len(re.findall(r"^.*-m pytest$", text, re.M)) == 1


def test_contributing_stays_short_and_names_files_that_exist():
    text = CONTRIBUTING.read_text("utf-8")
    examples = {
        "engine/drafters/echo.py",
        "engine/heads/toy.py",
        "apps/serve/http/generate.py",
        "apps/NAME/command.py",
        "tests/unit/apps/serve/http/test_generate.py",
    }
    named = set(re.findall(r"`((?:[\w.]+/)*\w+\.py)`", text)) - examples
    homes = [ROOT / ("" if name.startswith("tests/") else "specdec_cli") / name for name in named]
    assert len(text.splitlines()) <= 195 and len(homes) >= 12
    assert all(home.is_file() for home in homes), homes


@pytest.mark.parametrize("document", [README, *DOCUMENTS], ids=lambda path: path.stem)
def test_every_file_that_a_document_names_exists(document):
    text = document.read_text("utf-8")
    named = re.findall(r"\b(?:tests|specdec_cli)/[\w./-]*\w", text)
    linked = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("https:")]
    assert all((ROOT / name).exists() for name in named), named
    assert all((document.parent / link).exists() for link in linked), linked
