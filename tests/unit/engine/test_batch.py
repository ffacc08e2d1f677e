"""The proof of shared passes finds what goes by column, of any size, lets in what does not, and costs little."""

import dataclasses
import time
from functools import partial

import mlx.core as mx
import pytest
from mlx_lm.models import qwen3

from conformance.architectures import architectures, tiny_network
from specdec_cli.core.errors import Refused
from specdec_cli.engine import hidden
from specdec_cli.engine.batch import LONGEST_TRIED, READ, Batch, Member, Prompt, prove, read_prompts
from specdec_cli.engine.cache.cache_kinds import leaves
from specdec_cli.engine.decode import decode
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.model import CachedModel, Network
from specdec_cli.engine.sampling.acceptance import greedy

ATTEND = qwen3.scaled_dot_product_attention
FOUND, TURNS = r"as each alone|into blocks", "its requests take turns"


def network(name="qwen3", **changed):
    architecture = architectures()[name]
    config = {key: dict(value) if isinstance(value, dict) else value for key, value in architecture.config.items()}
    (config.get("text_config") or config).update(changed)
    return Network(tiny_network(dataclasses.replace(architecture, config=config), 1), name)


def blocks(size, most):
    sparse = architectures()["minimax_m3_vl"].config["text_config"]["sparse_attention_config"]
    return sparse | {"sparse_block_size": size, "sparse_topk_blocks": most}


def seen_by(choose):
    """Attention that shows to queries at `places` [T, 1] only such `columns` [C] as `choose` says."""

    def attend(queries, keys, values, cache, scale, mask):
        tokens, end = queries.shape[2], keys.shape[2]
        columns, places = mx.arange(end), mx.arange(end - tokens, end)[:, None]
        seen = (columns <= places) & choose(columns, places)
        return ATTEND(queries, keys, values, cache=cache, scale=scale, mask=seen & mask if is_array(mask) else seen)

    return attend


def is_array(mask):
    return isinstance(mask, mx.array)


BY_COLUMN = {
    "chunks of 64": seen_by(lambda columns, places: columns // 64 == places // 64),
    "chunks of 13": seen_by(lambda columns, places: columns // 13 == places // 13),
    "every third, and the nearest": seen_by(lambda columns, places: (columns % 3 == 0) | (columns > places - 4)),
    "the first four, and a window": seen_by(lambda columns, places: (columns < 4) | (columns > places - 32)),
    "the first 150": seen_by(lambda columns, places: (columns < 150) | (columns == places)),
}


def minimax(size):
    """Its shorter row said wrong words: blocks are cut from columns, and the row began within one."""
    return network("minimax_m3_vl", sparse_attention_config=blocks(size, 16))


CANNOT = {kind: (network, attend) for kind, attend in BY_COLUMN.items()}
CANNOT |= {f"minimax's blocks of {size}": (partial(minimax, size), ATTEND) for size in (4, 13, 128)}
CANNOT["more than is tried"] = partial(network, "deepseek_v32", index_topk=LONGEST_TRIED), ATTEND


@pytest.mark.parametrize("kind", CANNOT)
def test_a_layer_that_goes_by_column_is_found_whatever_its_size(kind, monkeypatch):
    """The proof's rows held five and three tokens, fewer than any layer selects, windows or cuts."""
    made, attend = CANNOT[kind]
    monkeypatch.setattr(qwen3, "scaled_dot_product_attention", attend)
    with pytest.raises(Refused, match=FOUND) as refused:
        prove(made())
    assert refused.value.hint == TURNS


def test_whole_blocks_are_found_where_rounding_hides_what_they_do(monkeypatch):
    """In bfloat16 two passes may differ by four hundredths: more than the choice among large blocks changes."""
    monkeypatch.setitem(hidden.TOLERANCE, mx.float32, hidden.TOLERANCE[mx.bfloat16])
    with pytest.raises(Refused, match="into blocks"):
        prove(minimax(128))


@pytest.mark.parametrize("tokens", [16, 300])
def test_layers_that_select_tokens_by_what_they_are_share(tokens):
    assert isinstance(prove(network("deepseek_v32", index_topk=tokens)), Batch)


def test_a_context_shorter_than_the_proofs_rows_is_tried_as_far_as_it_goes():
    made = network("deepseek_v32", index_topk=16)
    made.context_limit = 100
    assert isinstance(prove(made), Batch)


def test_the_proof_reads_five_tokens_of_a_row_and_computes_ten_passes(monkeypatch):
    """Rows of 251 tokens cost no reading of 251: most of their keys and values are drawn."""
    fed, built = [], []
    forward, forward_rows = Network.forward, Network.forward_rows
    monkeypatch.setattr(Network, "forward", lambda *a: (fed.append(a[1].size), forward(*a))[1])
    monkeypatch.setattr(Network, "forward_rows", lambda *a: (built.append(a[1].shape), forward_rows(*a))[1])
    prove(network())
    unbuilt = 1 + 3 + 3  # of one token, for shapes alone: each conversation's and its copy's
    assert max(fed) == READ and [shape[1] for shape in built if shape[0] == 3] == [1, 3, 3, 1] and len(built) == 6
    assert len(fed) - 2 - unbuilt <= 2 * 3


def test_the_ids_of_the_proof_stay_below_the_vocabulary(monkeypatch):
    """Ids up to 50 were fed to networks of fewer, past the end of their embeddings."""
    most = []
    forward = Network.forward_rows
    monkeypatch.setattr(Network, "forward_rows", lambda *a: (most.append(a[1].max().item()), forward(*a))[1])
    prove(network(vocab_size=8))
    assert 0 < max(most) < 8


def sharing(batch, target, context):
    """The steps of a plain reply that shares its passes."""
    member = Member(batch)
    member.shares = True
    rule = greedy(target.vocab_size)
    return decode(target, Drafters(), rule, list(context), 6, frozenset(), time.perf_counter, member=member)


def test_an_id_without_an_embedding_is_the_last_one_in_shared_passes_too():
    """Alone it always was; a row was fed the id itself, past the end of the embeddings."""
    made = network(vocab_size=20)
    contexts = [1, 2, 500, 300], [3, 99, 5, 6, 1000]
    batch, targets = Batch(made), [CachedModel(made) for _ in contexts]
    read_prompts([Prompt(target, context) for target, context in zip(targets, contexts, strict=True)])
    replies = [sharing(batch, target, context) for target, context in zip(targets, contexts, strict=True)]
    parts = [next(reply) for reply in replies]
    batch.queue({part.member: part.tokens for part in parts})
    for part, context in zip(parts, contexts, strict=True):
        expected = CachedModel(made).outputs(context).logits
        assert mx.allclose(batch.queued[part.member].logits, expected, atol=1e-4)


@pytest.mark.parametrize("name", ["longcat_flash_ngram", "jamba", "recurrent_gemma"])
def test_a_row_that_does_not_fit_moves_no_other(name):
    """Its first layers had joined before a later one raised, so they had a row more than the others from then on."""
    made = network(name)
    batch, long, other = Batch(made), CachedModel(made), CachedModel(made)
    context = [5, 4, 3, 2, 1, 6]
    long.catch_up(context)
    other.catch_up(context[:2])
    state = next(part for part in leaves(batch.rows.layers)[::-1] if hasattr(part, "begin_pass"))
    at = leaves(batch.rows.layers).index(state)
    if name != "longcat_flash_ngram":
        part = other._caches.layers[at]
        part.cache = [None, *part.cache[1:]]
    member, late = Member(batch), Member(batch)
    long.join(member)
    with pytest.raises(Refused, match="has no row among those"):
        other.join(late)
    assert len(batch.members) == len(batch.rows) == 1
    batch.queue({member: mx.array(context[-1:])})
    assert mx.allclose(batch.queued[member].logits, CachedModel(made).outputs(context).logits, atol=1e-4)


def test_a_reply_of_which_nothing_is_read_comes_alone_and_then_shares():
    """The state of a recurrent layer that has read nothing is no zero: the first position is weighed otherwise."""
    made = network("recurrent_gemma")
    steps = sharing(Batch(made), CachedModel(made), [7])
    kinds = [type(next(steps)).__name__ for _ in range(3)]
    assert kinds == ["Round", "Round", "Part"]  # the second was queued ahead of the first
    steps.close()


@pytest.mark.parametrize("fails", ["judge", "pass", "next pass"])
def test_what_fails_in_a_pass_is_heard_by_those_it_is_for_and_the_others_go_on(fails, monkeypatch):
    made = network()
    batch, contexts = Batch(made), ([1, 2, 3, 4], [5, 6, 7])
    targets = [CachedModel(made) for _ in contexts]
    read_prompts([Prompt(target, context) for target, context in zip(targets, contexts, strict=True)])
    replies = [sharing(batch, target, context) for target, context in zip(targets, contexts, strict=True)]
    first, second = parts = [next(reply) for reply in replies]
    if fails == "judge":
        parts = [dataclasses.replace(first, judge=lambda *_: 1 / 0), second]
    queue, passes = Batch.queue, []

    def failing(self, tokens):
        passes.append(set(tokens))
        if (fails, len(passes)) in (("pass", 1), ("next pass", 2)):
            raise RuntimeError("[METAL] Insufficient Memory")
        queue(self, tokens)

    monkeypatch.setattr(Batch, "queue", failing)
    errors = [type(error) for error in batch.run(parts).values()]
    both = {first.member, second.member}
    if fails == "judge":
        assert errors == [ZeroDivisionError, type(None)] and passes == [both, {second.member}]
    else:
        assert errors == [RuntimeError] * 2 and passes == [both] * (1 if fails == "pass" else 2)
