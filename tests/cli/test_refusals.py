"""Typing errors and missing networks, whatever the command: two lines, and the next command."""

from __future__ import annotations

import pytest

from fakes.world import NOBODY

pytestmark = pytest.mark.slow


TYPOS = [
    (["pul", "tiny"], 2, "No such command 'pul'. Did you mean 'pull'?", "specdec --help"),
    (["pull", "tinny"], 3, "no pair named tinny; 29 are known", "did you mean tiny?"),
    (["check", "quen3-8b"], 3, "no pair named quen3-8b; 29 are known", "did you mean qwen3-8b"),
    (["run", "-p", "nope", "hi"], 3, "no pair named nope; 29 are known", "specdec pairs lists them"),
    (["pull", "Gemma"], 3, "no pair named Gemma; 29 are known", "did you mean gemma-4-31b?"),
    (["run", "-p", "tinny", "hi"], 3, "no pair named tinny; 29 are known", "did you mean tiny?"),
    (["pairs", "use", "dmeo"], 3, "no pair named dmeo; 29 are known", "did you mean demo?"),
    (["pairs", "ad", "x"], 2, "No such command 'ad'. Did you mean 'add'?", "specdec pairs -h"),
    (["pairs", "add", "x"], 2, "pair x has no target", "specdec pairs add x --target ID --draft ID"),
    (["pairs", "add", "a b", "--target", "o/t"], 2, "'a b' is no name for a pair", "use letters"),
    (["check", "--jsn"], 2, "No such option: --jsn (Possible options: --json)", "specdec check -h"),
    (["check", "tiny", "--max-context", "0"], 2, "--max-context 0 is below 1", "the nearest that works"),
    (["check", "tiny", "--target", "o/t"], 2, "--pair tiny and --target o/t both name a target", "give one"),
    (["pull", "--draft", "o/d", "--yes"], 2, "--draft o/d has no target to draft for", "name one"),
    (["check", "--target", "nosuch"], 3, "no folder nosuch here", "a Hub id looks like organisation/name"),
    (["rm", "demo", "--yes"], 3, "nothing of demo to remove", "specdec pairs"),
    (["rm", "o/t", "--yes"], 3, "o/t is not in the model cache", "specdec pairs"),
    (["pull", "gone"], 3, "no such repository on", "check the spelling; if it is private: hf auth login"),
]


@pytest.mark.parametrize(("arguments", "code", "message", "hint"), TYPOS, ids=[" ".join(t[0]) for t in TYPOS])
def test_a_typo_gets_two_lines_and_the_next_command(world, arguments, code, message, hint):
    done = world(*arguments)
    lines = done.errors()
    assert (done.code, done.out, len(done.err.splitlines())) == (code, "", 2)
    assert lines[0].startswith(message) and hint in lines[1]


OFFLINE = [
    (["pairs", "--online"], {"HF_ENDPOINT": NOBODY}, "cannot reach http://127.0.0.1:9 for"),
    (["pairs", "--online"], {"HF_HUB_OFFLINE": "1"}, "--online asks the Hub, and HF_HUB_OFFLINE forbids it"),
    (["check", "tiny"], {"HF_ENDPOINT": NOBODY}, "cannot reach http://127.0.0.1:9 for org/big"),
    (
        ["check", "tiny", "--offline"],
        {},
        "org/big is neither a folder here nor in the model cache, and --offline forbids",
    ),
    (["check", "tiny"], {"HF_HUB_OFFLINE": "1"}, "org/big is neither"),
    (["pull", "tiny"], {"HF_ENDPOINT": NOBODY}, "cannot reach http://127.0.0.1:9 for org/big"),
    (["pull", "tiny"], {"SPECDEC_OFFLINE": "1"}, "org/big is neither a folder here nor in the model cache"),
    (
        ["run", "-p", "tiny", "hi"],
        {"HF_ENDPOINT": NOBODY},
        "pair tiny is not here: org/big is neither",
    ),
    (["rm", "tiny", "-y"], {"HF_ENDPOINT": NOBODY}, "org/big is not in the model cache"),
]


@pytest.mark.parametrize(("arguments", "extra", "message"), OFFLINE, ids=[" ".join([*o[0], *o[1]]) for o in OFFLINE])
def test_offline_with_an_empty_cache_every_command_says_so_in_two_lines_and_exits_3(world, arguments, extra, message):
    done = world(*arguments, **extra)
    assert done.errors()[0].startswith(message)
    assert (done.code, len(done.err.splitlines()), world.hub.log) == (3, 2, [])


def test_the_demo_pair_needs_no_network_and_no_cache(world):
    world.models.unlink()
    assert world.without_network("check").code == 0
    assert world.without_network("pairs").code == 0
    assert not (world.root / "hf").exists()
