"""Prompts of four kinds for the bundled tokenizer: code, prose, copy-heavy editing, random.

Nothing here was looked at while the controller was written: code comes from standard-library modules that the demo
pair's training held out, prose from Python's own topic pages, a copy is the beginning of a text that was just shown.
"""

import random
import sysconfig
from pathlib import Path
from pydoc_data.topics import topics

# Modules of the standard library that the demo pair's training held out.
HELD_OUT = ("bisect", "calendar", "configparser", "csv", "difflib", "fnmatch", "fractions", "glob", "graphlib")
HELD_OUT += ("heapq", "queue", "sched", "shlex", "statistics", "string", "textwrap", "zipapp")
KINDS = ("code", "prose", "copy", "random")


def library_text(name):
    """The source of a module of the standard library."""
    return (Path(sysconfig.get_paths()["stdlib"]) / f"{name}.py").read_text()


def topic_pages():
    """Python's own topic pages that are not short, by length."""
    return sorted((text for text in topics.values() if len(text) > 2500), key=len)


def prompts(count, length_bytes):
    """`count` texts that start at a line of a held-out module, spread evenly over all of them."""
    starts = []
    for name in HELD_OUT:
        text = library_text(name)
        lines = [i + 1 for i, c in enumerate(text[: -length_bytes - 500]) if c == "\n"]
        starts += [text[i : i + length_bytes] for i in lines]
    return [starts[i * (len(starts) - 1) // max(count - 1, 1)] for i in range(count)]


def code(count, tokenizer, tokens=96):
    return [tokenizer.encode(text)[:tokens] for text in prompts(count, 600)]


def prose(count, tokenizer, tokens=96):
    pages = topic_pages()
    chosen = [pages[i * (len(pages) - 1) // max(count - 1, 1)] for i in range(count)]
    return [tokenizer.encode(text[400:1400])[:tokens] for text in chosen]


def copy(count, tokenizer, tokens=160):
    """A stretch of code, whole, and then its first quarter again: the rest is to be repeated."""
    found = []
    for text in prompts(count, 900):
        ids = tokenizer.encode(text)[:tokens]
        found.append([*ids, *tokenizer.encode("\n\n"), *ids[: tokens // 4]])
    return found


def noise(count, tokenizer, tokens=96, seed=0):
    draw = random.Random(seed)
    return [[draw.randrange(5, 2000) for _ in range(tokens)] for _ in range(count)]


def of_kind(kind, count, tokenizer):
    return {"code": code, "prose": prose, "copy": copy, "random": noise}[kind](count, tokenizer)
