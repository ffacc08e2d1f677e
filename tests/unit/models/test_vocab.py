from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_cli.models.vocab import TokenTable, compare

WORDS = (b"<s>", b"</s>", b"a", b" the", b"\xf0\x9f")


def table(*tokens, bos=0, eos=1):
    return TokenTable({i: token for i, token in enumerate(tokens) if token is not None}, {"bos": bos, "eos": eos})


def test_padding_and_extra_ids_are_compatible():
    verdict = compare(table(*WORDS, b"<tool>"), table(*WORDS, None))
    assert (verdict.status, verdict.first_difference) == ("compatible", None)


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


@settings(max_examples=40)
@given(st.lists(st.binary(min_size=1, max_size=3), min_size=1, max_size=30), st.data())
def test_one_changed_token_is_always_found(tokens, data):
    at = data.draw(st.integers(0, len(tokens) - 1))
    other = list(tokens)
    other[at] += b"!"
    verdict = compare(table(*tokens, bos=None, eos=None), table(*other, bos=None, eos=None))
    assert (verdict.status, verdict.first_difference) == ("incompatible", at)


def test_the_refusal_names_both_models_and_exits_4():
    refusal = compare(table(*WORDS), table(*WORDS[:2], b"b")).refusal("big", "small")
    assert refusal.message.startswith("tokenizers of big and small differ: id 2 is 'a' ") and refusal.exit_code == 4


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
