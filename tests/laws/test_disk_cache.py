"""Law: a conversation that comes back from disk answers as one that was read, for every cache kind, K, seed and draft.

"Another process" is a session with empty caches over the same weights, and a store that has seen nothing.
"""

from dataclasses import replace

import pytest

from fakes.chat import networks, tokenizer_in
from fakes.gemma import agreeing_assistant
from fakes.heads import agreeing_head, cached_head, tiny_target, trained_medusa
from fakes.translated import translated
from specdec_cli.core.events import Prefill, RoundDone
from specdec_cli.core.request import Request
from specdec_cli.engine.model import CachedModel
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.disk_cache import LEAST_TOKENS, DiskCache
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.slot import Slot

PROMPT = [(7 * i * i + i) % 97 + 3 for i in range(LEAST_TOKENS + 60)]
NEXT = [(5 * i) % 97 + 3 for i in range(23)]
KINDS = {"plain": "qwen3", "window": "gemma3_text", "recurrent": "qwen3_5", "recurrent and window": "recurrent_gemma"}
HEADS = ("head", "bounded head", "medusa", "assistant")
SLOW = ("window", "recurrent and window", "bounded head", "medusa", "assistant")
EVERY = [*KINDS, "quantized", "draft of the end", "translated", "alone", *HEADS]


def slot_of(kind):
    if kind == "assistant":
        target = tiny_target("gemma4_text")
        return Slot(target, agreeing_assistant(target))
    if kind in HEADS:
        target = tiny_target("qwen3_5")
        made = trained_medusa(target) if kind == "medusa" else agreeing_head(target)
        recent = {"head": None, "bounded head": 64, "medusa": 1}[kind]
        return Slot(target, cached_head(target, made, recent=recent))
    quantized = {"kv_bits": 8} if kind == "quantized" else {}
    more = {"head_dim": 32} if quantized else {}
    target, draft = networks(KINDS.get(kind, "qwen3"), **more)
    if kind == "translated":
        return Slot(CachedModel(target, "target"), translated(draft, mute=range(5, 259, 9)))
    draft = CachedModel(draft, "draft", recent=64 if kind == "draft of the end" else None, **quantized)
    return Slot(CachedModel(target, "target", **quantized), None if kind == "alone" else draft)


@pytest.fixture(
    scope="module", params=[pytest.param(kind, marks=pytest.mark.slow if kind in SLOW else ()) for kind in EVERY]
)
def pair(request, tmp_path_factory):
    tokenizer, slot = tokenizer_in(tmp_path_factory.mktemp("tokenizer")), slot_of(request.param)
    names = "t", None if slot.draft is None else "d"
    return LoadedPair(Pair("tiny", *names), names, tokenizer, slot, fingerprint=lambda: request.param)


def request_of(pair, k, seed, tokens=40):
    sampling = {"temperature": 0.8} if seed is not None else {}
    never_stop = tuple((token, -1e9) for token in (0, 1, 2))
    drafter = pair.draft_kind or "none"
    return Request(max_tokens=tokens, k=k, seed=seed, sampling=sampling, logit_bias=never_stop, drafter=drafter)


def said(events):
    return [token for event in events if isinstance(event, RoundDone) for token in event.round.emitted]


def judged(events):
    """(drafted, accepted, tokens that the draft had to read) of each round."""
    rounds = [event.round for event in events if isinstance(event, RoundDone)]
    return [(len(one.draft), one.accepted, one.draft_read_tokens) for one in rounds]


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
    first = on_disk(pair, tmp_path / "disk").session()
    answer = said(first.reply(PROMPT, request_of(pair, k, seed)))
    first.keep("chat", ends=True)
    kept = first.slot.copy(len(first.slot.tokens))
    first.pair.disk.finish()
    # The next turn may leave out some of the answer, as templates do.
    prompt = [*PROMPT, *(answer[:-9] if changed else answer), *NEXT]
    request = request_of(pair, k, seed)

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
    tokenizer, slot = tokenizer_in(tmp_path), slot_of("alone")
    pair = LoadedPair(Pair("tiny", "t", None), ("t", None), tokenizer, slot, fingerprint=lambda: "control")
    first, request = on_disk(pair, tmp_path / "disk").session(), request_of(pair, 0, None)
    list(first.reply([*reversed(PROMPT)], request))
    first.slot.target._read[: len(PROMPT)] = PROMPT
    first.keep("chat", ends=True)
    first.pair.disk.finish()
    restored = list(on_disk(pair, tmp_path / "disk").session().reply([*PROMPT, *NEXT], request))
    read = list(pair.session().reply([*PROMPT, *NEXT], request))
    assert prefill(restored).disk_tokens and said(restored) != said(read)
