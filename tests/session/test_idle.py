"""Something is done once a person has waited, on the main thread, whatever the wait is."""

from __future__ import annotations

import os
import threading
import time

from specdec_cli.session.signals import when_idle


def test_a_wait_for_input_is_interrupted_for_it_and_goes_on():
    reading, writing = os.pipe()
    seen = []

    def act():
        seen.append(threading.current_thread())
        os.write(writing, b"line\n")

    with when_idle(act, 0.05):
        assert os.read(reading, 100) == b"line\n"
    os.close(reading), os.close(writing)
    assert seen == [threading.main_thread()]


def test_a_short_wait_does_nothing_then_or_later():
    seen = []
    with when_idle(lambda: seen.append(1), 0.2):
        pass
    time.sleep(0.3)
    assert not seen
