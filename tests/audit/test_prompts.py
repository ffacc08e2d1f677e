"""The audit's prompts: bundled, or a file of the user's."""

import pytest

from specdec_cli.audit.prompts import BUNDLED, read_prompts
from specdec_cli.errors import UsageError


def test_bundled_prompts_have_names_of_their_own():
    assert len({prompt.name for prompt in BUNDLED}) == len(BUNDLED) == 8 and all(prompt.text for prompt in BUNDLED)


def test_a_line_is_a_prompt_named_by_its_number(tmp_path):
    (tmp_path / "p.txt").write_text("one\n\n  two \r\n")
    assert [(p.name, p.text) for p in read_prompts(tmp_path / "p.txt")] == [("line 1", "one"), ("line 3", "two")]


@pytest.mark.parametrize(("content", "message"), [(b" \n\n", "3 lines, all empty"), (b"a\xff", "not UTF-8: byte 1")])
def test_an_empty_or_foreign_file_is_refused(tmp_path, content, message):
    (tmp_path / "p.txt").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_prompts(tmp_path / "p.txt")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_prompts(tmp_path / "none.txt")
