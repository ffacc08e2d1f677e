"""Errors of a dialect: the field it came in, no path for a client, all of it for the operator."""

import pytest

from fakes.desk import ScriptedDesk
from fakes.server import local
from specdec_cli.apps.serve.http.answer import ChatRequest
from specdec_cli.apps.serve.http.app import ANSWERS
from specdec_cli.apps.serve.http.dialect import Dialect
from specdec_cli.apps.serve.http.errors import as_http_error, of_failure
from specdec_cli.core.errors import DoesNotFit, NotAvailable, Refused
from specdec_cli.core.events import Failure
from specdec_cli.core.request import Request


class Silent(Dialect):
    """A dialect that lacks a method."""

    def say(self, choice, delta, answer):
        return b""


def test_a_dialect_that_lacks_a_method_asks_nothing_of_the_model_and_the_log_names_it(tooled, monkeypatch):
    """The reason was empty: NotImplementedError says nothing."""
    monkeypatch.setitem(ANSWERS, "/silent", (lambda values, model: ChatRequest(Request(), text="a"), Silent))
    desk, records = ScriptedDesk(["ok"]), []
    with local(tooled, desk, records) as client:
        assert client.post("/silent", json={}).status_code == 500
    desk.close()
    assert "Silent" in records[0].failure and "whole" in records[0].failure and not desk.jobs


@pytest.mark.parametrize("source", ["prompt", "code"])
def test_an_empty_text_is_refused_as_the_field_it_came_in(tooled, monkeypatch, source):
    """It was called prompt, whatever its name in the body."""
    read = lambda values, model: ChatRequest(Request(), text=values[source], source=source)  # noqa: E731
    monkeypatch.setitem(ANSWERS, "/echo", (read, Silent))
    monkeypatch.setattr(Silent, "__abstractmethods__", frozenset())
    desk = ScriptedDesk([])
    with local(tooled, desk) as client:
        error = client.post("/echo", json={source: ""}).json()["error"]
    desk.close()
    assert error["param"] == source and error["message"] == f"{source}: it is empty: 0 tokens"


@pytest.mark.parametrize("kind, status", [(NotAvailable, 503), (Refused, 503), (DoesNotFit, 413)])
def test_an_error_says_what_it_can_without_a_path_and_the_operator_reads_all(kind, status):
    for message, told in (("tiny is gone", True), ("/Users/Jane Doe/models/a is gone", False), ("~/a is gone", False)):
        error = as_http_error(kind(message, "pull it"))
        later = of_failure(Failure(message, "pull it", kind.exit_code))
        assert (error.status, error.message, error.cause) == (later.status, later.message, later.cause)
        assert error.status == status and message in error.cause and (message in error.message) == told
