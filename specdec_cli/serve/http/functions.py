"""The functions that a client offers, and how much of a choice the model has (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec_cli.jsonfile import shown
from specdec_cli.serve.http.errors import bad_field
from specdec_cli.serve.http.fields import Fields

Function = dict[str, Any]
NO_PARAMETERS = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Offer:
    """Functions in OpenAI's shape; `must` names those of which one has to be called, None leaves it to the model."""

    functions: tuple[Function, ...] = ()
    must: tuple[str, ...] | None = None

    @property
    def strict(self) -> bool:
        """Whether the arguments of some function must keep to its schema."""
        return any(one["function"].get("strict") for one in self.functions)


def function(fields: Fields, schema: str = "parameters") -> Function:
    """A function whose schema is in the field `schema`."""
    parameters = fields.inner(schema)
    found: dict[str, Any] = {"name": fields.needed("name")}
    if fields.has("description"):
        found["description"] = fields.text("description")
    found["parameters"] = dict(parameters.values) if parameters else NO_PARAMETERS
    if fields.flag("strict"):
        found["strict"] = True
    return {"type": "function", "function": found}


def chosen(functions: Sequence[Function], choice: str, name: str | None, field: str) -> Offer:
    """The offer under a choice: none, auto, required, or one function by `name`. Raises: HttpError."""
    known = tuple(one["function"]["name"] for one in functions)
    if choice == "none":
        return Offer()
    if name is not None and name not in known:
        raise bad_field(field, f"{shown(name)} is none of the tools {', '.join(known) or '(none)'}")
    if choice == "required" and not known:
        raise bad_field(field, "a call is required, and there are no tools")
    must = (name,) if name is not None else known if choice == "required" else None
    return Offer(tuple(functions), must)


def openai_offer(body: Fields, nested: bool) -> Offer:
    """`tools` and `tool_choice` of OpenAI's dialects; kinds of tools that are no functions are left out."""
    functions = []
    for tool in body.each("tools"):
        if tool.text("type") != "function":
            continue
        inner = tool.inner("function") if nested else tool
        if inner is None:
            raise bad_field(tool.named("function"), "it is missing, and an object is expected")
        functions.append(function(inner))
    if not isinstance(body.raw("tool_choice"), dict):
        return chosen(
            functions, body.choice("tool_choice", ("none", "auto", "required")) or "auto", None, "tool_choice"
        )
    named = body.inner("tool_choice")
    assert named is not None
    if named.choice("type", ("function",)) is None:
        raise bad_field("tool_choice.type", "it is missing, and function is expected")
    holder = (named.inner("function") or named) if nested else named
    return chosen(functions, "required", holder.needed("name"), "tool_choice")


def anthropic_offer(body: Fields) -> tuple[Offer, bool]:
    """The same of Anthropic's, and whether at most one call is wanted."""
    functions = []
    for tool in body.each("tools"):
        if tool.text("type") in (None, "custom"):
            functions.append(function(tool, "input_schema"))
    choice = body.inner("tool_choice")
    kind = choice.choice("type", ("auto", "any", "tool", "none")) if choice else None
    one = choice is not None and choice.flag("disable_parallel_tool_use")
    name = choice.needed("name") if choice and kind == "tool" else None
    how = {"any": "required", "tool": "required", "none": "none"}.get(kind or "auto", "auto")
    return chosen(functions, how, name, "tool_choice"), one


def described(functions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What a template is shown: everything but how strictly it is held to."""
    return [
        {**one, "function": {name: value for name, value in one["function"].items() if name != "strict"}}
        for one in functions
    ]
