"""Verdicts on tokenizers of the shapes that real models have, built here with the `tokenizers` library."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from fakes.models import SPECIALS, TINY, other_letters, swap_two_ids, tiny_folder, write_tokenizer
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.models.vocab import VocabVerdict, compare
from specdec_cli.pairs.check import judge as judge_pair
from specdec_cli.pairs.files import find
from specdec_cli.pairs.fit import Fit
from specdec_cli.pairs.pair import Pair, PairSpec

# (begins a word, its letters): what the two shapes spell Ġab / ab and ▁ab / ab.
Word = tuple[bool, str]
WORDS: list[Word] = [(True, "the"), (False, "the"), (True, "cat"), (False, "es"), (True, "ab")]
ANCHOR = (True, "x")


def byte_level(words: list[Word], merges: list[tuple[str, str]] = ()) -> Backend:
    """GPT-2, Llama 3, Qwen: printable stand-ins for 256 bytes, then merged words."""
    tokens = [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokens += ["Ġ" * begins + text for begins, text in [ANCHOR, *words]]
    backend = Backend(models.BPE({token: i for i, token in enumerate(dict.fromkeys(tokens))}, list(merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return special(backend)


def unigram(words: list[Word]) -> Backend:
    """SentencePiece, as in T5 and Gemma: pieces with scores, spaces as ▁, a fallback of 256 byte tokens."""
    pieces = [*SPECIALS, "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁" * begins + text for begins, text in [ANCHOR, *words]]
    scored = [(piece, -float(i)) for i, piece in enumerate(dict.fromkeys(pieces))]
    backend = Backend(models.Unigram(scored, unk_id=len(SPECIALS), byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return special(backend)


def special(backend: Backend) -> Backend:
    backend.add_special_tokens(SPECIALS)
    return backend


SHAPES = [byte_level, unigram]


def load(backend: Backend, **extra: str) -> Tokenizer:
    with TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), backend, **extra)
        return Tokenizer.load(Path(folder), "m", TINY)


def judge(target: Backend, draft: Backend, **extra: str) -> VocabVerdict:
    """The verdict on two tokenizers; `extra` goes into the draft's tokenizer_config.json."""
    return compare(load(target).table(), load(draft, **extra).table())


def checked(pair: Pair):
    return judge_pair(Fit.of(find(PairSpec(pair), weights="headers", offline=True)), None)


def check(tmp_path: Path, target: Backend, draft: Backend, width: int):
    """The whole check of two local models with these tokenizers and logits of that width."""
    folders = []
    for name, backend in (("t", target), ("d", draft)):
        folders.append(tiny_folder(tmp_path / name, {**TINY, "vocab_size": width}))
        write_tokenizer(folders[-1], backend)
    pair = Pair("p", str(folders[0]), str(folders[1]))
    return checked(pair)


@pytest.mark.parametrize("shape", SHAPES)
def test_tool_tokens_that_one_side_added_are_explained_and_compatible(shape):
    target = shape(WORDS)
    first = target.get_vocab_size()
    target.add_special_tokens(["<tool_call>", "</tool_call>"])
    verdict = judge(target, shape(WORDS))
    told = f"the {first} shared ids agree; only the target has 2 more, from id {first} '<tool_call>'"
    assert (verdict.status, verdict.reason) == ("compatible", told)
    assert judge(shape(WORDS), target).reason == told.replace("only the target", "only the draft")


def test_tokens_without_a_row_in_the_target_are_named(tmp_path):
    tokenizer = byte_level(WORDS)
    width = tokenizer.get_vocab_size()
    tokenizer.add_special_tokens(["<pad>", "<image>"])
    found = check(tmp_path, tokenizer, tokenizer, width)
    assert found.warnings == (
        f"token <pad> has the id {width}, and the target has {width} rows, and 1 more have none either; harmless "
        "unless a prompt holds it, which is refused",
    )


word = st.tuples(st.booleans(), st.text("abc", min_size=2, max_size=4))
vocabularies = st.lists(word, min_size=1, max_size=6, unique=True)


@st.composite
def pairs_of_vocabularies(draw) -> tuple[list[Word], list[Word]]:
    """A vocabulary and one that is equal, shorter, longer, permuted, or altered in one word."""
    words = draw(vocabularies)
    others = [
        st.just(words),
        st.just(words[:-1]),
        st.permutations(words),
        vocabularies.map(lambda more: list(dict.fromkeys(words + more))),
        st.tuples(st.integers(0, len(words) - 1), word).map(lambda at: [*words[: at[0]], at[1], *words[at[0] + 1 :]]),
    ]
    return words, list(dict.fromkeys(draw(st.one_of(others))))


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=15)
@given(pair=pairs_of_vocabularies(), data=st.data())
def test_a_pair_is_accepted_exactly_when_both_decode_shared_ids_equally(shape, pair, data):
    """Every shared id between two anchors (alone, a leading space would be stripped), and random sequences."""
    target, draft = map(shape, pair)
    shared = range(min(target.get_vocab_size(), draft.get_vocab_size()))
    anchor = target.token_to_id({byte_level: "Ġx", unigram: "▁x"}[shape])
    sequences = [[anchor, i, anchor] for i in shared]
    sequences += data.draw(st.lists(st.lists(st.sampled_from(shared), min_size=1, max_size=12), max_size=5))
    equal = all(decoded(target, ids) == decoded(draft, ids) for ids in sequences)
    assert (judge(target, draft).status != "incompatible") == equal


def decoded(backend: Backend, ids: list[int]) -> str:
    return backend.decode(ids, skip_special_tokens=False)


def test_tokenizer_files_that_are_the_same_are_read_once(tmp_path, monkeypatch):
    """`check` of Gemma 3 270M and itself in 4 bits read 262,145 tokens twice."""
    read, load = [], Tokenizer.load
    monkeypatch.setattr(Tokenizer, "load", lambda folder, *given: read.append(folder) or load(folder, *given))
    target, draft = (tiny_folder(tmp_path / name, TINY) for name in ("target", "draft"))
    pair = Pair("tiny", str(target), str(draft))
    assert checked(pair).vocab.status == "identical"
    assert read == [target]
    (draft / "tokenizer.json").write_text((draft / "tokenizer.json").read_text() + "\n")
    assert checked(pair).vocab.status == "identical"
    assert read == [target, target, draft]


def test_a_draft_of_another_tokenizer_is_translated_and_told_with_the_share_it_can_say(tmp_path):
    """Swapped ids lose nothing; a draft without an e and a t loses a ninth, which is warned of."""

    def found(name, change):
        folder = tmp_path / name
        target, draft = (tiny_folder(folder / part, TINY) for part in ("target", "draft"))
        (draft / "tokenizer.json").write_bytes(change((draft / "tokenizer.json").read_bytes()))
        return checked(Pair("p", str(target), str(draft)))

    swapped = found("swapped", swap_two_ids)
    assert (swapped.vocab.status, swapped.vocab.share, swapped.obstacles, swapped.warnings) == (
        "translated",
        1.0,
        (),
        (),
    )
    assert swapped.to_dict()["tokenizers"]["share"] == 1.0
    some = found("some", lambda text: text.replace(b'"e":', b'"eee":').replace(b'"t":', b'"ttt":'))
    assert some.vocab.status == "translated" and not some.obstacles
    assert some.warnings == ("the draft's tokenizer can say only 89 % of the target's tokens; others are rejections",)
    mute = found("mute", other_letters)
    assert mute.exit_code == 4 and "a translated draft must say 50 %" in mute.obstacles[0].hint
