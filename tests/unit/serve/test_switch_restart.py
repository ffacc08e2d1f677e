"""Several pairs and one folder: each conversation is read back for its own pair, and none is lost by a switch."""

from contextlib import ExitStack
from dataclasses import replace

import pytest

from fakes.serving import alone, answer, ids, job, tiny_loaded
from specdec_cli.serve.disk import open_folder
from specdec_cli.serve.scheduler import Scheduler, SchedulerOptions

PROMPT = ids(200, 5)
OTHERS = "{} has 1 conversation of other models or versions: kept for those"


class Switching:
    """A desk over several pairs that can be ended and begun again: only what its folder keeps survives.

    `talk` goes on with the conversation of that number and pair, and gives (tokens read, tokens behind the last turn).
    """

    def __init__(self, root, kinds, folder_bytes=1 << 30, **options):
        self.root, self.kinds, self.said, self._made = root, kinds, [], 0
        self._bytes, self._options, self._ends, self._talks = folder_bytes, options, ExitStack(), {}
        self.restart()

    def pair(self, name=""):
        self._made += 1
        return tiny_loaded(self.root / f"pair{self._made}", self.kinds[name], 65536)

    def restart(self):
        self._ends.close()
        self.folder = self._ends.enter_context(open_folder(self.root / "kept", self._bytes, self.said.append))
        options = SchedulerOptions(**{"cache_bytes": 1 << 30, **self._options})
        self.desk = Scheduler(self.pair, options, folder=self.folder, switch=self.pair)
        self._ends.callback(self.desk.close)

    def talk(self, name, number=0, prompt=PROMPT, **more):
        told = self._talks.get((name, number))
        asked = [*prompt, 3 + number] if told is None else [*told, 40 + number, 41, 42]
        ends = (len(prompt), len(asked))
        wanted = replace(job(asked, 6, ends, **more), pair=name)
        client = answer(self.desk, wanted)
        assert client.end.tokens == alone(self.pair(name), wanted), (name, number)
        self._talks[name, number] = [*asked, *client.end.tokens]
        return client.read_tokens, len(asked) if told is None else len(asked) - len(told)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._ends.close()


@pytest.mark.slow
def test_a_conversation_is_read_back_for_its_own_pair_after_every_switch_and_restart(tmp_path):
    """Both pairs get the same ids, so a conversation of the other one would be taken if it could."""
    figures = []
    with Switching(tmp_path, {"": "plain", "b": "recurrent"}) as server:
        for turn in range(4):
            for name in ("", "b"):
                figures.append(server.talk(name))
                if turn == 2:
                    server.restart()
        assert server.said == [OTHERS.format(tmp_path / "kept")] * 2  # once after each restart
    assert [read for read, _ in figures[:2]] == [201, 201]
    assert all(read <= new + 2 for read, new in figures[2:])
