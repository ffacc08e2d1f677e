"""What the demo models read: the Python standard library, its tests, and docstring -> function chats.

Law: nothing in a held-out module (or in its tests) reaches the tokenizer or the training streams.
Text is the PSF-licensed source of the interpreter that runs the script; nothing is downloaded.
"""

import ast
import hashlib
import random
import re
import sysconfig
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL_TOKENS = END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
HELD_OUT = re.compile(
    r"(^|/)_?(test_)?(bisect|calendar|configparser|csv|difflib|fnmatch|fractions|glob|graphlib|heapq|json|queue|sched|"
    r"shlex|statistics|string|textwrap|zipapp)(/|\.py$)"
)
TESTS = re.compile(r"(^|/)(test|tests|idle_test)(/|_)")
# Tables and generated text teach a small model nothing about code.
GENERATED = re.compile(r"(^|/)(encodings/(cp|iso|mac|koi|kz)|pydoc_data/|lib2to3/tests/data|idlelib/idle_test/x)")
# Newline and indentation are one piece, so that the BPE learns "\n        " as one token.
PIECES = Regex(r"\n+[ \t]*| ?[A-Za-z_]+|\p{N}| ?[^\sA-Za-z_\p{N}]+|\s+")


@dataclass(frozen=True, slots=True)
class Source:
    """A file of the standard library; `held_out` is true of the tests of a held-out module, too."""

    text: str
    is_test: bool
    held_out: bool


def standard_library():
    """Every readable source of this interpreter's standard library, without site-packages, each text once."""
    root = Path(sysconfig.get_paths()["stdlib"])
    sources = {}  # by text
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root).as_posix()
        if path.startswith("site-packages/") or GENERATED.search(path) or file.stat().st_size > 200_000:
            continue
        with suppress(UnicodeDecodeError):
            text = file.read_text(encoding="utf-8")
            if text.strip():
                sources.setdefault(text, Source(text, bool(TESTS.search(path)), bool(HELD_OUT.search(path))))
    return list(sources.values())


def train_tokenizer(sources):
    """Byte-level BPE of 2048 entries, special tokens first; reversible on any bytes."""
    tokenizer = Tokenizer(models.BPE())
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(PIECES, "isolated"), to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet, special = pre_tokenizers.ByteLevel.alphabet(), list(SPECIAL_TOKENS)
    trainer = trainers.BpeTrainer(vocab_size=2048, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator((source.text for source in sources if not source.held_out), trainer)
    return tokenizer


def exchanges(source):
    """Its functions as chats: the user asks by docstring, by signature or by both, the assistant answers with code."""
    try:
        tree = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError):
        return
    lines = source.text.splitlines()
    for node in filter(lambda node: isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef), ast.walk(tree)):
        summary = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
        body = lines[node.lineno - 1 : node.end_lineno]
        if len(summary) < 12 or not 3 <= len(body) <= 40:
            continue
        code = "\n".join(line[node.col_offset :] if line[: node.col_offset].isspace() else line for line in body)
        signature = code[: code.find(":\n") + 1]
        kind = int(hashlib.sha256(code.encode()).hexdigest(), 16) % 3
        ask = (summary, signature, f"{summary}\n{signature}")[kind] if signature else summary
        yield "".join(f"{TURN_START}{role}\n{text}{TURN_END}\n" for role, text in (("user", ask), ("assistant", code)))


def training_streams(tokenizer, sources):
    """(share of the windows, ids [N]) of library code, of tests, and of chats of one to three turns across modules."""
    allowed, rng = [source for source in sources if not source.held_out], random.Random(0)
    turns = [text for source in allowed for text in exchanges(source)]
    rng.shuffle(turns)
    chats = []
    while turns:
        chats.append("".join(turns.pop() for _ in range(min(len(turns), rng.choice((1, 1, 2, 3))))))
    library, tests = ([source.text for source in allowed if source.is_test is test] for test in (False, True))
    end, streams = tokenizer.token_to_id(END_OF_TEXT), []
    for share, texts in ((0.5, library), (0.3, tests), (0.2, chats)):
        ids = [token for encoding in tokenizer.encode_batch(texts) for token in (*encoding.ids, end)]
        streams.append((share, np.array(ids, dtype=np.uint16)))
    return streams


def validation_prompts(tokenizer, sources, count=64, length=128):
    """[count, length] ids: windows of the held-out modules' tests that start at a line, spread evenly."""
    starts = []
    for source in sources:
        if source.held_out and source.is_test:
            ids = tokenizer.encode(source.text).ids
            ends = [i + 1 for i, t in enumerate(ids[: len(ids) - length - 256]) if "Ċ" in tokenizer.id_to_token(t)]
            starts += [ids[i : i + length] for i in ends]
    return torch.tensor([starts[int(i)] for i in np.linspace(0, len(starts) - 1, count)])


def windows(streams, length, rng, rows):
    """[rows, length + 1] ids, cut at random from streams by their shares."""
    shares = np.array([share for share, _ in streams])
    windows = []
    for which in rng.choice(len(streams), rows, p=shares / shares.sum()):
        ids = streams[which][1]
        start = rng.integers(0, len(ids) - length - 1)
        windows.append(ids[start : start + length + 1].astype(np.int64))
    return torch.from_numpy(np.stack(windows))
