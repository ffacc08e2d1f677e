"""`specdec pull` as a person types it: downloads, interruptions, damage and repair."""

from __future__ import annotations

import re
import signal
import sys
import threading

import pexpect
import pyte
import pytest

from fakes.hub_server import Blob, Claimed
from fakes.world import BIG, NOBODY, ODD, SMALL, finish, pulled_files, wait_for
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
    calls = [call for call in world.hub.calls() if "safetensors" in call or "/api/models" in call]
    assert [call.split("/")[-1] for call in calls if "/api/models" in call] == ["big", "small"]
    first_weights = next(i for i, call in enumerate(world.hub.calls()) if "safetensors" in call)
    small = [i for i, call in enumerate(world.hub.calls()) if call.endswith(("config.json", "tokenizer.json"))]
    assert max(small) < first_weights
    assert 'pair = "tiny"' in world.config.read_text()
    assert "# my own words, and they stay" in world.models.read_text()


def test_a_pinned_pair_is_pulled_at_its_commit_and_asks_nothing_afterwards(world, folders):
    old = world.hub.commit(BIG, folders[BIG])
    files = {path.name: path.read_bytes() for path in folders[BIG].iterdir()}
    world.hub.commit(BIG, files | {"model.safetensors": b"another commit's"})
    world.models.write_text(f'schema_version = 1\n[pairs.pinned]\ntarget = "{BIG}"\ntarget_revision = "{old}"\n')
    assert world("pull", "pinned").code == 0
    assert [path.name for path in world.cached(BIG).glob("snapshots/*")] == [old]
    assert (world.cached(BIG) / "snapshots" / old / "model.safetensors").read_bytes() == files["model.safetensors"]
    world.hub.forget()
    assert world.without_network("run", "-p", "pinned", "-n", "2", "hi").code == 0
    assert world("pull", "pinned").code == 0
    assert world.hub.log == []


def test_incompatible_tokenizers_are_refused_without_a_byte_of_weights(world):
    done = world("pull", "odd")
    assert (done.code, world.weight_bytes_sent()) == (4, 0)
    message, hint = done.errors()
    assert re.fullmatch(
        r"tokenizers of org/big and org/odd differ: id 40 is 'F' in the target and 'FFF' in the draft, and .*", message
    )
    assert hint == "a translated draft must say 50 %: use one of the target's family, or --drafter none"
    assert done.err.count("error:") == 1 and "refused" not in done.err
    assert not world.config.exists()


def test_what_no_memory_holds_is_refused_before_the_weights_and_so_is_what_no_disk_holds(world):
    (commit,) = world.hub.repos[BIG].values()
    commit["model.safetensors"] = Blob("model.safetensors", Claimed(b"x"))
    done = world("pull", "tiny")
    assert (done.code, world.weight_bytes_sent()) == (5, 0)
    message, hint = done.errors()
    assert re.fullmatch(
        r"org/big and org/small need 10000.0 GB at 256 tokens of context; [\d.]+ .B are usable", message
    )
    assert hint.startswith("try without the draft (--drafter none) or a smaller pair (specdec pairs)")
    forced = world("pull", "tiny", "--force")
    assert (forced.code, world.weight_bytes_sent()) == (5, 0)
    assert f"continuing although {message}" in forced.err
    assert re.match(
        r"org/big and org/small needs? 10000.0 GB, and the disk of .* has [\d.]+ GB free", forced.errors()[0]
    )


def test_verify_finds_corrupted_bytes_removes_them_and_the_next_pull_heals(pulled):
    snapshot = next(pulled.cached(SMALL).glob("snapshots/*"))
    blob = (snapshot / "model.safetensors").resolve()
    whole = blob.read_bytes()
    blob.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    done = pulled("pull", "tiny", "--verify")
    assert done.code == 3
    message, hint = done.errors()
    assert re.fullmatch(
        r"1 of 4 files of org/small were damaged and removed, first model.safetensors: \w{12} instead of \w{12}",
        message,
    )
    assert hint == "run the same command again to download them"
    pulled.hub.forget()
    healed = pulled("pull", "tiny", "--verify")
    assert (healed.code, blob.read_bytes() == whole) == (0, True)
    assert pulled.hub.fetched() == {"model.safetensors": len(whole)}
    assert "org/small: 4 files have the Hub's checksums" in healed.err


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


def test_pull_without_a_name_recommends_and_needs_a_yes(world):
    asked = world("pull")
    assert asked.code == 2
    message, hint = asked.errors()
    model = r"\S+( at [0-9a-f]{7})?"
    asks = rf"there is no terminal to ask on: \S+ is recommended for this machine: {model} with {model}\. Pull it\?"
    assert re.fullmatch(asks, message)
    assert (hint, world.hub.log) == ("add --yes to go on without asking", [])
    gone = world("pull", "--yes")
    assert (gone.code, gone.errors()[1]) == (3, "check the spelling; if it is private: hf auth login")
    assert " is recommended for this machine: " in gone.err.splitlines()[0] and len(gone.err.splitlines()) == 3


@pytest.mark.parametrize(("answer", "code"), [("", 0), ("n", 1)])
def test_on_a_terminal_the_question_comes_after_the_verdict_with_the_size(world, answer, code):
    """It asked before the check and without a size, and then downloaded at once."""
    memory = physical_bytes() / 1e9
    world.models.write_text(
        f'schema_version = 1\n[pairs.best]\ntarget = "{BIG}"\ndraft = "{SMALL}"\nmin_memory_gb = {memory:.3f}\n'
    )
    child = pexpect.spawn(
        *(sys.executable, ["-m", "specdec_cli", "pull"]),
        env=world.environment(TERM="xterm"),
        encoding="utf-8",
        dimensions=(40, 80),
    )
    child.expect(r"download 7\d\d kB\? \[Y/n\] ", timeout=120)
    before = child.before
    assert before.startswith(f"best is recommended for this machine: {BIG} with {SMALL}\r\n")
    assert before.index("identical: all 259 ids agree") < before.index("to download: 7")
    assert world.weight_bytes_sent() == 0
    child.sendline(answer)
    child.expect(pexpect.EOF, timeout=120)
    child.close()
    assert (child.exitstatus, world.weight_bytes_sent() > 0) == (code, code == 0)
    assert ("best is here and is now the default pair" in child.before) == (code == 0)


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


def test_a_terminal_shows_a_line_a_complete_file_and_at_most_two_bars(world):
    """All files kept their bars: with the shards of two models the live region outgrew the screen."""
    environment = world.environment(TERM="xterm")
    child = pexpect.spawn(
        sys.executable, ["-m", "specdec_cli", "pull", "tiny"], env=environment, encoding="utf-8", dimensions=(24, 80)
    )
    child.expect(pexpect.EOF, timeout=300)
    child.close()
    screen = pyte.HistoryScreen(80, 24, history=500)
    pyte.Stream(screen).feed(child.before)
    rows = ["".join(row[x].data for x in range(80)).rstrip() for row in screen.history.top]
    shown = [row for row in rows + [line.rstrip() for line in screen.display] if row]
    start = next(i for i, row in enumerate(shown) if row.startswith("if interrupted, completed files"))
    assert child.exitstatus == 0
    assert shown[start + 1 : start + 9] == [f"{m}/{f}" for m in ("big", "small") for f in pulled_files(world, m)]
    assert [row.split()[0] for row in shown[start + 9 :]] == ["all", "tiny"]


def test_run_and_pull_after_a_pull_open_no_socket(pulled):
    again = pulled.without_network("pull", "tiny", "--offline")
    assert again.code == 0 and "nothing to download: all files are already here" in again.err
    done = pulled.without_network("run", "-p", "tiny", "-n", "4", "hi")
    assert (done.code, pulled.hub.log) == (0, [])
    default = pulled.without_network("run", "--offline", "-n", "4", "hi", HF_ENDPOINT=NOBODY)
    assert (default.code, default.out) == (0, done.out)


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
