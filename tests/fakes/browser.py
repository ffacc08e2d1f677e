"""A real Chromium without a window, over the pipe of its DevTools protocol, and what a reader does with the page."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
QUIET = ("--disable-background-networking", "--disable-sync", "--disable-extensions", "--hide-scrollbars")
SECONDS = 60.0
IN_BROWSER = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")]
SAID = ".answer:last-child > .text span"
# Chromium reads its commands from descriptor 3, and answers on 4.
LAUNCH = """
import os, sys
for theirs, wanted in zip(map(int, sys.argv[1:3]), (3, 4)):
    os.dup2(theirs, wanted)
os.execv(sys.argv[3], sys.argv[3:])
"""
CODES = {"Enter": 13, "Escape": 27, "Tab": 9, " ": 32}
TEXTS = {"Enter": "\r"}
SHIFT = 8


class Pipe:
    """Commands to a browser and what comes back; `events` keeps every (session, method, parameters)."""

    def __init__(self, commands, answers):
        self.events = []
        self._commands, self._answers = commands, answers
        self._sent, self._held = 0, b""

    def call(self, method, session=None, **parameters):
        """The result of a command."""
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": parameters}
        os.write(self._commands, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._sent:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append((answer.get("sessionId"), answer["method"], answer["params"]))

    def _next(self):
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._held:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser says nothing"
            part = os.read(self._answers, 1 << 20)
            assert part, "the browser is gone"
            self._held += part
        message, _, self._held = self._held.partition(b"\0")
        return json.loads(message)


class Tab:
    """A page; it fails where it does not come to what it waits for."""

    def __init__(self, pipe):
        self._pipe = pipe
        self._target = pipe.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = pipe.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        return self._pipe.call(method, self._session, **parameters)

    def close(self):
        self._pipe.call("Target.closeTarget", targetId=self._target)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def evaluate(self, expression):
        """The value of some JavaScript."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression, seconds=SECONDS):
        """Waits until `expression` is true."""
        deadline = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({expression})"):
            assert time.monotonic() < deadline, f"never came true: {expression}"
            time.sleep(0.02)

    def count(self, selector):
        """How many elements there are of a kind."""
        return self.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length")

    def texts(self, selector):
        """The text of each, shown or not."""
        return self._each(selector, "one.textContent")

    def seen(self, selector):
        """What a reader sees of each."""
        return self._each(selector, "one.innerText")

    def styles(self, selector, name):
        """A computed style of each."""
        return self._each(selector, f"getComputedStyle(one).{name}")

    def _each(self, selector, value):
        return self.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => {value})")

    @property
    def focused(self):
        """The id of what has the focus, else its tag."""
        return self.evaluate("document.activeElement.id || document.activeElement.tagName")

    def press(self, key, modifiers=0):
        """A key goes down and up."""
        code = CODES[key] if key in CODES else ord(key.upper()) if key.isalnum() else 0
        named = {"key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        text = TEXTS.get(key, key if len(key) == 1 else "")
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **named)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def type(self, text):
        for letter in text:
            self.press(letter)

    def look(self, width, height=800):
        """The size of the window."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    @property
    def requests(self):
        """Every address that was asked for."""
        return [event["request"]["url"] for event in self._told("Network.requestWillBeSent")]

    @property
    def complaints(self):
        """What the browser holds against the page: exceptions, and what its policy forbids."""
        thrown = [event["exceptionDetails"] for event in self._told("Runtime.exceptionThrown")]
        entries = [event["entry"] for event in self._told("Log.entryAdded")]
        return thrown + [entry for entry in entries if entry["level"] == "error" and entry["source"] != "network"]

    def _told(self, kind):
        """The events of one kind in this tab, up to now."""
        self.evaluate("0")
        return [event for session, method, event in self._pipe.events if (session, method) == (self._session, kind)]


@contextmanager
def browser(folder):
    """The pipe of a browser whose profile is in `folder`."""
    (theirs, commands), (answers, their_answers) = os.pipe(), os.pipe()
    arguments = [CHROMIUM, *FLAGS, *QUIET, f"--user-data-dir={folder}", "--remote-debugging-pipe", "about:blank"]
    launch = [sys.executable, "-c", LAUNCH, str(theirs), str(their_answers), *arguments]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(launch, pass_fds=(theirs, their_answers), **silent)
    os.close(theirs)
    os.close(their_answers)
    try:
        yield Pipe(commands, answers)
    finally:
        process.terminate()
        process.wait(30)
        os.close(commands)
        os.close(answers)


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
