"""81: texts as editors and shells of other systems write them."""

import io
import json

import pytest

from specdec_cli.apps.chat.loop import LineReader
from specdec_cli.core import jsonfile
from specdec_cli.core.textfile import decode_text

MARKED = {
    "utf-8": b"",
    "utf-8-sig": b"",
    "utf-16-le": b"\xff\xfe",
    "utf-16-be": b"\xfe\xff",
    "utf-32-le": b"\xff\xfe\x00\x00",
    "utf-32-be": b"\x00\x00\xfe\xff",
}


@pytest.mark.parametrize("encoding", MARKED)
def test_a_byte_order_mark_names_the_encoding_and_is_no_text(encoding):
    def written(text):
        return MARKED[encoding] + text.encode(encoding)

    assert decode_text(written("héllo\n")) == "héllo\n"
    assert jsonfile.parse(written(json.dumps({"a": "é"}))) == {"a": "é"}
    reader = LineReader(io.BytesIO(written("héllo\r\nзадача\n")), None)
    assert [reader.read(""), reader.read("")] == ["héllo", "задача"]


def test_a_mark_in_the_middle_is_text_and_a_wrong_byte_is_told():
    assert decode_text("a\ufeffb".encode()) == "a\ufeffb"
    with pytest.raises(UnicodeDecodeError):
        decode_text(b"\xe9")
