"""A text in pieces has the ids of the whole, by every kind of tokenizer, and each bound on its tokens holds."""

import json
import random
import threading

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from specdec_cli.models import pieces
from specdec_cli.models.pieces import PieceEncoder

SPECIAL = ["<unk>", "<|im_start|>", "<|im_end|>"]
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# What texts are made of: what pre-tokenizers treat in ways of their own, and what a cut might break.
PARTS = [
    *("a", "b", "The", "quick", "fox", "I'll", "it's", "1", "23", "4567", "é", "e\u0301", "日本", "ß", "\u00a0"),
    *(" ", " ", " ", "  ", "\n", "\n\n", " \n", "\r\n", "\t", ".", ",", "...", "(", "_", "-", "'", '"', "="),
    *("<|im_start|>", "<|im_end|>", "<|im_", "<", "|>", "▁", "\u200d", "👩\u200d💻", "\x00", "\u1100\u1161", "ﬁ"),
]


def text_of(seed, parts=60):
    return "".join(random.Random(seed).choices(PARTS, k=parts))


def trained(pre=None, normalizer=None, decoder=None, added=(), **model):
    """A BPE of some merges, made of such texts."""
    backend = Tokenizer(models.BPE(**model))
    backend.pre_tokenizer, backend.normalizer, backend.decoder = pre, normalizer, decoder
    alphabet = pre_tokenizers.ByteLevel.alphabet() if decoder and "ByteLevel" in repr(decoder) else []
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([text_of(seed, 300) for seed in range(40)], trainer)
    if model.get("byte_fallback"):
        values = json.loads(backend.to_str())
        values["model"]["vocab"] |= {f"<0x{byte:02X}>": 2000 + byte for byte in range(256)}
        backend = Tokenizer.from_str(json.dumps(values))
    backend.add_tokens(list(added))
    return backend


def byte_level(*before, normalizer=None, prefix=False, regex=False, added=()):
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)
    return trained(pre_tokenizers.Sequence([*before, last]), normalizer, decoders.ByteLevel(), added)


def split(pattern, how="isolated"):
    return pre_tokenizers.Split(Regex(pattern), how)


def pieced(normalizer, pre=None):
    spaces = normalizers.Replace(" ", "▁")
    decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return trained(pre, normalizers.Sequence([*normalizer, spaces]), decoder, byte_fallback=True, unk_token="<unk>")


KINDS = {
    "gpt2": lambda: byte_level(regex=True),
    "qwen": lambda: byte_level(split(QWEN), normalizer=normalizers.NFC()),
    "llama 3": lambda: byte_level(split(QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|"))),
    "far": lambda: byte_level(split(r"(?<=x.*)y| ?\p{L}+")),
    "strips": lambda: byte_level(regex=True, added=[AddedToken("fox", lstrip=True, rstrip=True)]),
    "of two words": lambda: byte_level(regex=True, added=[AddedToken("a b"), AddedToken("\nThe")]),
    "llama 2": lambda: pieced([normalizers.Prepend("▁")]),
    "gemma": lambda: pieced([], pre_tokenizers.Split(" ", "merged_with_previous")),
    "metaspace": lambda: trained(pre_tokenizers.Metaspace(), None, decoders.Metaspace(), unk_token="<unk>"),
    "words": lambda: trained(pre_tokenizers.Whitespace(), normalizers.Lowercase(), unk_token="<unk>"),
    "removed": lambda: byte_level(split(r"\s+", "removed")),
    "stripped": lambda: byte_level(regex=True, normalizer=normalizers.Strip()),
}
# Kinds that are cut between words, and those of which a text's bytes tell the least number of its tokens.
BYTES = {"gpt2", "qwen", "llama 3"}
CUT = {*BYTES, "removed", "metaspace"}
BOUNDED = {*BYTES, "of two words", "far", "llama 2", "gemma"}


def encoder_of(backend):
    def spelled():
        from specdec_cli.models.vocab import byte_level, sentence_piece, token_bytes

        spell = byte_level if "ByteLevel" in repr(backend.decoder) else sentence_piece
        added = {token.content for token in backend.get_added_tokens_decoder().values()}
        return token_bytes(backend.get_vocab(), added, spell)

    return PieceEncoder(backend, spelled)


COMMON = ("gpt2", "qwen", "strips", "gemma", "metaspace")
SHOWN = [pytest.param(kind, marks=[pytest.mark.slow] * (kind not in COMMON)) for kind in KINDS]


@pytest.mark.parametrize("kind", SHOWN)
def test_pieces_have_the_ids_of_the_whole_and_no_bound_is_above_them(kind, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_CHARACTERS", 8)
    monkeypatch.setattr(pieces, "LONGEST_TOKEN", 7)
    backend = KINDS[kind]()
    encoder, most = encoder_of(backend), 0
    for seed in range(100):
        text = text_of(seed)
        expected = backend.encode(text, add_special_tokens=False).ids
        assert "".join(encoder.pieces(text)) == text
        assert encoder.ids(text) == expected, text
        assert encoder.least_tokens(text) <= len(expected), text
        most = max(most, len(list(encoder.pieces("The fox a b it's " * 20))))
    assert (most > 5) == (kind in CUT)
    assert (encoder.least_tokens("some text " * 100) > 0) == (kind in BOUNDED)


def test_a_text_that_is_cut_where_nothing_cuts_has_other_ids(monkeypatch):
    """Negative control: the equality above is not one that any cut would keep."""
    backend = KINDS["qwen"]()
    text = "The quick fox a b it's " * 40
    cut = [i for at in range(0, len(text), 8) for i in backend.encode(text[at : at + 8], add_special_tokens=False).ids]
    assert cut != backend.encode(text, add_special_tokens=False).ids


def test_a_long_text_asks_between_its_pieces_and_ends_where_it_is_told_to():
    encoder, asked = encoder_of(KINDS["qwen"]()), []
    text = "The quick fox " * 20_000

    def between(tokens):
        asked.append(tokens)
        if tokens > 20_000:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        encoder.ids(text, between)
    assert len(asked) > 3 and asked[-2] <= 20_000 < asked[-1] < 30_000


def test_encoding_lets_other_threads_run():
    """Else one long text would stop every other request, in however many threads they are read."""
    encoder, ended = encoder_of(KINDS["gemma"]()), threading.Event()
    steps = []

    def encode():
        encoder.ids("".join(random.Random(1).choices("abThefox", k=400_000)))
        ended.set()

    threading.Thread(target=encode).start()
    while not ended.wait(0.002):
        steps.append(1)
    assert len(steps) > 10
