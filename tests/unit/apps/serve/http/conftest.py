"""One demo pair, and one server in front of it, for all tests of the protocols."""

from __future__ import annotations

import pytest

import specdec_cli
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
    desk = Scheduler(lambda: pair, SchedulerOptions(idle_seconds=None))
    yield desk
    desk.close()


@pytest.fixture(scope="module")
def served(model, desk):
    with serving(model, desk) as (url, service):
        yield url, service


@pytest.fixture(scope="module")
def url(served):
    return served[0]


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
