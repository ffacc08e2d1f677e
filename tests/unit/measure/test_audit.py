"""`specdec audit`: what equals plain decoding passes, what does not is found, and rounding is told from errors."""

from __future__ import annotations

import json
import math

import mlx.core as mx
import pytest

from fakes.drafting import open_session
from fakes.models import TINY, tiny_folder
from fakes.planted import (
    architecture_folder,
    in_kernels,
    in_rows,
    lifted,
    precise_folder,
    zeroed_keys,
)
from specdec_cli.core.errors import SpecdecError
from specdec_cli.core.request import Request
from specdec_cli.engine.baseline import KnownText, PlainStep, Position, plain_steps
from specdec_cli.engine.sampling.acceptance import Coupled, Greedy, Verdict
from specdec_cli.engine.sampling.warps import adjusted
from specdec_cli.measure.audit import AuditPlan, compare, measure, rows_of, run_audit
from specdec_cli.measure.prompts import SamplePrompt
from specdec_cli.pairs.pair import Pair
from specdec_cli.session import session as session_module

FEW = (SamplePrompt("", "code", "def read_lines(path):"), SamplePrompt("", "prose", "Every evening"))


@pytest.fixture
def prompts(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("\n".join(sample.text for sample in FEW) + "\n\n", encoding="utf-8")
    return str(file)


def audited(target, draft=None, **settings):
    session = open_session(Pair("tiny", str(target), draft and str(draft)), kv_bits=settings.pop("kv_bits", None))
    return run_audit(session, AuditPlan(FEW, **{"ks": (4,), "max_tokens": 48} | settings), lambda *_: None)


def error_lines(err):
    message, hint = err.splitlines()[-2:]
    assert message.startswith("error: ") and hint.startswith("hint: "), err
    return message, hint


@pytest.mark.slow
def test_the_targets_own_penalties_are_in_force_on_both_sides_and_its_cuts_on_neither(tmp_path):
    target = tiny_folder(tmp_path / "target", TINY, seed=1)
    plain = audited(target, drafter="ngram")
    values = {"do_sample": True, "temperature": 0.7, "top_p": 0.5, "top_k": 3, "repetition_penalty": 1.4}
    (target / "generation_config.json").write_text(json.dumps(values))
    found = audited(target, drafter="ngram")
    assert found.count("identical") == 4
    assert (found.sampling["repetition_penalty"], found.sampling["top_k"], found.sampling["top_p"]) == (1.4, 0, 1.0)
    assert [f.draft_n_accepted for f in found.findings] != [f.draft_n_accepted for f in plain.findings], (
        "the penalty did nothing"
    )


@pytest.mark.slow
def test_a_quantized_cache_is_compared_with_one_quantized_from_the_first_token(tmp_path, monkeypatch):
    wide = TINY | {"head_dim": 32}
    folders = [tiny_folder(tmp_path / str(noise), wide, seed=1, noise=noise) for noise in (0.0, 0.05)]
    assert audited(*folders, kv_bits=4).count("identical") == 4
    # Negative control: compared with a cache that is not quantized, the same answers diverge.
    monkeypatch.setattr(session_module, "plain_steps", lambda *arguments: plain_steps(*arguments[:-1]))
    assert audited(*folders, kv_bits=4).count("diverged") > 0


def wrong_at(position, rule, monkeypatch):
    """`rule` says the runner-up at one absolute position."""
    judge = rule.judge

    def broken(self, draft, logits, first, *behind):
        verdict = judge(self, draft, logits, first, *behind)
        row = position - first
        if not 0 <= row <= len(draft):
            return verdict
        ranked = mx.argsort(-adjusted(logits, self._sampler.sampling)[row])
        accepted = mx.minimum(verdict.accepted, row)
        return Verdict(accepted, mx.where(accepted == row, ranked[1], verdict.next).astype(mx.int32))

    monkeypatch.setattr(rule, "judge", broken)


@pytest.mark.slow
def test_a_wrong_token_is_found_with_its_place_both_tokens_and_the_gap(tiny_pair, prompts, specdec, monkeypatch):
    prompt = open_session(Pair("tiny", str(tiny_pair[0]), None)).pair.text_tokens(FEW[0].text)
    wrong_at(len(prompt) + 9, Greedy, monkeypatch)
    arguments = ["audit", "--target", tiny_pair[0], "--draft", tiny_pair[1], "--raw", "--prompts", prompts, "-n", 24]
    code, out, err = specdec(*arguments, "--json")
    found = json.loads(out)
    first = found["findings"][0]
    assert (code, found["lossless"], first["result"], first["tokens_compared"]) == (1, False, "diverged", 10)
    divergence = first["divergence"]
    assert divergence["position"] == 9 and divergence["plain"]["id"] != divergence["specdec"]["id"]
    assert divergence["gap"] > divergence["limit"] == 1e-3
    message, hint = error_lines(err)
    assert "first line 1, greedy: token 10 is " in message and "gap " in message
    assert f"{divergence['plain']['id']} " in message and f"{divergence['specdec']['id']} " in message
    assert "-k 0" in hint
    code, out, err = specdec(*arguments)
    assert code == 1 and len(err.splitlines()) == 2
    assert "DIVERGED at token 10, gap " in out and " > 0.001" in " ".join(out.split())
    code, moved, _ = specdec(*arguments, "--gap", 1000)
    assert code == 0 and "a near-tie is a gap of at most 1000 (--gap)" in " ".join(moved.split())
    assert "not lossless here: " in out
    assert "coupled" in out and "identical" in out


@pytest.mark.slow
def test_a_coupled_rule_with_other_noise_is_found(tiny_pair, monkeypatch):
    wrong_at(30, Coupled, monkeypatch)
    results = {finding.rule: finding.result for finding in audited(*tiny_pair, raw=True).findings}
    assert results == {"greedy": "identical", "coupled": "diverged"}


def test_json_is_one_object(tiny_pair, prompts, specdec):
    target, draft = tiny_pair
    code, out, err = specdec(
        "audit", "--target", target, "--draft", draft, "--prompts", prompts, "-n", 16, "-k", "1,3", "--json"
    )
    found = json.loads(out)
    assert (code, err) == (0, "")
    findings = found.pop("findings")
    assert len(findings) == 2 * 2 * 2
    assert set(findings[0]) == {
        "prompt", "rule", "k", "draft_n", "draft_n_accepted", "tokens_compared", "result", "divergence"
    }  # fmt: skip
    assert [f["k"] for f in findings[:4]] == [1, 3, 1, 3]
    assert 0 < sum(f["draft_n_accepted"] for f in findings) < sum(f["draft_n"] for f in findings)
    assert {k: found[k] for k in ("lossless", "precision", "device", "identical", "diverged")} == {
        "lossless": True,
        "precision": "float32",
        "device": "cpu",
        "identical": 8,
        "diverged": 0,
    }
    assert found["tokens_compared"] == sum(finding["tokens_compared"] for finding in findings)
    assert found["compared_with"].startswith("mlx-lm ") and found["temperature"] == 0.8
    rounding = found["rounding"]
    # It is this machine's: 1.4e-5 was seen.
    assert rounding["measured"] < 1e-4 and (rounding["limit"], rounding["faults"]) == (1e-3, [])
    assert [passes["cap"] for passes in rounding["passes"]] == [1e-3, 1e-3]
    assert [passes["rows"] for passes in rounding["passes"]] == [2, 4]
    # Each text is read once: its tokens were compared under both K.
    assert 2 * rounding["positions"] == found["tokens_compared"]


SCORES = mx.array([0.0, 1.0, 3.0, 2.5])


def compared(*answers):
    """With plain decoding's 2, 2, 2."""
    return compare([7], [PlainStep(2, SCORES, SCORES)] * 3, answers, lambda token: f"<{token}>")


def test_each_answer_has_its_own_first_difference_with_the_gap_of_scores():
    text, (first, second, same) = compared([2, 3, 1], [1, 2, 2], [2, 2, 2])
    assert (text.prompt, text.tokens, same) == ([7], [2, 2, 2], None)
    assert (first.position, first.gap, str(first.plain), str(first.specdec)) == (1, 0.5, '2 "<2>"', '3 "<3>"')
    assert (second.position, second.gap) == (0, 2.0)


def test_an_answer_that_ends_elsewhere_diverges_without_a_gap():
    _, ended = compared([2, 2], [2, 2, 2, 2], [])
    assert [(one.position, one.gap, one.near_tie) for one in ended] == [(at, math.inf, False) for at in (2, 3, 0)]
    assert [[one.plain, one.specdec].count(None) for one in ended] == [1, 1, 1]


def test_a_pass_verifies_one_row_more_than_tokens_are_drafted():
    assert [rows_of(ks) for ks in ([0, 1, 16], ["auto"], [4, "auto"])] == [[1, 2, 17], [5, 17], [5, 17]]


# Errors of half a logit, planted in specdec's passes alone: what is in the network's own is the machine's.


BRIEF = (SamplePrompt("", "code", "def f("), SamplePrompt("", "list", "1."))
# 72 changes in passes without a rollback: they are evidence from 64 on.
ENOUGH = (BRIEF[0], SamplePrompt("", "prose", "Every evening"), BRIEF[1])
SIZE = 0.5


def audit_of(session, **settings):
    plan = AuditPlan(**{"prompts": BRIEF, "ks": (4,), "max_tokens": 20, "temperature": 0.0, "raw": True} | settings)
    return run_audit(session, plan, lambda *_: None)


def fault_of(found):
    assert not found.lossless
    with pytest.raises(SpecdecError):
        found.require_lossless()
    (fault,) = found.rounding.faults
    assert fault.group.largest.prompt in {prompt.name for prompt in ENOUGH}
    return fault


@pytest.mark.slow
def test_a_fault_is_one_though_no_token_flipped(tmp_path, monkeypatch):
    """Only the last row is wrong, and no draft is right for long enough to need it."""
    made = (("target", 0.0), ("draft", 0.5))
    folders = [precise_folder(tmp_path / name, "bfloat16", None, noise, gain=2.2) for name, noise in made]
    session = open_session(Pair("tiny", *map(str, folders)))
    in_rows(SIZE, monkeypatch, slice(4, 5))
    found = audit_of(session)
    assert found.count("identical") == len(found.findings)
    assert found.problem.startswith("this is more than rounding: passes of 5 rows")
    fault = fault_of(found)
    assert fault.group.largest.row == 4 and str(fault).startswith("passes of 5 rows, without a rollback, after")


# What kernels change is the machine's, and ours change nothing.


def measured(session, rows=(5,), tokens=24):
    ids = session.pair.text_tokens("def read_lines(path):")
    plain = session.plain(ids, Request(tokens, drafter="none", sampling={"temperature": 0.0}))
    return measure(session, [("code", KnownText(ids, [Position.of(step) for step in plain]))], rows)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "bits"), [("bfloat16", 4), pytest.param("bfloat16", None, marks=pytest.mark.full)])
def test_another_order_of_summation_is_the_machines_and_ours_is_the_same_to_the_bit(tmp_path, dtype, bits):
    session = open_session(Pair("tiny", str(precise_folder(tmp_path / "target", dtype, bits)), None))
    flat = measured(session, (1, 2, 5))  # as on this CPU: mlx multiplies row by row, and the floor alone is left
    assert [passes.rows for passes in flat.passes] == [1, 2, 5]
    assert flat.measured < 1e-4 and (flat.limit(), flat.faults) == (1e-3, [])
    in_kernels(session)
    found = measured(session)
    (passes,) = found.passes
    assert passes.machine.rms > 0.0 and found.faults == []
    assert {change.logits for change in passes.ours.changes if change.reading == "repeated"} == {0.0}
    assert passes.ours.rms < 1.5 * passes.machine.rms


ARCHITECTURES = ["qwen3", "olmo3", "lfm2", "plamo2", "mamba2"]  # keys alone, windows, three recurrent kinds
WEIGHTS = {"float32": ("float32", None), "bfloat16": ("bfloat16", None), "4 bits": ("bfloat16", 4)}


CELLS = [
    pytest.param(plant, name, weights, marks=() if name == "qwen3" else pytest.mark.full)
    for name in ARCHITECTURES
    for weights in WEIGHTS
    for plant in (None, "key", "logits")
    if (name, plant) != ("mamba2", "key")  # it has none
]


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "name", "weights"), CELLS)
def test_errors_of_ours_are_told_from_rounding_in_every_precision(name, weights, plant, tmp_path, monkeypatch):
    """In 4 bits, errors of 15 times the rounding between passes were allowed: 8 of 8 changed answers were lossless."""
    roles = (("target", 0.0), ("draft", None))
    folders = [architecture_folder(name, tmp_path / role, noise, *WEIGHTS[weights]) for role, noise in roles]
    session = open_session(Pair("tiny", *map(str, folders)))
    if plant == "key":
        zeroed_keys(monkeypatch)
    if plant == "logits":
        lifted(SIZE, 7, monkeypatch)
    found = audit_of(session, prompts=ENOUGH, max_tokens=24)
    if plant is None:
        assert found.lossless is not False and not found.count("diverged")
    else:
        fault = fault_of(found)
        assert ("without a rollback" in fault.group.name) == (plant == "logits")
