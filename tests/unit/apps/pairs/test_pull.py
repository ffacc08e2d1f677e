"""`specdec check`, `pull` and `rm` as a person types them: real processes against a Hub on loopback.

What each says and fetches of pairs of every kind is recorded (`golden/test_hub`): here is what happens on the way.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading

import pytest
from safetensors.numpy import save

from fakes.counting import CONFIG, NO_HEAD, counting_folder, counting_tensors
from fakes.hub_server import Blob, Claimed
from fakes.terminal import Terminal
from fakes.world import BIG, ODD, SMALL, finish, pulled_files, wait_for
from specdec_cli.pairs.registry import load_registry, packaged_file
from specdec_cli.system.machine import physical_bytes

pytestmark = pytest.mark.slow


@pytest.mark.macos
def test_pull_prints_the_verdict_before_any_weight_and_makes_the_first_pair_the_default(world):
    weights = threading.Event()
    world.hub.fault = lambda line: weights.wait(60) and None if "safetensors" in line else None
    process = world.start("pull", "tiny")
    seen = []
    while "to download" not in (line := process.stderr.readline()):
        assert line
        seen.append(line)
    assert world.weight_bytes_sent() == 0
    weights.set()
    assert any("identical: all 259 ids agree" in line for line in seen)
    assert re.fullmatch(r"to download: 7\d\d kB; free on disk: .*\n", line)
    rest = process.stderr.read()
    assert (process.wait(60), process.stdout.read()) == (0, "")
    process.communicate()
    assert rest.splitlines() == [
        "if interrupted, completed files are kept and the file in progress restarts",
        *(f"{m}/{f}" for m in ("big", "small") for f in pulled_files(world, m)),
        "tiny is here and is now the default pair: specdec run 'your prompt'",
    ]
    assert 'pair = "tiny"' in world.config.read_text()
    assert "# my own words, and they stay" in world.models.read_text()


def test_what_no_disk_holds_is_refused_though_forced_before_the_weights(world):
    (commit,) = world.hub.repos[BIG].values()
    commit["model.safetensors"] = Blob("model.safetensors", Claimed(b"x"))
    assert world("pairs", "use", "tiny", "--yes").errors()[1] == "try a smaller model or a lower quantization"
    forced = world("pull", "tiny", "--force")
    assert (forced.code, world.weight_bytes_sent()) == (5, 0)
    assert "continuing although org/big and org/small need 10000.0 GB at 256 tokens of context; " in forced.err
    assert re.match(
        r"org/big and org/small needs? 10000.0 GB, and the disk of .* has [\d.]+ GB free", forced.errors()[0]
    )


def test_verify_says_which_files_were_damaged_and_removed(pulled):
    blob = next(pulled.cached(SMALL).glob("snapshots/*/model.safetensors")).resolve()
    blob.write_bytes(blob.read_bytes()[:-1] + b"?")
    done = pulled("pull", "tiny", "--verify")
    told = r"1 of 4 files of org/small were damaged and removed, first model.safetensors: \w{12} instead of \w{12}"
    assert (done.code, done.errors()[1]) == (3, "run the same command again to download them")
    assert re.fullmatch(told, done.errors()[0])


@pytest.mark.macos
def test_killed_in_the_middle_the_complete_model_is_kept_and_the_next_pull_ends_it(world):
    """SIGKILL while the draft's weights come: nothing is half there, and the target's weights are not sent twice."""
    draft = next(iter(world.hub.repos[SMALL].values()))["model.safetensors"]
    world.hub.fail("slow", rf"GET /cdn/{draft.sha256}", seconds=0.2)
    process = world.start("pull", "tiny")
    wait_for(lambda: any(r.sent and draft.sha256 in r.path for r in world.hub.log))
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.communicate()
    assert not world.config.exists()
    refused = world("run", "-p", "tiny", "-n", "2", "hi")
    assert (refused.code, refused.errors()[1]) == (3, "specdec pull tiny")
    world.hub.forget()
    assert world("pull", "tiny", "--verify").code == 0
    assert world.weight_bytes_sent() == len(draft.data)


def test_ctrl_c_says_what_is_kept_and_exits_130(world):
    world.hub.fail("slow", r"GET /cdn/", seconds=0.2)
    process = world.start("pull", "tiny")
    wait_for(lambda: world.weight_bytes_sent() > 0)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    said = "interrupted: complete files are kept; run the same command again to restart the one in progress"
    assert (done.code, done.err.splitlines()[-1]) == (130, said)
    assert "Traceback" not in done.err


@pytest.mark.parametrize(("answer", "code"), [("", 0), ("n", 1)])
def test_on_a_terminal_the_question_comes_after_the_verdict_with_the_size(world, answer, code):
    """It asked before the check and without a size, and then downloaded at once."""
    memory = physical_bytes() / 1e9
    world.models.write_text(
        f'schema_version = 1\n[pairs.best]\ntarget = "{BIG}"\ndraft = "{SMALL}"\nmin_memory_gb = {memory:.3f}\n'
    )
    terminal = Terminal(world.root, "pull", **world.environment(HF_HUB_OFFLINE="0")).wait("? [Y/n]", 120)
    before = terminal.text()
    assert before.startswith(f"best is recommended for this machine: {BIG} with {SMALL}\n")
    assert before.index("identical: all 259 ids agree") < before.index("to download: 7")
    assert re.search(r"download 7\d\d kB\? \[Y/n\]$", before.rstrip()) and world.weight_bytes_sent() == 0
    terminal.type(f"{answer}\r")
    found, text = terminal.end()
    assert (found, world.weight_bytes_sent() > 0) == (code, code == 0)
    assert ("best is here and is now the default pair" in text) == (code == 0)


def test_a_pair_of_a_revision_that_was_only_checked_is_not_here_and_is_checked_again(world):
    """After the first `check` nothing but a pull worked, and its hint was one that nobody could type."""
    (commit,) = world.hub.repos[BIG]
    world.models.write_text(f'schema_version = 1\n[pairs.pinned]\ntarget = "{BIG}"\ntarget_revision = "{commit}"\n')
    assert [world(*words).code for words in (("check", "pinned"), ("check", "pinned"), ("pairs",))] == [0, 0, 0]
    done = world("run", "-p", "pinned", "hi")
    assert (done.code, done.errors()) == (3, ["pinned is not downloaded", "specdec pull pinned"])
    assert world("pull", "pinned").code == 0
    next(world.cached(BIG).glob("snapshots/*/config.json")).unlink()
    told = f"{BIG} is only partly here: 1 file missing, first config.json"
    for words in (("check", "pinned"), ("pairs",)):
        assert world(*words).errors() == [told, "specdec pull pinned"]
    assert told in world("run", "-p", "pinned", "hi").errors()[0]
    assert world("pull", "pinned").code == 0 and world("run", "-p", "pinned", "-n", "2", "hi").code == 0


def test_pull_by_ids_remembers_the_pair_under_the_targets_name(world):
    world.models.write_text("schema_version = 1\n")
    assert world("pull", "--target", BIG, "--draft", SMALL).code == 0
    mine = load_registry(packaged_file(), world.models, world.config)
    assert (mine.default_pair, mine.pairs["big"].draft) == ("big", SMALL)
    world.hub.commit("else/big", {p.path: p.data for p in next(iter(world.hub.repos[ODD].values())).values()})
    other = world("pull", "--target", "else/big")
    assert other.err.splitlines()[-1] == (
        "here, but big already names another pair: specdec run --target else/big 'your prompt'"
    )


def test_of_two_pairs_of_the_same_models_the_one_that_was_named_becomes_the_default(world):
    pair = f'target = "{BIG}"\ndraft = "{SMALL}"\n'
    world.models.write_text(f"schema_version = 1\n[pairs.one]\n{pair}k = 2\n[pairs.two]\n{pair}k = 7\n")
    assert "two is here and is now the default pair" in world("pull", "two").err


def test_a_pair_with_a_target_alone_is_known_with_the_draft_that_is_found(world):
    """It was called another pair's name, and no default."""
    pair = f'target = "{BIG}"\n'
    world.models.write_text(f'schema_version = 1\n[pairs.mine]\n{pair}[pairs.one]\n{pair}draft = "{SMALL}"\n')
    assert "mine is here and is now the default pair" in world("pull", "mine").err


@pytest.mark.macos
def test_a_model_in_another_spelling_is_one_model_from_the_pull_to_the_removal(world):
    """The Hub and a Mac's disk ignore case."""
    assert world("pull", "--target", BIG.upper()).code == 0
    names = {path.name for path in world.cached(BIG).parent.iterdir()}
    assert world.cached(BIG).name in names and world.cached(BIG.upper()).name not in names
    again = world("pull", "--target", BIG.title())
    assert again.code == 0 and "nothing to download: all files are already here" in again.err
    removed = world("rm", BIG.upper(), "--yes")
    assert removed.code == 0 and removed.err.startswith(f"{BIG}: ")
    assert not world.cached(BIG).exists()


def test_rm_says_what_else_uses_the_files_asks_and_frees_them(pulled):
    held = sum(path.stat().st_size for name in (BIG, SMALL) for path in pulled.cached(name).glob("blobs/*"))
    asked = pulled("rm", "tiny")
    assert asked.code == 2
    assert asked.errors() == [
        f"there is no terminal to ask on: Free {held / 1e3:.0f} kB?",
        "add --yes to go on without asking",
    ]
    assert asked.err.splitlines()[:2] == ["org/big: 388 kB; also used by odd", "org/small: 388 kB"]
    assert pulled.cached(BIG).exists()
    done = pulled("rm", "tiny", "--yes")
    assert (done.code, done.err.splitlines()[2:]) == (
        0,
        [
            f"freed {held / 1e3:.0f} kB",
            "tiny is still the default pair, and cannot answer: specdec pairs use NAME",
        ],
    )
    assert not pulled.cached(BIG).exists() and not pulled.cached(SMALL).exists()
    again = pulled("rm", "tiny", "--yes")
    assert (again.code, again.errors()[0]) == (3, f"org/big is not in the model cache {pulled.root}/hf/hub")


@pytest.mark.parametrize(("answer", "code", "told"), [("n\r", 1, "nothing was done"), ("\x03", 130, "")])
def test_rm_asks_a_person_and_a_no_and_ctrl_c_remove_nothing(pulled, answer, code, told):
    """Ctrl-C was printed as `error: Abort:` with exit code 1."""
    terminal = Terminal(pulled.root, "rm", BIG, **pulled.environment())
    terminal.wait("org/big: 388 kB; also used by tiny, odd").wait("Free 388 kB? [y/N]").type(answer)
    found, text = terminal.end()
    assert (found, "error" in text, told in text) == (code, code == 1, True)
    assert pulled.cached(BIG).exists()


# Heads of one's own: from the original repository, in a file beside the target, and an assistant.


TARGET, ORIGINAL = "org/counting-4bit", "Org/Counting"
SHARDS = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
ADD = ("pairs", "add", "counting", "--yes", "--target", TARGET)
PULL = ("pull", "counting")


def part(head):
    return {name: value for name, value in counting_tensors().items() if name.startswith("mtp.") == head}


def original():
    """The repository of the target with its head, in two files that the head's tensors are spread over."""
    tensors = counting_tensors()
    last = {name: value for name, value in tensors.items() if name.startswith("mtp.layers.") or "lm_head" in name}
    first = {name: value for name, value in tensors.items() if name not in last}
    index = {"weight_map": {name: SHARDS[name in last] for name in tensors}}
    return {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
        "tokenizer.json": b"{}" * 50_000,
        SHARDS[0]: save(first),
        SHARDS[1]: save(last),
    }


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """The target without its head, as the files of a repository."""
    folder = counting_folder(tmp_path_factory.mktemp("target") / "m", part(False), NO_HEAD)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def headed(world, target):
    """The world with a pair whose head is in the original repository."""
    world.hub.commit(TARGET, target)
    world.hub.commit(ORIGINAL, original())
    assert world(*ADD, "--head-from", ORIGINAL).code == 0
    return world


def kept(world):
    return world.root / ".local" / "share" / "specdec" / "heads"


def test_a_changed_commit_brings_the_new_head_and_check_needs_no_tensor(headed):
    assert headed("check", "counting").code == 0
    assert not kept(headed).exists()
    killed, running = (kept(headed) / f".{ORIGINAL.replace('/', '--')}.{8 * digit}" for digit in "ab")
    for folder in (killed, running):
        folder.mkdir(parents=True)
    os.utime(killed, (0, 0))
    assert headed(*PULL).code == 0
    assert (killed.exists(), running.rmdir()) == (False, None)
    (before,) = headed.hub.repos[ORIGINAL]
    headed.hub.commit(ORIGINAL, original() | {"README.json": b"{}"})
    assert headed(*PULL).code == 0
    (folder,) = kept(headed).iterdir()
    assert json.loads((folder / "source.json").read_text())["commit"] != before


FAULTS = {"cut": ({"at": 4_000}, "again"), "short": ({"at": 0}, "416")}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_failure_on_the_way_is_two_lines_and_leaves_nothing(headed, kind):
    values, words = FAULTS[kind]
    headed.hub.fail(kind, f"GET .*{SHARDS[1]}", **values)
    done = headed(*PULL)
    message, hint = done.errors()
    assert done.code == 3 and words in message + hint
    assert not kept(headed).exists() or list(kept(headed).iterdir()) == []
