"""Every architecture whose requests share passes, in rows of any lengths; and those whose requests take turns."""

import random
from itertools import permutations

import pytest

from conformance.architectures import architectures, tiny_network
from fakes.sharing import Reply, run_alone, run_together
from specdec_cli.core.errors import Refused
from specdec_cli.engine.batch import Batch, prove
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.model import CachedModel, Network
from specdec_cli.engine.sampling.acceptance import greedy

SCORES, KINDS, INTEGERS = "do not score as each alone", "of one conversation alone", "convert"
TURNS = {
    "afm7": SCORES,
    "minimax_m3_vl": SCORES,
    "deepseek_v41": KINDS,
    "llama4": KINDS,
    "gpt_bigcode": INTEGERS,
    "internlm2": INTEGERS,
    "internlm3": INTEGERS,
    "longcat_flash_ngram": "no row among those",
}
FAST = ("afm7", "minimax_m3_vl", "longcat_flash_ngram")
# One in eight of those that share is slow, and the others are full: seconds each.
ONE_IN = 8
SHARING = [name for name, found in architectures().items() if name not in TURNS and not found.metal_only]
SHORT, MOST, TOKENS = (1, 2, 3, 40), 200, 6


def named(names):
    marks = {name: pytest.mark.full if at % ONE_IN else pytest.mark.slow for at, name in enumerate(names)}
    return [name if name in FAST else pytest.param(name, marks=marks[name]) for name in names]


class Prompts:
    """Prompts of so many tokens over one tiny network, each read once; `alone` are they with what follows."""

    def __init__(self, name, lengths):
        self.network = Network(tiny_network(architectures()[name], 1), name)
        self._read, self.alone = [], []
        for number, length in enumerate(lengths):
            context = [(5 * at + 7 * number) % 97 + 3 for at in range(length)]
            model = CachedModel(self.network)
            model.catch_up(context)
            self._read.append((model, context))
            self.alone.append(run_alone(self._reply(number), Batch(self.network)))

    def _reply(self, number):
        model, context = self._read[number]
        target = model.copy(len(context) - 1)
        return Reply(target, Drafters(), greedy(target.vocab_size), context, TOKENS)

    def differ(self, batch, orders):
        """Those of `orders`, each a seed and the numbers of prompts as they come, in which some answer is another."""
        found, shared = [], 0
        for seed, numbers in orders:
            replies = [self._reply(number) for number in numbers]
            shared += run_together(batch, replies, seed)
            if [reply.context for reply in replies] != [self.alone[number] for number in numbers]:
                found.append((seed, numbers))
        assert shared > 5 * len(orders) and not batch.members
        return found


def drawn(lengths, count):
    """`count` orders of four prompts."""
    return [(seed, random.Random(seed).sample(range(len(lengths)), 4)) for seed in range(count)]


@pytest.mark.parametrize("name", named(SHARING))
def test_rows_of_one_two_three_and_forty_tokens_join_each_other_in_every_order(name):
    """A request of one token was given a zero for a recurrent state where none is: recurrent_gemma scored otherwise."""
    prompts = Prompts(name, SHORT)
    assert not prompts.differ(prove(prompts.network), list(enumerate(permutations(range(len(SHORT))))))


@pytest.mark.full
@pytest.mark.parametrize("name", SHARING)
def test_two_hundred_orders_of_rows_of_one_to_two_hundred_tokens_differ_in_no_answer(name):
    lengths = [*SHORT, MOST, *random.Random(name).sample(range(4, MOST), 15)]
    prompts = Prompts(name, lengths)
    assert not prompts.differ(prove(prompts.network), drawn(lengths, 200))


@pytest.mark.slow
def test_blocks_of_columns_that_are_let_in_are_found():
    """The negative control: without the proof, a layer selects other blocks for the shorter rows."""
    lengths = (18, 30, 40, 100)
    prompts = Prompts("minimax_m3_vl", lengths)
    assert prompts.differ(Batch(prompts.network), drawn(lengths, 12))


@pytest.mark.parametrize("name", named(TURNS))
def test_a_network_that_cannot_is_found_before_anybody_shares(name):
    network = Network(tiny_network(architectures()[name], 1), name)
    with pytest.raises(Refused, match=TURNS[name]):
        prove(network)
