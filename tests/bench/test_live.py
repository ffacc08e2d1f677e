"""Offline acceptance says what real runs do: every round at every K, greedily and coupled, by model and by lookup."""

import pytest

from fakes.drafting import open_session
from specdec_cli.bench.live import AnswerSettings, LiveMachine
from specdec_cli.bench.predict import rounds_at
from specdec_cli.bench.prompts import BenchPrompt
from specdec_cli.bench.result import Arm, Condition, Contender, plain
from specdec_cli.engine.timing import PLAIN_ROUNDS
from specdec_cli.events import RoundDone
from specdec_cli.pairs.catalog import registry
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Constraint

CODE = BenchPrompt("code", "lines", "def read_lines(path):\n    with open(path) as handle:\n        return [line")
COPY = BenchPrompt("edit", "fish", "one fish, two fish, red fish, blue fish, one fish, two fish, red fish, blue fish")
DEEPEST = 6


@pytest.fixture(scope="module")
def demo():
    return open_session(registry().find("demo"))


def machine(session, tokens=28, rule="auto", fixed=False, constraint=None):
    settings = AnswerSettings(tokens, rule, 7, True, fixed, constraint)
    return LiveMachine({session.names[1]: session}, settings, lambda: False)


def real_rounds(live, session, condition, prompt, k):
    """(drafted, accepted) of a real run after its first token; tokens after a stop token are not counted."""
    arm = Arm(condition.contender, condition.temperature, k)
    session.slot.forget()
    events = session.reply(live._tokens(prompt), live._request(arm), raw=True)
    rounds = [event.round for event in events if isinstance(event, RoundDone)]
    return [(len(r.draft), min(r.accepted, len(r.emitted))) for r in rounds[1:]], rounds


@pytest.mark.parametrize("temperature", [0.0, pytest.param(0.8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("drafter", ["model", pytest.param("ngram", marks=pytest.mark.slow)])
@pytest.mark.parametrize("prompt", [CODE, pytest.param(COPY, marks=pytest.mark.slow)], ids=lambda p: p.kind)
def test_the_rounds_offline_are_those_of_a_real_run_at_every_k(demo, drafter, temperature, prompt):
    live = machine(demo, fixed=True)
    condition = Condition(Contender(drafter, demo.names[1] if drafter == "model" else None), temperature)
    answer = live.answer(plain(temperature), prompt).tokens
    rehearsal = live.offline_acceptance(condition, prompt, answer, DEEPEST)
    assert rehearsal.replayed and rehearsal.tokens == len(answer)
    for k in (1, 2, 4, DEEPEST):
        real, rounds = real_rounds(live, demo, condition, prompt, k)
        assert [token for round in rounds for token in round.emitted] == list(answer)
        assert [(d, a) for d, a in rounds_at(rehearsal, k)] == real, k
    assert drafter == "ngram" or 0 < sum(rehearsal.accepted) < sum(rehearsal.drafted)


@pytest.mark.slow
def test_a_text_that_ends_early_is_followed_to_its_stop_token(tiny_pair):
    target, draft = map(str, tiny_pair)
    session = open_session(Pair("tiny", target, draft))
    ended = 0
    for n in range(16):
        live, prompt = machine(session, tokens=60), BenchPrompt("code", f"{n}", f"def f{n}(")
        condition = Condition(Contender("model", session.names[1]), 1.5)
        answer = live.answer(plain(1.5), prompt).tokens
        ended += len(answer) < 60
        rehearsal = live.offline_acceptance(condition, prompt, answer, 4)
        for k in (1, 4):
            assert rounds_at(rehearsal, k) == real_rounds(live, session, condition, prompt, k)[0]
    assert ended > 2


def test_penalties_of_the_target_take_effect_in_a_rehearsal(tiny_pair, tmp_path):
    target, draft = tiny_pair
    penalised = tmp_path / "target"
    penalised.mkdir()
    for file in target.iterdir():
        (penalised / file.name).write_bytes(file.read_bytes())
    (penalised / "generation_config.json").write_text('{"repetition_penalty": 1.5}')
    session = open_session(Pair("tiny", str(penalised), str(draft)))
    live, condition = machine(session), Condition(Contender("model", session.names[1]), 0.0)
    answer = live.answer(plain(0.0), CODE).tokens
    rehearsal = live.offline_acceptance(condition, CODE, answer, 4)
    assert rounds_at(rehearsal, 4) == real_rounds(live, session, condition, CODE, 4)[0]


def test_under_block_acceptance_comes_from_a_real_run_and_says_so(demo):
    live = machine(demo, rule="block")
    condition = Condition(Contender("model", demo.names[1]), 0.8)
    answer = live.answer(plain(0.8), CODE).tokens
    rehearsal = live.offline_acceptance(condition, CODE, answer, 4)
    assert not rehearsal.replayed and set(rehearsal.drafted) <= {0, 1, 2, 3, 4}


def test_every_k_is_timed_as_often_as_was_asked_beside_plain_rounds(demo):
    live = machine(demo)
    condition = Condition(Contender("model", demo.names[1]), 0.0)
    costs = live.costs(condition, CODE, (1, 2, 3, 4), [3, 1, 2])
    assert sorted(cost.k for cost in costs) == [1, 1, 2, 2, 3, 3]
    assert min(min(c.draft_seconds, c.verify_seconds, c.plain_seconds) for c in costs) > 0
    assert PLAIN_ROUNDS > 2


@pytest.mark.slow
def test_fixed_length_answers_never_stop(tiny_pair):
    target, draft = map(str, tiny_pair)
    session = open_session(Pair("tiny", target, draft))
    live = machine(session, tokens=60, fixed=True)
    lengths = {len(live.answer(plain(1.5), BenchPrompt("code", f"{n}", f"def f{n}(")).tokens) for n in range(20)}
    assert lengths == {60}


def test_every_answer_reads_its_whole_prompt(demo):
    live = machine(demo)
    arm = Arm(Contender("model", demo.names[1]), 0.0, 2)
    live.answer(arm, CODE)
    demo.slot.forget()
    prefill = next(e for e in demo.reply(live._tokens(CODE), live._request(arm), raw=True) if e.event == "prefill")
    assert prefill.cached_tokens == 0


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_under_a_shape_the_baseline_has_it_too_and_every_arm_says_the_same(demo, temperature):
    live = machine(demo, constraint=Constraint("regex", "[a-z_]{4,9}( = [0-9]{2}){2}"))
    held = Contender("model", demo.names[1], constrained=True)
    assert not held.measurable_offline
    answers = [live.answer(Arm(held, temperature, k), CODE).tokens for k in (2, "auto")]
    answers += [live.answer(Arm(Contender("ngram", None, True), temperature, 3), CODE).tokens]
    baseline = live.answer(plain(temperature), CODE)
    assert set(answers) == {baseline.tokens} and baseline.sample.finish == "stop"
