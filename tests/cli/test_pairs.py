"""`pairs`, `check`, `pull`, `rm` and `run -p` as a person types them: real processes against a Hub on loopback."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pexpect
import pyte
import pytest

from fakes.hub_server import Blob, HubServer
from fakes.models import TINY, tiny_folder
from specdec_cli.pairs.registry import packaged_file, read_registry

BIG, SMALL, ODD = "org/big", "org/small", "org/odd"
MODELS = f"""schema_version = 1
# my own words, and they stay
[pairs.tiny]
target = "{BIG}"
draft = "{SMALL}"  # same tokenizer

[pairs.odd]
target = "{BIG}"
draft = "{ODD}"

[pairs.gone]
target = "org/nowhere"
"""
# No connection of any kind can be made; then the command line as ever.
BLOCKED = """
import socket, sys
def refuse(*_, **__): raise AssertionError('a socket was opened')
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
from specdec_cli.cli.main import main
main()
"""
NOBODY = "http://127.0.0.1:9"  # the discard port: nothing listens there


@dataclass
class Done:
    """What a command left: exit code, stdout and stderr, without the spaces that tables are padded with."""

    code: int
    out: str
    err: str

    def errors(self) -> list[str]:
        """The two lines a failure ends with; anything else would be a traceback or a riddle."""
        lines = self.err.splitlines()[-2:]
        assert "Traceback" not in self.out + self.err
        assert [line.split(":")[0] for line in lines] == ["error", "hint"], self.err
        return [line.split(": ", 1)[1] for line in lines]


@dataclass
class World:
    """A Hub with the tiny models, and a home of one's own under `root`."""

    hub: HubServer
    root: Path

    @property
    def models(self) -> Path:
        return self.root / "models.toml"

    def environment(self, **extra: str) -> dict[str, str]:
        kept = {key: os.environ[key] for key in ("PATH", "LANG", "LD_LIBRARY_PATH") if key in os.environ}
        here = {
            "HOME": str(self.root),
            "HF_ENDPOINT": self.hub.url,
            "HF_HOME": str(self.root / "hf"),
            "SPECDEC_MODELS": str(self.models),
            "XDG_CACHE_HOME": str(self.root / "cache"),
            "COLUMNS": "80",
            "HF_HUB_DISABLE_XET": "1",
            "NO_PROXY": "*",
        }
        return kept | here | extra

    def start(self, *arguments: str, **extra: str) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, "text": True}
        command = [sys.executable, "-m", "specdec_cli", *arguments]
        return subprocess.Popen(command, env=self.environment(**extra), **pipes)

    def __call__(self, *arguments: str, **extra: str) -> Done:
        return finish(self.start(*arguments, **extra))

    def without_network(self, *arguments: str, **extra: str) -> Done:
        """The same, where opening any socket fails."""
        command = [sys.executable, "-c", BLOCKED, *arguments]
        pipes = {"capture_output": True, "stdin": subprocess.DEVNULL, "text": True, "timeout": 60}
        done = subprocess.run(command, env=self.environment(**extra), check=False, **pipes)
        return Done(done.returncode, done.stdout, done.stderr)

    def weight_bytes_sent(self) -> int:
        return self.hub.fetched().get("model.safetensors", 0)

    def cached(self, name: str) -> Path:
        return self.root / "hf" / "hub" / f"models--{name.replace('/', '--')}"


def finish(process: subprocess.Popen[str]) -> Done:
    try:
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    bare = ["\n".join(line.rstrip() for line in text.splitlines()) for text in (out, err)]
    return Done(process.returncode, *bare)


def wait_for(condition) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("folders")
    made = {BIG: tiny_folder(root / "big", seed=1), SMALL: tiny_folder(root / "small", seed=1, noise=0.05)}
    made[ODD] = tiny_folder(root / "odd", seed=1)
    tokenizer = json.loads((made[ODD] / "tokenizer.json").read_text())
    names = {i: name for name, i in tokenizer["model"]["vocab"].items()}
    tokenizer["model"]["vocab"] |= {names[40]: 41, names[41]: 40}
    (made[ODD] / "tokenizer.json").write_text(json.dumps(tokenizer))
    return made


@pytest.fixture
def world(tmp_path, folders):
    with HubServer() as hub:
        for name, folder in folders.items():
            hub.commit(name, folder)
        world = World(hub, tmp_path)
        world.models.write_text(MODELS)
        yield world


@pytest.fixture(scope="module")
def home_after_pull(tmp_path_factory, folders):
    """A home in which `tiny` was pulled and became the default."""
    with HubServer() as hub:
        for name, folder in folders.items():
            hub.commit(name, folder)
        world = World(hub, tmp_path_factory.mktemp("pulled"))
        world.models.write_text(MODELS)
        assert world("pull", "tiny").code == 0
        yield world.root


@pytest.fixture
def pulled(world, home_after_pull):
    """The world after `pull tiny`: a commit's name depends on its contents' order only, so homes can be copied."""
    shutil.copytree(home_after_pull, world.root, symlinks=True, dirs_exist_ok=True)
    return world


# pairs


def test_pairs_shows_figures_and_models_within_80_columns(world):
    done = world("pairs")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "pair                 size  here  fits     K  source    Hub"
    demo = next(i for i, line in enumerate(lines) if line.startswith("demo *"))
    assert re.fullmatch(r"demo \* {12}1\d\.\d MB  yes   yes      4  packaged", lines[demo])
    assert lines[demo + 1] == "  specdec:demo/target + specdec:demo/draft"
    assert lines[-9:] == [
        "tiny                    –  no    ?     auto  yours     unverified",
        "  org/big + org/small",
        "odd                     –  no    ?     auto  yours     unverified",
        "  org/big + org/odd",
        "gone                    –  no    ?     auto  yours     unverified",
        "  org/nowhere, no draft",
        "* the default pair: it answers when none is named",
        "ids without an organisation are mlx-community/…",
        "24 of 25 not yet verified against the Hub: specdec pairs --online",
    ]
    assert max(map(len, lines)) <= 80
    assert world.hub.log == []


def test_pairs_as_json_is_one_array(world):
    rows = json.loads(world("pairs", "--json").out)
    tiny = next(row for row in rows if row["name"] == "tiny")
    assert tiny == {
        "name": "tiny",
        "target": BIG,
        "draft": SMALL,
        "size_bytes": None,
        "downloaded": False,
        "fits": None,
        "k": "auto",
        "source": "yours",
        "verified": False,
        "default": False,
        "note": "",
    }


def test_pairs_online_clears_unverified_and_names_what_the_hub_lacks(world):
    packaged = read_registry(packaged_file(), "packaged")
    for pair in packaged.pairs.values():
        for name, _ in pair.models:
            if not name.startswith("specdec:"):
                world.hub.commit(name, {"config.json": b"{}", "model.safetensors": b"x" * 1000})
    done = world("pairs", "--online")
    assert done.err == f"org/nowhere: no such repository on {world.hub.url}: org/nowhere, or it is private (404)"
    assert done.out.splitlines()[-1] == "1 of 25 not yet verified against the Hub: specdec pairs --online"
    world.hub.forget()
    rows = {row["name"]: row for row in json.loads(world("pairs", "--json").out)}
    assert [name for name, row in rows.items() if not row["verified"]] == ["gone"]
    size_bytes = sum(len(b.data) for n in (BIG, SMALL) for c in world.hub.repos[n].values() for b in c.values())
    assert rows["tiny"]["size_bytes"] == size_bytes
    assert world.hub.log == []


def test_a_hub_in_trouble_confirms_nothing_and_forgets_nothing(world):
    world.root.joinpath("cache/specdec").mkdir(parents=True)
    kept = world.root / "cache/specdec/confirmed.json"
    kept.write_text(json.dumps({BIG: 5, SMALL: 6}))
    world.hub.fail("status", status=429, headers={"Retry-After": "1"})
    done = world("pairs", "--online")
    assert (done.code, done.errors()[0][:35]) == (3, "the Hub takes no more requests from")
    assert json.loads(kept.read_text()) == {BIG: 5, SMALL: 6}


def test_pairs_add_use_and_path_edit_the_users_file_and_keep_its_comments(world):
    added = world("pairs", "add", "mine", "--target", BIG, "--draft", SMALL, "-k", "5", "--target-revision", "v1")
    assert (added.code, added.out, added.err) == (0, "", f"mine is in {world.models}")
    assert world("pairs", "use", "mine").err == "mine is now the default pair"
    text = world.models.read_text()
    assert "# my own words, and they stay" in text and "# same tokenizer" in text
    mine = read_registry(world.models, "yours")
    assert mine.default_pair == "mine"
    assert (mine.pairs["mine"].k, mine.pairs["mine"].target_revision) == (5, "v1")
    assert world("pairs", "path").out == str(world.models)


# check


def test_check_of_a_pair_that_is_not_here_fetches_only_small_files(world):
    done = world("check", "tiny")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[:13] == [
        "pair        tiny",
        "target      org/big",
        "draft       org/small",
        "tokenizers  identical: all 259 ids agree",
        "template    yes",
        "stops at    <|endoftext|> <|im_end|>",
        "caches      org/big: KVCache",
        "caches      org/small: KVCache",
        "break-even  about 4.8 of at most 4 tokens a round at K 3, at typical costs:",
        "            cannot pay",
        "advice      a target of 0.1 M parameters is too small for a useful draft; a",
        "            better quantization of it gains more",
        "advice      answers of a few dozen tokens gain little: the draft has to read the",
    ]
    assert "memory                    weights   caches at 256                 sum" in done.out
    assert done.out.splitlines()[-1] == "runs        specdec run -p tiny 'your prompt'"
    assert world.weight_bytes_sent() == 0 and world.hub.fetched()["tokenizer.json"] > 0


def test_check_as_json_refuses_other_ids_with_exit_4_and_names_the_first(world):
    done = world("check", "odd", "--json")
    found = json.loads(done.out)
    assert (done.code, found["exit_code"], found["verdict"]) == (4, 4, "refused")
    reason = found["tokenizers"].pop("reason")
    assert re.fullmatch(r"id 40 is '.' in the target and '.' in the draft", reason)
    assert found["tokenizers"] == {"status": "incompatible", "first_difference": 40}
    assert found["obstacles"][0]["message"] == f"tokenizers of org/big and org/odd differ: {reason}"
    assert {model["name"] for model in found["memory"]["models"]} == {BIG, ODD}
    assert world.weight_bytes_sent() == 0


def test_check_of_a_context_that_does_not_fit_exits_5_and_says_which_would(world, folders):
    config = {**TINY, "max_position_embeddings": 2_000_000_000}
    for name in (BIG, SMALL):
        files = {path.name: path.read_bytes() for path in folders[name].iterdir()}
        world.hub.commit(name, files | {"config.json": json.dumps(config).encode()})
    done = world("check", "tiny", "--max-context", "1000000000")
    assert done.code == 5
    assert re.search(
        r"refused     org/big and org/small need [\d.]+ GB at 1000000000 tokens of\s+context; [\d.]+ GB", done.out
    )
    assert re.search(r"hint        a smaller context fits: --max-context \d+; --force loads it\s+anyway", done.out)


# pull


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
        "completed files are kept if this is interrupted; the file in progress restarts",
        *(f"{m}/{f}" for m in ("big", "small") for f in pulled_files(world, m)),
        "tiny is here and is now the default pair: specdec run 'your prompt'",
    ]
    calls = [call for call in world.hub.calls() if "safetensors" in call or "/api/models" in call]
    assert [call.split("/")[-1] for call in calls if "/api/models" in call] == ["big", "small"]
    first_weights = next(i for i, call in enumerate(world.hub.calls()) if "safetensors" in call)
    small = [i for i, call in enumerate(world.hub.calls()) if call.endswith(("config.json", "tokenizer.json"))]
    assert max(small) < first_weights
    assert 'default_pair = "tiny"' in world.models.read_text()
    assert "# my own words, and they stay" in world.models.read_text()


def pulled_files(world: World, model: str) -> list[str]:
    """`name  size` of the files of a model, in the order they are told."""
    (commit,) = world.hub.repos[f"org/{model}"].values()
    sizes = {path: len(blob.data) for path, blob in commit.items()}
    ordered = sorted(sizes, key=lambda path: (path.endswith(".safetensors"), path))
    return [
        f"{path}  {sizes[path]} B" if sizes[path] < 1000 else f"{path}  {sizes[path] / 1e3:.0f} kB" for path in ordered
    ]


def test_pulling_again_fetches_no_file(pulled):
    done = pulled("pull", "tiny")
    assert (done.code, pulled.hub.fetched()) == (0, {})
    assert done.err.splitlines()[-2:] == [
        "nothing to download: all files are here",
        "tiny is here: specdec run -p tiny 'your prompt'",
    ]
    assert pulled.without_network("pull", "tiny", "--offline").code == 0


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
        r"tokenizers of org/big and org/odd differ: id 40 is '.' in the target and '.' in the draft", message
    )
    assert hint == "take a draft of the target's own family, or decode without one: --drafter none"
    assert done.err.count("error:") == 1 and "refused" not in done.err
    assert "default_pair" not in world.models.read_text()


class Claimed(bytes):
    """Bytes that say they are ten terabytes."""

    def __len__(self) -> int:
        return 10**13


def test_what_no_memory_holds_is_refused_before_the_weights_and_so_is_what_no_disk_holds(world):
    (commit,) = world.hub.repos[BIG].values()
    commit["model.safetensors"] = Blob("model.safetensors", Claimed(b"x"))
    done = world("pull", "tiny")
    assert (done.code, world.weight_bytes_sent()) == (5, 0)
    message, hint = done.errors()
    assert re.fullmatch(
        r"org/big and org/small need 10000.0 GB at 256 tokens of context; [\d.]+ GB are usable", message
    )
    assert hint.startswith("try without the draft (--drafter none) or a smaller pair (specdec pairs)")
    forced = world("pull", "tiny", "--force")
    assert (forced.code, world.weight_bytes_sent()) == (5, 0)
    assert f"going on although {message}" in forced.err
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
        r"1 of 4 files of org/small were damaged and are removed, first model.safetensors: \w{12} instead of \w{12}",
        message,
    )
    assert hint == "the same command again fetches them anew"
    pulled.hub.forget()
    healed = pulled("pull", "tiny", "--verify")
    assert (healed.code, blob.read_bytes() == whole) == (0, True)
    assert pulled.hub.fetched() == {"model.safetensors": len(whole)}
    assert "org/small: 4 files have the Hub's checksums" in healed.err


def test_killed_in_the_middle_the_complete_model_is_kept_and_the_next_pull_ends_it(world):
    """SIGKILL while the draft's weights come: nothing is half there, and the target's weights are not sent twice."""
    draft = next(iter(world.hub.repos[SMALL].values()))["model.safetensors"]
    world.hub.fail("slow", rf"GET /cdn/{draft.sha256}", seconds=0.2)
    process = world.start("pull", "tiny")
    wait_for(lambda: any(r.sent and draft.sha256 in r.path for r in world.hub.log))
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.communicate()
    assert "default_pair" not in world.models.read_text()
    refused = world("run", "-p", "tiny", "-n", "2", "hi")
    assert (refused.code, refused.errors()[1]) == (3, "specdec pull --target org/small")
    world.hub.forget()
    assert world("pull", "tiny", "--verify").code == 0
    assert world.weight_bytes_sent() == len(draft.data)


def test_ctrl_c_says_what_is_kept_and_exits_130(world):
    world.hub.fail("slow", r"GET /cdn/", seconds=0.2)
    process = world.start("pull", "tiny")
    wait_for(lambda: world.weight_bytes_sent() > 0)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    told = "interrupted: complete files are kept; the same command again restarts the one in progress"
    assert (done.code, done.err.splitlines()[-1]) == (130, told)
    assert "Traceback" not in done.err


def test_pull_without_a_name_recommends_and_needs_a_yes(world):
    asked = world("pull")
    assert asked.code == 2
    message, hint = asked.errors()
    assert re.fullmatch(r"nobody can answer: \S+ is recommended for this machine: \S+ with \S+\. Pull it\?", message)
    assert (hint, world.hub.log) == ("add --yes to go on without asking", [])
    gone = world("pull", "--yes")
    assert (gone.code, gone.errors()[1]) == (3, "check the spelling; if it is private: hf auth login")
    assert gone.err.splitlines()[0].endswith("is recommended for this machine") or len(gone.err.splitlines()) == 2


def test_pull_by_ids_remembers_the_pair_under_the_targets_name(world):
    world.models.write_text("schema_version = 1\n")
    assert world("pull", "--target", BIG, "--draft", SMALL).code == 0
    mine = read_registry(world.models, "yours")
    assert (mine.default_pair, mine.pairs["big"].draft) == ("big", SMALL)
    world.hub.commit("else/big", {p.path: p.data for p in next(iter(world.hub.repos[ODD].values())).values()})
    other = world("pull", "--target", "else/big")
    assert other.err.splitlines()[-1] == (
        "here, but big already names another pair: specdec run --target else/big 'your prompt'"
    )


def test_a_draft_can_be_listed_for_a_target_that_is_named_alone(world):
    done = world("pull", "--target", BIG)
    assert done.code == 0
    assert done.err.splitlines()[0] == "draft org/small: pair tiny lists it for this target"
    assert done.err.splitlines()[-1].startswith("tiny is here")


# run


def test_run_after_pull_opens_no_socket(pulled):
    done = pulled.without_network("run", "-p", "tiny", "-n", "4", "hi")
    assert (done.code, pulled.hub.log) == (0, [])
    default = pulled.without_network("run", "--offline", "-n", "4", "hi", HF_ENDPOINT=NOBODY)
    assert (default.code, default.out) == (0, done.out)


# rm


def test_rm_says_what_else_uses_the_files_asks_and_frees_them(pulled):
    held = sum(path.stat().st_size for name in (BIG, SMALL) for path in pulled.cached(name).glob("blobs/*"))
    asked = pulled("rm", "tiny")
    assert asked.code == 2
    assert asked.errors() == [
        f"nobody can answer: Free {held / 1e3:.0f} kB?",
        "add --yes to go on without asking",
    ]
    assert asked.err.splitlines()[:2] == ["org/big: 388 kB; also used by odd", "org/small: 388 kB"]
    assert pulled.cached(BIG).exists()
    done = pulled("rm", "tiny", "--yes")
    assert (done.code, done.err.splitlines()[2:]) == (
        0,
        [
            f"freed {held / 1e3:.0f} kB",
            "tiny is still the default pair; another: specdec pairs use NAME",
        ],
    )
    assert not pulled.cached(BIG).exists() and not pulled.cached(SMALL).exists()
    again = pulled("rm", "tiny", "--yes")
    assert (again.code, again.errors()[0]) == (3, f"org/big is not in the model cache {pulled.root}/hf/hub")


def test_rm_asks_a_person_and_a_no_removes_nothing(pulled):
    command = [sys.executable, "-m", "specdec_cli", "rm", BIG]
    child = pexpect.spawn(command[0], command[1:], env=pulled.environment(), encoding="utf-8", timeout=120)
    child.expect(r"org/big: 388 kB; also used by tiny, odd")
    child.expect(r"Free 388 kB\? \[y/N\]")
    child.sendline("n")
    child.expect("nothing was done")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1
    assert pulled.cached(BIG).exists()


def test_ctrl_c_at_the_question_removes_nothing_and_exits_130(pulled):
    """It was told as `error: Abort:` with exit code 1."""
    command = ["-m", "specdec_cli", "rm", BIG]
    child = pexpect.spawn(sys.executable, command, env=pulled.environment(), encoding="utf-8", timeout=120)
    child.expect(r"\[y/N\]")
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert (child.exitstatus, "error" in child.before) == (130, False)
    assert pulled.cached(BIG).exists()


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
    start = next(i for i, row in enumerate(shown) if row.startswith("completed files are kept"))
    assert child.exitstatus == 0
    assert shown[start + 1 : start + 9] == [f"{m}/{f}" for m in ("big", "small") for f in pulled_files(world, m)]
    assert [row.split()[0] for row in shown[start + 9 :]] == ["all", "tiny"]


def test_rm_of_a_pinned_commit_leaves_what_another_commit_shares(world, folders):
    (old,) = world.hub.repos[BIG]
    files = {path.name: path.read_bytes() for path in folders[BIG].iterdir()}
    world.hub.commit(BIG, files | {"config.json": json.dumps({**TINY, "new": 1}).encode()})
    pinned = f'\n[pairs.pinned]\ntarget = "{BIG}"\ntarget_revision = "{old}"\n'
    world.models.write_text(MODELS + pinned)
    assert (world("pull", "tiny").code, world("pull", "pinned").code) == (0, 0)
    done = world("rm", "pinned", "--yes")
    (new,) = (path.name for path in world.cached(BIG).glob("snapshots/*"))
    assert new != old
    told = rf"org/big: \d+ B; 3 files \(388 kB\) shared with commit {new[:7]} will stay; also used by tiny, odd"
    assert re.fullmatch(told, done.err.splitlines()[0])
    assert world.without_network("run", "-p", "tiny", "-n", "2", "hi").code == 0


# What goes wrong

TYPOS = [
    (["pul", "tiny"], 2, "No such command 'pul'. Did you mean 'pull'?", "specdec --help"),
    (["pull", "tinny"], 3, "no pair named tinny; 25 are known", "did you mean tiny?"),
    (["check", "quen3-8b"], 3, "no pair named quen3-8b; 25 are known", "did you mean qwen3-8b"),
    (["run", "-p", "tinny", "hi"], 3, "no pair named tinny; 25 are known", "did you mean tiny?"),
    (["pairs", "use", "dmeo"], 3, "no pair named dmeo; 25 are known", "did you mean demo?"),
    (["pairs", "ad", "x"], 2, "No such command 'ad'. Did you mean 'add'?", "specdec --help"),
    (["pairs", "add", "x"], 2, "pair x has no target", "specdec pairs add x --target ID --draft ID"),
    (["pairs", "add", "a b", "--target", "o/t"], 2, "'a b' is no name for a pair", "use letters"),
    (["check", "--jsn"], 2, "No such option: --jsn (Possible options: --json)", "specdec --help"),
    (["check", "tiny", "--max-context", "0"], 2, "--max-context 0 is below 1", "the nearest that works"),
    (["check", "tiny", "--target", "o/t"], 2, "--pair tiny and --target o/t both name a target", "give one"),
    (["pull", "--draft", "o/d", "--yes"], 2, "--draft o/d has no --target to draft for", "name both"),
    (["check", "--target", "nosuch"], 3, "no folder nosuch here", "a Hub id looks like organisation/name"),
    (["rm", "demo", "--yes"], 3, "nothing of demo to remove", "specdec pairs"),
    (["rm", "o/t", "--yes"], 3, "o/t is not in the model cache", "specdec pairs"),
    (["pull", "gone"], 3, "no such repository on", "check the spelling; if it is private: hf auth login"),
]


@pytest.mark.parametrize(("arguments", "code", "message", "hint"), TYPOS, ids=[" ".join(t[0]) for t in TYPOS])
def test_a_typo_gets_two_lines_and_the_next_command(world, arguments, code, message, hint):
    done = world(*arguments)
    told = done.errors()
    assert (done.code, done.out, len(done.err.splitlines())) == (code, "", 2)
    assert told[0].startswith(message) and hint in told[1]


OFFLINE = [
    (["pairs", "--online"], {"HF_ENDPOINT": NOBODY}, "cannot reach http://127.0.0.1:9 for"),
    (["pairs", "--online"], {"HF_HUB_OFFLINE": "1"}, "--online asks the Hub, and HF_HUB_OFFLINE forbids it"),
    (["check", "tiny"], {"HF_ENDPOINT": NOBODY}, "cannot reach http://127.0.0.1:9 for org/big"),
    (["check", "tiny", "--offline"], {}, "org/big is neither a folder here nor in the model cache"),
    (["pull", "tiny"], {"HF_ENDPOINT": NOBODY}, "cannot reach http://127.0.0.1:9 for org/big"),
    (["pull", "tiny"], {"SPECDEC_OFFLINE": "1"}, "org/big is neither a folder here nor in the model cache"),
    (["run", "-p", "tiny", "hi"], {"HF_ENDPOINT": NOBODY}, "org/big is neither a folder here nor in the model cache"),
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


@pytest.mark.parametrize("command", [["pairs"], ["pairs", "add", "x", "--target", "o/t"], ["run", "hi"]])
def test_a_broken_models_toml_names_file_and_line_and_is_left_alone(world, command):
    broken = MODELS + 'draught = "org/x"\n'
    world.models.write_text(broken)
    done = world(*command)
    line = broken.count("\n")
    assert (done.code, done.errors()) == (2, [f"{world.models}:{line}: unknown key draught", "did you mean draft?"])
    assert world.models.read_text() == broken
