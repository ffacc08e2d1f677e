"""Law: broken bytes never speak, nothing outside is touched, and what was broken can be mended.

A machine plays a person, the model cache and a Hub, which fail and lie at any moment: on the way, in the listing, in
the headers, on the disk. Whatever came before, a model that is found has the bytes of a published commit, a failure is
two lines, and once the Hub is sound again a pull brings all of it. Attacks that once succeeded are explicit cases.
What else a person keeps on disk is broken in every way too: it is read as it was, as nothing, or refused in two lines.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from fakes.chat import BYTES, networks
from fakes.hub_client import Person, tree
from fakes.hub_server import HubServer
from specdec_cli.command.config import read_settings
from specdec_cli.command.table import SETTINGS
from specdec_cli.core.errors import SpecdecError
from specdec_cli.engine.cache.cache_kinds import as_bytes, parts_of
from specdec_cli.engine.model import CachedModel
from specdec_cli.pairs.files import find
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.pairs.registry import load_registry
from specdec_cli.pairs.tuned import RECORD, fingerprints, require_bound
from specdec_cli.session.conversation import Answer, Conversation, Turn
from specdec_cli.session.cost_file import CostFile
from specdec_cli.session.disk_cache import DiskCache
from specdec_cli.session.slot import Slot
from specdec_cli.session.transcript import Transcript, load, save

NAME, EXTRA = "org/tiny", "model-extra.safetensors"
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
# Shards of one size, so that no lookup tells them apart.
FILES = {"config.json": b'{"model_type": "qwen3"}', "tokenizer.json": b'{"model": {}}', ONE: b"1" * 20_000}
FILES[TWO] = b"2" * len(FILES[ONE])
PATHS = st.sampled_from([*FILES])
PULL = "result = hub.fetch(hub.resolve('org/tiny')).name"
FIND = "result = hub.locate('org/tiny').name"
VERIFY = "result = [x.path for x in hub.verify(hub.resolve('org/tiny', offline=True))]"
REMOVE = "result = hub.remove(hub.removal('org/tiny'))"
# From a blob's folder this leads to the folder that holds the cache's home.
OUT, ROOT = "../../../../victim.txt", "/victim.txt"
WORDS = (OUT, ROOT, "..", "", "a" * 10_000, "A" * 40, "a\0b", "main", "b" * 40, 7)
BODIES = ([], {"siblings": [{}]}, {"siblings": [{"rfilename": 5}], "sha": "a" * 40}, {"siblings": 3}, "x", None)


def flipped(data, at=0.5, bit=0):
    place = min(int(len(data) * at), len(data) - 1)
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def require_told(answer):
    """A failure is two lines, short enough to read."""
    assert set(answer) == {"error", "message", "hint", "exit"} and answer["exit"] in (3, 5), answer
    assert "\n" not in answer["message"] + answer["hint"] and len(answer["message"]) < 400 and answer["hint"]
    return answer


class Lies:
    """What a hostile mirror says in place of the truth about a file."""

    def __init__(self, hub):
        self.hub = hub

    def end(self):
        self.hub.lie_listed, self.hub.lie_headers = lambda info: info, lambda asked, headers: headers

    def digest(self, path, word):
        def listed(info):
            for sibling in info["siblings"]:
                if sibling["rfilename"] == path:
                    place, key = (sibling["lfs"], "sha256") if "lfs" in sibling else (sibling, "blobId")
                    place[key] = word
            return info

        self.hub.lie_listed = listed

    def commit(self, path, word):
        self.hub.lie_listed = lambda info: info | {"sha": word}

    def body(self, path, word):
        self.hub.lie_listed = lambda info: BODIES[WORDS.index(word) % len(BODIES)]

    def etag(self, path, word):
        """The library writes to blobs/<ETag>."""

        def headers(asked, said):
            if asked.startswith("/cdn/") or not asked.endswith("/" + path):
                return said
            return {key: value for key, value in said.items() if "etag" not in key.lower()} | {"ETag": f'"{word}"'}

        self.hub.lie_headers = headers

    def sent_commit(self, path, word):
        self.hub.lie_headers = lambda asked, said: said | ({"X-Repo-Commit": word} if "X-Repo-Commit" in said else {})

    def swapped(self, path, word):
        """The digest of another file."""
        wrong = self.hub.repos[NAME][self.hub.refs[NAME, "main"]][OTHERS[path]].etag
        self.hub.lie_headers = lambda asked, said: (
            said | {key: wrong for key in said if key in ("ETag", "X-Linked-Etag")} if path in asked else said
        )


OTHERS = {"config.json": "tokenizer.json", "tokenizer.json": "config.json", ONE: TWO, TWO: ONE}
LIES = ("digest", "commit", "body", "etag", "sent_commit", "swapped")
# (kind, what of the requests for a file, more)
FAULTS = (
    ("corrupt", "GET .*{}", {"at": 5}),
    ("short", "GET .*{}", {"at": 9}),
    ("cut", "GET .*{}", {"at": 3, "times": 1}),
    ("status", ".*{}", {"status": 500}),
    ("status", ".*{}", {"status": 404}),
    ("status", "api", {"status": 503}),
    ("html", ".*{}", {}),
    ("html", "api", {}),
)
DAMAGES = ("flipped", "cut", "zeros", "gone", "its bytes gone", "leads out", "more")


class BrokenBytes(RuleBasedStateMachine):
    """`person` and `hub` are shared by all examples, whose cache begins empty."""

    person: Person
    hub: HubServer

    def __init__(self):
        super().__init__()
        self.root, self.lies, self.published = self.person.home.parent, Lies(self.hub), {}
        shutil.rmtree(self.person.home / "hub", ignore_errors=True)
        self.hub.repos.clear()
        self.hub.refs.clear()
        self.heal()
        self.commit(FILES)
        self.outside, self.sound = self.around(), True

    def around(self):
        return tree(self.root, self.person.home)

    def commit(self, files):
        self.published[self.hub.commit(NAME, files)] = self.newest = files

    @property
    def snapshots(self):
        return self.person.home / "hub" / "models--org--tiny" / "snapshots"

    def require_whole(self, commit, weights):
        """What is here of a commit is what was published; weights are compared by their size unless asked."""
        files = self.published[commit]
        here = {path.name: path.read_bytes() for path in (self.snapshots / commit).iterdir()}
        assert here.keys() == files.keys()
        for path, data in files.items():
            assert here[path] == data or (path in (ONE, TWO) and not weights and len(here[path]) == len(data)), path

    def asked(self, code):
        answer = self.person(code)
        assert self.around() == self.outside
        return require_told(answer) if isinstance(answer, dict) else answer

    @rule(path=PATHS, at=st.floats(0, 1))
    def publish(self, path, at):
        self.commit(self.newest | {path: flipped(self.newest[path], at)})

    @rule(fault=st.sampled_from(FAULTS), path=PATHS)
    def fail(self, fault, path):
        kind, match, more = fault
        self.hub.fail(kind, match.format(path), **more)

    @rule(lie=st.sampled_from(LIES), path=PATHS, word=st.sampled_from(WORDS))
    def lie(self, lie, path, word):
        if isinstance(word, str) or lie == "digest":  # a header is text
            getattr(self.lies, lie)(path, word)

    @rule()
    def heal(self):
        self.hub.forget()
        self.lies.end()

    @precondition(lambda self: any(self.snapshots.glob("*/*")))
    @rule(data=st.data(), how=st.sampled_from(DAMAGES), at=st.floats(0, 1))
    def damage(self, data, how, at):
        """A file of a snapshot, on the disk."""
        self.sound = False
        place = data.draw(st.sampled_from(sorted(self.snapshots.glob("*/*"))))
        inside = place.exists() and place.resolve().is_relative_to(self.person.home)
        if how == "more":
            (place.parent / EXTRA).write_bytes(b"{}")
        elif how in ("gone", "leads out") or not inside:
            place.unlink()
            if how == "leads out":
                place.symlink_to(self.root / "victim.txt")
        elif how == "its bytes gone":
            place.resolve().unlink()
        elif bytes_ := place.read_bytes():
            changed = {"flipped": flipped(bytes_, at), "cut": bytes_[:-1], "zeros": bytes(len(bytes_))}[how]
            place.resolve().write_bytes(changed)

    @rule()
    def pull(self):
        """Where it fails, the model that was here before still is."""
        before, commit = self.asked(FIND), self.asked(PULL)
        if isinstance(commit, str) and not (self.snapshots / commit / EXTRA).exists():
            self.require_whole(commit, weights=self.sound)
        elif isinstance(before, str) and self.sound:
            assert self.asked(FIND) == before

    @rule()
    def find(self):
        if isinstance(commit := self.asked(FIND), str):
            self.require_whole(commit, weights=False)

    @rule()
    def verify(self):
        """What it found altered it removed, so nothing of that is found afterwards."""
        altered = self.asked(VERIFY)
        if isinstance(altered, list):
            commit = self.asked(FIND)
            assert isinstance(commit, dict) or not altered
            if isinstance(commit, str):
                self.require_whole(commit, weights=True)

    @rule()
    def remove(self):
        if isinstance(self.asked(REMOVE), int):
            self.sound = True

    def teardown(self):
        self.heal()
        for added in self.snapshots.glob(f"*/{EXTRA}"):
            added.unlink()
        self.asked(VERIFY)
        commit = self.asked(PULL)
        assert self.asked(VERIFY) == [] and self.asked(FIND) == commit == self.hub.refs[NAME, "main"]
        self.require_whole(commit, weights=True)


def home_in(root):
    """HF_HOME; around it a file and a folder that no attack may touch."""
    (root / "victim.txt").write_text("a person's own words")
    (root / "neighbour").mkdir()
    (root / "home").mkdir()
    return root / "home"


def play(root, before="", **sizes):
    with HubServer() as hub, Person(hub, home_in(root), before) as person:
        machine = type("BrokenBytes", (BrokenBytes,), {"hub": hub, "person": person})
        sizes = {"max_examples": 10, "stateful_step_count": 12} | sizes
        run_state_machine_as_test(machine, settings=settings(deadline=None, **sizes))


@pytest.mark.slow
@pytest.mark.parametrize("examples", [10, pytest.param(120, marks=[pytest.mark.full, pytest.mark.timeout(1800)])])
def test_whatever_fails_lies_or_is_damaged_only_published_bytes_are_found(tmp_path, examples):
    play(tmp_path, max_examples=examples)


NOTHING_COMPARED = """
from specdec_cli.hub import cached
missing = cached.Problem("", "", "missing")
cached.RemoteFile.difference = lambda file, path, **_: None if path.is_file() else missing
"""


@pytest.mark.full
def test_the_machine_finds_a_pull_that_compares_nothing(tmp_path):
    """Negative control."""
    with pytest.raises((AssertionError, ExceptionGroup)):
        play(tmp_path, NOTHING_COMPARED, phases=[Phase.generate], max_examples=60)


# Attacks that once succeeded.


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """(a Hub that lies, a person, all that is around the cache)."""
    root = tmp_path_factory.mktemp("attacked")
    with HubServer() as hub, Person(hub, home_in(root)) as person:
        yield hub, person, root


ATTACKS = [
    # "blobId": "../../../../victim.txt" made `pull --verify` delete that file: the digest was joined to a path.
    *(("digest", path, (OUT, ROOT, "..", "", "a" * 10_000, "A" * 40, "a\0b", 7), "the Hub gives {} of {} the digest ")
      for path in ("config.json", ONE)),
    # A crafted header made the library write, and make folders, outside the cache.
    *(("etag", path, (OUT, ROOT, "..", "a" * 10_000, "A" * 40), "the Hub gives {} of {} the digest ")
      for path in ("config.json", ONE)),
    # Bytes of one shard came to lie under the other's digest: one stood for both.
    *(("swapped", path, ("",), "the Hub sends {} of {} under the digest of another of its files, ")
      for path in ("config.json", ONE)),
    # A crafted commit became a folder wherever it led.
    ("commit", "config.json", ("../../../../neighbour", ROOT, "main", "A" * 40), "commit"),
    ("sent_commit", "config.json", ("../../../../neighbour", ROOT, "main", "A" * 40, "b" * 40), " of {1} from commit "),
    # A list in place of an object, or a file without a name, was a traceback.
    ("body", "", WORDS[: len(BODIES)], ""),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("lie", "path", "words", "said"), ATTACKS, ids=lambda value: str(value)[:12])
def test_a_lie_is_refused_in_two_lines_and_touches_nothing(hostile, lie, path, words, said):
    hub, person, root = hostile
    lies, before = Lies(hub), tree(root, person.home / "hub")
    for word in words:
        lies.end()
        person(REMOVE)
        hub.commit(NAME, FILES)
        getattr(lies, lie)(path, word)
        answer = require_told(person(PULL))
        assert answer["exit"] == 3 and said.format(path, NAME) in answer["message"]
        assert tree(root, person.home / "hub") == before
    lies.end()
    assert person(PULL) == hub.refs[NAME, "main"] and person(VERIFY) == []


@pytest.mark.slow
def test_a_404_with_another_commit_leaves_no_file_and_a_pinned_commit_is_not_answered_with_another(hostile):
    """The client made an empty file wherever the header led."""
    hub, person, root = hostile
    person(REMOVE)
    hub.commit(NAME, FILES)
    headers = {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": ""}
    hub.fail("status", "resolve.*config.json", status=404, headers=headers)
    Lies(hub).sent_commit("config.json", "../../../../neighbour")
    before = tree(root, person.home / "hub")
    assert "config.json" in require_told(person(PULL))["message"] and tree(root, person.home / "hub") == before
    hub.forget()
    Lies(hub).end()
    hub.refs[NAME, "c" * 40] = hub.refs[NAME, "main"]
    answer = require_told(person(f"hub.resolve({NAME!r}, {'c' * 40!r})"))
    assert f'the Hub answers with commit "{hub.refs[NAME, "main"]}" of {NAME} when asked for' in answer["message"]


# What a person keeps on disk.


@dataclass(frozen=True)
class Kept:
    """How something is `written` below a folder, as one file, and `read` again; None: nothing is there.

    `compared`: it has a digest, so that other bytes are never another value.
    """

    written: Callable[[Path], Path]
    read: Callable[[Path], object]
    compared: bool = False


CHAT = Transcript(Conversation("be kind", (Turn("hello", Answer("hi", "", "stop", {"k": 4})),)), "abc", {})
IDS = [(7 * i * i + i) % (BYTES - 3) + 3 for i in range(300)]
PAIRS = 'schema_version = 1\n[pairs.a]\ntarget = "org/a"\nk = 4\n'
CONFIG = 'k = 4\nsystem = "é"\n[presets.a]\ntemp = 0.5\nplain = true\n'


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def saved(folder):
    save(folder / "chat.jsonl", CHAT)
    return folder / "chat.jsonl"


def costs(folder):
    CostFile(folder / "costs.json")["x"] = {"at": 1}
    return folder / "costs.json"


@pytest.fixture(scope="module")
def everything(tiny_pair, tmp_path_factory):
    """By name all that is kept."""
    target, draft = networks("qwen3")
    first = Slot(CachedModel(target, "t"), CachedModel(draft, "d"))
    read = first.fresh()
    for model in (read.target, read.draft):
        for _ in model.prefill([*IDS, 3]):
            pass
    models = find(PairSpec(Pair("tiny", *map(str, tiny_pair), k=3), "model")).checkpoints
    packaged = put(tmp_path_factory.mktemp("packaged") / "models.toml", PAIRS)

    def entry(folder):
        cache = DiskCache(folder, 10**9, pytest.fail)
        cache.write("print", read)
        cache.finish()
        return next(folder.iterdir())

    def restored(path):
        slot = first.fresh()
        found = DiskCache(path.parent, 10**9).restore("print", slot, [*IDS, 9])
        assert found == len(slot.tokens) and (found or not path.exists())
        return (list(slot.tokens), bytes(as_bytes(parts_of(slot.contents())[1], {}))) if found else None

    def used(path):
        require_bound(path.parent, *models)
        return "it is bound"

    def in_effect(path):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPECDEC_CONFIG", str(path))
            return read_settings().values

    bound = json.dumps({"sha256": fingerprints(*models)})
    return {
        "a chat": Kept(saved, load),
        "costs": Kept(costs, lambda path: CostFile(path).get("x")),
        "what was read": Kept(entry, restored, compared=True),
        "pairs": Kept(
            lambda folder: put(folder / "models.toml", PAIRS), lambda path: load_registry(packaged, path).pairs
        ),
        "settings": Kept(lambda folder: put(folder / "config.toml", CONFIG), in_effect),
        "a tuned draft": Kept(lambda folder: put(folder / RECORD, bound), used, compared=True),
    }


KEPT = ("a chat", "costs", "what was read", "pairs", "settings", "a tuned draft")
INSTEAD = (b"", b"null", b"[]", b"{", b"{}", b"\xff\xfe", b"\0" * 400, b"[" * 100_000, b'{"schema": 1, "entries": 3}')
INSTEAD += (
    b"k =",
    b"[presets.a]\n[presets.a]",
    b"seed = " + b"9" * 5000,
    b"a = " + b"[" * 100_000,
    b"\xff\xfe\x00\xd8",
)
INSTEAD += (b"\xef\xbb\xbf\xef\xbb\xbfk = 4", 'system = "é"'.encode("latin-1"), b"k = 4\x00")
INSTEAD += (b'{"sha256": {"tar', b'{"sha256": {}}', b'{"sha256": {"target": null}}')
# And what a person may type into such a file.
KEYS = (*SETTINGS, "presets", "model_folders", "pairs.a", "target", *'=[]\n".a', "4", "0.5", "true")
TYPED = st.lists(st.sampled_from(KEYS), max_size=12).map(lambda words: " ".join(words).encode())
CHANGES = st.one_of(
    st.tuples(st.just("flipped"), st.floats(0, 1), st.integers(0, 7)),
    st.tuples(st.just("cut"), st.floats(0, 1)),
    st.tuples(st.just("gone")),
    st.tuples(st.just("instead"), st.just(0.0), st.one_of(st.sampled_from(INSTEAD), st.binary(max_size=40), TYPED)),
)


def damage(path, how, at=0.0, what=0):
    """`at`: which part of it; `what`: the bit that is flipped, or what stands there instead."""
    data = path.read_bytes()
    path.unlink()
    if how != "gone":
        cut = int(len(data) * at)
        path.write_bytes(flipped(data, at, what) if how == "flipped" else data[:cut] if how == "cut" else what)


@settings(max_examples=100)
@given(name=st.sampled_from(KEPT), change=CHANGES)
@example(name="costs", change=("instead", 0.0, b"[" * 100_000))  # it ended this run and every later one
@example(name="settings", change=("instead", 0.0, b"a = " + b"[" * 100_000))
@example(name="pairs", change=("instead", 0.0, b"a = " + b"[" * 100_000))
@example(name="a tuned draft", change=("cut", 0.1, 0))  # a torn record switched the check off without a word
@example(name="a tuned draft", change=("gone",))
@example(name="what was read", change=("flipped", 0.9, 3))  # its numbers
@example(name="what was read", change=("flipped", 0.003, 1))  # its ids
def test_what_is_kept_is_read_as_it_was_as_nothing_or_refused_in_two_lines(everything, name, change):
    kept = everything[name]
    with tempfile.TemporaryDirectory() as folder:
        path = kept.written(Path(folder))
        before = kept.read(path)
        damage(path, *change)
        try:
            after = kept.read(path)
        except SpecdecError as error:
            assert error.hint and "\n" not in error.message + error.hint
            after = None
        assert not kept.compared or after in (None, before)
