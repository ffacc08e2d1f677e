"""Kernels compiled beside the reading of the weights: which, in which thread, and who hears of it."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from threading import Event, current_thread, main_thread

import mlx.core as mx
import pytest

from fakes.dispatches import CAN_FUSE, fuse, logit_rows, queued_by_rounds
from specdec_cli.engine import device, warmup
from specdec_cli.engine.sampling.acceptance import make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.engine.warmup import compiling, rehearse

V = 2_000
SETTINGS = {
    "greedy": Sampling(),
    "top-k, top-p": Sampling(0.7, 20, 0.8),
    "top-p, penalties": Sampling(0.8, 0, 0.95, 0.0, 1.1, 0.2),
    "min-p": Sampling(0.7, min_p=0.05),
}
needs_fusing = pytest.mark.skipif(not CAN_FUSE, reason="mlx cannot fuse here: a CPU without a C++ compiler")


def kernels(folder, array):
    """The fused operations in the graph of `array`."""
    path = folder / "graph.dot"
    mx.export_to_dot(str(path), array)
    return set(re.findall(r'label ="(Compiled\w+)', path.read_text()))


def rehearsed(monkeypatch, folder, rule, sampling, **drafts):
    found = set()
    with monkeypatch.context() as patch:
        patch.setattr(device, "queue", lambda array: None)
        patch.setattr(device, "wait", lambda array: found.update(kernels(folder, array)))
        rehearse(rule, sampling, V, "bfloat16", **{"by_network": True, "looks_up": True} | drafts)
    return found


def needed(monkeypatch, folder, rule, sampling, k):
    """By the first rounds of a reply, through the real loop."""
    found, made = Counter(), make_rule(rule, Sampler(sampling, 1, [1, 2, 3], V))
    with monkeypatch.context() as patch:
        patch.setattr("fakes.dispatches.dispatches", lambda folder, packed: Counter(kernels(folder, packed)))
        for counted in queued_by_rounds(patch, folder, made, k, 3, logit_rows(24, V)):
            found.update(counted)
    found.pop("merges", None)
    return set(found)


@needs_fusing
@pytest.mark.parametrize(
    ("rule", "name"), [("token", "greedy"), *(("block", name) for name in SETTINGS if name != "greedy")]
)
def test_what_a_reply_fuses_was_fused_before(monkeypatch, tmp_path, rule, name):
    fuse(monkeypatch)
    done = rehearsed(monkeypatch, tmp_path, rule, SETTINGS[name])
    for k in (0, 1, 4):
        asked = needed(monkeypatch, tmp_path, rule, SETTINGS[name], k)
        assert (asked or not k) and asked <= done
    others = rehearsed(monkeypatch, tmp_path, rule, SETTINGS[name], by_network=False, looks_up=False)
    assert not asked <= others


REAL = """
import json, os, pathlib, re
from fakes.dispatches import Table, logit_rows
from specdec_cli.engine import device
from specdec_cli.engine.decode import decode
from specdec_cli.engine.draft_length.adaptive import Fixed
from specdec_cli.engine.drafters.stepwise import ModelDrafter
from specdec_cli.engine.sampling.acceptance import make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.engine.warmup import compiling, rehearse

device.fuses = lambda: True


def libraries():
    sources = pathlib.Path(os.environ["TMPDIR"]).rglob("*.cpp")
    return {re.sub(r"_(contiguous|strided_[0-9]+)$", "", source.stem) for source in sources}


sampling, found = Sampling(0.7), []
if os.environ["WARM"]:
    with compiling(lambda: rehearse("coupled", sampling, 500, "bfloat16", True, True), print):
        pass
found.append(len(libraries()))
for k in (0, 1, 2, 5):
    rule = make_rule("coupled", Sampler(sampling, 1, [1, 2, 3], 500))
    target, draft = Table(logit_rows(40, 500)), Table(logit_rows(40, 500))
    drafter = ModelDrafter(draft, 500, rule)
    for _ in decode(target, drafter, rule, Fixed(k), [1, 2, 3], 12, frozenset(), float):
        pass
    found.append(len(libraries()))
print(json.dumps(found))
"""


@needs_fusing
@pytest.mark.slow
@pytest.mark.parametrize("warm", ["", "yes"])
def test_a_warmed_reply_compiles_nothing(tmp_path, warm):
    """By the CPU's libraries, which mlx names as Metal's, types and constants included. K was in a name: 31 of them."""
    environment = os.environ | {"TMPDIR": str(tmp_path), "WARM": warm, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", REAL], capture_output=True, text=True, env=environment, check=True)
    first, *later = json.loads(done.stdout.splitlines()[-1])
    assert (set(later) == {first}) == bool(warm) and later[-1] == later[-2] > 3


# The thread


@pytest.fixture
def fusing(monkeypatch):
    """A device that fuses, and the threads that left it."""
    left = []
    monkeypatch.setattr(device, "fuses", lambda: True)
    monkeypatch.setattr(device, "leave_thread", lambda: left.append(current_thread()))
    return left


def test_kernels_are_compiled_while_the_weights_are_read_and_the_thread_leaves_the_device(fusing):
    reading, compiled, told = Event(), Event(), []

    def work():
        assert reading.wait(10)
        compiled.set()

    with compiling(work, told.append):
        reading.set()
        assert compiled.wait(10)
    assert len(fusing) == 1 and fusing[0] is not main_thread() and not fusing[0].is_alive() and not told


def test_kernels_that_take_longer_are_waited_for_and_a_line_says_so(fusing, monkeypatch):
    monkeypatch.setattr(warmup, "PATIENCE_SECONDS", 0.01)
    go, told = Event(), []

    def tell(sentence):
        told.append(sentence)
        go.set()

    with compiling(lambda: go.wait(10), tell):
        pass
    assert told == ["compiling kernels for this device: some seconds, and less the next time"]
    assert not fusing[0].is_alive()


def test_what_fails_in_it_is_the_replys_to_say_and_what_the_body_raises_passes(fusing):
    def fail():
        raise RuntimeError("[metal::Device] Unable to build metal library")

    with pytest.raises(ValueError, match="damaged"), compiling(fail, print):
        raise ValueError("damaged")
    assert len(fusing) == 1


def test_a_device_that_does_not_fuse_compiles_nothing(monkeypatch):
    monkeypatch.setattr(device, "fuses", lambda: False)
    with compiling(lambda: pytest.fail("compiled"), print):
        pass
