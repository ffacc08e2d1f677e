"""Nobody chose a pair yet: the demo pair, which only continues Python, answers no questions."""

import json

import pytest

from fakes.terminal import Terminal
from fakes.world import BIG
from specdec_cli.pairs import catalog
from specdec_cli.pairs.choose import fitting
from specdec_cli.pairs.pair import Pair, Registry
from specdec_cli.system.machine import physical_bytes

SAID = "no models were chosen yet, and the demo pair only continues Python"


@pytest.mark.slow
def test_raw_text_a_race_and_the_pairs_own_name_take_it_and_say_what_it_is(specdec):
    for words in (["run", "--raw"], ["run", "-p", "demo"], ["race"]):
        code, out, err = specdec(*words, "-n", "4", "--temp", "0", "def f(")
        assert code == 0 and out and err.startswith("demo pair: it completes Python and knows nothing else"), words


GB = 10**9
LISTED = {
    "rumour": Pair("rumour", "org/r", None, min_memory_gb=16, source="packaged"),
    "small": Pair("small", "org/s", "org/t", min_memory_gb=8, target_bytes=3 * GB, draft_bytes=GB, evidence="a, b"),
    "big": Pair("big", "org/b", None, min_memory_gb=64, evidence="a, b"),
}


def test_pairs_without_a_second_source_are_recommended_last(monkeypatch):
    monkeypatch.setattr(catalog, "physical_bytes", lambda: 16 * GB)
    known = Registry(LISTED, None)
    assert LISTED["rumour"].one_source and not LISTED["small"].one_source
    assert [pair.name for pair in fitting(known)] == ["small", "rumour"]


@pytest.fixture
def home(world):
    """A Hub whose pair `tiny` is the one for this machine."""
    memory = f"[pairs.tiny]\nmin_memory_gb = {physical_bytes() / GB:.1f}"
    world.models.write_text(world.models.read_text().replace("[pairs.tiny]", memory))
    return world


def asked(world, *arguments):
    return Terminal(world.root, *arguments, **world.environment(HF_HUB_OFFLINE="0")).wait("or d for the demo:")


@pytest.mark.slow
def test_a_person_may_get_the_recommended_pair_and_goes_on_with_it(home):
    screen = asked(home, "run", "-n", "4", "hi")
    assert "Recommended for this machine: tiny" in screen.text() and BIG in screen.text()
    screen.type("\n")
    code, text = screen.end()
    assert code == 0 and "tiny is here and is now the default pair" in text
    assert 'pair = "tiny"' in home.config.read_text()
    assert text.rindex("4 tokens in") > text.index("default pair")


@pytest.mark.slow
def test_a_pair_that_is_here_already_is_offered_without_the_network(home):
    assert home("pull", "tiny").code == 0
    home.config.unlink()
    before = home.weight_bytes_sent()
    screen = asked(home, "run", "-n", "4", "hi")
    assert "On this machine: tiny" in screen.text()
    screen.type("y\n")
    code, text = screen.end()
    assert code == 0 and "tiny is now the default pair" in text and home.weight_bytes_sent() == before


@pytest.mark.slow
def test_a_person_may_see_the_demo_instead_or_neither(home):
    screen = asked(home, "run", "hi")
    screen.type("what\nn\n")
    code, text = screen.end()
    said = " ".join(text.split())
    assert code == 3 and "what is not an answer: type y, n or d" in said and SAID in said
    screen = asked(home, "chat")
    screen.type("d\n")
    code, text = screen.end()
    assert code == 0 and "A real pair" in text and "specdec pull" in text
    screen = asked(home, "run", "hi")
    screen.type("\x03")
    assert screen.end()[0] == 130


@pytest.mark.slow
def test_the_demo_says_what_the_same_race_counts(specdec):
    code, out, err = specdec("demo")
    rows = dict(line.split("\t") for line in out.splitlines() if "\t" in line)
    assert code == 0 and "same text ✓" in out and err.startswith("demo pair")
    race = specdec("race", "-p", "demo", "--raw", "--json", "-n", "100", "--temp", "0", "def parse_date(text):")[1]
    events = [json.loads(line) for line in race.splitlines()]
    (stats,) = (one["stats"] for one in events if one["event"] == "finish" and one["lane"] == "drafted")
    guessed = f"guessed {stats['draft_n']} tokens in {stats['rounds']} rounds"
    assert f"{guessed}; the target accepted {stats['draft_n_accepted']} of them" in rows["What was accepted"]
    assert f"wrote 100 tokens in {stats['target_passes']} passes" in "".join(rows.values())
    assert rows["A real pair"].startswith("specdec pull (")
