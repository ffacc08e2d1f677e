"""The source: where libraries and files enter it, and that documents and planted faults name what is there."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path

import pytest

import specdec_cli
from faults import FAULTS, ROOT

PACKAGE = Path(specdec_cli.__file__).parent
ENTRIES = {
    "rich": (
        "terminal",
        *(f"apps.*.{part}" for part in ("screen", "panel", "download", "picture")),
    ),
    "typer": ("main", "command", *(f"apps.*.{part}" for part in ("command", "chats", "demo"))),
    "mlx": ("engine",),
    "mlx_lm": ("engine", "models"),
    "transformers": ("models.tokenizer",),
    "llguidance": ("models.grammar",),
    "numpy": ("models.grammar",),
    "huggingface_hub": ("hub",),
    "prompt_toolkit": ("apps.chat.line_editor",),
    "starlette": ("apps.serve.http",),
    "uvicorn": ("apps.serve.http",),
}


def imported(source):
    """Top names of the libraries that `source` imports, inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.partition(".")[0]


def strangers(module, libraries):
    """Those of its `libraries` that enter elsewhere."""
    places = {name: ENTRIES[name] for name in libraries if name in ENTRIES}
    return [n for n, allowed in places.items() if not any(fnmatch(f"{module}.", f"{entry}.*") for entry in allowed)]


@pytest.fixture(scope="module")
def modules():
    """The libraries of each module."""
    paths = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    return {module: {*imported(path.read_text("utf-8"))} for module, path in paths.items()}


def test_libraries_enter_where_the_table_says(modules):
    found = {module: strangers(module, libraries) for module, libraries in modules.items()}
    assert {module: names for module, names in found.items() if names} == {}


@pytest.mark.parametrize("library", ENTRIES)
def test_each_does_enter_there_and_would_be_found_elsewhere(modules, library):
    """Control: the table names nothing that is gone, and an import planted in a pure module is found."""
    assert any(library in libraries for libraries in modules.values())
    assert strangers("events", imported(f"def f():\n    from {library}.part import name\n")) == [library]


# Every file from outside is opened by `core/readfile.py`, so that no pipe is ever waited for.


SOURCE = ROOT / "specdec_cli"
READS = re.compile(r"\.read_bytes\(|\.read_text\(|\.open\((\"r|encoding)|(?<![.\w])open\(")
# What the package carries, and what the system's kernel shows.
OURS = {
    "engine/selftest.py",
    "measure/prompts.py",
    "models/translation.py",
    "command/help.py",
    "terminal/html.py",
    "system/blas.py",
    "system/machine.py",
}


def test_no_other_module_opens_a_file_to_read_it():
    found = {
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if READS.search(line) and not line.lstrip().startswith(("#", '"', "def ", '("code"'))
    }
    assert {line.partition(":")[0] for line in found} <= OURS, sorted(found)
    assert any("read_text" in line for line in found)


# Faults that are planted by hand still have their place.


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_faults_old_text_is_in_its_file_once(fault):
    assert (ROOT / "specdec_cli" / fault.file).read_text(encoding="utf-8").count(fault.old) == 1
    assert fault.new not in ("", fault.old) or not fault.new


# README and documents: short, complete, and true about the files they name.


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


@pytest.mark.parametrize("document", [CONTRIBUTING, *DOCUMENTS], ids=lambda path: path.stem)
def test_what_the_code_of_a_document_imports_is_there(document):
    """A recipe named a class that had another name by then."""
    blocks = re.findall(r"^```python\n(.*?)^```", document.read_text("utf-8"), re.M | re.S)
    nodes = [node for block in blocks for node in ast.walk(ast.parse(block)) if isinstance(node, ast.ImportFrom)]
    named = [(node.module, alias.name) for node in nodes for alias in node.names]
    assert all(hasattr(import_module(module), name) for module, name in named), named


@pytest.mark.parametrize("document", [README, *DOCUMENTS], ids=lambda path: path.stem)
def test_every_file_that_a_document_names_exists(document):
    text = document.read_text("utf-8")
    named = re.findall(r"\b(?:tests|specdec_cli)/[\w./-]*\w", text)
    linked = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("https:")]
    assert all((ROOT / name).exists() for name in named), named
    assert all((document.parent / link).exists() for link in linked), linked
