"""`/set` on its own: values as typed, bounds, and what is refused."""

from __future__ import annotations

import pytest

from specdec_cli.apps.chat.settings import ChatSettings
from specdec_cli.core.errors import UsageError
from specdec_cli.core.request import Request

SETTINGS = ChatSettings(Request())


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("temp 0.7", "sampling", {"temperature": 0.7}),
        ("top-k 40", "sampling", {"top_k": 40}),
        ("seed 7", "seed", 7),
        ("max-tokens 9", "max_tokens", 9),
        ("max-context default", "max_context", None),
        (r"stop \n\n", "stop", ("\n\n",)),
        ("k 3", "k", 3),
    ],
)
def test_set_changes_the_request(line, field, value):
    assert getattr(SETTINGS.with_value(*line.split(" ", 1)).request, field) == value


def test_set_changes_what_a_chat_alone_has():
    assert SETTINGS.with_value("overflow", "drop-oldest").overflow == "drop-oldest"
    assert SETTINGS.with_value("think", "off").think == "off"


@pytest.mark.parametrize(
    ("name", "value", "message", "hint"),
    [
        ("temp", "900", "--temp 900.0 is outside 0 to 100", "off is --temp 0"),
        ("temp", "nan", "--temp nan is outside 0 to 100", "off is --temp 0"),
        ("temp", "warm", "/set temp warm is not a number", "off is /set temp 0"),
        ("max-tokens", "0", "/set max-tokens 0 is below 1", "the nearest that works: /set max-tokens 1"),
        ("overflow", "drop", "/set overflow drop is none of", "the nearest: /set overflow drop-oldest"),
        ("tmep", "1", "/set tmep is none of", "the nearest: /set temp"),
    ],
)
def test_set_checks_with_both_values(name, value, message, hint):
    with pytest.raises(UsageError) as caught:
        SETTINGS.with_value(name, value)
    assert message in caught.value.message and caught.value.hint == hint
