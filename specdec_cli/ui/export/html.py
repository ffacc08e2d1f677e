"""A trace as one page of coloured text. Law: foreign text is escaped, and the text can be copied."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Final

from specdec_cli.events import Start
from specdec_cli.fates import Fate
from specdec_cli.format import percent, speed
from specdec_cli.gain import Gain
from specdec_cli.kinds import kind_of
from specdec_cli.stats import ratio
from specdec_cli.trace import Reply, Trace
from specdec_cli.ui.export.tokens import MEANINGS, ColouredToken, coloured, drawn
from specdec_cli.ui.html import Markup, element, fill, joined
from specdec_cli.ui.summary import SEPARATOR

_TAGS: Final = {Fate.REJECTED: "del", Fate.DISCARDED: "del", Fate.CORRECTION: "ins", Fate.BONUS: "ins"}
_LINE_BREAK: Final = "<i></i>\n"
"""The style sheet draws a sign in it, which is not copied with the text."""


def html_page(trace: Trace) -> str:
    """Every reply of the trace with its figures, and the legend once."""
    replies = joined([_reply(reply, number) for number, reply in enumerate(trace.replies, 1)], "\n")
    return fill("trace", {"heading": heading(trace.replies[0].start), "replies": replies, "legend": _legend()})


def heading(start: Start) -> str:
    """The target, and the draft if there is one."""
    target = _short(start.target)
    return f"{target} with {_short(start.draft)}" if start.draft else target


def settings(start: Start) -> str:
    """The settings in effect, in one line."""
    drafts = kind_of(start.drafter).drafts
    parts = [start.drafter, f"K {start.k}", f"rule {start.rule}"] if drafts else ["plain decoding"]
    parts += [f"held to a {start.constraint}, which drafts what it forces"] if start.constraint else []
    seed = [] if start.seed is None else [f"seed {start.seed}"]
    return drawn(SEPARATOR.join([*parts, f"temperature {start.temperature:g}", *seed, start.dtype, start.device]))


def figures(stats: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(name, value, definition) of the most important figures."""
    tokens, passes = stats["emitted_tokens"], stats["target_passes"]
    mean, gain = ratio(tokens, passes), Gain.of_stats(stats)
    pays = gain.pays_from if gain else ""
    found = [
        ("tokens", str(tokens), f"in {passes} target passes"),
        ("passes saved", str(tokens - passes), "against one pass per token"),
        ("tokens per pass", "–" if mean is None else f"{mean:.2f}", "emitted ÷ target passes"),
        ("accepted", percent(stats["draft_acceptance_rate"]), f"of drafted{f', {pays}' if pays else ''}"),
        ("speed", speed(stats["tokens_per_second"]), "tokens after the first ÷ their seconds"),
    ]
    if gain:
        found.append(("speed-up", gain.sentence, "95 % interval, against plain decoding, costs measured here"))
    return found


def _short(name: str) -> str:
    """The whole of a Hub id, the last part of a folder."""
    return drawn(name.rstrip("/").rpartition("/")[2] if name.count("/") > 1 else name.removeprefix("specdec:"))


ENDED = {
    "interrupted": "The reply breaks off here.",
    "length": "Stopped at the longest length allowed.",
    "repetition": "Stopped: the answer had become a loop.",
}


def _reply(reply: Reply, number: int) -> Markup:
    facts = [
        element("div", element("dt", name), element("dd", value, element("small", definition)))
        for name, value, definition in figures(reply.finish.stats)
    ]
    note = ENDED.get(reply.finish.reason, "")
    parts = [
        *([element("h2", f"{number}. {heading(reply.start)}")] if number > 1 else []),
        element("p", settings(reply.start), class_="soft"),
        element("dl", *facts, class_="figures"),
        element("div", *map(_token, coloured(reply)), class_="text"),
    ]
    return element("section", *parts, *([element("p", note, class_="soft")] if note else []))


def _token(token: ColouredToken) -> Markup:
    """One element; its kind tells a screen reader the fate, its title tells the pointer."""
    indent, shown = token.parts
    if not shown:
        return Markup()
    silent = not token.said and token.fate not in (Fate.REJECTED, Fate.DISCARDED)
    names = f"{token.fate} unsaid" if silent else token.fate.value
    text = joined([Markup(escape(line)) for line in shown.split("\n")], _LINE_BREAK)
    drafter = f", drafted by {drawn(token.drafter)}" if token.drafter else ""
    title = f"round {token.index + 1}: {token.fate}{drafter}"
    return joined([Markup(escape(indent)), element(_TAGS.get(token.fate, "span"), text, class_=names, title=title)])


def _legend() -> Markup:
    rows = [
        element("dt", element("b", fate.value, class_=fate)) + element("dd", meaning)
        for fate, meaning in MEANINGS.items()
    ]
    return joined([Markup(row) for row in rows], "\n")
