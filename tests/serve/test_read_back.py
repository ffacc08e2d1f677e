"""A conversation comes back from the folder while others are answered: an array between two rounds, no more."""

import time

import pytest

from fakes.serving import Client, Restarting, alone, ids, job, tiny_loaded
from specdec_cli.engine import stored
from specdec_cli.events import RoundDone

pytestmark = pytest.mark.slow  # long answers beside a file


@pytest.fixture
def log(monkeypatch):
    """What happened, in order: "read" for each piece that came from a file."""
    found, read = [], stored.read_values

    def noted(path):
        steps = read(path)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            found.append("read")
            yield

    monkeypatch.setattr("specdec_cli.serve.disk.read_values", noted)
    return found


def longest_step(log):
    """Most pieces read between two rounds of the answer that runs."""
    return max(map(len, "".join("r" if what == "read" else " " for what in log).split()))


def meanwhile(server, log, wanted):
    """Hand `wanted` in while a long answer runs, whose rounds are noted; both clients."""
    running = Client(
        server.desk, job(ids(20, 9), 300), lambda _, event: isinstance(event, RoundDone) and log.append("")
    )
    while not running.tokens:
        time.sleep(0.001)
    log.clear()
    second = Client(server.desk, wanted).wait()
    assert not running.done.is_set()
    return running.wait(), second


@pytest.mark.parametrize("kind", ["plain", "recurrent"])
def test_an_answer_that_runs_waits_for_one_piece_at_most(tmp_path, kind, log):
    pair = tiny_loaded(tmp_path, kind, 65536)
    with Restarting(pair, tmp_path / "kept") as server:
        said = server.ask(job(ids(200, 5), 4)).end.tokens
        server.restart()
        wanted = job([*ids(200, 5), *said, 7], 4)
        running, second = meanwhile(server, log, wanted)
        print(f"{kind}: {log.count('read')} pieces read, at most {longest_step(log)} between two rounds")
        assert log.count("read") >= 8 and second.read_tokens <= 2
        assert longest_step(log) <= 2
        assert second.end.tokens == alone(pair, wanted)
        assert running.end.tokens == alone(pair, job(ids(20, 9), 300))


def test_a_file_that_is_damaged_far_behind_goes_and_both_answers_are_right(tmp_path, log):
    pair = tiny_loaded(tmp_path, "plain", 65536)
    with Restarting(pair, tmp_path / "kept") as server:
        said = server.ask(job(ids(200, 5), 4)).end.tokens
        server.restart()
        (file,) = (tmp_path / "kept").iterdir()
        data = bytearray(file.read_bytes())
        data[-2000] ^= 1
        file.write_bytes(data)
        wanted = job([*ids(200, 5), *said, 7], 4)
        running, second = meanwhile(server, log, wanted)
        assert second.end.tokens == alone(pair, wanted) and second.read_tokens > 200 and not file.exists()
        assert running.end.tokens == alone(pair, job(ids(20, 9), 300))
        assert len(server.said) == 1 and "was changed" in server.said[0]


def test_a_slot_that_goes_while_a_file_is_read_in_vain_is_taken_by_nobody(tmp_path, monkeypatch):
    """Others give their slots back meanwhile, which may drop the very one that had the most of the prompt."""
    pair, prompt = tiny_loaded(tmp_path, "plain", 65536), ids(200, 5)
    with Restarting(pair, tmp_path / "kept") as server:
        server.ask(job(prompt, 4))
        server.restart()
        server.ask(job(prompt[:100], 4))
        slots = server.desk._conversations
        assert len(list(slots)) == 1

        def in_vain(entry, slot, meanwhile):
            slots.fit(0)
            server.folder._entries.clear()
            return False

        monkeypatch.setattr(server.folder, "restore", in_vain)
        taken = slots.take(job([*prompt, 7], 4))
        assert taken in list(slots) and taken.busy and taken.length == 0
        slots.discard(taken)
