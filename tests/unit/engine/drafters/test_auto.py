"""The text itself or the model: never a different word, and the cheaper tokens."""

from specdec_cli.core.events import Round
from specdec_cli.engine.draft_length.adaptive import Adaptive, Fixed
from specdec_cli.engine.draft_length.costs import Costs
from specdec_cli.engine.draft_length.rates import MAX_LOOKUP, LookupAcceptance
from specdec_cli.engine.drafters.auto import AutoDrafter


def plain(index, seconds=1.0):
    return Round(index, "none", (), 0, 7, (7,), 0.0, seconds)


def test_a_lookup_drafts_only_where_its_tokens_cost_less_than_a_plain_step():
    length = Adaptive(Costs({2: 1.9, 9: 8.2}, {1: 0.1}), 0)
    length.begin(1000, 100)
    assert length.lookup_k([0.99] * MAX_LOOKUP) == 0  # nothing measured yet
    for index in range(6):
        length.observe(plain(index))
    assert length.lookup_k([0.5] * MAX_LOOKUP) == 0
    assert length.lookup_k([0.99] * MAX_LOOKUP) > 0
    assert length.next() == 0  # there is no model


PERIOD = [5, 6, 7, 8, 9, 10]


def followed(drafter, context, rounds):
    """The drafter sees `rounds` plain rounds that go on with the period."""
    for index in range(rounds):
        context.append(PERIOD[len(context) % len(PERIOD)])
        drafter.commit(context)
        drafter.observe(plain(index))


def test_every_token_of_the_answer_tells_what_a_lookup_would_have_been_worth_whoever_drafted_it():
    lookups, context = LookupAcceptance(), PERIOD * 2
    drafter = AutoDrafter(Fixed(0), lookups, None)
    before = lookups.rates(20, 1)[0]
    followed(drafter, context, 40)
    assert lookups.rates(20, 1)[0] > 0.95 > before
    mistaken, context = LookupAcceptance(), PERIOD * 2
    drafter = AutoDrafter(Fixed(0), mistaken, None)
    for index in range(40):
        # After 5 6 7 comes another token each time.
        context += [5, 6, 7, 100 + index]
        drafter.commit(context)
        drafter.observe(plain(index))
    assert mistaken.rates(3, 1)[0] < 0.1


def test_on_an_unknown_machine_a_lookup_is_at_most_twice_as_long_as_what_was_verified():
    """A pass of 32 rows may take a second; what sixteen take tells first."""
    length, found = Adaptive(Costs.of_ratio(0.1, 0.001), 0), []
    length.begin(1000, 10)
    for index in range(6):
        length.observe(plain(index))
    for index in range(6):
        found.append(k := length.lookup_k([0.99] * MAX_LOOKUP))
        length.observe(Round(index, "ngram", tuple(range(k)), k, 7, tuple(range(k + 1)), 0.0, 1.0 + 0.001 * k))
    assert found == [2, 4, 8, 16, MAX_LOOKUP, MAX_LOOKUP]
