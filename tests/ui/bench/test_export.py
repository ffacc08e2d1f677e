"""A result as a file of each format."""

import pytest

from fakes.bench_result import sample_result
from specdec_cli.ui.bench.export import WRITERS


@pytest.fixture(scope="module")
def result():
    return sample_result()


def test_the_export_knows_both_extensions(result):
    assert WRITERS[".html"](result).startswith("<!doctype html>") and WRITERS[".svg"](result).startswith("<svg ")
