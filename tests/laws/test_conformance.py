"""Every architecture of the installed mlx-lm: as target and as draft its tokens are mlx-lm's own, past every window."""

import re

import pytest

from conformance.architectures import architectures, installed
from conformance.suite import check
from specdec_cli.engine import device
from specdec_cli.engine.cache.rollback import Recorder
from specdec_cli.engine.cache.window import WindowKVCache
from specdec_cli.engine.load import UNVERIFIABLE
from tools.support_table import BEGIN, DOCUMENT, END, table_cells

CELLS = table_cells(re.search(f"{re.escape(BEGIN)}(.*){re.escape(END)}", DOCUMENT.read_text("utf-8"), re.S)[1])
FIRST = {names[0] for names in CELLS.values()}
QUICK = ("qwen3", "mamba2")
EACH = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow if name in FIRST else pytest.mark.full)
    for name in sorted(architectures())
]
RUNNABLE = [name for name, found in architectures().items() if not found.metal_only]


def test_every_architecture_of_the_installed_mlx_lm_is_listed():
    """A later mlx-lm that brings a new one fails here until it is listed, as tested or as refused with the reason."""
    assert sorted([*architectures(), *UNVERIFIABLE]) == installed()


@pytest.mark.parametrize("name", EACH)
def test_tokens_equal_plain_decoding_32_past_the_window_with_the_caches_that_are_documented(name):
    """In the slow tier one architecture of each row of the table."""
    found = check(architectures()[name], k=3, tokens=32)
    if name in RUNNABLE or device.backend() == "metal":
        assert found.status == "pass" and found.accepted and found.rejected, found
    else:
        assert found.status == "refused" and found.detail, found
    assert name in CELLS[", ".join(found.caches) or found.detail], "regenerate: python tests/tools/support_table.py"


@pytest.mark.parametrize("name", UNVERIFIABLE)
def test_what_is_refused_is_documented_with_its_reason(name):
    assert name in CELLS[UNVERIFIABLE[name]]


def keep_the_state(recorder, recording, tokens):
    """A rollback that forgets to recompute."""


def trim_too_far(window, tokens):
    """One position more than was asked for."""
    window.offset -= tokens + 1
    return tokens


BROKEN = [
    *((name, Recorder, "recompute", keep_the_state) for name in ("mamba2", "qwen3_5", "rwkv7")),
    *((name, WindowKVCache, "trim", trim_too_far) for name in ("gemma3_text", "gpt_oss")),
]


@pytest.mark.parametrize(
    ("name", "owner", "method", "broken"),
    [pytest.param(*case, marks=pytest.mark.slow if at else ()) for at, case in enumerate(BROKEN)],
)
def test_a_broken_rollback_is_found(name, owner, method, broken, monkeypatch):
    """Negative controls: the same check finds a state that was not rolled back, and a window rolled back too far."""
    monkeypatch.setattr(owner, method, broken)
    found = check(architectures()[name], k=3, tokens=32)
    assert found.status == "wrong" and found.detail.startswith("position ")
