"""The prompts of `specdec audit` (pure): eight kinds of text, short enough for every tokenizer and context."""

from __future__ import annotations

from pathlib import Path

from specdec_cli.core.errors import UsageError
from specdec_cli.core.readfile import read_file
from specdec_cli.core.textfile import decode_text
from specdec_cli.measure.audit import AuditPrompt

BUNDLED = (
    AuditPrompt("code", "Complete this Python function.\n\ndef read_lines(path):\n    with open(path) as"),
    AuditPrompt(
        "prose", "Go on with this story. Every evening the lighthouse keeper wrote one line in her book, until"
    ),
    AuditPrompt("list", "Name ten things to pack for a week in the mountains.\n\n1. Boots\n2. A map\n3."),
    AuditPrompt("JSON", 'Go on with this JSON.\n\n[{"name": "Ada", "born": 1815}, {"name": "Alan", "born":'),
    AuditPrompt("dialogue", 'Go on with this talk.\n\n"You are late," said the baker.\n"The clock is early," said'),
    AuditPrompt(
        "repetition", "Say it again and again: one fish, two fish, red fish, blue fish, one fish, two fish, red"
    ),
    AuditPrompt("numbers", "Go on: 1 x 7 = 7, 2 x 7 = 14, 3 x 7 = 21, 4 x 7 = 28, 5 x"),
    AuditPrompt("languages", "Übersetze ins Französische und ins 日本語: Guten Morgen, kleiner Fisch! 🐟🌊"),
)


def read_prompts(file: Path) -> tuple[AuditPrompt, ...]:
    """One prompt a line, named by its line; empty lines are left out.

    Raises: UsageError for a file that is missing, empty or not UTF-8.
    """
    hint = "one prompt a line, in UTF-8; without --prompts eight bundled ones are used"
    try:
        lines = decode_text(read_file(file, piped=True)).split("\n")
    except OSError as error:
        raise UsageError(f"--prompts {file} cannot be read: {error.strerror}", hint) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--prompts {file} is not UTF-8: byte {error.start}", hint) from error
    prompts = [AuditPrompt(f"line {number}", line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise UsageError(f"--prompts {file} holds no prompt: {len(lines)} lines, all empty", hint)
    return tuple(prompts)
