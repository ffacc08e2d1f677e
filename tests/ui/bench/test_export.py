"""A result as a file of each format."""

import csv
import io
import json
from dataclasses import replace

import pytest

from fakes.bench_result import sample_result
from specdec_cli.bench.file import read_result
from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.ui.bench.export import WRITERS, csv_text, export, json_text, markdown_text, require_writable


@pytest.fixture(scope="module")
def result():
    return sample_result()


def test_the_page_and_the_picture_are_formats_too(result):
    assert WRITERS[".html"](result).startswith("<!doctype html>") and WRITERS[".svg"](result).startswith("<svg ")


def test_json_reads_back_as_the_result_and_holds_no_infinity(result, tmp_path):
    export(result, path := tmp_path / "bench.json")
    assert read_result(path) == result
    text = json_text(result)
    assert "Infinity" not in text and json.loads(text)["report"][0]["verdict"]["told"]


def test_csv_holds_every_answer_once(result):
    rows = list(csv.DictReader(io.StringIO(csv_text(result))))
    assert len(rows) == len(result.samples)
    assert [row["k"] for row in rows] == [str(sample.arm.k) for sample in result.samples]


def test_markdown_escapes_pipes_and_names_the_command(result):
    text = markdown_text(replace(result, settings=replace(result.settings, pair="a|b")))
    assert text.startswith("# specdec bench: a\\|b\n") and "specdec run -p" in text and "| **2** |" in text


@pytest.mark.parametrize(("name", "message"), [("a.txt", "ends in .txt"), ("none/a.json", "there is no such folder")])
def test_a_file_that_cannot_be_written_is_refused_before_the_bench(tmp_path, name, message):
    with pytest.raises(UsageError, match=message):
        require_writable([tmp_path / name])


def test_a_write_that_fails_is_an_error_with_its_reason(result, tmp_path):
    with pytest.raises(SpecdecError, match="cannot be written: No such file"):
        export(result, tmp_path / "none" / "a.csv")


EVIL = "=cmd|'/C calc'!A0"


def renamed(result, name):
    """The result with `name` for its pair, and for the kind and name of every prompt."""
    samples = tuple(replace(sample, prompt=replace(sample.prompt, kind=name, name=name)) for sample in result.samples)
    return replace(result, settings=replace(result.settings, pair=name, prompts=name), samples=samples)


@pytest.mark.parametrize("name", [EVIL, "+1", "-2", "@SUM(A1)", "\t=1"])
def test_no_text_of_a_csv_is_a_formula(result, name):
    for row in csv.DictReader(io.StringIO(csv_text(renamed(result, name)))):
        assert row["kind"] == row["name"] == f"'{name}"
        assert row["k"] in ("auto", *map(str, range(40)))


def test_markdown_shows_names_as_they_are_and_nothing_of_them_takes_effect(result):
    text = markdown_text(renamed(result, "<script>alert(1)</script> [a](http://b) | `x`\n# c"))
    outside = text.partition("```sh")[0]  # a block of code is inert
    assert "<script" not in outside and "\n# c" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; \\[a\\](http://b) \\| \\`x\\` # c" in text.splitlines()[0]
    widths = {line.replace("\\|", "").count("|") for line in text.splitlines() if line.startswith("| ")}
    assert widths <= {11, 5}
