"""Which conversation a prompt goes on with, what is copied, what is dropped; and how little is read again."""

from dataclasses import replace

import pytest

from fakes.serving import Client, alone, answer, ids, job, tiny_loaded
from specdec_cli.apps.serve.conversations import CachedConversation, Conversations
from specdec_cli.session.disk_cache import DiskCache
from specdec_cli.session.disk_entries import entry_files
from specdec_cli.session.meter import Stopwatch
from specdec_cli.session.slot import Slot

SLOW = ("window", "recurrent")
EACH = ["plain", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)]
# The distance to the nearest snapshot, taken one token before an end; and the last token is always fed.
ALLOWED_TOKENS = {"plain": 1, "window": 2, "recurrent": 2}


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


def test_conversations_of_one_key_keep_their_caches():
    """A key is that of an application, or of its user: each conversation ended the one before."""
    store = Store()
    for words in (ONE, TWO):
        store.run([*SYSTEM, *words], key="a", ends=(100, 140))
    assert [store.run([*SYSTEM, *words, 9], key="a", ends=(100, 141))[0] for words in (ONE, TWO)] == [140, 140]


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
def test_a_long_prompt_that_changes_in_the_middle_is_read_from_the_nearest_snapshot(
    tmp_path, open_desk, monkeypatch, kind
):
    monkeypatch.setattr("specdec_cli.session.slot.SNAPSHOT_TOKENS", 128)
    pair = tiny_loaded(tmp_path, kind, context_limit=65536)
    desk, prompt = open_desk(pair), list(ids(750, 5))
    answer(desk, job(prompt, 5, key="editor"))
    changed = [*prompt[:450], *ids(300, 9)]
    client = answer(desk, job(changed, 5, key="editor"))
    assert client.prefill.cached_tokens == 384 and client.read_tokens <= 300 + 128
    assert client.end.tokens == alone(pair, job(changed, 5))


@pytest.mark.parametrize("kind", EACH)
def test_answers_in_copied_and_continued_slots_are_those_of_fresh_sessions(tmp_path, open_desk, kind):
    pair = tiny_loaded(tmp_path, kind, context_limit=65536)
    desk = open_desk(pair, parallel=2)
    prompts = [(*ids(80, 7), *ids(30, n)) for n in range(2)]
    clients = [Client(desk, job(prompt, 8, (80, 110))) for prompt in prompts]
    for prompt, client in zip(prompts, clients, strict=True):
        assert client.wait().end.tokens == alone(pair, job(prompt, 8))
        longer = (*prompt, *client.end.tokens, *ids(9, 50))
        again = answer(desk, job(longer, 8, (80, 110)))
        assert again.end.tokens == alone(pair, job(longer, 8))
        assert again.read_tokens <= 9 + ALLOWED_TOKENS[kind]


# A server that restarts reads what it had read: what many go on with, and what was in memory at its end.
AGENT = ids(400)


@pytest.fixture(params=["plain", pytest.param("window", marks=pytest.mark.slow), "recurrent"])
def process(request, tmp_path, open_desk):
    """A function that starts a desk in "another process": (desk, what it keeps on disk)."""
    pair = tiny_loaded(tmp_path, request.param)

    def begin(keeps=True):
        disk = DiskCache(tmp_path / "disk", 10**9, pytest.fail) if keeps else None
        return open_desk(replace(pair, disk=disk, fingerprint=lambda: request.param)), disk

    return begin


def test_an_agent_goes_on_after_a_restart_and_others_begin_with_its_instructions_and_the_words_are_the_same(process):
    first, disk = process()
    begun = answer(first, job(AGENT, ends=(300, 400)))
    assert not entry_files(disk.folder)  # nobody has gone on with it
    first.close()
    assert entry_files(disk.folder)
    going = job((*AGENT, *begun.tokens, *ids(20, 5)), ends=(300, 400))
    after, _ = process()
    read = answer(after, going)
    assert read.prefill.disk_tokens == read.prefill.cached_tokens >= 300
    assert read.tokens == answer(process(keeps=False)[0], going).tokens
    assert after.status().totals.disk_tokens == read.prefill.disk_tokens
    other = answer(process()[0], job((*AGENT[:300], *ids(60, 3)), ends=(300,)))
    assert 290 <= other.prefill.disk_tokens <= 300


def test_a_conversation_that_is_gone_on_with_is_on_disk_before_the_end(process):
    first, disk = process()
    begun = answer(first, job(AGENT, ends=(400,)))
    answer(first, job((*AGENT, *begun.tokens, *ids(9, 2)), ends=(400,)))
    answer(first, job(ids(30, 9)))  # the thread that writes was begun by the one before
    disk.finish()
    assert len(entry_files(disk.folder)) == 1
