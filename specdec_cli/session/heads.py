"""A head's files -> what drafts in a conversation. Law: nothing that guesses at random drafts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specdec_cli.engine.heads.agreement import Text, load_agreeing, own_texts
from specdec_cli.engine.heads.cached import CachedHead, Head, output_head_for
from specdec_cli.engine.heads.shortlist import best_shortlist
from specdec_cli.engine.model import CachedModel
from specdec_cli.models.heads import HeadFiles
from specdec_cli.pairs.drafts import Tell

# Short, of several kinds, and unlike each other: the target goes on from each.
PROMPTS = (
    "Write a Python function that returns the lines of a file that hold a word.",
    "Tell a short story about a lighthouse keeper who finds a letter.",
    "Explain why the sky is blue to a child.",
    'Continue this JSON: [{"city": "Lima", "country": "Peru"}, {"city": "Oslo",',
)


def load_agreeing_head(
    files: HeadFiles, target: CachedModel, prompts: Sequence[Sequence[int]], stops: frozenset[int], tell: Tell
) -> CachedHead:
    """The head in `files`, in the reading that guesses best what `target` says after `prompts`.

    `tell` hears of a reading that is not its family's.
    Raises: NotAvailable for files that are wrong, Refused for a head that does not guess, or not for this target.
    """
    output_head, texts = output_head_for(target.network, files.name), list[Text]()
    module, found = load_agreeing(files, target, _keep(own_texts(target, prompts, stops), texts))
    files.require_outputs(output_head.vocab_size)
    found.require(files.name, target.name)
    if found.reading.unlike:
        tell(f"the head {found.summary}")
    head = Head(module, target.network, files.name, found)
    head.shortlist = best_shortlist(head.output_head, head.layer_bytes, target.step_bytes, texts, found.share, stops)
    return CachedHead(head)


def _keep(texts: Iterator[Text], kept: list[Text]) -> Iterator[Text]:
    """`texts`, each of which is in `kept`, too, once it was asked for."""
    for text in texts:
        kept.append(text)
        yield text
