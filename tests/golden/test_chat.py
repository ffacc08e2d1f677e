"""Golden (j): what a chat says to what is typed after a slash, in one table: its exit code, and what stands on stderr.

`data/chat.txt` has a heading for each state, and below it lines as they are typed, with a ⏎ between two. To add a row,
write the lines and record.
"""

from __future__ import annotations

import pytest

from fakes.chat import chat_with, networks, ran, recorded, tokenizer_in
from golden.masks import mask
from golden.record import Table

TABLE = Table("chat")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return networks("qwen3"), tokenizer_in(tmp_path_factory.mktemp("tokenizer"))


@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row[1])
def test_a_chat_says_what_is_recorded_and_what_it_refuses_changes_nothing(row, pair, tmp_path):
    opened = chat_with(recorded(*pair))
    chat = opened[0]
    before = chat.settings, chat.loaded, chat.conversation
    code, out, err = ran(opened, *row[1].split(" ⏎ "))
    assert out == "" and (not code or before == (chat.settings, chat.loaded, chat.conversation))
    TABLE.check(*row, f"{code}", *mask(err, tmp_path).splitlines())
