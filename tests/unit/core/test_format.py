"""Numbers as people write them."""

from __future__ import annotations

import pytest

from specdec_cli.core.format import count, percent, size, speed


def test_figures_read_as_people_write_them() -> None:
    assert [percent(rate) for rate in (None, 0.0, 0.617, 1.0)] == ["–", "0 %", "62 %", "100 %"]
    assert [count(1, "token"), count(1234, "token"), count(2, "target pass")] == [
        "1 token",
        "1 234 tokens",
        "2 target passes",
    ]
    assert [speed(None), speed(8.04), speed(117.6)] == ["– tok/s", "8.0 tok/s", "118 tok/s"]


def test_a_percentage_never_shows_minus_zero_and_can_show_the_sign_of_a_gain():
    assert percent(-0.001) == "0 %" and percent(0.128, sign="+", digits=1) == "+12.8 %"
    assert percent(None, unknown="") == "" and percent(0.5, space="") == "50%"


@pytest.mark.parametrize(
    ("count_bytes", "text"),
    [
        (None, "–"),
        (80, "80 B"),
        (999, "999 B"),
        (12_400, "12 kB"),
        (999_600, "1.0 MB"),
        (5_240_000, "5.2 MB"),
        (340_000_000, "340 MB"),
        (999_600_000, "1.0 GB"),
        (4_340_000_000, "4.3 GB"),
    ],
)
def test_sizes_are_decimal_and_change_their_unit_where_they_round_up(count_bytes, text):
    assert size(count_bytes) == text
