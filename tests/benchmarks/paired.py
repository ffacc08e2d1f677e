"""What every benchmark here shares: Student intervals on log ratios, interleaving, the machine in a line. (pure)"""

import math
import os
import platform
import statistics
from importlib.metadata import version
from pathlib import Path

from specdec_cli.core.speedup import t_interval
from specdec_cli.engine import device


class Ratio:
    """Paired ratios: their median, and the 95 % t-interval of their mean logarithm."""

    def __init__(self, above, below):
        logs = [math.log(a / b) for a, b in zip(above, below, strict=True)]
        mean, off = t_interval([logs])
        self.count = len(logs)
        self.median = math.exp(statistics.median(logs))
        self.low, self.high = math.exp(mean - off), math.exp(min(mean + off, 700.0))

    def __str__(self):
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def verdict(self, least):
        """Against a goal: met by the median, missed within the interval, or missed."""
        if self.median >= least:
            return "met"
        return "missed, within the interval" if self.high >= least else f"MISSED by {least - self.median:.3f}"


def interleaved(ways, units, report=lambda unit, way: None):
    """{way: [seconds of every unit]}: each unit in every way before the next unit, in an order that turns by one."""
    found = {name: [] for name in ways}
    for i, unit in enumerate(units):
        names = list(ways)
        turn = i % len(names)
        for name in [*names[turn:], *names[:turn]]:
            found[name].append(ways[name](unit))
            report(unit, name)
    return found


def environment():
    """Machine, versions and what was preloaded, in one line."""
    blas = Path(os.environ.get("LD_PRELOAD", "")).name or "nothing"
    mlx = f"mlx {version('mlx')}, mlx-lm {version('mlx-lm')}, {device.backend()}"
    machine = f"{device.device_name()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    return f"{machine}, {mlx}, preloaded {blas}, load {os.getloadavg()[0]:.1f}"
