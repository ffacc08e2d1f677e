"""specdec's own words in encodings that lack their signs."""

from __future__ import annotations

import io

import pytest

from specdec_cli.ui.spelling import SPELLED, spelled
from specdec_cli.ui.terminal import encodable, make_console


def stream(encoding: str, errors: str = "strict") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors)


@pytest.mark.parametrize(
    ("words", "ascii"),
    [
        ("48 tok/s · 0.98× plain decoding", "48 tok/s - 0.98x plain decoding"),
        ("K 50–80 %, ≈ 1.4× ± 0.1…", "K 50-80 %, ~ 1.4x +/- 0.1..."),
        ("╭─ demo ─╮│✓ ✗ ➜␣↵", "+- demo -+|+ x ->_\\n"),
        ("日本 é", "?? ?"),
    ],
)
def test_a_sign_that_ascii_lacks_is_spelled_and_not_a_question_mark(words, ascii):
    """The bug: LC_ALL=C printed `?` for · and ×."""
    assert spelled(words, stream("ascii")) == ascii
    assert spelled(words, stream("utf-8")) == words


def test_a_console_on_such_a_stream_spells_by_itself():
    out = stream("ascii", SPELLED)
    make_console(out, plain=True).print("1.4× · …")
    out.flush()
    assert out.buffer.getvalue() == b"1.4x - ...\n"


def test_the_answer_is_not_spelled_for_it_would_be_another_answer():
    assert encodable("a · b", stream("ascii", SPELLED)) == "a ? b"
