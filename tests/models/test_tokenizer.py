import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors

from fakes.models import TINY, byte_tokenizer, tiny_folder
from specdec_cli.errors import NotAvailable
from specdec_cli.models.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("t") / "model")


def streamed(tokenizer, ids, after=()):
    stream = tokenizer.stream(after)
    parts = [stream.step(i) for i in ids]
    return "".join(parts) + stream.finish()


@given(st.lists(st.integers(3, 258), max_size=40))
def test_streamed_text_equals_decoding_at_once_for_any_bytes(ids):
    assert streamed(LOADED, ids) == byte_tokenizer().decode(ids, skip_special_tokens=False)


@given(st.text(max_size=30), st.text(max_size=30))
def test_streaming_behind_a_prompt_continues_its_text(before, after):
    ids = byte_tokenizer().encode(after, add_special_tokens=False).ids
    assert streamed(LOADED, ids, LOADED.encode(before)) == after


def test_bytes_of_a_byte_level_vocabulary():
    table = LOADED.table()
    assert [table.tokens[i] for i in range(3)] == [b"<|endoftext|>", b"<|im_start|>", b"<|im_end|>"]
    assert sorted(table.tokens[i] for i in range(3, 259)) == [bytes([b]) for b in range(256)]
    assert table.roles == {"bos": None, "eos": 2}


def test_stop_tokens_come_from_the_generation_configuration_first(folder):
    assert Tokenizer.load(folder, "m", TINY).stop_tokens == {0, 2}
    (folder / "generation_config.json").write_text('{"eos_token_id": 7}')
    assert Tokenizer.load(folder, "m", TINY).stop_tokens == {7, 2}
    (folder / "generation_config.json").unlink()


def test_sentence_piece_tokens_have_their_spaces_and_bytes(tmp_path):
    folder = tiny_folder(tmp_path / "sp")
    backend = Backend(models.BPE({"<unk>": 0, "▁": 1, "a": 2, "▁a": 3, "<0xE2>": 4, "<|im_end|>": 5}, [("▁", "a")]))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.save(str(folder / "tokenizer.json"))
    loaded = Tokenizer.load(folder, "sp", TINY)
    assert loaded.table().tokens == dict(enumerate([b"<unk>", b" ", b"a", b" a", b"\xe2", b"<|im_end|>"]))
    assert loaded.piece(3) == " a"
    assert streamed(loaded, [2, 3, 3]) == "a a a"


def test_a_begin_token_is_added_where_the_model_wants_one(tmp_path):
    folder = tiny_folder(tmp_path / "bos")
    backend = byte_tokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
    )
    backend.save(str(folder / "tokenizer.json"))
    assert Tokenizer.load(folder, "m", TINY).encode("a")[0] == 1


@pytest.mark.parametrize("content", [None, "{", '{"model": {"type": "riddle"}}'])
def test_a_missing_or_damaged_tokenizer_is_not_available(tmp_path, content):
    folder = tiny_folder(tmp_path / "model")
    path = folder / "tokenizer.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(NotAvailable, match="the tokenizer of m cannot be read") as caught:
        Tokenizer.load(folder, "m", TINY)
    assert "\n" not in caught.value.message


@pytest.fixture(scope="module", autouse=True)
def loaded(folder):
    global LOADED
    LOADED = Tokenizer.load(folder, "m", TINY)
