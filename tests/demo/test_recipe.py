"""Parts of the demo pair's recipe against what they are meant to compute. Skipped where there is no torch."""

from math import log
from types import SimpleNamespace

import numpy as np
import pytest


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_unlikelihood_is_the_mean_of_minus_log_of_one_minus_p_over_the_repeated_tokens(recipe, torch):
    text = recipe("own_text")
    width = text.PROMPT + 3
    own = torch.ones(1, width + 1, dtype=torch.long)
    share = torch.full((1, width, 2), 0.5)
    share[0, text.PROMPT - 1 :, 1] = torch.tensor([0.5, 0.25, 0.75, 0.125])
    looping = torch.tensor([[0.0, 1.0, 1.0, 0.0]])
    found = text.unlikelihood(share.log(), own, looping).item()
    assert found == pytest.approx((-log(0.75) - log(0.25)) / 2)
    assert text.unlikelihood(share.log(), own, torch.zeros_like(looping)).item() == 0.0


def test_own_text_is_written_anew_every_few_steps_and_marks_what_it_repeats(recipe, torch, monkeypatch):
    text, said = recipe("own_text"), []
    rows, width = text.FRESH_EVERY * 2, text.PROMPT + 32
    monkeypatch.setattr(text, "windows", lambda streams, length, rng, rows: torch.zeros(rows, length + 1).long())
    looped = torch.arange(9).repeat(8)[: width + 1 - text.PROMPT]
    monkeypatch.setattr(
        text, "continue_text", lambda net, prompts, *_: torch.cat((prompts, looped.repeat(len(prompts), 1)), 1)
    )
    of = text.own_text(None, [], rows, width, 0, lambda step, rate: said.append((step, rate)))
    for step in range(text.FRESH_EVERY + 1):
        own, repeats = of(step)
    assert [step for step, _ in said] == [0, text.FRESH_EVERY] and 0 < said[0][1] < 1
    assert own.shape == (2, width + 1) and repeats.shape == (2, width + 1 - text.PROMPT)
    # The first 8-gram that occurred before ends at the second phrase's eighth token.
    assert repeats[0].tolist() == [0.0] * 16 + [1.0] * (repeats.shape[1] - 16)


@pytest.mark.parametrize(("repetitions", "share"), [((0.3, 0.11, 0.05), 0.5), ((0.4, 0.2, 0.3), 0.5)])
def test_the_least_step_that_repeats_little_is_taken_else_the_one_that_repeats_least(
    recipe, torch, monkeypatch, tmp_path, repetitions, share
):
    averaging, judged = recipe("averaging"), iter(repetitions)
    monkeypatch.setattr(averaging, "_judge", lambda network, prompts: (next(judged), 1.0))
    network = torch.nn.Linear(1, 1, bias=False)
    network.weight.data.fill_(0.0)
    before = averaging.state_of(network)
    network.weight.data.fill_(8.0)
    log = SimpleNamespace(say=lambda **fields: None)
    averaging.least_step(network, before, network, np.zeros(0), (0.25, 0.5, 1.0), tmp_path / "kept", log)
    assert network.weight.item() == pytest.approx(8.0 * share)


def test_the_draft_learns_from_the_target_and_the_target_leans_to_the_draft_alone_by_the_lean(recipe, torch):
    mutual = recipe("mutual")
    p, q = (torch.randn(2, 3, 5, requires_grad=True) for _ in range(2))
    mutual.lesson(p.log_softmax(-1), q.log_softmax(-1)).backward()
    assert p.grad is None and q.grad.abs().sum() > 0
    alike = torch.randn(2, 3, 5).log_softmax(-1)
    assert mutual._divergence(alike, alike).abs().max() < 1e-6
    assert (mutual._divergence(p.log_softmax(-1), q.log_softmax(-1)) > 0).all()
