"""Pulling and removing whole pairs. The Hub is four functions, the screen a list of what it showed."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from specdec_cli.errors import DoesNotFit, NotAvailable, Refused
from specdec_cli.hub import Problem, RemoteFile, Removal, Snapshot
from specdec_cli.pairs import pull as pulling
from specdec_cli.pairs.pair import Pair, Registry
from specdec_cli.pairs.registry import load_registry

MB = 10**6
PAIR = Pair("b", "org/b", "org/tiny")
TOO_BIG = DoesNotFit("b needs 9 GB", "a smaller pair")
FORBIDDEN = Refused("tokenizers differ", "another draft")


class Screen:
    """Shows into a list."""

    def __init__(self) -> None:
        self.shown: list[object] = []
        self.bars: list[tuple[str, int, int]] = []

    def line(self, text):
        self.shown.append(text)

    def verdict(self, found):
        self.shown.append(("verdict", len(found.obstacles)))

    @contextmanager
    def progress(self, total_bytes):
        self.shown.append(("bar", total_bytes))
        yield lambda *values: self.bars.append(values)


class Hub:
    """Both models' commits; what was fetched, and in which order."""

    def __init__(self) -> None:
        self.obstacles: tuple[Exception, ...] = ()
        self.cached = False
        self.fetched: list[str] = []
        self.damaged: dict[str, list[Problem]] = {}
        self.fault: BaseException | None = None
        self.spelled: dict[str, str] = {}

    def locate(self, pair, offline):
        return [SimpleNamespace(snapshot=self.snapshot(name), source=None) for name, _ in pair.models]

    def snapshot(self, name):
        name = self.spelled.get(name, name)
        files = (RemoteFile("config.json", 100, None, True), RemoteFile("model.safetensors", 5 * MB, None, self.cached))
        return Snapshot(name, "c" * 40, files)

    def fetch(self, snapshot, progress):
        if self.fault is not None:
            raise self.fault
        self.fetched.append(snapshot.name)
        for file in snapshot.files:
            progress(file.path, file.size_bytes, file.size_bytes)


@pytest.fixture
def screen():
    return Screen()


@pytest.fixture
def hub(monkeypatch, files):
    """The Hub; the registry is that of `files`, whose packaged pairs are a (org/a) and b (org/b)."""
    here = Hub()
    monkeypatch.setattr(pulling, "locate_pair", here.locate)
    monkeypatch.setattr(pulling, "check_pair", lambda *_: SimpleNamespace(obstacles=here.obstacles))
    monkeypatch.setattr(pulling.hub, "fetch", here.fetch)
    monkeypatch.setattr(pulling.hub, "free_bytes", lambda: 43 * 10**8)
    monkeypatch.setattr(pulling.hub, "check_space", lambda snapshots: None)
    monkeypatch.setattr(pulling.hub, "verify", lambda snapshot: here.damaged.get(snapshot.name, []))
    monkeypatch.setattr(pulling, "registry", lambda: load_registry(*files))
    monkeypatch.setattr(pulling, "user_file", lambda: files[1])
    return here


def pull(screen, pair=PAIR, *, verify=False, force=False, **more):
    pulling.pull(pair, screen, context_tokens=None, verify=verify, force=force, **more)


# What a pull shows, and in which order


def test_the_verdict_and_all_numbers_come_before_the_first_byte(hub, screen):
    pull(screen)
    assert screen.shown[:4] == [
        ("verdict", 0),
        "to download: 10.0 MB; free on disk: 4.3 GB",
        "completed files are kept if this is interrupted; the file in progress restarts",
        ("bar", 10 * MB),
    ]
    assert hub.fetched == ["org/b", "org/tiny"]


def test_where_nothing_is_missing_no_bar_is_drawn(hub, screen):
    """`pull --verify` drew `0/0 bytes ? -:--:--`."""
    hub.cached = True
    pull(screen, verify=True)
    assert "nothing to download: all files are here" in screen.shown and not screen.bars
    assert not any(shown[0] == "bar" for shown in screen.shown if isinstance(shown, tuple))


def test_an_interruption_says_what_is_kept(hub, screen, files):
    hub.fault = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        pull(screen)
    assert screen.shown[-1].startswith("interrupted: complete files are kept")
    assert not files[1].exists()


# What stops one


@pytest.mark.parametrize("obstacle", [TOO_BIG, FORBIDDEN])
def test_an_obstacle_is_shown_and_stops_the_pull_before_a_byte(hub, screen, obstacle):
    hub.obstacles = (obstacle,)
    with pytest.raises(type(obstacle)):
        pull(screen)
    assert (screen.shown, hub.fetched) == ([("verdict", 1)], [])


def test_force_goes_on_where_memory_is_short(hub, screen):
    hub.obstacles = (TOO_BIG,)
    pull(screen, force=True)
    assert screen.shown[1] == "going on although b needs 9 GB"
    assert hub.fetched == ["org/b", "org/tiny"]


# --verify


def test_a_damaged_file_is_told_and_the_pair_is_not_remembered(hub, screen, files):
    hub.damaged = {"org/tiny": [Problem("model.safetensors", "a" * 64, "b" * 64)]}
    with pytest.raises(NotAvailable) as error:
        pull(screen, verify=True)
    assert error.value.message == (
        "1 of 2 files of org/tiny were damaged and are removed, first model.safetensors: "
        "bbbbbbbbbbbb instead of aaaaaaaaaaaa"
    )
    assert not files[1].exists()


# What is remembered


def test_the_first_pair_becomes_the_default(hub, screen, files):
    pull(screen, Pair("a", "org/a", None))
    assert screen.shown[-1] == "a is here and is now the default pair: specdec run 'your prompt'"
    assert load_registry(*files).default_pair == "a"


# Removal

SHARED = Pair("one", "org/big", "org/tiny"), Pair("two", "org/other", "org/tiny", draft_revision="d" * 40)
KNOWN = Registry({pair.name: pair for pair in SHARED}, None)


@pytest.fixture
def removals(monkeypatch):
    """Plans for these models: commit asked for -> Removal; the ones carried out."""
    asked, carried_out = [], []

    def removal(name, commit):
        asked.append((name, commit))
        if name == "org/other":
            raise NotAvailable("org/other is not in the model cache", "specdec pairs")
        return Removal(
            name, ("c" * 40,), ("d" * 40,) if commit else (), 5 * MB, 100 if commit else 0, ("x",) if commit else ()
        )

    def remove(plan):
        carried_out.append(plan.name)
        return plan.freed_bytes

    monkeypatch.setattr(pulling.hub, "removal", removal)
    monkeypatch.setattr(pulling.hub, "remove", remove)
    return asked, carried_out


def test_a_removal_says_what_goes_and_who_else_uses_it(removals):
    plans = pulling.plan_removal("one", KNOWN)
    assert [plan.summary for plan in plans] == ["org/big: 5.0 MB", "org/tiny: 5.0 MB; also used by two"]
    assert pulling.carry_out(plans) == 10 * MB
    assert removals == ([("org/big", None), ("org/tiny", None)], ["org/big", "org/tiny"])


def test_a_pinned_model_loses_its_commit_alone_and_says_what_stays(removals):
    """Its target is not here: what is here goes."""
    (plan,) = pulling.plan_removal("two", KNOWN)
    assert plan.summary == "org/tiny: 5.0 MB; 1 file (100 B) shared with commit ddddddd will stay; also used by one"
    assert removals[0] == [("org/other", None), ("org/tiny", "d" * 40)]


def test_a_persons_own_folder_is_never_removed(removals, tmp_path):
    own = Pair("own", str(tmp_path), "specdec:demo/draft")
    with pytest.raises(NotAvailable, match="nothing of own to remove"):
        pulling.plan_removal("own", Registry({"own": own}, None))
    assert removals == ([], [])


def test_nothing_is_downloaded_before_somebody_agreed_to_its_size(hub, screen, files):
    def refuse(download_bytes):
        assert screen.shown and download_bytes > 0
        raise NotAvailable("nothing was done", "answer y")

    with pytest.raises(NotAvailable, match="nothing was done"):
        pull(screen, Pair("a", "org/a", None), agree=refuse)
    assert hub.fetched == []
