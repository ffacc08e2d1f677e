"""`auto` where the answer copies the prompt, on simulated chips: model and lookups together against each alone.

Ratios are seconds of the best of some fixed K with hindsight, of the draft model or of lookups, or of plain decoding,
over seconds of `auto` that knows nothing but the chip. Every thirtieth token is edited, and every tenth; the draft
model accepts as it does on copied text or on code. Plays are seeded: a failure is a change, never chance.
"""

from functools import cache
from statistics import fmean

import pytest

from fakes.chips import cases
from fakes.copying import Guessing, copied, play
from fakes.machine import CODE, COPY
from specdec_cli.engine.draft_length.acceptance import LookupAcceptance
from specdec_cli.engine.draft_length.adaptive import Adaptive
from specdec_cli.engine.draft_length.fixed import Fixed
from specdec_cli.engine.drafters.auto import AutoDrafter
from specdec_cli.engine.drafters.ngram import NgramDrafter
from specdec_cli.engine.drafters.suffix_automaton import SuffixAutomaton

pytestmark = pytest.mark.slow  # simulations

CASES = cases()
QUICK = [CASES[1], CASES[4], CASES[13], CASES[19]]  # M1, M2 Pro, M3 Ultra, M4 Pro
TEXTS = {"copy": (1 / 30, COPY), "edit": (0.1, CODE)}
MODEL_KS, LOOKUP_KS, SEEDS = (1, 2, 3, 4, 6, 8, 16), (4, 8, 16, 31), range(3)


class NeverLookedUp(Adaptive):
    """Negative control: what `auto` did on a chip it knows, where no plain step was ever measured."""

    def lookup_k(self, rates):
        return 0


@cache
def ratios(case, text, tokens, adaptive=Adaptive):
    """(best K of the model, best K of lookups, plain) over `auto`, whole replies of some seeds."""
    edits, guesses = TEXTS[text]
    auto, plain = 0.0, 0.0
    by_model, by_lookup = dict.fromkeys(MODEL_KS, 0.0), dict.fromkeys(LOOKUP_KS, 0.0)
    for seed in SEEDS:
        task = copied(tokens, seed, edits)
        model, length = Guessing(task, guesses, seed), adaptive(case.assumed)
        length.begin(len(task.answer), 64)
        drafter = AutoDrafter(length, LookupAcceptance(), model, SuffixAutomaton(task.prompt))
        auto += play(case.machine, task, drafter, drafter, seed)[0]
        plain += play(case.machine, task, model, Fixed(0), seed)[0]
        for k in MODEL_KS:
            by_model[k] += play(case.machine, task, model, Fixed(k), seed)[0]
        for k in LOOKUP_KS:
            lookups = NgramDrafter(SuffixAutomaton(task.prompt))
            by_lookup[k] += play(case.machine, task, lookups, Fixed(k), seed)[0]
    return min(by_model.values()) / auto, min(by_lookup.values()) / auto, plain / auto


@pytest.mark.parametrize("text", TEXTS)
def test_where_text_is_copied_auto_beats_every_fixed_k_of_the_model_on_a_few_chips(text):
    assert min(ratios(case, text, 128)[0] for case in QUICK) >= 1.04


def test_without_lookups_auto_is_what_the_model_can_do():
    lone = [ratios(case, "copy", 128, NeverLookedUp)[0] for case in QUICK]
    assert max(lone) < 1.0 and min(lone) < 0.6


@pytest.mark.full
@pytest.mark.parametrize("tokens", [128, 512])
def test_copied_text_over_all_chips(tokens):
    found = [ratios(case, "copy", tokens) for case in CASES]
    assert min(row[0] for row in found) >= (0.99 if tokens == 128 else 1.37)
    assert fmean(row[1] for row in found) >= 0.84
    assert min(row[2] for row in found) >= 1.2


@pytest.mark.full
@pytest.mark.parametrize("tokens", [128, 512])
def test_edited_text_over_all_chips(tokens):
    """Where further rows are twice as dear as the chip's are said to be, the first lookups of a process lose."""
    found = {case.machine.name: ratios(case, "edit", tokens) for case in CASES}
    as_said = [row for name, row in found.items() if not name.endswith("rows × 2")]
    assert min(row[0] for row in found.values()) >= 0.99
    assert min(row[2] for row in as_said) >= 1.1
    assert min(row[2] for row in found.values()) >= (0.8 if tokens == 128 else 0.92)
