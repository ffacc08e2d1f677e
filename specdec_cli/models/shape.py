"""A constraint as one grammar in llguidance's Lark form (pure). The shape begins behind the thinking, to the byte.

The grammar covers the whole answer, thinking included, so a `</think>` that ends in the middle of a draft or of a token
needs nothing special: the matcher is behind it at that very byte. The thinking itself may be any text in UTF-8 and,
where its tags are text as well, without special tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from specdec_cli.core.request import Constraint
from specdec_cli.models import schema
from specdec_cli.models.text import Thinking

# The blanks of Python's json.dumps and no others: where they are free, nothing is forced, and a model that likes
# blanks can write them for ever. Nor escapes by number: the library compares keys as they are spelled, so with them a
# property could come under another spelling of its name, and hold anything.
JSON_OPTIONS = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": 'nrbtf\\"',
}
# Models write up to this many line ends between their thinking and their answer.
LINE_ENDS = 2
# A tag in pieces: text, or the id of a special token.
Tag = tuple[str | int, ...]
Split = Callable[[str], Tag]


def grammar(constraint: Constraint, thinking: Thinking | None = None, split: Split = lambda tag: (tag,)) -> str:
    """The grammar of an answer; `split` says what a tag consists of. Raises: UsageError for what is no JSON schema."""
    answer = _ANSWERS[constraint.kind](constraint.text)
    if thinking is None:
        return answer if constraint.kind == "grammar" else f"start: {answer}"
    first, *rest = split(thinking.end)
    # Text before a special token ends with it; other text ends where the tag is complete, wherever tokens begin.
    special = isinstance(first, int)
    free = "free: /(?s:.*)/" if special else f"free[suffix={symbol(first)}]: /(?s:.*)/"
    end = " ".join(map(symbol, (first, *rest) if special else rest))
    lines = [
        f"start: {'thought' if thinking.opened else 'answer | begin thought'}",
        f"begin: {' '.join(map(symbol, split(thinking.start)))}",
        f"thought: free {end} LINE_ENDS answer",
        free,
        f"LINE_ENDS: /\\n{{0,{LINE_ENDS}}}/",
        f"answer: %lark {{\n{answer}\n}}" if constraint.kind == "grammar" else f"answer: {answer}",
    ]
    return "\n".join(lines)


def symbol(piece: str | int) -> str:
    """A piece of a tag in a rule."""
    return f"<[{piece}]>" if isinstance(piece, int) else json.dumps(piece, ensure_ascii=False)


def json_rule(text: str) -> str:
    """The JSON of the schema in `text`, as a rule. Raises: UsageError for what is no JSON schema."""
    return "%json " + json.dumps(schema.parse(text) | {"x-guidance": JSON_OPTIONS})


def _regex(text: str) -> str:
    """Between slashes; a slash or line end of its own is escaped."""
    spelled = {"/": "\\/", "\n": "\\n", "\\\n": "\\n"}
    inner = re.sub(r"\\.|/|\n", lambda found: spelled.get(found[0], found[0]), text, flags=re.DOTALL)
    return f"/{inner}/"


_ANSWERS: dict[str, Callable[[str], str]] = {"schema": json_rule, "regex": _regex, "grammar": str}
