"""Text, limits and interruptions on top of the engine, with a real tiny pair over single bytes.

That its words are plain decoding's is a law (`laws/test_plain_words`), and stop strings are the writer's.
"""

import pytest

from fakes.drafting import open_session
from fakes.models import TINY, byte_tokenizer, tiny_folder, write_tokenizer
from specdec_cli.core.errors import UsageError
from specdec_cli.core.events import Prefill, Reading, RoundDone
from specdec_cli.core.request import Constraint, Request
from specdec_cli.models.text import Repetition
from specdec_cli.pairs.pair import Pair


@pytest.fixture(scope="module")
def session(tiny_pair):
    return open_session(Pair("tiny", *map(str, tiny_pair)))


def reply(session, text="def f(", **settings):
    request = Request(**{"max_tokens": 40, "k": 4} | settings)
    return list(session.reply(session.pair.text_tokens(text), request, raw=True))


def test_cancelling_between_rounds_keeps_the_text_and_the_next_reply_is_right(session):
    whole = reply(session, k=4)[-1]
    presses = iter([False] * 5)
    prompt = session.pair.text_tokens("def f(")
    events = list(session.reply(prompt, Request(max_tokens=40, k=4), lambda: next(presses, True), True))
    assert events[-1].reason == "interrupted"
    assert events[-1].text and whole.text.startswith(events[-1].text)
    assert reply(session, k=4)[-1].text == whole.text


def test_an_answer_ends_where_the_context_does(session):
    events = reply(session, "x" * 250)
    assert (len(events[-1].tokens), events[0].context_limit) == (6, 256)


def test_a_loop_ends_the_reply_at_the_token_that_completes_it(session):
    """A bias drives the model into a loop; the text up to there is plain decoding's own."""
    bias = tuple((token, 4.0) for token in range(100, 104))
    plain = reply(session, k=0, max_tokens=60, logit_bias=bias)[-1]
    cut = reply(session, max_tokens=60, logit_bias=bias, stop_repetition=12)[-1]
    watch = Repetition(12)
    end = next(place for place, token in enumerate(plain.tokens, 1) if watch.feed(token))
    assert (cut.reason, plain.reason != "repetition") == ("repetition", True)
    assert cut.tokens == plain.tokens[:end] and 12 < end < len(plain.tokens)
    assert plain.text.startswith(cut.text)


@pytest.fixture(scope="module")
def rowless(tmp_path_factory):
    """Both tokenizers have a token more than the networks have rows, as Gemma 3's."""
    tokenizer = byte_tokenizer(special=["<pad>"])
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
        with pytest.raises(UsageError) as plain:
            ids = rowless.pair.text_tokens(prompt) if isinstance(prompt, str) else prompt
            rowless.plain(ids, Request(sampling={"repetition_penalty": penalty}))
        assert said in error.value.message and said in plain.value.message
    assert list(rowless.reply("ab", raw=True, **options))[-1].tokens


def test_a_shape_holds_with_a_tokenizer_of_more_ids_than_rows(rowless):
    request = Request(max_tokens=20, k=4, constraint=Constraint("regex", "a(<pad>|x)b"), logit_bias=((91, -100.0),))
    finish = list(rowless.reply("abc", request, raw=True))[-1]
    assert finish.complete and finish.text in ("a<pad>b", "axb")


@pytest.mark.parametrize("value", [float("-inf"), -1e39])
def test_a_bias_may_rule_a_token_out(session, value):
    """Beside a schema it is refused: the answer ended without a word, or drew a token that its shape forbids."""
    assert reply(session, "a", max_tokens=4, logit_bias=((4, value), (5, -100.0)))[-1].tokens


# Between two chunks of a long prompt the caller hears how far it was read, and may turn to other work.


@pytest.fixture
def short_chunks(device_says):
    device_says(prefill_tokens=30)


LONG, ASKED = [3 + i % 90 for i in range(100)], Request(max_tokens=20, k=4, drafter="model")


def events_of(session, tokens=100):
    """Of a conversation that has read nothing yet."""
    return list(session.pair.session().reply(LONG[:tokens], ASKED))


def test_every_chunk_but_the_last_is_told_of_target_and_of_draft_and_changes_no_token(session, device_says):
    whole = events_of(session)[-1]
    device_says(prefill_tokens=30)
    events = events_of(session)
    readings = [event for event in events if isinstance(event, Reading)]
    assert [(event.reader, event.read_tokens) for event in readings] == [
        *[("target", 30), ("target", 60), ("target", 90)],
        *[("draft", 30), ("draft", 60), ("draft", 90)],
    ]
    order = [type(event) for event in events]
    assert order[1:4] == [Reading] * 3 and order[4:6] == [Prefill, RoundDone] and order[6:9] == [Reading] * 3
    assert events[-1].tokens == whole.tokens and events[-1].stats["draft_prefill_seconds"] > 0


@pytest.mark.parametrize("chunks", [2, 5])
def test_a_reply_cancelled_between_chunks_ends_there_and_the_next_is_right(session, short_chunks, chunks):
    one, seen = session.pair.session(), list[Reading]()
    for event in one.reply(LONG, ASKED, lambda: len(seen) >= chunks):
        if isinstance(event, Reading):
            seen.append(event)
    assert len(seen) == chunks and event.reason == "interrupted" and len(event.tokens) == (chunks > 3)
    assert list(one.reply(LONG, ASKED))[-1].tokens == events_of(session)[-1].tokens


def test_a_generator_closed_between_chunks_leaves_a_slot_that_goes_on(session, short_chunks):
    one = session.pair.session()
    for held in (30, 60, 90, 100, 100):  # the last two were closed while the draft read
        events = one.reply(LONG, ASKED)
        next(event for event in events if isinstance(event, Reading))
        events.close()
        assert one.slot.target.length == held
    assert list(one.reply(LONG, ASKED))[-1].tokens == events_of(session)[-1].tokens
