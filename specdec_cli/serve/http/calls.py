"""Calls that are required, or whose arguments are strict, as a constraint on the answer (pure).

Law: what cannot be enforced in this model's form of calls is refused, never promised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specdec_cli.errors import UsageError
from specdec_cli.models import tool_calls as calls
from specdec_cli.models.grammar import require_possible
from specdec_cli.models.shape import json_rule
from specdec_cli.request import Constraint
from specdec_cli.serve.http.ask import Ask
from specdec_cli.serve.http.errors import bad_field
from specdec_cli.serve.model import Model


def constrained(ask: Ask, model: Model) -> Ask:
    """`ask` with the constraint that its tools need, if any. Raises: HttpError."""
    strict = any(tool["function"].get("strict") for tool in ask.tools)
    shape = ask.request.constraint
    if not ask.tools or not (ask.must_call or strict or shape):
        return ask
    field = "tool_choice" if ask.must_call else "tools" if strict else ask.shape
    if shape is not None and shape.kind != "schema":
        raise bad_field("tools", "beside them an answer's shape can be a JSON schema, and nothing else")
    marks = model.tokenizer.call_marks
    if marks is None or model.tokenizer.call_format != calls.JSON_CALLS:
        form = model.tokenizer.call_format
        raise bad_field(field, f"the calls of {model.name} have a form ({form}) that cannot be enforced beside tools")
    if ask.request.stop:
        raise bad_field("stop", f"it could cut a call that {field} asks for")
    start, end = (calls.Mark(mark, model.tokenizer.token_of(mark)) for mark in marks)
    wanted = [one["function"] for one in ask.tools if ask.must_call is None or one["function"]["name"] in ask.must_call]
    functions = [(one["name"], _schema(one)) for one in wanted]
    if ask.must_call:
        grammar = calls.required(functions, start, end, ask.one_call)
    else:
        answer = None if shape is None else json_rule(_possible(shape).text)
        grammar = calls.allowed(functions, start, end, ask.one_call, answer)
    return replace(ask, request=replace(ask.request, constraint=Constraint("grammar", grammar)))


def _schema(function: Mapping[str, Any]) -> str:
    """The schema of its arguments; any object where it need not be strict and cannot be enforced."""
    text = json.dumps(function["parameters"])
    try:
        _possible(Constraint("schema", text))
    except UsageError as error:
        if function.get("strict"):
            raise bad_field("tools", f"{function['name']}: {error.message}") from error
        return calls.ANY_OBJECT
    return text


def _possible(constraint: Constraint) -> Constraint:
    """Raises: UsageError for a schema that cannot be enforced."""
    require_possible(constraint)
    return constraint
