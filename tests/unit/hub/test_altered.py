"""Altered bytes never speak: on the way from the Hub, in the cache, or left there by another tool.

The commands are run as a person types them, on a tiny model that really answers.
"""

from __future__ import annotations

import json
import re

import pytest

from fakes.hub_client import ask, command, commands, tree
from fakes.hub_server import Blob
from fakes.models import tiny_folder

pytestmark = pytest.mark.slow  # a server, and a process for each question


NAME = "org/tiny"
MODELS = f'schema_version = 1\ndefault_pair = "tiny"\n[pairs.tiny]\ntarget = "{NAME}"\n'
SMALL = ["chat_template.jinja", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]
WEIGHTS = "model.safetensors"
PULL = "result = hub.fetch(hub.resolve('org/tiny')).name"
LOCATE = "result = hub.locate('org/tiny').name"
MEND = f"specdec pull --target {NAME}"
# Where nothing of it is here, the whole pair is named.
MENDS = (MEND, "specdec pull tiny, or another default: specdec pairs use NAME")
SPEAK = {"run": ["run", "-p", "tiny", "-n", "2", "hi"], "chat": ["chat", "-p", "tiny", "-q", "-n", "2"]}
SPEAK["check"] = ["check", "tiny"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model with every small file that people lose."""
    folder = tiny_folder(tmp_path_factory.mktemp("model") / "tiny", seed=1)
    values = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "chat_template.jinja").write_text(values.pop("chat_template"))
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    (folder / "generation_config.json").write_text('{"temperature": 0.0}')
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def root(home):
    (home.parent / "models.toml").write_text(MODELS)
    return home.parent


@pytest.fixture
def pulled(server, root, files):
    """The snapshot's folder after a pull; then the Hub is forgotten."""
    commit = server.commit(NAME, files)
    assert ask(server, root / "home", PULL) == commit
    server.forget()
    return root / "home" / "hub" / "models--org--tiny" / "snapshots" / commit


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def refused(done) -> tuple[str, str]:
    """Message and hint of a command that must have ended with exit 3 and said nothing."""
    code, out, err = done
    assert (code, out) == (3, ""), err
    assert [line.split(": ")[0] for line in err[-2:]] == ["error", "hint"]
    return err[-2].removeprefix("error: "), err[-1].removeprefix("hint: ")


# On the way


@pytest.mark.parametrize("file", [WEIGHTS, "config.json"])
def test_one_flipped_byte_on_the_way_is_refused_with_the_files_name_and_never_speaks(server, root, files, file):
    """The default pull compared sizes alone: the altered model was here, and answered."""
    commit = server.commit(NAME, files)
    (served,) = server.repos[NAME].values()
    server.fail("corrupt", rf"GET .*{file}", at=len(files[file]) // 2)
    first, spoken = commands(server, root, ["pull", "tiny"], SPEAK["run"])
    message, hint = refused(first)
    digest = served[file].etag[:12]
    assert re.fullmatch(rf"{file} of {NAME} arrived altered, and was discarded: \w{{12}} instead of {digest}", message)
    assert hint == "run the same command again; if it is altered again, suspect a proxy or HF_ENDPOINT's mirror"
    folder = root / "home" / "hub" / "models--org--tiny"
    assert not (folder / "snapshots" / commit / file).exists()
    assert not (folder / "blobs" / served[file].etag).exists()
    assert refused(spoken)[1] in MENDS
    server.forget()
    assert [done[0] for done in commands(server, root, ["pull", "tiny"], SPEAK["run"])] == [0, 0]


# In the cache


@pytest.mark.parametrize("file", SMALL[:1])
def test_a_lost_small_file_is_told_by_every_command_and_brought_back_by_a_pull(server, root, pulled, files, file):
    """A pair without its generation_config, tokenizer_config or template ran as another model, with exit 0."""
    (pulled / file).unlink()
    before = tree(root, root / "home" / "hub")
    told = f"{NAME} is only partly here: 1 file missing, first {file}"
    *spoken, healed = commands(server, root, *SPEAK.values(), ["pull", "tiny"])
    assert [refused(done) for done in spoken] == [(told, MEND)] * 3
    assert (healed[0], server.fetched()) == (0, {})  # its blob was there
    assert {path.name: path.read_bytes() for path in pulled.iterdir()} == files
    assert tree(root, root / "home" / "hub") == before


def test_a_small_file_altered_on_the_disk_never_speaks(server, root, pulled, files):
    file = "config.json"
    (pulled / file).resolve().write_bytes(flipped(files[file]))
    altered, whole = Blob(file, flipped(files[file])).git_sha1, Blob(file, files[file]).git_sha1
    told = f"{file} of {NAME} is not what was pulled: {altered[:12]} instead of {whole[:12]}"
    *spoken, healed = commands(server, root, SPEAK["run"], SPEAK["check"], ["pull", "tiny"])
    assert [refused(done) for done in spoken] == [(told, MEND)] * 2
    assert (healed[0], (pulled / file).read_bytes()) == (0, files[file])


@pytest.mark.parametrize("damage", ["zeros", "cut", "gone"])
def test_weights_that_lost_their_bytes_on_the_disk_never_speak(server, root, pulled, files, damage):
    blob = (pulled / WEIGHTS).resolve()
    size_bytes = len(files[WEIGHTS])
    if damage == "gone":
        blob.unlink()
    else:
        blob.write_bytes(bytes(size_bytes) if damage == "zeros" else files[WEIGHTS][:-1])
    verify = ["pull", "tiny", "--verify"]
    spoken, once, twice = commands(server, root, SPEAK["run"], verify, verify)
    assert WEIGHTS in refused(spoken)[0]
    assert (once[0], twice[0]) == (3 if damage == "zeros" else 0, 0)
    assert (pulled / WEIGHTS).read_bytes() == files[WEIGHTS]


@pytest.mark.parametrize("file", ["model-extra.safetensors"])
def test_a_file_added_beside_those_that_were_pulled_never_speaks(server, root, pulled, file):
    """mlx-lm loads every model*.safetensors, and a tokenizer whatever of its files is there."""
    (pulled / file).write_bytes(b"{}")
    told = f"{file} of {NAME} was added after the pull: it is not in the commit"
    assert refused(command(server, root, *SPEAK["run"])) == (told, f"delete {pulled / file}")


# Another tool's downloads: no manifest says what was there

OTHER_TOOL = """
from huggingface_hub import snapshot_download
result = Path(snapshot_download('org/tiny', allow_patterns={})).name
"""
ALL = ["*.json", "*.jinja", "*.safetensors"]
QUIET = {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}


def test_another_tools_bytes_are_compared_by_the_first_pull_and_mended(server, root, files):
    """Bytes that lay under the right name were taken for the model, whatever they were."""
    commit = server.commit(NAME, files)
    server.fail("corrupt", rf"GET .*{WEIGHTS}", at=5000)
    assert ask(server, root / "home", OTHER_TOOL.format(ALL), **QUIET) == commit
    snapshot = root / "home" / "hub" / "models--org--tiny" / "snapshots" / commit
    assert (snapshot / WEIGHTS).read_bytes() != files[WEIGHTS]
    server.forget()
    code, _, _ = command(server, root, "pull", "tiny")
    assert (code, (snapshot / WEIGHTS).read_bytes()) == (0, files[WEIGHTS])
