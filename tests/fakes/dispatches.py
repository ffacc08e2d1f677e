"""The kernels that one round's sampling, judging and noise give the device, counted on the round's lazy graph.

The models are tables of logits without kernels of their own, so that what is counted is everything else. Counted is
what mlx's Metal backend dispatches for a primitive (mlx/backend/metal and mlx/backend/gpu/primitives.cpp):

* nothing for views, which share their input's memory;
* one for each input of a concatenation (`concatenate_gpu` copies them one by one);
* two where the output is copied or filled first and then written to (padding, scatter, slice update);
* one for any other primitive, a fused `Compiled` among them.

* for a sort or partition of more than 2,048 values, blocks that are merged (`multi_block_sort`, sort.cpp): one to sort
  them, two for each doubling, one to copy. Shapes are not in the graph, so these are counted where they are asked for.
"""

import re
import shutil
from collections import Counter, deque
from itertools import islice

import mlx.core as mx
import numpy as np

from fakes.scored import ScoredModel
from specdec_cli.engine import device
from specdec_cli.engine.decode import decode
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.stepwise import ModelDrafter

SORTS, SORTED_AT_ONCE = ("sort", "argsort", "partition", "argpartition", "topk"), 2048
VIEWS = {
    *("AsStrided", "Broadcast", "BroadcastAxes", "Copy", "ExpandDims", "Flatten", "Reshape", "Slice", "Split"),
    *("Squeeze", "StopGradient", "Transpose", "Unflatten", "View"),
}
TWO = {"Pad", "Scatter", "ScatterAxis", "SliceUpdate"}
PRIMITIVE = re.compile(r'\{ (\d+) \[label ="(\w+)')
EDGE = re.compile(r'^"\w+" -> (\d+)$', re.MULTILINE)


def dispatches(folder, *arrays):
    """How often each primitive of the graph of `arrays` dispatches a kernel, by name."""
    path = folder / "graph.dot"
    mx.export_to_dot(str(path), *arrays)
    text = path.read_text()
    inputs, found = Counter(EDGE.findall(text)), Counter()
    # A traced function gives the same primitive, one node, at every call; it is written once for every call.
    for node, name in PRIMITIVE.findall(text):
        if name == "Concatenate":
            found[name] += inputs.pop(node, 0)
        elif name not in VIEWS:
            found["Compiled" if name.startswith("Compiled") else name] += 2 if name in TWO else 1
    return found


class Table(ScoredModel):
    """Its logits are rows of a table, whatever it is fed."""

    def __init__(self, rows):
        self._table, self.vocab_size, self._at = rows, rows.shape[-1], 0

    def rows(self, tokens):
        n = tokens.size
        self._at = (self._at + 1) % (self._table.shape[0] - n)
        return self._table[self._at : self._at + n]

    def reuse(self, context):
        return 0

    def prefill(self, context):
        self.length = len(context) - 1
        return iter(())


def logit_rows(rows, vocab_size, seed=0, dtype=mx.bfloat16):
    """Logits as models have them: a few good tokens over a wide, flat rest; [rows, V], half precision."""
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 2.5, (rows, vocab_size)).astype(np.float32)
    best = rng.integers(0, vocab_size, (rows, 12))
    np.put_along_axis(values, best, rng.normal(14, 3, best.shape).astype(np.float32), axis=1)
    rows = mx.array(values).astype(dtype)
    mx.eval(rows)
    return rows


def sort_dispatches(values):
    """Kernels of one sort along the last axis of so many `values` (mlx/backend/metal/sort.cpp)."""
    blocks = -(-values // SORTED_AT_ONCE)
    return 1 if blocks == 1 else 2 + 2 * (blocks - 1).bit_length()


def count_sorts(monkeypatch):
    """A counter of what sorts that are asked for from now on dispatch beyond the one kernel that the graph shows."""
    merges = Counter()

    def counted(sort):
        def instead(values, *args, **kwargs):
            merges["merges"] += sort_dispatches(values.shape[-1]) - 1
            return sort(values, *args, **kwargs)

        return instead

    for name in SORTS:
        monkeypatch.setattr(mx, name, counted(getattr(mx, name)))
    return merges


def queued_by_rounds(monkeypatch, folder, rule, k, rounds, rows, computed=False):
    """The dispatches of each of `rounds` rounds of K = `k`, the first of which drafts nothing, through the real loop.

    Nothing is computed before a round's read-back, so its whole graph is seen there. Unless `computed`, it is not
    computed then either, and half of each draft is said to be accepted: kernels need not be built to be counted. What
    outlives a round (noise, penalties' counts) is then counted in later rounds again; the first two are exact.
    """
    counts, merges = [], count_sorts(monkeypatch)

    def read(packed):
        counts.append(dispatches(folder, packed) + merges)
        merges.clear()
        drafted = packed.size - 3
        return packed.tolist() if computed else [*range(drafted), 0, drafted // 2, 7]

    for name, instead in {"queue": lambda array: None, "wait": lambda array: None, "to_list": read}.items():
        monkeypatch.setattr(device, name, instead)
    target, draft = Table(rows), Table(rows)
    drafters = Drafters(ModelDrafter(draft, draft.vocab_size, rule) if k else None, k)
    running = decode(target, drafters, rule, [1, 2, 3], 10_000, frozenset(), float)
    deque(islice(running, rounds), maxlen=0)
    return counts


# On a CPU mlx needs a C++ compiler to fuse, once for each kernel that is computed.
CAN_FUSE = device.fuses() or shutil.which("g++") is not None
