"""The page: complete, escaped, self-contained, and honest about what is missing."""

import re
from dataclasses import replace
from html.parser import HTMLParser

from fakes.report import report
from specdec_cli.audit.report.result import Part
from specdec_cli.ui.report.figures import summary
from specdec_cli.ui.report.page import html_page

VOID = {"meta", "circle", "rect", "line", "path", "polyline", "br"}


class Tree(HTMLParser):
    """Raises at an end tag that ends nothing."""

    def __init__(self):
        super().__init__()
        self.open, self.words = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def shown(found):
    tree = Tree()
    tree.feed(html_page(found))
    assert tree.open == []
    return " ".join(" ".join(tree.words).split())


def test_every_part_has_its_section_and_its_figures():
    text = shown(report())
    headings = ("after 512 tokens", "work in flight", "Is it lossless here?", "A short bench", "Self-test", "Memory")
    assert all(heading in text for heading in headings)
    for figure in (
        "20.0 ms",
        "near-tie at token 12, gap 0.12 of 0.2",
        "1.80× faster (1.70–1.90)",
        "after reply 1, 256 tokens",
    ):
        assert figure in text
    assert "working set 36.0 GB" in text and "applegpu_g16s" in text


def test_a_head_is_shown_with_its_agreement_and_what_is_unlike_its_family():
    agreement = {
        "words": 128, "share": 0.97, "chance": 0.02,
        "summary": "guesses 97 % of 128 of its target's words; unlike its family: norms stored less 1",
    }  # fmt: skip
    load = Part("load", "done", 1.0, {**report().data("load"), "head": {"kind": "mtp", "agreement": agreement}})
    text = shown(report(load=load))
    assert "Does the head guess right?" in text and agreement["summary"] in text
    assert "and chance 2 %." in text
    found = {name: (value, note) for name, value, note in summary(report(load=load))}
    assert found["head"] == ("mtp", agreement["summary"])
    assert "Does the head" not in shown(report()) and "head" not in {name for name, *_ in summary(report())}


def test_plots_say_their_numbers_as_text():
    assert re.search(r'aria-label="Whole pass\. target: 1 rows 20\.00 ms', html_page(report()))


def test_a_part_without_data_is_named_with_its_reason():
    assert "left out: caches of 8192 tokens do not fit" in shown(report())


def test_a_page_with_nothing_measured_is_a_page():
    assert "What was done" in shown(replace(report(), parts=[]))
    empty = [replace(part, data={}, status="failed", note="RuntimeError: x") for part in report().parts]
    assert "failed: RuntimeError: x" in shown(replace(report(), parts=empty))


def test_the_page_loads_nothing():
    page = html_page(report())
    assert not re.search(r"<script|<link|<img|https?://|url\(|@import", page)


def test_text_from_outside_is_escaped():
    note = '<script>alert("x")</script>'
    page = html_page(report(bench=Part("bench", "failed", 0.0, {}, note)))
    assert "<script>" not in page and "&lt;script&gt;" in page


def runs(draft_ms):
    return [{"rounds": 20, "draft_ms": draft, "verify_ms": 7.0, "round_ms": draft + 7.0} for draft in draft_ms]


def in_flight(limited, unlimited):
    data = {"k": 4, "limited_runs": runs(limited), "unlimited_runs": runs(unlimited)}
    return report(in_flight=Part("in flight", "done", 1.0, data))


def test_a_change_beyond_that_of_repeated_runs_is_said_and_another_is_not():
    assert "The draft's time with the host never stopped: -50 %." in shown(in_flight((24, 26), (12, 13)))
    assert "differ by as much: no effect can be told" in shown(in_flight((24, 40), (38, 30)))
    assert "differ by as much" not in shown(in_flight((24, 26), (12, 13)))


def test_a_change_from_one_run_is_said_to_be_from_one_run():
    assert "-50 %, from one run: another may differ by as much." in shown(in_flight((24,), (12,)))


def test_only_a_gpu_has_the_limit_of_work_in_flight():
    assert "this is a CPU" not in shown(report())
    elsewhere = shown(report(machine=Part("machine", "done", 0.0, {"backend": "cpu"})))
    assert "this is a CPU: both settings are the same" in elsewhere and "never stopped: -50" not in elsewhere
