"""Without the network: a whole model opens no socket, and half a model is refused."""

from __future__ import annotations

import pytest

from fakes.hub_client import ask
from fakes.hub_model import LOCATE, MODEL_BYTES, NAME, PULL, model, partly, unavailable

pytestmark = pytest.mark.slow  # a server, and a process for each question


# No connection of any kind can be made from here on.
BLOCKED = """
import socket

class Opened(BaseException): pass
def refuse(*_, **__): raise Opened('a socket was opened')
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
"""


def test_a_cached_model_opens_no_socket(server, home):
    commit = server.commit(NAME, model())
    ask(server, home, PULL)
    code = f"""{BLOCKED}
result = [hub.locate('org/tiny').name, hub.locate('org/tiny', '{commit}').name]
for snapshot in (hub.resolve('org/tiny', offline=True), hub.resolve('org/tiny', '{commit}')):
    result += [hub.fetch(snapshot).name, hub.verify(snapshot), hub.removal('org/tiny').freed_bytes]
"""
    assert ask(server, home, code) == [commit, commit] + [commit, [], MODEL_BYTES] * 2


def test_the_block_on_sockets_blocks(server, home):
    """Negative control: the same block stops a call that must use the network."""
    code = f"{BLOCKED}\ntry: hub.resolve('org/tiny')\nexcept Opened as error: result = str(error)"
    assert ask(server, home, code) == "a socket was opened"


@pytest.mark.parametrize(("code", "extra"), [("offline=True", {}), ("", {"HF_HUB_OFFLINE": "1"})])
def test_offline_a_missing_model_is_refused_without_a_call(server, home, code, extra):
    server.commit(NAME, model())
    assert ask(server, home, f"hub.resolve('org/tiny', None, {code})", **extra) == unavailable(
        f"{NAME} is neither a folder here nor in the model cache", f"specdec pull --target {NAME}"
    )
    assert server.calls() == []


def test_another_tools_partial_download_is_seen_through_its_listing(server, home):
    """`hf download` leaves the tree of the commit: weights are whole, and the tokenizer lacks all the same."""
    server.commit(NAME, model())
    code = (
        "from huggingface_hub import snapshot_download\n"
        "snapshot_download('org/tiny', allow_patterns=['config.json', '*.index.json', 'model-*'])\n" + LOCATE
    )
    answer = ask(server, home, code, HF_HUB_DISABLE_PROGRESS_BARS="1")
    assert answer == partly("3 files missing, first chat_template.jinja", f"specdec pull --target {NAME}")
    assert sum("/tree/" in call for call in server.calls()) == 4
