"""The functions that a client offers, how much of a choice the model has, and the constraint that follows (pure).

What cannot be enforced in this model's form of calls is refused, never promised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specdec_cli.apps.serve.http.answer import ChatRequest
from specdec_cli.apps.serve.http.errors import HttpError, bad_field
from specdec_cli.apps.serve.http.schema import Asked, Tool, required
from specdec_cli.apps.serve.model import Model
from specdec_cli.core.errors import UsageError
from specdec_cli.core.jsonfile import shown
from specdec_cli.core.request import Constraint
from specdec_cli.models.grammar import require_possible
from specdec_cli.models.shape import json_rule
from specdec_cli.models.tool_calls import ANY_OBJECT, Mark

NO_PARAMETERS = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """Functions in OpenAI's shape; `must` names those of which one has to be called, None leaves it to the model."""

    functions: tuple[dict[str, Any], ...] = ()
    must: tuple[str, ...] | None = None


# By dialect: words for how free the model is to call, `any` being Mistral's, too; the last one names a function.
OPENAI = {"none": "none", "auto": "auto", "required": "required", "any": "required", "function": "required"}
ANTHROPIC = {"none": "none", "auto": "auto", "any": "required", "tool": "required"}


def openai_offer(body: Asked, nested: bool) -> ToolOffer:
    """`tools` and `tool_choice` of OpenAI's dialects; `nested`: a function is inside its tool, as in chat/completions.

    Raises: HttpError for kinds of tools that are no functions.
    """
    tools = [(tool, f"tools[{place}]") for place, tool in enumerate(body.tools)]
    return _offer(body, [one for tool, path in tools for one in _functions(tool, path, nested)], OPENAI)


def anthropic_offer(body: Asked) -> ToolOffer:
    """The same of Anthropic's."""
    functions = []
    for place, tool in enumerate(body.tools):
        if tool.type not in ("", "custom"):
            raise _unknown_kind(tool, f"tools[{place}]")
        functions.append(_function(tool, f"tools[{place}]"))
    return _offer(body, functions, ANTHROPIC)


def _offer(body: Asked, functions: Sequence[dict[str, Any]], words: Mapping[str, str]) -> ToolOffer:
    """The functions under the body's choice. Raises: HttpError."""
    choice, known, name = body.tool_choice, tuple(one["function"]["name"] for one in functions), None
    word = (choice and (choice.word or choice.type)) or "auto"
    if word not in words:
        raise bad_field("tool_choice", f"{shown(word)} is none of {', '.join(words)}")
    if choice is not None and word == [*words][-1]:
        name = required((choice.function or choice).name, "tool_choice.name")
        if name not in known:
            raise bad_field("tool_choice", f"{shown(name)} is none of the tools {', '.join(known) or '(none)'}")
    if words[word] == "none":
        return ToolOffer()
    if words[word] == "required" and not known:
        raise bad_field("tool_choice", "a call is required, but there are no tools")
    must = (name,) if name is not None else known
    return ToolOffer(tuple(functions), must if words[word] == "required" else None)


def _functions(tool: Tool, path: str, nested: bool) -> list[dict[str, Any]]:
    """The function that `tool` is, or those of a namespace, which is how Codex groups the tools of one server."""
    if tool.type == "namespace" and not nested:
        space = required(tool.name, f"{path}.name")
        parts = (_functions(one, f"{path}.tools[{place}]", nested) for place, one in enumerate(tool.tools))
        inside = [one for part in parts for one in part]
        for one in inside:
            one["function"]["name"] = qualified(space, one["function"]["name"])
        return inside
    if tool.type not in ("function", ""):
        raise _unknown_kind(tool, path)
    if nested and tool.function is None:
        raise bad_field(f"{path}.function", "it is missing, but an object is expected")
    return [_function(tool.function if nested and tool.function else tool, path)]


def _function(given: Tool, path: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": required(given.name, f"{path}.name")}
    if given.description is not None:
        found["description"] = given.description
    schemas = (schema for schema in (given.parameters, given.input_schema) if schema is not None)
    found["parameters"] = next(schemas, NO_PARAMETERS)
    return {"type": "function", "function": found | ({"strict": True} if given.strict else {})}


def qualified(namespace: str | None, name: str) -> str:
    """How a function of a namespace is called by the model."""
    return f"{namespace}.{name}" if namespace else name


def _unknown_kind(tool: Tool, path: str) -> HttpError:
    """For a tool that is no function: nobody here could run it, and no schema says what its client could."""
    return bad_field(f"{path}.type", f"{shown(tool.type)} is not supported as a tool: only functions are")


def describe(functions: Sequence[Mapping[str, Any]], model: Model) -> list[dict[str, Any]]:
    """What a template is shown: everything but how strictly it is held to. Raises: HttpError where it knows none."""
    if functions and model.tokenizer.call_form is None:
        raise bad_field("tools", f"the template of {model.name} supports none that can be read")
    return [
        {**one, "function": {name: value for name, value in one["function"].items() if name != "strict"}}
        for one in functions
    ]


def constrain(ask: ChatRequest, model: Model) -> ChatRequest:
    """`ask` with the constraint that its tools need, if any: calls that are required, or arguments that are strict.

    Raises: HttpError.
    """
    strict = any(tool["function"].get("strict") for tool in ask.tools)
    shape, form = ask.request.constraint, model.tokenizer.call_form
    if form is None or not ask.tools or not (ask.must_call or strict or shape):
        return ask
    field = "tool_choice" if ask.must_call else "tools" if strict else ask.shape
    if shape is not None and shape.kind != "schema":
        raise bad_field("tools", "beside tools, an answer's constraint must be a JSON schema")
    if not form.enforced:
        if not ask.must_call and shape is None:
            return ask  # `strict` is a wish there, as it is elsewhere: many clients send it by habit
        unlike = f"the calls of {model.name} have a form ({form.name}) that cannot be enforced beside tools"
        raise bad_field(field, unlike)
    if ask.request.stop:
        raise bad_field("stop", f"it could cut a call that {field} asks for")
    wanted = [one["function"] for one in ask.tools if ask.must_call is None or one["function"]["name"] in ask.must_call]
    alike: set[str] = set()  # many functions have the same arguments, such as none
    functions = [(one["name"], arguments_schema(one, alike)) for one in wanted]
    if shape is not None and not ask.must_call:
        require_possible(shape)
    wish = bool(ask.must_call), ask.one_call, None if shape is None else json_rule(shape.text)
    try:  # any of them alone may be followed, and all together be too much
        require_possible(Constraint("grammar", form.grammar(functions, Mark, *wish)), before=form.begins)
    except UsageError as error:
        raise bad_field("tools", f"{len(functions)} functions together: {error.message}") from error
    grammar = form.grammar(functions, lambda text: Mark(text, model.tokenizer.token_of(text)), *wish)
    return replace(ask, request=replace(ask.request, constraint=Constraint("grammar", grammar, form.thinks)))


def arguments_schema(function: Mapping[str, Any], alike: set[str]) -> str:
    """The schema of its arguments, which are an object; any where it need not be strict and cannot be enforced.

    `alike` are schemas that can be enforced, as far as is known.
    """
    text = json.dumps({**function["parameters"], "type": "object"})
    try:
        if text not in alike:
            require_possible(Constraint("schema", text))
    except UsageError as error:
        if function.get("strict"):
            raise bad_field("tools", f"{function['name']}: {error.message}") from error
        return ANY_OBJECT
    alike.add(text)
    return text
