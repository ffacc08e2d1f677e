"""What a download removes, and whether what is asked for fits on the disk."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

import pytest

from specdec_cli.core.errors import DoesNotFit
from specdec_cli.hub import download
from specdec_cli.hub.cache import repository


def test_parts_of_downloads_under_way_stay_and_those_of_killed_ones_go(cache):
    """A part that was written to a minute ago belongs to another pull."""
    blobs = repository("org/model") / "blobs"
    blobs.mkdir(parents=True)
    for seconds in (0, 60, 300, 601, 10**6):
        (blobs / f"{seconds}.incomplete").touch()
        os.utime(blobs / f"{seconds}.incomplete", (time.time() - seconds,) * 2)
    (blobs / "whole").touch()
    os.utime(blobs / "whole", (0, 0))
    download._sweep("org/model")
    assert {path.name for path in blobs.iterdir()} == {"0.incomplete", "60.incomplete", "300.incomplete", "whole"}


def test_two_models_that_fit_only_one_by_one_are_refused_together(cache, monkeypatch):
    monkeypatch.setattr(download, "free_bytes", lambda: 100)
    first, second = (SimpleNamespace(name=name, commit="c", download_bytes=60) for name in ("org/a", "org/b"))
    download.check_space([first])
    download.check_space([second, second])  # one and the same
    with pytest.raises(DoesNotFit, match=r"org/a and org/b need 120 B, .* has 100 B free"):
        download.check_space([first, second])
