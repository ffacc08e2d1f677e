"""Golden (i): what the Python interface refuses, in one table: what is asked for, and the two lines of the error.

`data/calls.txt` has a heading for what is called, and below it options as they are typed, the kind of error with its
message, and the hint. To add one, write the options and record.
"""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

import specdec_cli as specdec
from golden.masks import mask
from golden.record import Table

TABLE = Table("calls")


@pytest.fixture(scope="module")
def calls(tiny_pair):
    """By the names in the table; a text is asked by the request and by its fields alike."""
    target, draft = map(str, tiny_pair)
    pair = specdec.load(target=target, draft=draft)

    def reply(**options):
        # A request of no tokens has its prompt read.
        if options.keys() <= specdec.Request.__dataclass_fields__.keys() - {"max_tokens"}:
            with pytest.raises(specdec.UsageError) as refused:
                pair.session().reply("hello", request=specdec.Request(**options))
            with pytest.raises(specdec.UsageError) as again:
                pair.session().reply("hello", **options)
            assert (refused.value.message, refused.value.hint) == (again.value.message, again.value.hint)
        pair.session().reply("hello", **options)

    return {
        "session.reply(prompt)": lambda prompt: pair.session().reply(prompt, max_tokens=4),
        'session.reply("hello", ...)': reply,
        "list(session.reply(...))": lambda prompt="hello", **options: list(pair.session().reply(prompt, **options)),
        "load(target, draft, ...)": lambda **options: specdec.load(**{"target": target, "draft": draft} | options),
        "load(Pair(...))": lambda **values: specdec.load(
            specdec.Pair(**{"name": "own", "target": target, "draft": None} | values)
        ),
        "load(...)": specdec.load,
    }


@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: f"{row[0]}: {row[1]}")
def test_a_call_that_cannot_be_done_is_refused_in_two_lines(row, calls, tmp_path):
    """Some were taken in silence, others raised TypeError or KeyError; -1 tokens of context were all of it."""
    names = {name: getattr(specdec, name) for name in ("Request", "Constraint")} | {"np": np, "inf": inf}
    with pytest.raises(specdec.SpecdecError) as refused:
        eval(f"call({row[1]})", names | {"call": calls[row[0]]})
    error = refused.value
    assert error.hint and "\n" not in error.message + error.hint
    TABLE.check(*row, f"{type(error).__name__} {mask(error.message, tmp_path)}", mask(error.hint, tmp_path))
