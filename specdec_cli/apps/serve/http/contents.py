"""What messages hold, whatever their dialect: parts of a content, one model a kind.

What no text model can read is refused where it is asked about. In what was said earlier, or returned by a function, it
becomes a note: refused, it would be refused with every later turn of its conversation too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Discriminator, FailFast, Tag

from specdec_cli.apps.serve.http.errors import bad_field
from specdec_cli.apps.serve.http.schema import FEW, Body, wrapped
from specdec_cli.core.jsonfile import shown

TEXTS = ("", "text", "input_text", "output_text", "refusal", "reasoning_text", "summary_text")
UNREADABLE = {
    **dict.fromkeys(("image_url", "input_image", "image"), "an image"),
    **dict.fromkeys(("input_audio", "audio"), "a sound"),
    **dict.fromkeys(("file", "input_file", "document"), "a file"),
    "video_url": "a video",
}
# Kinds of a document's source that are text.
SOURCES = ("text", "content")


class TextPart(Body):
    """A text, or why there is none."""

    type: str = ""
    text: str | None = None
    refusal: str = ""

    @property
    def words(self) -> str:
        return self.text or self.refusal


class Thought(Body):
    """What the model thought, as a part of its answer; it is no text."""

    thinking: Content = []
    text: str = ""
    words: ClassVar[str] = ""

    @property
    def thought(self) -> str:
        return self.text or text_of(self.thinking)


class Unreadable(Body):
    """An image, a sound, a file, or what else no text model can read."""

    type: str

    @property
    def words(self) -> str:
        """A note of it."""
        return f"[{UNREADABLE.get(self.type, self.type)}, which this model cannot see]"


class Source(Body):
    """Where a document's text is."""

    type: str = ""
    data: str = ""
    content: Content = []


class DocumentPart(Body):
    """A document whose source is text, or what a search found, of which the source is the name of a place."""

    title: str = ""
    context: str = ""
    source: Annotated[Source, BeforeValidator(lambda value: {"data": value} if isinstance(value, str) else value)]
    content: Content = []

    @property
    def words(self) -> str:
        source = self.source.data or text_of(self.source.content)
        return joined_text(self.title, self.context, source, text_of(self.content))


def kind_of_part(value: Any) -> str:
    """The tag of the model that a part is read by."""
    if not isinstance(value, dict):
        return "<text>"
    kind, source = value.get("type") or "", value.get("source")
    if kind == "search_result" or (kind == "document" and isinstance(source, dict) and source.get("type") in SOURCES):
        return "<document>"
    if kind in ("thinking", "redacted_thinking", "reasoning"):
        return "<thought>"
    return "<text>" if kind in TEXTS else "<other>"


Part = Annotated[
    Annotated[TextPart, Tag("<text>")]
    | Annotated[DocumentPart, Tag("<document>")]
    | Annotated[Thought, Tag("<thought>")]
    | Annotated[Unreadable, Tag("<other>")],
    Discriminator(kind_of_part),
]
Content = Annotated[list[Part], FailFast(), FEW, wrapped("text", type="text")]


def require_readable(parts: Sequence[Body], path: str) -> None:
    """Raises: HttpError for a part of the content at `path` that no text model can read."""
    for place, part in enumerate(parts):
        if isinstance(part, Unreadable):
            name, known = f"{path}[{place}].type", part.type in UNREADABLE
            reason = "cannot be read: the model reads text only" if known else "is unknown: parts are of type text"
            raise bad_field(name, f"{part.type if known else shown(part.type)} {reason}")


def text_of(parts: Sequence[Part]) -> str:
    """The text of a content."""
    return joined_text(*(part.words for part in parts))


def joined_text(*texts: str) -> str:
    """Those that are not empty, each on lines of its own."""
    return "\n".join(filter(None, texts))
