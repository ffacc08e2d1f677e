"""The proof that a network scores several conversations in one pass as it scores each alone.

A row begins at any column, so a layer that selects, cuts or counts by column goes wrong there, once a row is longer
than what it selects. That length is found from the network itself: the graph of a pass gets other operations where a
layer begins to select. A graph is built without computing anything, so rows of any length can be asked about.
The cost for most networks: ten passes, over at most five tokens of a row, and two graphs; no long row is read.
Where no layer begins to select, passes may hold drafts: rows are tried that feed several tokens, and take some back.
"""

from __future__ import annotations

import io
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

import mlx.core as mx

from specdec_cli.core.errors import Refused, reason
from specdec_cli.engine.batch import Batch, Member
from specdec_cli.engine.cache.rollback import Caches
from specdec_cli.engine.cache.rows import Rows
from specdec_cli.engine.device import clear_cache
from specdec_cli.engine.hidden import same
from specdec_cli.engine.model import CachedModel, Network

# Tokens that conversations hold before they share so many passes; of more than READ the rest is invented.
TRIED_LENGTHS, TRIED_PASSES, READ = (251, 1, 198), 2, 5
# Of the rows of such passes, one after another: tokens that stay, and tokens that are taken back.
PLAIN = (((1, 0),) * len(TRIED_LENGTHS),) * TRIED_PASSES
DRAFTED = PLAIN[0], ((1, 2), (1, 0), (2, 1)), ((1, 1), (2, 0), (1, 2)), PLAIN[0]
# Tokens that no row feeds more of.
MOST_FED = 5
# By how much the longer of two rows is longer: a prime, so no block of columns begins in both where it does in one.
APART = 131
# Columns up to which a graph is asked about, and up to which rows are tried; so many changes at most are tried.
LONGEST, LONGEST_TRIED, MOST_CHANGES = 1 << 15, 1 << 13, 4


def prove(network: Network) -> Batch:
    """A batch of `network`, in which conversations score as each does alone. Raises: Refused where they do not."""
    try:
        batch, most = Batch(network), _most_tokens(network)
        tried = [min(length, most) for length in TRIED_LENGTHS]
        # Shorter rows are padded, past the last position that was learned, where a row is nearly as long.
        bounded = network.positions is not None
        batch.takes_drafts = batch.rows.takes_back and not bounded and _scores_alike(network, batch, tried, DRAFTED)
        if not (batch.takes_drafts or _scores_alike(network, batch, tried)):
            raise ValueError("requests in one pass do not score as each alone")
        for length in _changes(network, most):
            batch.takes_drafts = False
            if length > LONGEST_TRIED or not _scores_alike(network, batch, (length, max(length - APART, 1))):
                raise ValueError(f"requests of {length} tokens in one pass do not score as each alone")
        clear_cache()
        return batch
    except (ValueError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        raise Refused(f"{network.name}: {reason(error)}", "its requests take turns") from error


def _most_tokens(network: Network) -> int:
    """Tokens that a conversation may hold before the passes that are tried."""
    return min(network.context_limit or LONGEST, network.positions or LONGEST, LONGEST) - MOST_FED


def _scores_alike(
    network: Network, batch: Batch, lengths: Sequence[int], passes: Sequence[Sequence[tuple[int, int]]] = PLAIN
) -> bool:
    """Whether conversations that hold so many tokens score in shared passes as alone."""
    models = [CachedModel(network) for _ in lengths]
    ids = min(50, models[0].vocab_size)
    contexts = [[(7 * row + at) % ids for at in range(n + MOST_FED)] for row, n in enumerate(lengths)]
    for model, context, length in zip(models, contexts, lengths, strict=True):
        model.catch_up(context[: min(length, READ) + 1])
        model.invent(context, length)
    shared, members = [model.copy(model.length) for model in models], [Member(batch) for _ in models]
    for model, member in zip(shared, members, strict=True):
        model.join(member)
    found: list[list[mx.array]] = [[] for _ in members]
    held = list(lengths)
    for parts in passes:
        fed = [
            context[at : at + kept] + context[:rejected]
            for context, at, (kept, rejected) in zip(contexts, held, parts, strict=False)
        ]
        batch.queue({member: mx.array(ids, dtype=mx.int32) for member, ids in zip(members, fed, strict=True)})
        for row, (member, (kept, rejected)) in enumerate(zip(members, parts, strict=False)):
            found[row].append(batch.queued.pop(member).logits[:kept])
            member.take_back(rejected)
            held[row] += kept
    mx.eval(found)
    for model, context, length in zip(shared, contexts, held, strict=True):
        model.leave(context, length)
    alone = [
        model.logits(context[: length + 1], model.ids(context[length + 1 : end]))
        for model, context, length, end in zip(models, contexts, lengths, held, strict=True)
    ]
    return all(same(mx.concatenate(rows), expected) for rows, expected in zip(found, alone, strict=True))


def _changes(network: Network, most: int) -> Iterator[int]:
    """Lengths of rows, each well beyond one at which layers begin to select, from the shortest on.

    Raises: ValueError where a block more has other operations: rounding may hide from numbers what large blocks do.
    """
    length, whole = min(READ, most), 1 << most.bit_length() - 1
    for _ in range(MOST_CHANGES):
        operations = _operations(network, length)
        if length == most or _operations(network, most) == operations:
            return
        if _operations(network, whole - 1) != _operations(network, whole - 2):
            raise ValueError("a layer cuts the columns of a pass into blocks, and each request begins within one")
        beyond = bisect_left(range(most), True, length, most, key=lambda at: _operations(network, at) != operations)
        length = min(2 * beyond + APART, most)
        yield length


def _operations(network: Network, length: int) -> list[str]:
    """The operations of a pass over a row that is so long and one of a single token, by name, its caches' windows open.

    Nothing is computed, unless a layer does so itself.
    """
    caches, rows = Caches(network.module, network.kv), Rows(Caches(network.module, network.kv).layers)
    network.forward(mx.zeros([1], mx.int32), caches)
    for _ in range(2):
        rows.join(caches.layers, 1)
    rows.stretch(length)
    graph = io.StringIO()
    with rows.feeding([1, 1]):
        mx.export_to_dot(graph, network.forward_rows(mx.zeros([2, 1], mx.int32), rows.layers).logits)
    mx.eval(network.module.parameters())  # a layer may have put what is not computed into its own
    return re.findall(r'label ="(\w+)"', graph.getvalue())
