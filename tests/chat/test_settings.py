"""`/set` on its own: values as typed, bounds, and what is refused."""

from __future__ import annotations

import pytest

from specdec_cli.chat.settings import ChatSettings
from specdec_cli.errors import UsageError


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("temp 0.7", "sampling", {"temperature": 0.7}),
        ("top-k 40", "sampling", {"top_k": 40}),
        ("seed 7", "seed", 7),
        ("max-tokens 9", "max_tokens", 9),
        ("overflow drop-oldest", "overflow", "drop-oldest"),
        (r"stop \n\n", "stop", ("\n\n",)),
        ("k 3", "k", 3),
    ],
)
def test_set_sets(line, field, value):
    assert getattr(ChatSettings().with_value(*line.split(" ", 1)), field) == value


@pytest.mark.parametrize(
    ("name", "value", "message", "hint"),
    [
        ("temp", "900", "/set temp 900 is outside 0 to 100", "off is /set temp 0"),
        ("temp", "nan", "/set temp nan is outside 0 to 100", "off is /set temp 0"),
        ("max-tokens", "0", "/set max-tokens 0 is below 1", "the nearest that works: /set max-tokens 1"),
        (
            "overflow",
            "drop",
            "/set overflow drop is none of refuse, drop-oldest",
            "the nearest: /set overflow drop-oldest",
        ),
        ("tmep", "1", "/set tmep is none of", "the nearest: /set temp VALUE"),
    ],
)
def test_set_checks_with_both_values(name, value, message, hint):
    with pytest.raises(UsageError) as caught:
        ChatSettings().with_value(name, value)
    assert message in caught.value.message and caught.value.hint == hint
