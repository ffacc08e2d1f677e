"""Which conversation a prompt goes on with, what is copied, what is dropped; and how little is read again."""

import pytest

from fakes.serving import Client, alone, answer, desk_of, ids, job, tiny_loaded
from fakes.transcripts import allowed_tokens
from specdec_cli.apps.serve.conversations import CachedConversation, Conversations
from specdec_cli.session.meter import Stopwatch
from specdec_cli.session.slot import Slot

SLOW = ("window", "recurrent")
EACH = ["plain", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)]


class Held:
    """The target of a slot of plain caches, as far as Slots ask: a byte a token."""

    def __init__(self, tokens=()):
        self.read = list(tokens)

    @property
    def nbytes(self):
        return len(self.read)

    def reach(self, prompt):
        return min(Slot(self).shared(prompt), len(prompt) - 1)

    def own_ends(self, context, ends):
        return ends

    def mark(self, marks, snapshots):
        pass

    def copy(self, length):
        return Held(self.read[:length])


class Opened:
    """A session without a pair."""

    def __init__(self, slot):
        self.slot, self.kept = slot or Slot(Held()), []

    def keep(self, ends=False):
        self.kept.append(ends)


class Store(Conversations):
    """Slots in which a job is done at once: it reads its prompt and says `said`."""

    def __init__(self, budget_bytes=1 << 20, most=9):
        self.now = 0
        begin = lambda slot: CachedConversation(Opened(slot), Stopwatch(self.tick))  # noqa: E731
        super().__init__(begin, budget_bytes, most, 8, self.tick)

    def tick(self):
        self.now += 1
        return self.now

    def run(self, prompt, said=(), **more):
        """Tokens of the prompt that were there, and the slot."""
        kept = self.take(job(prompt, **more))
        reached = kept.slot.reach(prompt)
        kept.slot.target.read[:] = [*prompt, *said]
        self.give_back(kept)
        return reached, kept

    @property
    def lengths(self):
        return sorted(kept.length for kept in self)


SYSTEM, ONE, TWO = list(range(100)), [7] * 40, [8] * 40


def test_the_longest_common_prefix_wins():
    store = Store()
    _, first = store.run([*SYSTEM, *ONE], ends=(100, 140))
    _, second = store.run([*SYSTEM, *TWO], ends=(100, 140))
    assert store.run([*SYSTEM, *TWO, 9], ends=(100, 140, 141)) == (140, second)
    assert store.run([*SYSTEM, *ONE, 9], ends=(100, 140, 141)) == (140, first)


def test_a_prompt_that_only_begins_alike_gets_a_copy_and_both_go_on():
    store = Store()
    store.run([*SYSTEM, *ONE], ends=(100, 140))
    assert store.run([*SYSTEM, *TWO], ends=(100, 140))[0] == 100
    assert store.lengths == [140, 140]
    assert store.run([*SYSTEM, *ONE, 9], ends=(100, 140))[0] == 140


def test_an_answer_that_was_written_otherwise_is_the_same_conversation():
    """Thinking leaves later turns, and templates close what they opened: the prompt is shared, the answer is not."""
    store = Store()
    _, kept = store.run([*SYSTEM, *ONE], said=[5] * 200, ends=(100, 140))
    assert store.run([*SYSTEM, *ONE[:-3], 1, 2, 3, 4], ends=(100, 141)) == (137, kept)
    assert len(list(store)) == 1


def test_of_equal_prefixes_the_one_of_that_key_is_taken():
    store = Store()
    kept = {key: store.run([*SYSTEM, *ONE], key=key, ends=(100,))[1] for key in ("a", "b")}
    taken = store.take(job([*SYSTEM, *ONE, 5], key="a"))
    busy = store.take(job([*SYSTEM, *ONE, 5], key="a"))
    assert taken.conversation_id == "a" and taken is kept["a"] and busy is not taken


def test_a_slot_in_use_is_copied_and_never_shared():
    store = Store()
    _, kept = store.run([*SYSTEM, *ONE])
    first, second = store.take(job([*SYSTEM, *ONE, 1])), store.take(job([*SYSTEM, *ONE, 2]))
    assert first is kept and second is not kept and second.length == 140


def test_the_least_recently_used_go_first_and_no_more_than_allowed_stay():
    store = Store(budget_bytes=400, most=3)
    for number, length in enumerate((100, 90, 190, 110)):
        store.run([number] * length)
    assert store.lengths == [90, 110, 190] and store.nbytes <= 400
    for number in range(6):
        store.run([number] * 30)
    assert store.lengths == [30] * 3
    taken = [store.take(job([n] * 30)) for n in range(10, 14)]
    assert len(list(store)) == 4 and all(kept.busy for kept in taken)  # those in use stay


@pytest.mark.slow
@pytest.mark.parametrize("kind", SLOW)
def test_a_long_prompt_that_changes_in_the_middle_is_read_from_the_nearest_snapshot(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("specdec_cli.session.slot.SNAPSHOT_TOKENS", 256)
    pair = tiny_loaded(tmp_path, kind, context_limit=65536)
    desk, prompt = desk_of(pair), list(ids(1500, 5))
    answer(desk, job(prompt, 5, key="editor"))
    changed = [*prompt[:900], *ids(600, 9)]
    client = answer(desk, job(changed, 5, key="editor"))
    assert client.prefill.cached_tokens == 768 and client.read_tokens <= 600 + 256
    assert client.end.tokens == alone(pair, job(changed, 5))
    desk.close()


@pytest.mark.parametrize("kind", EACH)
def test_answers_in_copied_and_continued_slots_are_those_of_fresh_sessions(tmp_path, kind):
    pair = tiny_loaded(tmp_path, kind, context_limit=65536)
    desk = desk_of(pair, parallel=3)
    system = ids(80, 7)
    prompts = [(*system, *ids(30, n)) for n in range(3)]
    clients = [Client(desk, job(prompt, 8, (80, 110))) for prompt in prompts]
    for prompt, client in zip(prompts, clients, strict=True):
        assert client.wait().end.tokens == alone(pair, job(prompt, 8))
        longer = (*prompt, *client.end.tokens, *ids(9, 50))
        again = answer(desk, job(longer, 8, (80, 110)))
        assert again.end.tokens == alone(pair, job(longer, 8))
        assert again.read_tokens <= 9 + allowed_tokens(kind)
    desk.close()
