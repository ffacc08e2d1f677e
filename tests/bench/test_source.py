"""Where a figure comes from is decided once; every display shows that decision."""

import re

import pytest

from fakes.bench_result import sample_result
from specdec_cli.bench.report import reports
from specdec_cli.bench.sentences import json_text
from specdec_cli.ui.bench.page import cells, html_page
from specdec_cli.ui.bench.terminal import kinds_table, legend, rows_table


@pytest.fixture(scope="module")
def few():
    """Interrupted: no K has more than two prompts."""
    return sample_result(cancel_after=20)


@pytest.fixture(scope="module")
def losing():
    return sample_result("M1 Pro", kinds={"chat": 0.4, "prose": 0.3})


def plain(table, width=100):
    from rich.console import Console

    console = Console(width=width)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_too_few_prompts_are_called_so_everywhere(few):
    """The terminal called it predicted, the page "too few", and the plots drew it as measured."""
    (report,) = reports(few)
    row = next(row for row in report.rows if row.k == "auto")
    assert (row.source, row.speedup.prompts) == ("too few", row.speedup.prompts)
    assert cells(row)[3] == "too few"
    line = next(line for line in plain(rows_table(report, 100)).splitlines() if line.startswith(" auto"))
    assert re.match(r" auto +\?\d", line)
    assert "? of fewer than 3 prompts" in legend(report)
    assert '"source": "too few"' in json_text(few)
    assert 'class="few"' in html_page(few)


def test_the_best_k_of_a_kind_that_loses_is_0(losing):
    """K 1 at 0.95 times plain decoding was called the best."""
    (report,) = reports(losing)
    assert report.recommendation.chosen == 0
    lost = [row for row in report.kinds if row.k == 0]
    assert lost and all((row.speedup.mean, row.advice) == (1.0, "decode plainly") for row in lost)
    assert all(row.speedup.mean > 1 for row in report.kinds if row.k != 0)
    assert "decode plainly" in plain(kinds_table(report.kinds, 80), 80)


def test_every_interval_that_is_wider_than_its_figure_is_explained(few):
    (report,) = reports(few)
    shown = plain(rows_table(report, 100))
    assert "±>" not in shown
    assert ("±?" in shown) == ("±?" in legend(report))
