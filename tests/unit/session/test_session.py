"""Text, stop strings and limits on top of the engine, with a real tiny pair over single bytes."""

from dataclasses import replace

import pytest

from fakes.drafting import open_session
from fakes.models import TINY, byte_tokenizer, tiny_folder, write_tokenizer
from specdec_cli.core.errors import DoesNotFit, UsageError
from specdec_cli.core.events import Finish, Prefill, RoundDone, Start
from specdec_cli.core.request import Constraint, Request
from specdec_cli.models.text import Repetition
from specdec_cli.pairs.pair import Pair


@pytest.fixture(scope="module")
def session(tiny_pair):
    target, draft = map(str, tiny_pair)
    return open_session(Pair("tiny", target, draft))


def reply(session, text="def f(", **settings):
    request = Request(**{"max_tokens": 40, "k": 4} | settings)
    return list(session.reply(session.pair.text_tokens(text), request, raw=True))


def joined(events):
    return "".join(event.text for event in events if isinstance(event, RoundDone))


def test_the_events_come_in_order_and_their_texts_join(session):
    events = reply(session)
    assert isinstance(events[0], Start) and isinstance(events[1], Prefill)
    assert all(isinstance(event, RoundDone) for event in events[2:-1])
    finish = events[-1]
    assert isinstance(finish, Finish)
    assert joined(events) + finish.text_tail == finish.text
    assert finish.text == byte_tokenizer().decode(list(finish.tokens), skip_special_tokens=False)


@pytest.mark.parametrize("k", [1, 4, 8])
def test_every_k_gives_the_same_reply(session, k):
    plain, drafted = reply(session, k=0)[-1], reply(session, k=k)[-1]
    assert (drafted.tokens, drafted.text, drafted.reason) == (plain.tokens, plain.text, plain.reason)


@pytest.mark.slow
def test_stop_strings_are_found_across_tokens_and_rounds_and_never_shown(session):
    """Stops of 1 to 4 characters cut out of the reply, so that ends fall at all places of a round."""
    whole = reply(session)[-1].text
    for size in (1, 2, 4):
        for at in range(size, 24, 6):
            stop = whole[at : at + size]
            events = reply(session, stop=(stop,))
            finish = events[-1]
            assert finish.reason == "stop"
            assert finish.text == whole[: whole.find(stop)]
            assert joined(events) + finish.text_tail == finish.text


def test_max_tokens_cuts_inside_a_draft(session):
    for budget in (1, 2, 3, 7):
        events = reply(session, max_tokens=budget, k=8)
        assert len(events[-1].tokens) == budget
        assert events[-1].reason == "length"


def test_a_stop_token_ends_the_reply_and_is_not_in_it(tiny_pair, tmp_path):
    """The stop token is taken from the middle of the plain reply, so it comes inside a draft for K = 8."""
    free = open_session(Pair("tiny", str(tiny_pair[0]), None))
    tokens = reply(free, k=0)[-1].tokens
    stop = next(t for t in tokens[6:] if tokens.index(t) > 4)
    target = tiny_folder(tmp_path / "target", TINY | {"eos_token_id": stop}, seed=1)
    draft = tiny_folder(tmp_path / "draft", TINY | {"eos_token_id": stop}, seed=1)
    for k in (0, 3, 8):
        events = reply(open_session(Pair("tiny", str(target), str(draft))), k=k)
        assert events[-1].reason == "stop"
        assert events[-1].tokens == tokens[: tokens.index(stop)]
        assert events[-2].round.emitted[-1] == stop


def test_a_cancelled_prefill_finishes_as_interrupted(session):
    events = list(session.reply(session.pair.text_tokens("x" * 200), Request(k=4), lambda: True))
    assert [type(event) for event in events] == [Start, Prefill, Finish]
    assert (events[-1].reason, events[-1].text) == ("interrupted", "")


def test_cancelling_between_rounds_keeps_the_text_and_the_next_reply_is_right(session):
    whole = reply(session, k=4)[-1]
    presses = iter([False] * 5)
    prompt = session.pair.text_tokens("def f(")
    events = list(session.reply(prompt, Request(max_tokens=40, k=4), lambda: next(presses, True), True))
    assert events[-1].reason == "interrupted"
    assert events[-1].text and whole.text.startswith(events[-1].text)
    assert reply(session, k=4)[-1].text == whole.text


def test_a_second_reply_reads_only_what_is_new(session):
    reply(session, "class A:")
    prefill = reply(session, "class A: pass")[1]
    assert (prefill.cached_tokens, prefill.prompt_tokens) == (8, 13)


def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers(session):
    with pytest.raises(DoesNotFit, match="prompt is too long: 256 tokens > 255 maximum"):
        reply(session, "x" * 256)
    with pytest.raises(DoesNotFit, match="prompt is too long: 9 tokens > 7 maximum"):
        reply(session, "x" * 9, max_context=8)
    events = reply(session, "x" * 250)
    assert (len(events[-1].tokens), events[0].context_limit) == (6, 256)


@pytest.mark.parametrize("drafter", ["model", "ngram"])
def test_adaptive_k_changes_no_token(tiny_pair, drafter):
    """Whatever is measured and chosen: greedy and coupled texts are those of plain decoding."""
    session = open_session(Pair("tiny", *map(str, tiny_pair)))
    prompt = session.pair.text_tokens("hello hello hello")
    for more in ({}, {"sampling": {"temperature": 0.9}, "seed": 5}):
        plain = [*session.reply(prompt, Request(max_tokens=80, k=0, **more))][-1]
        for _ in range(2):
            start, *_, auto = session.reply(prompt, Request(max_tokens=80, k="auto", drafter=drafter, **more))
            assert (start.k, auto.tokens) == ("auto", plain.tokens)


@pytest.mark.slow
@pytest.mark.parametrize("k", [0, 3, "auto"])
def test_a_loop_ends_the_reply_at_the_same_token_whatever_k(session, k):
    """A bias drives the model into a loop; the text up to there is plain decoding's own."""
    bias = tuple((token, 2.0) for token in range(100, 104))
    plain = reply(session, k=0, max_tokens=150, logit_bias=bias)[-1]
    cut = reply(session, k=k, max_tokens=150, logit_bias=bias, stop_repetition=12)[-1]
    watch = Repetition(12)
    end = next(place for place, token in enumerate(plain.tokens, 1) if watch.feed(token))
    assert (cut.reason, plain.reason != "repetition") == ("repetition", True)
    assert cut.tokens == plain.tokens[:end] and 12 < end < len(plain.tokens)
    assert plain.text.startswith(cut.text)


@pytest.fixture(scope="module")
def rowless(tmp_path_factory):
    """Both tokenizers have a token more than the networks have rows, as Gemma 3's."""
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["<pad>"])
    assert tokenizer.encode("<pad>").ids == [TINY["vocab_size"]]
    folders = [tiny_folder(tmp_path_factory.mktemp("rowless") / name) for name in ("target", "draft")]
    for folder in folders:
        write_tokenizer(folder, tokenizer)
    return open_session(Pair("rowless", *map(str, folders)))


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_an_id_without_a_row_is_never_fed(rowless, penalty):
    """mlx reads and writes such an index out of bounds: a text of a client's ended the server."""
    for prompt, said in (
        ("a<pad>b", "the prompt holds the token '<pad>' with the id 259, and the target has 259 rows"),
        ([5, -1], "with the id -1, and"),
        ([5, 10**7], "with the id 10000000, and"),
        ([5, -(10**6)], "with the id -1000000, and"),
    ):
        options = {"max_tokens": 3, "repetition_penalty": penalty}
        with pytest.raises(UsageError) as error:
            list(rowless.reply(prompt, **options, raw=True))
        assert said in error.value.message
        with pytest.raises(UsageError, match="the target has 259 rows"):
            ids = rowless.pair.text_tokens(prompt) if isinstance(prompt, str) else prompt
            rowless.plain(ids, Request(sampling={"repetition_penalty": penalty}))
    assert list(rowless.reply("ab", raw=True, **options))[-1].tokens


def test_a_shape_holds_with_a_tokenizer_of_more_ids_than_rows(rowless):
    request = Request(max_tokens=20, k=4, constraint=Constraint("regex", "a(<pad>|x)b"), logit_bias=((91, -100.0),))
    finish = list(rowless.reply("abc", request, raw=True))[-1]
    assert finish.complete and finish.text in ("a<pad>b", "axb")


@pytest.mark.parametrize(("value", "temperature"), [(float("-inf"), 0.0), (-1e39, 1.0)])
def test_a_bias_that_rules_everything_out_is_refused(session, value, temperature):
    """The answer ended without a word, or drew a token that its shape forbids."""
    shape, biases = Constraint("schema", '{"const": "a"}'), ((4, value), (5, -100.0))
    for request, said in (
        (
            Request(constraint=shape, logit_bias=biases),
            "4=-inf beside --schema may rule out all that the schema allows",
        ),
    ):
        with pytest.raises(UsageError) as error:
            list(session.reply("a", replace(request, sampling={"temperature": temperature}), raw=True))
        assert said in error.value.message
    alone = Request(max_tokens=4, logit_bias=biases)
    assert list(session.reply("a", alone, raw=True))[-1].tokens
