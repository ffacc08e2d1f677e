"""Do two tokenizers agree? (pure) Law: they are compared by content (ids -> bytes, special roles), never by size.

Logit widths differ by padding while tokenizers agree (Qwen2.5: 151936 and 152064); sizes agree while ids differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from specdec_cli.errors import Refused

ROLES = ("bos", "eos")


@dataclass(frozen=True, slots=True)
class TokenTable:
    """`tokens[id]` is the bytes that id decodes to, None where there is no such token; `roles`: bos and eos ids."""

    tokens: Sequence[bytes | None]
    roles: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class VocabVerdict:
    """`reason` is one line with both values; `first_difference` is the lowest id on which the two disagree."""

    status: Literal["identical", "compatible", "incompatible"]
    reason: str
    first_difference: int | None = None


def compare(target: TokenTable, draft: TokenTable) -> VocabVerdict:
    """Compatible if every id that both define has the same bytes, and bos and eos agree where both have them."""
    shared = min(len(target.tokens), len(draft.tokens))
    for i in range(shared):
        ours, theirs = target.tokens[i], draft.tokens[i]
        if ours != theirs and ours is not None and theirs is not None:
            reason = f"id {i} is {show(ours)} in the target and {show(theirs)} in the draft"
            return VocabVerdict("incompatible", reason, i)
    for role in ROLES:
        ours_id, theirs_id = target.roles.get(role), draft.roles.get(role)
        if ours_id != theirs_id and ours_id is not None and theirs_id is not None:
            reason = f"{role} is id {ours_id} in the target and id {theirs_id} in the draft"
            return VocabVerdict("incompatible", reason, min(ours_id, theirs_id))
    if len(target.tokens) == len(draft.tokens) and list(target.tokens) == list(draft.tokens):
        return VocabVerdict("identical", f"all {shared} ids agree")
    both = sum(a is not None and b is not None for a, b in zip(target.tokens, draft.tokens, strict=False))
    extra = [_extra("target", target, draft), _extra("draft", draft, target)]
    return VocabVerdict("compatible", "; ".join([f"the {both} shared ids agree", *filter(None, extra)]))


def _extra(side: str, one: TokenTable, other: TokenTable) -> str:
    """How many tokens only `one` has, and the first of them; empty without any."""
    ids = [i for i, t in enumerate(one.tokens) if t and (i >= len(other.tokens) or other.tokens[i] is None)]
    if not ids:
        return ""
    return f"only the {side} has {len(ids)} more, from id {ids[0]} {show(one.tokens[ids[0]] or b'')}"


def require_same_ids(target: TokenTable, draft: TokenTable, target_name: str, draft_name: str) -> None:
    """Raises: Refused, with the first difference and both tokens."""
    verdict = compare(target, draft)
    if verdict.status == "incompatible":
        raise Refused(
            f"tokenizers of {target_name} and {draft_name} differ: {verdict.reason}",
            "take a draft of the target's own family, or decode without one: --drafter none",
        )


def show(token: bytes) -> str:
    """A readable token: 'text', or its bytes where they are no text."""
    try:
        return repr(token.decode("utf-8"))
    except UnicodeDecodeError:
        return repr(token)
