"""Do two tokenizers agree? (pure) Law: they are compared by content (ids -> bytes, special roles), never by size.

Logit widths differ by padding while tokenizers agree (Qwen2.5: 151936 and 152064); sizes agree while ids differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from specdec_cli.errors import Refused

ROLES = ("bos", "eos")


@dataclass(frozen=True, slots=True)
class TokenTable:
    """`tokens[id]` is the bytes that id decodes to; `roles`: bos and eos ids.

    Not a list: one id of 300,000,000 in a file from elsewhere would take gigabytes.
    """

    tokens: Mapping[int, bytes]
    roles: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class VocabVerdict:
    """`reason` is one line with both values; `first_difference` is the lowest id on which the two disagree."""

    status: Literal["identical", "compatible", "incompatible"]
    reason: str
    first_difference: int | None = None


def compare(target: TokenTable, draft: TokenTable) -> VocabVerdict:
    """Compatible if every id that both define has the same bytes, and bos and eos agree where both have them."""
    both = target.tokens.keys() & draft.tokens.keys()
    differing = [i for i in both if target.tokens[i] != draft.tokens[i]]
    if differing:
        i = min(differing)
        reason = f"id {i} is {show(target.tokens[i])} in the target and {show(draft.tokens[i])} in the draft"
        return VocabVerdict("incompatible", reason, i)
    for role in ROLES:
        ours_id, theirs_id = target.roles.get(role), draft.roles.get(role)
        if ours_id != theirs_id and ours_id is not None and theirs_id is not None:
            reason = f"{role} is id {ours_id} in the target and id {theirs_id} in the draft"
            return VocabVerdict("incompatible", reason, min(ours_id, theirs_id))
    extra = [_extra("target", target, draft), _extra("draft", draft, target)]
    if not any(extra):
        return VocabVerdict("identical", f"all {len(both)} ids agree")
    return VocabVerdict("compatible", "; ".join([f"the {len(both)} shared ids agree", *filter(None, extra)]))


def _extra(side: str, one: TokenTable, other: TokenTable) -> str:
    """How many tokens only `one` has, and the first of them; empty without any."""
    ids = one.tokens.keys() - other.tokens.keys()
    if not ids:
        return ""
    first = min(ids)
    return f"only the {side} has {len(ids)} more, from id {first} {show(one.tokens[first])}"


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
