"""Where other libraries enter the package; every other module does without them."""

import ast
from fnmatch import fnmatch
from pathlib import Path

import pytest

import specdec_cli

PACKAGE = Path(specdec_cli.__file__).parent
ENTRIES = {
    "rich": (
        "terminal",
        *(f"apps.*.{part}" for part in ("screen", "chats_screen", "thinking", "panel", "download", "picture")),
    ),
    "typer": ("main", "command", *(f"apps.*.{part}" for part in ("command", "chats", "demo"))),
    "mlx": ("engine",),
    "mlx_lm": ("engine", "models"),
    "transformers": ("models.tokenizer",),
    "llguidance": ("models.grammar",),
    "numpy": ("models.bans", "models.grammar"),
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
