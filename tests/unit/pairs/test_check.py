"""Verdicts on tokenizers of the shapes that real models have, built with the `tokenizers` library; and advice."""

from __future__ import annotations

import re
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from fakes.models import SPECIALS, TINY, byte_tokenizer, other_letters, swap_two_ids, tiny_folder, write_tokenizer
from fakes.packed import gpt_oss
from specdec_cli.core.errors import DoesNotFit
from specdec_cli.engine.load import empty_model
from specdec_cli.models.checkpoint import Checkpoint
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.models.vocab import VocabVerdict, compare
from specdec_cli.pairs.check import SHORT_ANSWERS, Side, advise, break_even
from specdec_cli.pairs.check import judge as judge_pair
from specdec_cli.pairs.files import ModelFiles, find
from specdec_cli.pairs.fit import Fit
from specdec_cli.pairs.pair import Pair, PairSpec

# (begins a word, its letters): what the two shapes spell Ġab / ab and ▁ab / ab.
Word = tuple[bool, str]
WORDS: list[Word] = [(True, "the"), (False, "the"), (True, "cat"), (False, "es"), (True, "ab")]
ANCHOR = (True, "x")


def byte_level(words: list[Word]) -> Backend:
    """GPT-2, Llama 3, Qwen: printable stand-ins for 256 bytes, then words."""
    return byte_tokenizer([" " * begins + text for begins, text in [ANCHOR, *words]])


def unigram(words: list[Word]) -> Backend:
    """SentencePiece, as in T5 and Gemma: pieces with scores, spaces as ▁, a fallback of 256 byte tokens."""
    pieces = [*SPECIALS, "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁" * begins + text for begins, text in [ANCHOR, *words]]
    scored = [(piece, -float(i)) for i, piece in enumerate(dict.fromkeys(pieces))]
    backend = Backend(models.Unigram(scored, unk_id=len(SPECIALS), byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
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


def test_a_draft_of_another_tokenizer_is_translated_and_told_with_the_share_it_can_say(tmp_path):
    """Swapped ids lose nothing; a draft without an e and a t loses a ninth, which is warned of."""

    def found(name, change):
        folder = tmp_path / name
        target, draft = (tiny_folder(folder / part, TINY) for part in ("target", "draft"))
        (draft / "tokenizer.json").write_bytes(change((draft / "tokenizer.json").read_bytes()))
        return checked(Pair("p", str(target), str(draft)))

    swapped = found("swapped", swap_two_ids)
    assert (swapped.vocab.status, swapped.vocab.share) == ("translated", 1.0)
    assert swapped.obstacles == swapped.warnings == ()
    assert swapped.to_dict()["tokenizers"]["share"] == 1.0
    some = found("some", lambda text: text.replace(b'"e":', b'"eee":').replace(b'"t":', b'"ttt":'))
    assert some.vocab.status == "translated" and not some.obstacles
    assert some.warnings == ("the draft's tokenizer can say only 89 % of the target's tokens; others are rejections",)
    mute = found("mute", other_letters)
    assert mute.exit_code == 4 and "a translated draft must say 50 %" in mute.obstacles[0].hint
    # The first obstacle decides the exit code, and so does one on memory alone.
    memory = DoesNotFit("c", "d")
    assert replace(mute, obstacles=(*mute.obstacles, memory)).exit_code == 4
    assert replace(mute, obstacles=(memory,)).exit_code == 5 and replace(mute, obstacles=()).exit_code == 0


# Advice

Snapshot = namedtuple("Snapshot", "weight_bytes")

EIGHT_BITS, FOUR_BITS = {"quantization": {"bits": 8}}, {"quantization": {"bits": 4}}

# As gpt-oss is published, with 4.25 bits a weight.
PUBLISHED = {"quantization_config": {"quant_method": "mxfp4"}}


def side(billions: float, config=EIGHT_BITS) -> Side:
    """A model of so many billion parameters; a quantization of group 64 costs half a bit a weight more."""
    bits = config.get("quantization", {}).get("bits", 16)
    return Side(int(billions * 1e9 * (bits + (0.5 if bits < 16 else 0)) / 8), config)


def told(target: Side, draft: Side | None, chip: str = "Apple M4") -> list[str]:
    return [sentence for sentence in advise(target, draft, chip) if sentence != SHORT_ANSWERS]


LARGE = "a draft of {:.1f} B is large for a target of {:.1f} B: use one up to {} B"
SMALL = "a target of 3.0 B parameters is too small for a useful draft; a better quantization gains more"
MIXED = "mixture of experts: every verified row reads other experts, so gains are small"
ADVICE = [
    *((side(big), side(small), LARGE.format(small, big, largest))
      for big, small, largest in ((7, 3, 1), (14, 7, 3), (32, 14, 7), (4, 2, 1))),
    (side(3), side(0.5), SMALL),
    (side(8, FOUR_BITS), side(0.6), "4-bit targets gain least: the same target in 8 bits is slower, but gains more"),
    (side(30, PUBLISHED), side(0.6), "4-bit targets gain least"),  # its bits were not seen
    *((side(30, EIGHT_BITS | config), side(0.6), MIXED)
      for config in ({"num_local_experts": 8}, {"num_experts": 128}, {"n_routed_experts": 64},
                     {"text_config": {"num_experts": 128}})),
]  # fmt: skip


@pytest.mark.parametrize(("target", "draft", "said"), ADVICE)
def test_advice_gives_its_reason_in_one_sentence(target, draft, said):
    (sentence,) = told(target, draft)
    assert sentence.startswith(said)


@pytest.mark.parametrize(("chip", "warned"), [("Apple M1", 2), ("Apple M2 Max", 2), ("Apple M3", 0), ("Apple M12", 0)])
def test_chips_before_m3_are_warned(chip, warned):
    assert len(told(side(8), side(0.6), chip)) == warned


def of_shapes(config, weight_bytes):
    """What is known of a model before its download: its configuration, and how large its files are."""
    checkpoint = Checkpoint("m", Path(), config, ())
    return Side.of(ModelFiles(checkpoint, Snapshot(weight_bytes)), empty_model(checkpoint))


@pytest.fixture(scope="module")
def gpt_oss_pair():
    return of_shapes(gpt_oss(36, 128), 63_080_000_000), of_shapes(gpt_oss(24, 32), 12_080_000_000)


def test_break_even_of_a_mixture_counts_what_is_read_and_the_experts_of_each_row(gpt_oss_pair):
    """The bug: 1.9 tokens a round of K = 2; it costs 3.5 plain steps, more than any round of it yields."""
    target, draft = gpt_oss_pair
    experts = 1.90 / 4.17
    row = 0.9 * experts + 0.25 * (1 - experts)
    assert break_even(target, draft.step_bytes, 2) == pytest.approx(1 + 2 * (3.18 / 4.17 + row), rel=0.02)


def test_advice_on_sizes_is_about_the_parameters_that_a_step_reads(gpt_oss_pair):
    """As the model cards count them: 5.1 B of 117 B, and 3.6 B of 21 B, less the embedding."""
    sentence, *_ = told(*gpt_oss_pair)
    assert re.fullmatch(
        r"a draft of (\S+) B active is large for a target of (\S+) B active: use one up to 1 B", sentence
    )
    small, big = map(float, re.findall(r"(\S+) B active", sentence))
    assert big == pytest.approx(5.1 + 0.6, rel=0.1) and small == pytest.approx(3.6 + 0.6, rel=0.1)


def test_files_that_are_packed_otherwise_than_they_say_have_no_more_experts_than_bytes():
    config = gpt_oss(24, 32) | {"quantization": {}}
    side = of_shapes(config, 12_080_000_000)
    assert side.expert_bytes + side.unread_bytes == pytest.approx(side.weight_bytes)
    assert side.expert_bytes == pytest.approx(side.weight_bytes * 4 / 32)


def test_break_even_counts_draft_steps_by_size_and_a_quarter_step_a_row():
    assert break_even(Side(8_000, {}), 800, 4) == pytest.approx(1 + 4 * (0.1 + 0.25))
    assert break_even(Side(8_000, {}), 800, 0) == 1
