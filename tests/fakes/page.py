"""What a reader does with the page, and the marks by which tests run only where there is a browser."""

from __future__ import annotations

import time

import pytest

from fakes.browser import CHROMIUM

IN_BROWSER = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")]
SAID = ".answer:last-child > .text span"


def greeted(tab, url, name="tool"):
    """The page of the server at `url`, which knows who answers."""
    tab.open(url)
    tab.until(f"document.title.startsWith('{name}')")
    return tab


def asking(tab, text, tokens=3):
    """Some of the answer is there."""
    tab.type(text)
    tab.press("Enter")
    tab.until(f"document.querySelectorAll('{SAID}').length > {tokens}")
    return tab


def asked(tab, text):
    """The answer is over."""
    answers = tab.count(".answer")
    tab.type(text)
    tab.press("Enter")
    tab.until(f"document.querySelectorAll('.answer:not(.writing)').length > {answers}")
    return tab


def answer_of(tab):
    """The text of the last answer: its said tokens, joined."""
    return "".join(tab.texts(SAID))


def slowly(ticket):
    """Between two rounds of a desk that goes on for long."""
    time.sleep(0.005)


def until(condition, seconds=10):
    """Waits for something in this process."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
