"""Tokens to text and back, as huggingface's decoders do it; and files that transformers would not read."""

import json
import os
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors

from fakes.models import SPECIALS, STRIPPED, TINY, byte_tokenizer, sentence_piece, tiny_folder, write_tokenizer
from specdec_cli.models.tokenizer import TextStream, Tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("t") / "model")


def streamed(tokenizer, ids, after=()):
    stream = tokenizer.stream(after)
    parts = [stream.step(i) for i in ids]
    return "".join(parts) + stream.finish()


@settings(max_examples=40)
@given(st.lists(st.integers(3, 258), max_size=40))
def test_streamed_text_equals_decoding_at_once_for_any_bytes(ids):
    assert streamed(LOADED, ids) == byte_tokenizer().decode(ids, skip_special_tokens=False)


@settings(max_examples=40)
@given(st.text(max_size=30), st.text(max_size=30))
def test_streaming_behind_a_prompt_continues_its_text(before, after):
    ids = byte_tokenizer().encode(after, add_special_tokens=False).ids
    assert streamed(LOADED, ids, LOADED.encode(before)) == after


# The decoders of Llama 2 and Mistral 7B, of Gemma 1 to 3, and of Phi-3's first files.
FALLBACKS = {
    "stripped": STRIPPED,
    "replaced": decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
    "metaspace": decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()]),
}


def fallback_stream(ids, decoder, after=()):
    stream = TextStream(sentence_piece(decoder=decoder), after)
    return "".join(stream.step(token) for token in ids) + stream.finish()


def byte_ids(*values):
    return [3 + value for value in values]


def shown_text(ids):
    """What a reader saw: a run of byte tokens is text as long as it is UTF-8; a byte after that is U+FFFD."""
    pieces, text, run = sentence_piece().get_vocab(), "", []
    names = {i: name for name, i in pieces.items()}
    for token in ids:
        if 3 <= token < 259:
            run.append(token - 3)
            try:
                shown = bytes(run).decode()
            except UnicodeDecodeError:
                continue
            if not shown.endswith("\ufffd"):
                text, run = text + shown, []
            continue
        text, run = text + unreadable(run) + names[token].replace("▁", " "), []
    return text + unreadable(run)


def unreadable(run):
    try:
        return bytes(run).decode()
    except UnicodeDecodeError:
        return "\ufffd" * len(run)


@pytest.mark.parametrize("decoder", FALLBACKS.values(), ids=FALLBACKS)
@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.integers(259, 268),
            st.sampled_from(byte_ids(0xC2, 0xB5, 0x80, 0xF0, 0x90, 0x8D, 0x88, 0xEF, 0xBF, 0xBD)),
            st.integers(3, 258),
        ),
        max_size=24,
    )
)
def test_byte_tokens_that_form_no_character_never_end_a_stream(decoder, ids):
    """`Invalid prefix encountered` ended the answer, with exit code 1 and HTTP 500."""
    a = sentence_piece().token_to_id("a")
    assert fallback_stream([a, *ids], decoder) == "a" + shown_text(ids)
    assert fallback_stream(ids, decoder, [a]) == shown_text(ids)


@pytest.mark.parametrize("decoder", FALLBACKS.values(), ids=FALLBACKS)
def test_a_character_that_was_shown_stays_when_its_decoder_takes_it_back(decoder):
    micro, letter = byte_ids(0xC2, 0xB5), byte_ids(0xF0, 0x90, 0x8D, 0x88)
    (b,) = [sentence_piece().token_to_id("▁b")]
    assert sentence_piece(decoder=decoder).decode([*micro, *byte_ids(0x80), b]) == "\ufffd\ufffd\ufffd b"
    assert fallback_stream([*micro, *byte_ids(0x80), b], decoder) == "µ\ufffd b"
    assert fallback_stream([*letter, *letter[:2], b], decoder) == "𐍈\ufffd\ufffd b"
    assert fallback_stream([*letter, *letter[:2]], decoder) == "𐍈\ufffd\ufffd"


@pytest.mark.parametrize("decoder", FALLBACKS.values(), ids=FALLBACKS)
@settings(max_examples=40)
@given(st.text("abcdefxy µ𐍈é€☺", max_size=30), st.text("abcd µ𐍈☺", max_size=12))
def test_readable_text_behind_any_prompt_streams_as_it_decodes_at_once(decoder, text, before):
    ids, prompt = (sentence_piece().encode(t, add_special_tokens=False).ids for t in ("☺" + text, before))
    whole, shown = (sentence_piece(decoder=decoder).decode(prompt + tokens) for tokens in (ids, []))
    assert fallback_stream(ids, decoder, prompt) == whole[len(shown) :]


def test_a_stream_completes_the_character_that_its_prompt_began():
    stream = LOADED.stream(LOADED.encode("a é")[:-1])
    assert stream.step(LOADED.encode("é")[1]) == "é"


def test_a_prompt_that_ends_with_a_replacement_character_is_not_repeated():
    """The last tokens of such a prompt were shown as the answer's beginning."""
    stream = LOADED.stream(LOADED.encode("abc �"))
    assert stream.step(LOADED.encode("x")[0]) == "x"


def test_stop_tokens_are_those_of_tokenizer_and_both_configurations(folder):
    assert Tokenizer.load(folder, "m", TINY).stop_tokens == {0, 2}
    (folder / "generation_config.json").write_text('{"eos_token_id": 7}')
    assert Tokenizer.load(folder, "m", TINY).stop_tokens == {0, 2, 7}
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


def framed(tmp_path, single):
    folder = tiny_folder(tmp_path / "m")
    tokenizer = byte_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[(token, tokenizer.token_to_id(token)) for token in SPECIALS[:2]]
    )
    write_tokenizer(folder, tokenizer)
    return Tokenizer.load(folder, "m", TINY), tokenizer


def test_a_begin_token_that_the_text_brings_is_not_doubled(tmp_path):
    """27: evaluation harnesses render the template themselves."""
    ours, backend = framed(tmp_path, f"{SPECIALS[0]} $A")
    assert ours.encode("hello") == backend.encode("hello").ids and ours.encode("hello")[0] == 0
    assert ours.encode(f"{SPECIALS[0]}hello") == backend.encode(f"{SPECIALS[0]}hello", add_special_tokens=False).ids


def test_no_end_token_stands_behind_a_text_that_is_to_be_continued(tmp_path):
    """34: a tokenizer saved with add_eos_token."""
    ours, backend = framed(tmp_path, f"$A {SPECIALS[1]}")
    assert ours.encode("hello") == backend.encode("hello", add_special_tokens=False).ids


def test_an_empty_template_is_none(tmp_path):
    folder = tiny_folder(tmp_path / "m")
    write_tokenizer(folder, byte_tokenizer(), chat_template="")
    tokenizer = Tokenizer.load(folder, "m", TINY)
    assert not tokenizer.has_template and tokenizer.join([{"role": "user", "content": "hello"}])


PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
CALLS = PLAIN + "{% for tool in tools %}<tool_call>{{ tool_call.name }}{% endfor %}"


@pytest.mark.parametrize("saved", ["list", "folder", "folder and string"])
def test_of_several_templates_that_for_tools_is_known(tmp_path, saved):
    """As transformers saves them now, the usual one hid it: a call stayed a text."""
    folder = tiny_folder(tmp_path / "m")
    named = [{"name": "default", "template": PLAIN}, {"name": "tool_use", "template": CALLS}]
    given = {"list": named, "folder": None, "folder and string": PLAIN}[saved]
    write_tokenizer(folder, byte_tokenizer(), chat_template=given)
    asked = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    if saved != "list":
        assert given or not Tokenizer.load(folder, "m", TINY).has_template
        (folder / "additional_chat_templates").mkdir()
        (folder / "additional_chat_templates" / "tool_use.jinja").write_text(CALLS)
        if given is None:
            (folder / "chat_template.jinja").write_text(PLAIN)
    tokenizer = Tokenizer.load(folder, "m", TINY)
    words, (call,) = tokenizer.tool_calls('<tool_call>{"name": "f", "arguments": {}}</tool_call>', asked)
    assert (words, call.name) == ("", "f")


def test_a_link_to_a_file_that_is_not_here_yet_is_no_matter(tmp_path):
    """`pull` of a pair that was partly here failed: a snapshot links to weights that an interrupted pull left out."""
    folder = tiny_folder(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(tmp_path / "nowhere")
    assert Tokenizer.load(folder, "m", TINY).encode("a")


def test_a_text_may_be_refused_by_its_length_before_it_is_encoded():
    longest = max(map(len, LOADED.table().tokens.values()))

    def between(tokens):
        assert tokens <= 1000 // longest
        raise TimeoutError

    for call in (LOADED.encode, lambda text, look: LOADED.join([{"role": "user", "content": text}], look)):
        with pytest.raises(TimeoutError):
            call("a" * 1000, between)


def test_encoding_lets_other_threads_run():
    """Else one long text would stop every other request, in however many threads they are read."""
    ended, steps = threading.Event(), []
    encode = lambda: (LOADED.encode("a b\n" * 200_000), ended.set())  # noqa: E731
    threading.Thread(target=encode).start()
    while not ended.wait(0.002):
        steps.append(1)
    assert len(steps) > 10


@pytest.fixture(scope="module", autouse=True)
def loaded(folder):
    global LOADED
    LOADED = Tokenizer.load(folder, "m", TINY)


# Values of mlx-lm's own test models and of models people run; transformers' configuration classes refuse each.
REFUSED_BY_TRANSFORMERS = {
    "exaone4": {"model_type": "exaone4", "sliding_window": 8, "sliding_window_pattern": "LG"},
    "gemma2": {"model_type": "gemma2", "query_pre_attn_scalar": 1.0},
    "qwen3": {"model_type": "qwen3", "rope_scaling": {"rope_type": "llama3"}, "num_hidden_layers": "two"},
}


@pytest.mark.parametrize("name", REFUSED_BY_TRANSFORMERS)
def test_values_that_transformers_refuses_do_not_keep_a_tokenizer_from_loading(tmp_path, name):
    """transformers read the whole configuration only to choose a tokenizer class by its type."""
    from transformers import AutoConfig

    config = REFUSED_BY_TRANSFORMERS[name]
    folder = tiny_folder(tmp_path / "m")
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(Exception):  # noqa: B017 - whatever transformers raises: the values must be of that sort
        AutoConfig.from_pretrained(folder)
    assert Tokenizer.load(folder, "m", config).encode("ab") == LOADED.encode("ab")


@pytest.mark.slow
@pytest.mark.parametrize("prompt", ["def f", "too long " * 200], ids=["short", "too long"])
def test_transformers_says_nothing_on_stderr(prompt):
    """The bug: its settings were made after mlx_lm had imported it, and it reads them only then."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRANSFORMERS")}
    command = [sys.executable, "-m", "specdec_cli", "run", "-p", "demo", "-n", "2", "-q", prompt]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=120, text=True)
    refusal = [] if done.returncode == 0 else ["error:", "hint:"]
    assert [line.split()[0] for line in done.stderr.splitlines()] == refusal, done.stderr
    assert done.returncode == (5 if refusal else 0)
