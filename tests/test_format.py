"""Numbers as people write them."""

from __future__ import annotations

import pytest

from specdec_cli.format import count, parameters, percent, speed


@pytest.fixture(autouse=True)
def _width_80(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def test_figures_read_as_people_write_them() -> None:
    assert [percent(rate) for rate in (None, 0.0, 0.617, 1.0)] == ["–", "0 %", "62 %", "100 %"]
    assert [count(1, "token"), count(1234, "token"), count(2, "target pass")] == [
        "1 token",
        "1 234 tokens",
        "2 target passes",
    ]
    assert [speed(None), speed(8.04), speed(117.6)] == ["– tok/s", "8.0 tok/s", "118 tok/s"]


@pytest.mark.parametrize(
    ("billions", "text"), [(8.03, "8.0 B"), (0.95, "0.9 B"), (0.135, "135 M"), (0.0052, "5.2 M"), (0.0001, "0.1 M")]
)
def test_parameters_are_told_in_a_unit_that_shows_them(billions, text):
    assert parameters(billions) == text
