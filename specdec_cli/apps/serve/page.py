"""The chat that a browser sees (pure): its words for the fates of tokens are those of the other displays."""

from __future__ import annotations

from specdec_cli.terminal.html import Markup, element, fill, joined, packaged
from specdec_cli.terminal.panel.answer import MEANINGS

FOLDER = "serve"
SCRIPTS = ("main.js", "answer.js", "code.js", "element.js", "fences.js", "figures.js", "markdown.js", "stream.js")


def page_files() -> dict[str, bytes]:
    """Address -> content, `/` and what it loads."""
    named = {name: packaged(f"{FOLDER}/{name}") for name in (*SCRIPTS, "icon.svg")}
    sheet = packaged("palette.css") + packaged(f"{FOLDER}/chat.css")
    files = {"/": fill(f"{FOLDER}/chat", {"legend": legend()}), "/page/chat.css": sheet}
    return {path: text.encode() for path, text in {**files, **{f"/page/{name}": named[name] for name in named}}.items()}


def legend() -> Markup:
    """What the looks of a token say; the page takes the tokens' own titles from it, too."""
    return joined([element("li", fate, class_=fate, title=meaning) for fate, meaning in MEANINGS.items()], "\n")
