"""One demo pair, and one server in front of it, for all tests of the protocols; and servers that say a script."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

import specdec_cli
from fakes.desk import ScriptedDesk
from fakes.server import local, serving
from fakes.serving import model_of
from fakes.tool_model import tool_folder, tool_model
from specdec_cli.apps.serve.scheduler import Scheduler, SchedulerOptions


@pytest.fixture(scope="session")
def pair():
    return specdec_cli.load("demo")


@pytest.fixture(scope="session")
def model(pair):
    return model_of(pair, specdec_cli.Request(k=4), 1_700_000_000)


@pytest.fixture(scope="module")
def desk(pair):
    desk = Scheduler(lambda name: pair, SchedulerOptions(idle_seconds=None))
    yield desk
    desk.close()


@pytest.fixture(scope="module")
def client(model, desk):
    with local(model, desk) as client:
        yield client


@pytest.fixture(scope="session")
def tool_folders(tmp_path_factory):
    """Models with functions: one that never thinks, one that may."""
    root = tmp_path_factory.mktemp("tools")
    return tool_folder(root / "plain"), tool_folder(root / "thinks", thinks=True)


@pytest.fixture(scope="session")
def tooled(tool_folders):
    return tool_model(tool_folders[0])


@pytest.fixture(scope="session")
def thinking(tool_folders):
    return tool_model(tool_folders[1])


@pytest.fixture
def start(tooled):
    """Starts a server in front of a desk for the rest of the test: a client of its app, or with `serving` its URL."""
    with ExitStack() as stack:

        def begin(desk, model=tooled, how=local, **more):
            stack.callback(desk.close)
            made = stack.enter_context(how(model, desk, **more))
            return made[0] if how is serving else made

        yield begin


@pytest.fixture
def scripted(start):
    """Starts a server whose model says these texts, else `ok` for ever: (client or URL, its desk)."""

    def begin(*script, steps=lambda text: [text], between=lambda handle: None, reason="stop", **more):
        desk = ScriptedDesk(script or ["ok"] * 5000, steps, between, reason)
        return start(desk, **more), desk

    return begin


@pytest.fixture
def asked(scripted):
    """(a client, its desk) of a model that says `ok` for ever."""
    return scripted()
