"""Where an answer ends by its lines, however the text is split."""

import re

import pytest

from specdec_cli.apps.serve.http.answer import LineCutter, LineLimits

SPLITS = (list, lambda text: [text], lambda text: re.findall("(?s).{1,3}", text))


def said(deltas):
    return "".join(delta.text for delta in deltas)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("x = 1\n    y = 2\nz", "x = 1\n    y = 2\n"),
        ("x\n\n    y\n  z", "x\n\n    y\n"),
        ("x\n    y\n    ", "x\n    y\n    "),
        ("no line", "no line"),
        ("\n\ty", "\n"),
    ],
)
def test_a_line_that_is_indented_less_ends_the_answer_and_is_not_shown(text, shown):
    for split in SPLITS:
        lines = LineCutter(LineLimits(indent=4))
        assert "".join(said(lines.feed(piece)) for piece in split(text)) + said(lines.finish()) == shown
        assert lines.over == (shown != text)


def test_without_limits_nothing_is_held_back():
    lines = LineCutter(LineLimits())
    assert [said(lines.feed(piece)) for piece in ("a\n", "  ", "b")] == ["a\n", "  ", "b"] and not lines.over


def test_after_its_time_the_answer_ends_with_its_line():
    now = iter([0.0, 0.0, 0.5, 2.0, 3.0])
    lines = LineCutter(LineLimits(seconds=1.0), lambda: next(now))
    assert [said(lines.feed(piece)) for piece in ("a\nb", "c\n", "d", "e\nf")] == ["a\nb", "c\n", "d", "e"]
    assert lines.over and said(lines.feed("g")) == ""
