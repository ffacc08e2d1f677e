"""Law: a conversation that comes back from disk answers as one that was read, for every cache kind, K, seed and draft.

"Another process" is a session with empty caches over the same weights, and a store that has seen nothing.
"""

from dataclasses import replace

import pytest

from laws.pairs import asked, pair_of, rounds_of, said
from specdec_cli.core.events import Prefill
from specdec_cli.session.disk_cache import LEAST_TOKENS, DiskCache

PROMPT = [(7 * i * i + i) % 97 + 3 for i in range(LEAST_TOKENS + 60)]
NEXT = [(5 * i) % 97 + 3 for i in range(23)]
SLOW = ("window", "recurrent and window", "bounded head", "medusa", "assistant")
EVERY = ("plain", "recurrent", "quantized", "draft of the end", "translated", "alone", "head", *SLOW)


@pytest.fixture(
    scope="module", params=[pytest.param(kind, marks=pytest.mark.slow if kind in SLOW else ()) for kind in EVERY]
)
def pair(request, tmp_path_factory):
    return pair_of(request.param, tmp_path_factory.mktemp("tokenizer"), fingerprint=lambda: request.param)


def judged(events):
    """(drafted, accepted, tokens that the draft had to read) of each round."""
    return [(len(one.draft), one.accepted, one.draft_read_tokens) for one in rounds_of(events)]


def prefill(events):
    return next(event for event in events if isinstance(event, Prefill))


def on_disk(pair, folder):
    """The same weights in another process."""
    return replace(pair, disk=DiskCache(folder, 10**9, pytest.fail))


CASES = [(3, None), (0, None), ("auto", 7), (3, 7)]


@pytest.mark.parametrize(
    ("k", "seed"), [pytest.param(*case, marks=pytest.mark.slow if at else ()) for at, case in enumerate(CASES)]
)
@pytest.mark.parametrize("changed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_restored_conversation_answers_as_one_that_was_read(pair, tmp_path, k, seed, changed):
    first, request = on_disk(pair, tmp_path / "disk").session(), asked(k, seed, tokens=24)
    answer = said(first.reply(PROMPT, request))
    first.keep("chat", ends=True)
    kept = first.slot.copy(len(first.slot.tokens))
    first.pair.disk.finish()
    # The next turn may leave out some of the answer, as templates do.
    prompt = [*PROMPT, *(answer[:-9] if changed else answer), *NEXT]
    read = list(pair.session().reply(prompt, request))
    restored = list(on_disk(pair, tmp_path / "disk").session().reply(prompt, request))
    assert said(restored) == said(read)
    assert prefill(read).disk_tokens == 0
    assert prefill(restored).disk_tokens == prefill(restored).cached_tokens >= LEAST_TOKENS
    # Nor does the draft guess worse, or read more, than in the conversation that went on.
    if k != "auto":
        assert judged(restored) == judged(pair.session(kept).reply(prompt, request))


def test_the_law_would_see_numbers_of_another_text(tmp_path):
    """The control: an entry whose ids are right, and whose numbers are those of other ids, gives another answer."""
    pair = pair_of("alone", tmp_path, fingerprint=lambda: "control")
    first, request = on_disk(pair, tmp_path / "disk").session(), asked(0)
    list(first.reply([*reversed(PROMPT)], request))
    first.slot.target._read[: len(PROMPT)] = PROMPT
    first.keep("chat", ends=True)
    first.pair.disk.finish()
    restored = list(on_disk(pair, tmp_path / "disk").session().reply([*PROMPT, *NEXT], request))
    read = list(pair.session().reply([*PROMPT, *NEXT], request))
    assert prefill(restored).disk_tokens and said(restored) != said(read)
