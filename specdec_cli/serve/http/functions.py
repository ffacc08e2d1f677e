"""The functions that a client offers, and how much of a choice the model has (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec_cli.jsonfile import shown
from specdec_cli.serve.http.errors import HttpError, bad_field
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
    """`tools` and `tool_choice` of OpenAI's dialects. Raises: HttpError for kinds of tools that are no functions."""
    functions = [one for tool in body.each("tools") for one in _openai_functions(tool, nested)]
    if not isinstance(body.raw("tool_choice"), dict):
        choice = body.choice("tool_choice", ("none", "auto", "required", "any")) or "auto"  # any: Mistral's word
        return chosen(functions, "required" if choice == "any" else choice, None, "tool_choice")
    named = body.inner("tool_choice")
    assert named is not None
    kind = named.choice("type", ("function", "allowed_tools"))
    if kind is None:
        raise bad_field("tool_choice.type", "it is missing, and function or allowed_tools is expected")
    holder = (named.inner(kind) or named) if nested else named
    if kind == "function":
        return chosen(functions, "required", holder.needed("name"), "tool_choice")
    names = [(one.inner("function") or one).needed("name") for one in holder.each("tools")]
    for name in names:
        chosen(functions, "auto", name, "tool_choice")  # each must be known
    allowed = [one for one in functions if one["function"]["name"] in names]
    return chosen(allowed, holder.choice("mode", ("auto", "required")) or "auto", None, "tool_choice")


def _openai_functions(tool: Fields, nested: bool) -> list[Function]:
    """The function that `tool` is, or those of a namespace, which is how Codex groups the tools of one server."""
    if tool.text("type") != "namespace" or nested:
        return [_openai_function(tool, nested)]
    inside = [_openai_function(one, nested) for one in tool.each("tools")]
    for one in inside:
        one["function"]["name"] = qualified(tool.needed("name"), one["function"]["name"])
    return inside


def _openai_function(tool: Fields, nested: bool) -> Function:
    if tool.text("type") not in ("function", None):
        raise unknown_kind(tool)
    inner = tool.inner("function") if nested else tool
    if inner is None:
        raise bad_field(tool.named("function"), "it is missing, and an object is expected")
    return function(inner)


def qualified(namespace: str | None, name: str) -> str:
    """How a function of a namespace is called by the model."""
    return f"{namespace}.{name}" if namespace else name


def unknown_kind(tool: Fields) -> HttpError:
    """For a tool that is no function: nobody here could run it, and no schema says what its client could."""
    return bad_field(tool.named("type"), f"{shown(tool.raw('type'))} is no kind of tool here: only functions are")


def anthropic_offer(body: Fields) -> tuple[Offer, bool]:
    """The same of Anthropic's, and whether at most one call is wanted."""
    functions = []
    for tool in body.each("tools"):
        if tool.text("type") not in (None, "custom"):
            raise unknown_kind(tool)
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
