"""The longer runs with the released models, whose figures are printed: `python tests/real/longer.py NAME ...`.

`gemma`, `qwen`: 20 prompts x 64 tokens in float32, `ngram`, `auto` (drafted for by itself in 4 bits) and forced tokens
against mlx-lm's own `generate_step`. `tools`: 20 calls of a tool asked of Qwen through a server, strict and not.
`infill`: 20 gaps in code, of which it is counted how many fit: the whole then compiles and does what it should.
`rounds`: what a round's judging costs beside its passes, at the demo's and both models' numbers of entries.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("MLX_ENABLE_TF32", "0")
sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx
import mlx.core as mx
import openai

import specdec_cli as specdec
from fakes.server import serving
from real import released
from real.answers import TEXTS, equal
from specdec_cli.engine.draft import Draft
from specdec_cli.engine.sampling.acceptance import make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.serve.model import Model
from specdec_cli.serve.scheduler import Scheduler, SchedulerOptions

PROMPTS = (
    *TEXTS,
    "The three largest cities of Japan are",
    "class Stack:\n    def __init__(self):\n",
    "SELECT name, count(*) FROM",
    "# A binary search over a sorted list\ndef",
    "Once upon a time there was a king who",
    "for i in range(10):\n    print(",
    "<html>\n<head>\n<title>",
    "In 1969 the first people on the moon were",
    "def fibonacci(n):\n    if n < 2:\n",
    "The boiling point of water at sea level is",
    '{"name": "Alice", "age": 30, "friends": [',
    "import numpy as np\n\nx = np.arange(",
    "Roses are red, violets are blue,",
    "int main(int argc, char **argv) {\n",
    "Zürich liegt am",
)
SHAPE = specdec.Constraint("regex", r'\{"first": "[a-z]{3,9}", "second": [0-9]{1,3}, "third": (true|false)\}')
CITIES = ["Paris", "Berlin", "Oslo", "Rome", "Madrid", "Vienna", "Tokyo", "Lima", "Cairo", "Dublin"]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
# name, its arguments, what it returns for them; the body is asked for.
GAPS = [
    ("add(a, b)", "add(2, 3)", 5), ("sub(a, b)", "sub(5, 3)", 2), ("mul(a, b)", "mul(4, 3)", 12),
    ("square(x)", "square(7)", 49), ("is_even(n)", "is_even(4)", True), ("double(x)", "double(21)", 42),
    ("negate(x)", "negate(3)", -3), ("first(items)", "first([4, 5])", 4), ("last(items)", "last([4, 5])", 5),
    ("length(items)", "length([1, 2, 3])", 3), ("total(items)", "total([1, 2, 3])", 6),
    ("largest(items)", "largest([1, 9, 3])", 9), ("smallest(items)", "smallest([4, 1, 3])", 1),
    ("upper(text)", "upper('ab')", "AB"), ("reverse(text)", "reverse('abc')", "cba"),
    ("words(text)", "words('a b')", ["a", "b"]), ("strip(text)", "strip(' a ')", "a"),
    ("is_empty(items)", "is_empty([])", True), ("average(a, b)", "average(2, 4)", 3),
    ("absolute(x)", "absolute(-3)", 3),
]  # fmt: skip


def equality(folder: Path) -> None:
    pair = specdec.load(target=str(folder), draft=str(released.four_bits(folder)))
    for drafter, k in (("ngram", 4), ("auto", "auto")):
        began, drafted, passes, tokens = time.perf_counter(), 0, 0, 0
        for text in PROMPTS:
            stats = equal(pair, pair.text_tokens(text), 64, drafter=drafter, k=k).stats
            drafted += stats["draft_n"]
            passes += stats["target_passes"]
            tokens += stats["emitted_tokens"]
        print(f"{folder.name} {drafter}: 20 prompts, {tokens} tokens equal, {passes} passes, {drafted} drafted, "
              f"{time.perf_counter() - began:.0f} s", flush=True)  # fmt: skip
    counts: Counter[str] = Counter()
    for text in PROMPTS:
        request = specdec.Request(64, k=4, drafter="none", constraint=SHAPE, sampling={"temperature": 0})
        session, ids = pair.session(), pair.text_tokens(text)
        events = list(session.reply(ids, request))
        said = [token for event in events if event.event == "round" for token in event.round.emitted]
        assert said == [step.token for step in session.plain(ids, request)], text
        json.loads(events[-1].text)
        counts += Counter(tokens=len(said), passes=events[-1].stats["target_passes"])
    print(f"{folder.name} forced tokens: 20 prompts equal, {dict(counts)}", flush=True)


def served():
    folder = str(released.qwen())  # a CPU reads a long prompt several times faster in float32 than in 4 bits
    pair = specdec.load(target=folder)
    desk = Scheduler(lambda: specdec.load(target=folder), SchedulerOptions(idle_seconds=None))
    return serving(Model.of(pair, specdec.Request(), 1), desk)


def tools() -> None:
    function = {"name": "get_weather", "description": "The weather in a city now.", "parameters": SCHEMA}
    with served() as (url, _), openai.OpenAI(base_url=f"{url}/v1", api_key="any", timeout=900) as client:
        for strict in (False, True):
            counts: Counter[str] = Counter()
            for number in range(20):
                city, unit = CITIES[number % 10], ("celsius", "fahrenheit")[number // 10]
                answer = client.chat.completions.create(
                    model="default", temperature=0, max_tokens=80, tool_choice="required" if strict else "auto",
                    messages=[{"role": "user", "content": f"How warm is it in {city}, in {unit}? Use the function."}],
                    tools=[{"type": "function", "function": function | {"strict": strict}}],
                )  # fmt: skip
                calls = answer.choices[0].message.tool_calls or []
                right = len(calls) == 1 and json.loads(calls[0].function.arguments) == {"city": city, "unit": unit}
                counts["right" if right else "other calls" if calls else "text"] += 1
                if not right:
                    print(f"  {city}, {unit}: {calls or answer.choices[0].message.content!r}")
            print(f"20 tool calls, {'strict' if strict else 'not strict'}: {dict(counts)}", flush=True)


def infill() -> None:
    fits = 0
    with served() as (url, _), httpx.Client(base_url=url, timeout=900) as client:
        for head, call, wanted in GAPS:
            prefix, suffix = f"def {head}:\n    return ", f"\n\nprint({call})  # {wanted!r}\n"
            body = {"input_prefix": prefix, "input_suffix": suffix, "n_predict": 24, "temperature": 0}
            said = client.post("/infill", json=body).raise_for_status().json()["content"]
            code = f"{prefix}{said}{suffix}assert {call} == {wanted!r}"
            ended = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, timeout=20, check=False)
            fits += ended.returncode == 0
            print(f"  {head}: {said!r}" + (", which does not fit" if ended.returncode else ""), flush=True)
    print(f"20 gaps: {fits} fit")


def rounds(k: int = 4, many: int = 15) -> None:
    """Wall and processor milliseconds to cut, warp, draw for and judge K + 1 rows, medians; the logits are there."""
    ways = {"greedy": Sampling(0.0), "coupled": Sampling(0.7, top_p=0.95, top_k=20), "block": Sampling(0.7, top_p=0.95)}
    for width in (2_048, 151_936, 262_144):
        for name, sampling in ways.items():
            rule = make_rule(name, Sampler(sampling, 7, [1], width))
            found = []
            for number in range(many + 2):
                logits = mx.random.normal([2 * k + 1, width]) * 4
                mx.eval(logits)
                began, used = time.perf_counter(), time.process_time()
                tokens, rows = list[mx.array](), list[mx.array]()
                for place in range(k):
                    choice = rule.choose(logits[place : place + 1], 100 * number + place, tokens)
                    tokens.append(choice.token)
                    rows += [] if choice.log_q is None else [choice.log_q]
                draft = Draft(mx.concatenate(tokens), mx.concatenate(rows) if rows else None)
                verdict = rule.judge(draft, logits[k:], 100 * number)
                mx.eval(verdict.accepted, verdict.next)
                found.append((time.perf_counter() - began, time.process_time() - used))
            wall, processor = (1e3 * statistics.median(values) for values in zip(*found[2:], strict=True))
            print(f"{width} entries, {name}, K {k}: {wall:.1f} ms, processor {processor:.1f} ms", flush=True)


if __name__ == "__main__":
    runs = {"gemma": lambda: equality(released.gemma()), "qwen": lambda: equality(released.qwen())}
    for name in sys.argv[1:]:
        (runs | {"tools": tools, "infill": infill, "rounds": rounds})[name]()
