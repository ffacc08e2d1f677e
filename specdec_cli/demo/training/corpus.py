"""What the demo pair reads: the Python standard library, its tests, and docstring -> function chats.

Law: nothing in a held-out module (or in its tests) reaches the tokenizer or the training streams.
Text is the PSF-licensed source of the interpreter that runs the script; nothing is downloaded.
"""

from __future__ import annotations

import ast
import hashlib
import random
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)
VOCABULARY = 2048

HELD_OUT = frozenset(
    {"bisect", "calendar", "configparser", "csv", "difflib", "fnmatch", "fractions", "glob", "graphlib", "heapq"}
    | {"json", "queue", "sched", "shlex", "statistics", "string", "textwrap", "zipapp"}
)
# Tables and generated text teach a small model nothing about code.
GENERATED = re.compile(r"(^|/)(encodings/(cp|iso|mac|koi|kz)|pydoc_data/|lib2to3/tests/data|idlelib/idle_test/x)")
MAX_FILE_BYTES = 200_000
# Newline and indentation are one piece, so that the BPE learns "\n        " as one token.
PIECES = Regex(r"\n+[ \t]*| ?[A-Za-z_]+|\p{N}| ?[^\sA-Za-z_\p{N}]+|\s+")


@dataclass(frozen=True, slots=True)
class Source:
    """One file of the standard library: its path below the library folder and its text."""

    name: str
    text: str

    @property
    def is_test(self) -> bool:
        return bool(re.search(r"(^|/)(test|tests|idle_test)(/|_)", self.name))

    @property
    def held_out(self) -> bool:
        parts = [re.sub(r"^_?(test_)?", "", part) for part in self.name.removesuffix(".py").split("/")]
        return bool(HELD_OUT & set(parts))


def standard_library() -> list[Source]:
    """Every readable source file of this interpreter's standard library, without site-packages, deduplicated."""
    root = Path(sysconfig.get_paths()["stdlib"])
    seen: set[str] = set()
    sources = []
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name.startswith("site-packages/") or GENERATED.search(name) or path.stat().st_size > MAX_FILE_BYTES:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        digest = hashlib.sha256(text.encode()).hexdigest()
        if text.strip() and digest not in seen:
            seen.add(digest)
            sources.append(Source(name, text))
    return sources


def train_tokenizer(sources: list[Source]) -> Tokenizer:
    """Byte-level BPE of VOCABULARY entries, special tokens first; reversible on any bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(PIECES, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((source.text for source in sources if not source.held_out), trainer)
    return tokenizer


def turn(role: str, text: str) -> str:
    """One message as the shipped chat template renders it."""
    return f"{TURN_START}{role}\n{text}{TURN_END}\n"


def exchanges(source: Source) -> Iterator[str]:
    """User asks by docstring, by signature or by both; the assistant answers with the function."""
    try:
        tree = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError):
        return
    lines = source.text.splitlines()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        doc = ast.get_docstring(node)
        body = lines[node.lineno - 1 : node.end_lineno]
        if not doc or not 3 <= len(body) <= 40:
            continue
        first = " ".join(doc.split("\n\n")[0].split())
        if len(first) < 12:
            continue
        code = "\n".join(line[node.col_offset :] if line[: node.col_offset].isspace() else line for line in body)
        signature = code[: code.find(":\n") + 1]
        kind = int(hashlib.sha256(code.encode()).hexdigest(), 16) % 3
        ask = (first, signature, f"{first}\n{signature}")[kind] if signature else first
        yield turn("user", ask) + turn("assistant", code)


def conversations(sources: list[Source], seed: int = 0) -> list[str]:
    """Exchanges of one to three turns, shuffled across modules."""
    rng = random.Random(seed)
    pool = [text for source in sources if not source.held_out for text in exchanges(source)]
    rng.shuffle(pool)
    talks = []
    while pool:
        talks.append("".join(pool.pop() for _ in range(min(len(pool), rng.choice((1, 1, 2, 3))))))
    return talks


def stream(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    """[N] uint16: the texts joined by the end-of-text token."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    ids: list[int] = []
    for encoding in tokenizer.encode_batch(texts):
        ids.extend(encoding.ids)
        ids.append(end)
    return np.array(ids, dtype=np.uint16)


def training_streams(tokenizer: Tokenizer, sources: list[Source]) -> list[tuple[float, np.ndarray]]:
    """(share of the windows, stream) for library code, test code and chats."""
    library = [s.text for s in sources if not s.held_out and not s.is_test]
    tests = [s.text for s in sources if not s.held_out and s.is_test]
    return [
        (0.5, stream(tokenizer, library)),
        (0.3, stream(tokenizer, tests)),
        (0.2, stream(tokenizer, conversations(sources))),
    ]


def held_out_prompts(tokenizer: Tokenizer, sources: list[Source], count: int, length: int) -> np.ndarray:
    """[count, length] uint16: windows of held-out library modules that start at a line, spread evenly."""
    return _prompts(tokenizer, [s for s in sources if s.held_out and not s.is_test], count, length)


def validation_prompts(tokenizer: Tokenizer, sources: list[Source], count: int, length: int) -> np.ndarray:
    """The same of the held-out modules' tests, which neither training nor the published table reads."""
    return _prompts(tokenizer, [s for s in sources if s.held_out and s.is_test], count, length)


def _prompts(tokenizer: Tokenizer, sources: list[Source], count: int, length: int) -> np.ndarray:
    starts = []
    for source in sources:
        ids = tokenizer.encode(source.text).ids
        newline = [i + 1 for i, t in enumerate(ids[: len(ids) - length - 256]) if "Ċ" in tokenizer.id_to_token(t)]
        starts += [ids[i : i + length] for i in newline]
    chosen = np.linspace(0, len(starts) - 1, count).astype(int)
    return np.array([starts[i] for i in chosen], dtype=np.uint16)
