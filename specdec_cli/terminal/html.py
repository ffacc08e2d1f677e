"""Fills a page template (pure). One file, no network, no library; values are escaped.

A template names its values `{{name}}`. `{{style}}` is the style sheet of all pages, with a light and a dark palette.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from importlib import resources

# Not allowed in XML, or harmful to a reader: controls, bidi overrides, surrogates, noncharacters.
_UNSHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


class Markup(str):
    """Text that is markup already, made by this package; it is not escaped again."""

    __slots__ = ()


def fill(template: str, values: Mapping[str, str]) -> str:
    """The page `pages/<template>.html` with every value in its place, in one pass.

    Raises: KeyError for a value that is missing.
    """
    known = {"style": Markup(packaged("palette.css") + packaged("style.css")), **values}
    return re.sub(r"\{\{(\w+)\}\}", lambda found: markup(known[found[1]]), packaged(f"{template}.html"))


def markup(text: str) -> str:
    """The text as markup: unchanged if it is Markup, else escaped, with U+FFFD for what cannot be shown."""
    return text if isinstance(text, Markup) else escape(sanitize(text))


def sanitize(text: str) -> str:
    """U+FFFD for what neither XML nor a reader bears."""
    return _UNSHOWN.sub("\N{REPLACEMENT CHARACTER}", text)


def element(tag: str, *inside: str, **attributes: str) -> Markup:
    """`<tag …>inside</tag>`; `_` in a name becomes `-`, a trailing one is dropped: class_, aria_label."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(sanitize(text))}"' for name, text in attributes.items()
    )
    return Markup(f"<{tag}{written}>{''.join(map(markup, inside))}</{tag}>")


def joined(parts: list[Markup] | tuple[Markup, ...], between: str = "") -> Markup:
    """The parts in order, `between` them."""
    return Markup(between.join(parts))


def packaged(name: str) -> Markup:
    """The text of `pages/<name>`."""
    return Markup((resources.files("specdec_cli.terminal") / "pages" / name).read_text(encoding="utf-8"))
