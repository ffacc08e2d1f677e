"""Missing networks, whatever the command: two lines and the next command. Typing errors are in the golden file."""

from __future__ import annotations

import pytest

from fakes.world import NOBODY

pytestmark = pytest.mark.slow


FAILS = "cannot be fetched from http://127.0.0.1:9: "
OFFLINE = [
    (["pairs", "--online"], {"HF_ENDPOINT": NOBODY}, FAILS),
    (["pairs", "--online"], {"HF_HUB_OFFLINE": "1"}, "--online asks the Hub, and HF_HUB_OFFLINE forbids it"),
    (["check", "tiny"], {"HF_ENDPOINT": NOBODY}, f"org/big {FAILS}"),
    (
        ["check", "tiny", "--offline"],
        {},
        "org/big is neither a folder here nor in the model cache, and --offline forbids",
    ),
    (["pull", "tiny"], {"HF_ENDPOINT": NOBODY}, f"org/big {FAILS}"),
    (["run", "-p", "tiny", "hi"], {"HF_ENDPOINT": NOBODY}, "tiny is not downloaded"),
    (["rm", "tiny", "-y"], {"HF_ENDPOINT": NOBODY}, "org/big is not in the model cache"),
]


@pytest.mark.parametrize(("arguments", "extra", "message"), OFFLINE, ids=[" ".join([*o[0], *o[1]]) for o in OFFLINE])
def test_offline_with_an_empty_cache_every_command_says_so_in_two_lines_and_exits_3(world, arguments, extra, message):
    done = world(*arguments, **extra)
    assert message in done.errors()[0]
    assert (done.code, len(done.err.splitlines()), world.hub.log) == (3, 2, [])


def test_a_repository_that_is_gone_is_named(world):
    done = world("pull", "gone")
    assert (done.code, done.errors()[1]) == (3, "check the spelling; if it is private: hf auth login")


def test_the_demo_pair_needs_no_network_and_no_cache(world):
    world.models.unlink()
    assert world.without_network("check").code == 0
    assert world.without_network("pairs").code == 0
    assert not (world.root / "hf").exists()
