"""What the desk costs beside a session of one's own: python tests/benchmarks/desk_overhead.py [answers [tokens]]

Both answer the same prompts with the demo pair in turn, each from nothing, under a fixed K, so that both do the same
passes. CPU time is that of all threads, and says more than the wall on a machine with other work.
"""

import sys
import threading
import time
from statistics import median

import specdec_cli as specdec
from specdec_cli.events import Finish
from specdec_cli.request import Request
from specdec_cli.serve.job import Job
from specdec_cli.serve.scheduler import Scheduler, SchedulerOptions

PROMPTS = ("def read_lines(path):", "class Stack:", "import json\n\ndef load(path):", "for line in open(name):")


def main(answers=40, tokens=1):
    pair = specdec.load("demo")
    desk = Scheduler(lambda: pair, SchedulerOptions(idle_seconds=None, slots=1, cache_bytes=0))
    request, found = Request(max_tokens=tokens, k=4), []
    for number in range(answers + 1):
        prompt = pair.text_tokens(PROMPTS[number % len(PROMPTS)])
        ways = [lambda ids=prompt: alone(pair, ids, request), lambda ids=prompt: through(desk, ids, request)]
        order = ways if number % 2 else ways[::-1]
        times = {way: timed(way) for way in order}
        if number:  # the first warms up
            found.append([times[way] for way in ways])
    desk.close()
    for name, place in (("wall", 0), ("CPU", 1)):
        added = sorted(desk[place] - own[place] for own, desk in found)
        ratio = median(desk[place] / own[place] for own, desk in found)
        print(
            f"{tokens} tokens, N = {answers}, {name}: alone {median(own[place] for own, _ in found) * 1e3:.1f} ms; "
            f"the desk adds {median(added) * 1e3:+.2f} ms [{added[answers // 4] * 1e3:+.2f}, "
            f"{added[-1 - answers // 4] * 1e3:+.2f}] (median and quartiles of pairs), x {ratio:.3f}"
        )


def timed(call):
    """(wall, CPU) seconds."""
    began = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - began[0], time.process_time() - began[1]


def alone(pair, prompt, request):
    list(pair.session().reply(prompt, request, raw=True))


def through(desk, prompt, request):
    done = threading.Event()
    desk.submit(Job(tuple(prompt), request, raw=True), lambda event: done.set() if isinstance(event, Finish) else None)
    done.wait()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
