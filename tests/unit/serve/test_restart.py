"""Conversations that outlive the server: nothing is read twice, and no answer changes."""

import time
from dataclasses import replace

import pytest

from fakes.chat import tokenizer_in
from fakes.heads import agreeing_head, cached_head, tiny_target
from fakes.serving import Client, Restarting, alone, ids, job, tiny_loaded
from fakes.transcripts import allowed_tokens, turns_of, unread
from specdec_cli.pairs.pair import Pair
from specdec_cli.serve import conversations, scheduler
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.slot import Slot

SEEDED = {"seed": 7, "sampling": {"temperature": 0.8}}


def with_head(folder):
    """A hybrid target, whose own head drafts."""
    target = tiny_target("qwen3_5")
    slot = Slot(target, cached_head(target, agreeing_head(target)))
    return LoadedPair(Pair("tiny", "t", "h"), ("t", "h"), tokenizer_in(folder), slot, fingerprint="head")


MAKERS = {
    "plain": lambda folder: tiny_loaded(folder, "plain", 65536),
    "window": lambda folder: tiny_loaded(folder, "window", 65536),
    "recurrent": lambda folder: tiny_loaded(folder, "recurrent", 65536),
    "quantized": lambda folder: tiny_loaded(folder, "plain", 65536, kv_bits=8),
    "alone": lambda folder: tiny_loaded(folder, "plain", 65536, draft=False),
    "head": with_head,
}


def transcript(server, conversations, turns, system, restart_at=(), **more):
    """(prompt, tokens read, tokens behind the first change, answer) of every turn, the conversations taking turns."""
    talks, heard, found = [turns_of(server.ask, 40 * n, turns, system, **more) for n in range(conversations)], [], []
    for number in range(turns * conversations):
        if number in restart_at:
            server.restart()
        prompt, client = next(talks[number % conversations])
        found.append((prompt, client.read_tokens, unread(heard, prompt), list(client.end.tokens)))
        heard.append([*prompt, *client.end.tokens])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["window", "recurrent"])
def test_after_a_restart_a_turn_reads_what_is_new_and_the_way_to_the_nearest_snapshot(tmp_path, kind, conversations=2):
    restart_at = range(2, 4 * conversations, 3)
    with Restarting(MAKERS[kind](tmp_path), tmp_path / "kept") as server:
        found = transcript(server, conversations, 4, ids(600, 77), restart_at)
        assert not server.said
    for _, read, new, _ in found[1:]:
        assert read <= new + allowed_tokens(kind)


def test_without_a_folder_everything_is_read_again(tmp_path):
    """Negative control."""
    with Restarting(MAKERS["plain"](tmp_path), tmp_path / "kept", folder_bytes=1) as server:
        found = transcript(server, 1, 3, ids(600, 77), (2,))
    assert found[2][1] > 600


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "drafter", "more"),
    [("plain", "model", {}), ("recurrent", "auto", SEEDED), ("alone", "ngram", {}), ("head", "model", SEEDED)],
    ids=lambda value: "seeded" if value == SEEDED else str(value),
)
def test_answers_after_a_restart_are_the_uninterrupted_ones(tmp_path, kind, drafter, more):
    """Turn by turn, two conversations of one system prompt, with a restart before every second turn."""
    pair, asked = MAKERS[kind](tmp_path), {"drafter": drafter, **more}
    system = ids(90, 5)
    if kind == "head":
        system = [token % 90 for token in system]
        asked |= {"logit_bias": (), "below": 90}
    with Restarting(pair, tmp_path / "one") as whole, Restarting(pair, tmp_path / "other") as restarted:
        runs = [transcript(whole, 2, 3, system, **asked), transcript(restarted, 2, 3, system, range(1, 6, 2), **asked)]
        assert whole.restarts == 0 and restarted.restarts == 3 and not restarted.said
    asked.pop("below", None)
    for (prompt, _, _, expected), (_, read, new, found) in zip(*runs, strict=True):
        assert found == expected == list(alone(pair, job(prompt, 8, **asked)))
        assert len(found) <= 8 and (read <= new + 2 or new == len(prompt))


def test_a_restored_draft_and_head_read_nothing_again(tmp_path):
    """Of a conversation that goes on, draft and head keep what they read, too."""
    for kind in ("plain", "head"):
        pair = MAKERS[kind](tmp_path / kind)
        prompt = [token % 90 for token in ids(200, 5)]
        with Restarting(pair, tmp_path / kind / "kept") as server:
            said = server.ask(job(prompt, 8, (100, 200), logit_bias=(), drafter="model")).end.tokens
            before = next(kept.slot for kept in server.desk._conversations)
            server.restart()
            going_on = [*prompt, *said, 5, 6, 7]
            slots = server.desk._conversations
            read = slots._read_back(going_on, None, 0).slot
        assert list(read.tokens) == list(before.tokens) and len(read.tokens) >= 200
        if kind == "plain":
            assert list(read.draft.read) == list(before.draft.read) and len(read.draft.read) >= 200
        else:
            assert read.draft.length == before.draft.length and read.draft.follows(going_on[: read.draft.length + 1])


def test_a_prompt_that_only_begins_alike_leaves_the_file_to_its_conversation(tmp_path):
    pair, system = MAKERS["plain"](tmp_path), ids(300, 7)
    prompts = [[*system, *ids(80, seed)] for seed in (1, 2)]
    with Restarting(pair, tmp_path / "kept") as server:
        answer_one = server.ask(job(prompts[0], 8, (300, 380))).end.tokens
        server.restart()
        assert server.ask(job(prompts[1], 8, (300, 380))).prefill.cached_tokens == 300
        assert server.desk.status().conversations == 1
        server.restart()
        assert len(list((tmp_path / "kept").iterdir())) == 2
        again = server.ask(job([*prompts[0], *answer_one, 9], 8, (300, 389)))
        assert again.read_tokens <= 2
        assert server.ask(job([*prompts[1], 9], 8, (300, 381))).read_tokens <= 2


def waited_for(true, seconds=20.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_idle_unloading_keeps_conversations(tmp_path):
    pair, prompt = MAKERS["plain"](tmp_path), ids(200, 5)
    with Restarting(pair, tmp_path / "kept", idle_seconds=0.05) as server:
        said = server.ask(job(prompt, 8)).end.tokens
        waited_for(lambda: not server.desk.status().loaded)
        assert len(list((tmp_path / "kept").iterdir())) == 1
        assert server.ask(job([*prompt, *said, 9], 8)).read_tokens <= 2


def test_a_conversation_that_memory_has_no_room_for_comes_back_from_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(conversations, "PAUSE_BYTES_A_SECOND", 1e12)
    pair, prompts = MAKERS["plain"](tmp_path), [ids(200, seed) for seed in (1, 2, 3)]
    with Restarting(pair, tmp_path / "kept", slots=1) as server:
        for number, prompt in enumerate(prompts):
            server.ask(job(prompt, 8))
            waited_for(lambda number=number: len(list((tmp_path / "kept").glob("*.conversation"))) > number)
        assert server.desk.status().conversations == 1
        assert all(server.ask(job([*prompt, 9], 8)).read_tokens <= 2 for prompt in prompts)


def test_a_pair_of_unknown_files_keeps_nothing(tmp_path):
    pair = replace(MAKERS["plain"](tmp_path), fingerprint="")
    with Restarting(pair, tmp_path / "kept") as server:
        server.ask(job(ids(100), 4))
    assert not list((tmp_path / "kept").iterdir())


def test_who_comes_while_conversations_are_written_waits_for_one_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(conversations, "PAUSE_BYTES_A_SECOND", 1e12)
    pair, came, answered = MAKERS["plain"](tmp_path), [], []
    with Restarting(pair, tmp_path / "kept") as server:
        write = server.folder.write

        def slow(slot, *more):
            """Somebody comes while the first conversation is written; was he answered before the next one was?"""
            answered.extend(client.done.is_set() for client in came)
            if not came:
                came.append(Client(server.desk, job(ids(30, 9), 4)))
            write(slot, *more)

        for seed in range(3):
            server.ask(job(ids(100, seed), 4))
        monkeypatch.setattr(server.folder, "write", slow)
        waited_for(lambda: answered)
        assert came[0].wait().end.tokens == alone(pair, job(ids(30, 9), 4)) and answered[0]


def test_ending_takes_no_longer_than_it_may(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "ENDING_SECONDS", 0.2)
    with Restarting(MAKERS["plain"](tmp_path), tmp_path / "kept") as server:
        for seed in range(6):
            server.ask(job(ids(100, seed), 4))
        monkeypatch.setattr(server.folder, "write", lambda *arguments: time.sleep(0.15))
        began = time.monotonic()
    assert time.monotonic() - began < 0.8


def test_a_full_disk_is_one_line_and_the_server_lives(tmp_path, monkeypatch):
    monkeypatch.setattr("specdec_cli.serve.disk.LEAST_FREE_BYTES", 1 << 60)
    monkeypatch.setattr(scheduler, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(conversations, "PAUSE_BYTES_A_SECOND", 1e12)
    pair, path = MAKERS["plain"](tmp_path), tmp_path / "kept"
    with Restarting(pair, path) as server:
        for seed in range(3):
            assert server.ask(job(ids(100, seed), 4)).end.tokens == alone(pair, job(ids(100, seed), 4))
            time.sleep(0.1)
        expected = [f"a conversation was not written to {path}: {path}: No space left on device"]
        assert server.said == expected
    assert server.said == expected and not list(path.iterdir())
