"""Two tokenizers' ids: compared by the bytes they mean, and translated."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from fakes.drafting import translation_of
from fakes.models import TINY, byte_tokenizer, sentence_piece, write_tokenizer
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.models.translation import TranslatedText, Translation, sample_text
from specdec_cli.models.vocab import TokenTable, compare


def loaded(folder, backend, **extra):
    folder.mkdir()
    write_tokenizer(folder, backend, **extra)
    return Tokenizer.load(folder, "tiny", TINY)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """Bytes as GPT-2 spells them, and pieces as Llama does, which begin every text."""
    root = tmp_path_factory.mktemp("tokenizers")
    spelled = sentence_piece()
    spelled.add_tokens([AddedToken("▁▁▁", normalized=False)])
    pieces = loaded(root / "pieces", spelled, bos_token="<s>", eos_token="</s>")
    return loaded(root / "bytes", byte_tokenizer(["the", " the", "é"])), pieces


def between(target, draft, begin=()):
    return Translation(target.table(), draft.table(), begin)


@pytest.mark.parametrize("turned", [False, True])
@settings(max_examples=30)
@given(text=st.text("abé the\n\t𝄞xy", min_size=1, max_size=20))
def test_a_context_means_the_same_bytes_to_both(tokenizers, turned, text):
    target, draft = reversed(tokenizers) if turned else tokenizers
    found = between(target, draft)
    context = target.continuation(text)
    read = TranslatedText(found, context).ids
    words = [b"".join(side.table().tokens[token] for token in ids) for side, ids in ((target, context), (draft, read))]
    assert words[0] == words[1]


@settings(max_examples=30)
@given(st.lists(st.integers(0, 49), max_size=30), st.integers(0, 30))
def test_the_ids_of_a_longer_context_begin_with_those_of_a_shorter_one(context, cut):
    found = translation_of(50, mute=range(5, 50, 9))
    text, whole = TranslatedText(found, context[:cut]), TranslatedText(found, context)
    before = list(text.ids)
    assert whole.ids[: len(before)] == before
    assert text.follow(context) == whole.ids and text.ends == whole.ends
    assert not context or whole.ids[0] == found.begin[0]
    assert [whole.tokens_at(end) for end in whole.ends] == list(range(len(context) + 1))


def test_a_word_that_the_draft_lacks_is_spelled_with_its_longest_words(tokenizers):
    target, draft = tokenizers
    found = between(draft, target)
    (space_a,) = (token for token, word in draft.table().tokens.items() if word == b" a")
    assert [target.piece(token) for token in found.spelled(space_a)] == [" ", "a"] and space_a not in found.said


def test_a_byte_of_its_own_gives_way_to_a_word(tokenizers):
    """Gemma 3 means a newline by 107 and by 248: only the first is ever written."""
    target, draft = tokenizers
    fallback, word = (draft.token_of(text) for text in ("<0x61>", "a"))
    (own,) = target.continuation("a")
    assert between(target, draft).said[own] == word
    back = between(draft, target)
    assert back.said[word] == own and fallback not in back.said
    assert back.spelled(fallback) == (own,)  # in a context it is read all the same


def test_a_word_of_spaces_that_was_added_means_spaces(tokenizers):
    """Gemma 3 adds words of U+2581, which it decodes as spaces: they were compared, banned and shown as U+2581."""
    (_, pieces), spaces = tokenizers, "▁▁▁"
    token = pieces.token_of(spaces)
    assert (pieces.table().tokens[token], pieces.piece(token)) == (b"   ", "   ")


def test_special_tokens_are_translated_by_equal_role_alone():
    def table(bos, eos, names):
        return TokenTable(dict(enumerate(names)), {"bos": bos, "eos": eos}, frozenset(range(3)))

    target = table(0, 1, [b"<s>", b"</s>", b"<tool>", b"a", b"<", b"tool>"])
    draft = table(2, 0, [b"<end>", b"<tool>", b"<begin>", b"a", b"<", b"tool", b">"])
    found = Translation(target, draft)
    assert (found.said[1], found.spelled(0), found.spelled(2)) == (0, (2,), (4, 5, 6))
    assert 0 not in found.said and 2 not in found.said  # a begin is never drafted
    without = Translation(target, table(None, None, [b"<end>", b"a"]))
    assert 1 not in without.said


def test_a_begin_that_the_context_brings_is_not_put_before_it():
    target = TokenTable({0: b"<s>", 1: b"a"}, {"bos": 0}, frozenset({0}))
    draft = TokenTable({0: b"a", 5: b"<b>"}, {"bos": 5}, frozenset({5}))
    found = Translation(target, draft, [5])
    assert TranslatedText(found, [0, 1]).ids == TranslatedText(found, [1]).ids == [5, 0]


def test_what_nobody_can_say_still_is_something():
    found = Translation(TokenTable({0: b"a", 1: b"b"}, {}), TokenTable({7: b"a"}, {}), [9])
    assert (found.spelled(1), found.spelled(400), found.share([0, 1, 1, 1])) == ((9,), (9,), 0.25)


def test_the_sample_is_of_every_kind():
    text = sample_text()
    assert all(part in text for part in ("def ", "await", '"country"', "今天", "##", "    ")) and len(text) > 2000


# Whether they agree

WORDS = (b"<s>", b"</s>", b"a", b" the", b"\xf0\x9f")


def table(*tokens, bos=0, eos=1):
    return TokenTable({i: token for i, token in enumerate(tokens) if token is not None}, {"bos": bos, "eos": eos})


def test_same_size_with_permuted_ids_is_incompatible_and_names_the_first():
    verdict = compare(table(*WORDS), table(*WORDS[:3], WORDS[4], WORDS[3]))
    assert (verdict.status, verdict.first_difference) == ("incompatible", 3)
    assert verdict.reason == r"id 3 is ' the' in the target and b'\xf0\x9f' in the draft"


def test_another_end_is_said_with_its_price_and_no_refusal():
    """A base model drafts for its instruct model: only the target's end ends an answer."""
    verdict = compare(table(*WORDS), table(*WORDS, eos=2))
    assert verdict.status == "compatible"
    assert "eos is id 1 in the target and id 2 in the draft, which costs a rejection an answer" in verdict.reason


def test_a_special_token_that_is_called_otherwise_is_no_word():
    target, draft = (TokenTable({0: b"a", 1: name}, {}, frozenset({1})) for name in (b"<|r1|>", b"<|r2|>"))
    assert compare(target, draft).status == "compatible" and "1 special tokens differ" in compare(target, draft).reason
    words = TokenTable({0: b"a", 1: b"b"}, {})
    assert compare(target, words).status == "incompatible"  # there it is a word


def test_words_that_differ_are_translated_where_the_draft_can_say_most_of_a_text():
    """Below nine tenths with a warning, below a half not at all; the refusal says both, and what would do."""
    differing = compare(table(*WORDS), table(*WORDS[:2], b"b"))
    good, some, little = (differing.of_share(share) for share in (0.95, 0.5, 0.494))
    assert (good.status, good.share, good.warning) == ("translated", 0.95, "")
    assert good.reason.startswith("the draft can say 95 % of a sample text's tokens; id 2 is 'a' in the target")
    assert some.status == "translated" and "only 50 % of the target's tokens" in some.warning
    assert (little.status, little.warning) == ("incompatible", "")
    refusal = little.refusal("big", "small")
    assert refusal.message.endswith("and the draft can say 49 % of a sample text's tokens, less than 50 %")
    assert refusal.hint == "a translated draft must say 50 %: use one of the target's family, or --drafter none"
