"""`specdec audit`: what equals plain decoding passes, what does not is found, and near-ties are told apart."""

from __future__ import annotations

import json
import math

import mlx.core as mx
import pytest

from fakes.command import Command
from fakes.drafting import open_session
from fakes.models import SPECIALS, TINY, tiny_folder
from specdec_cli.apps.audit.command import BUNDLED, read_prompts
from specdec_cli.core.errors import UsageError
from specdec_cli.engine.baseline import PlainStep, plain_steps
from specdec_cli.engine.sampling.acceptance import Coupled, Greedy, Verdict
from specdec_cli.engine.sampling.warps import adjusted
from specdec_cli.measure.audit import AuditPlan, AuditPrompt, compare, rows_of, run_audit
from specdec_cli.pairs.pair import Pair
from specdec_cli.session import session as session_module

FEW = (AuditPrompt("code", "def read_lines(path):"), AuditPrompt("prose", "Every evening"))


@pytest.fixture
def prompts(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("\n".join(sample.text for sample in FEW) + "\n\n", encoding="utf-8")
    return str(file)


@pytest.fixture
def specdec(tmp_path, monkeypatch, capsys):
    """The command in this process, so that its engine can be broken: (exit code, stdout, stderr)."""
    return Command(tmp_path, monkeypatch, capsys)


def audited(target, draft=None, **settings):
    session = open_session(Pair("tiny", str(target), draft and str(draft)), kv_bits=settings.pop("kv_bits", None))
    return run_audit(session, AuditPlan(FEW, **{"ks": (4,), "max_tokens": 48} | settings), lambda *_: None)


def error_lines(err):
    message, hint = err.splitlines()[-2:]
    assert message.startswith("error: ") and hint.startswith("hint: "), err
    return message, hint


@pytest.mark.full
def test_the_demo_pair_is_lossless_in_float32_greedily_and_coupled(specdec):
    code, out, err = specdec("audit", "-p", "demo", "--raw", "-n", "16")
    lines = [line.rstrip() for line in out.splitlines()]
    rows = [line.split() for line in lines[1:17]]
    assert (code, err) == (0, "") and max(map(len, lines)) <= 80
    assert [row[:2] for row in rows] == [[name, rule] for name, _ in BUNDLED for rule in ("greedy", "coupled")]
    assert " ".join(lines[23:]).startswith("lossless here: 16 of 16 answers are identical (")


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
    assert "not lossless here: " in out
    assert "coupled" in out and "identical" in out


@pytest.mark.slow
def test_a_coupled_rule_with_other_noise_is_found(tiny_pair, monkeypatch):
    wrong_at(30, Coupled, monkeypatch)
    results = {finding.rule: finding.result for finding in audited(*tiny_pair, raw=True).findings}
    assert results == {"greedy": "identical", "coupled": "diverged"}


@pytest.fixture
def twins(tmp_path):
    """A target whose tokens come in pairs with almost the same row of lm_head: the runner-up is always a near-tie."""
    folder = tiny_folder(tmp_path / "twins", TINY, seed=1, endless=True)
    weights = mx.load(str(folder / "model.safetensors"))
    head, first = weights["lm_head.weight"], len(SPECIALS)
    twin = head[first::2] * (1 + 1e-6)
    head[first + 1 :: 2] = twin[: head[first + 1 :: 2].shape[0]]
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    return folder


@pytest.mark.slow
def test_a_flipped_near_tie_passes_and_the_same_flip_elsewhere_does_not(twins, tmp_path, prompts, specdec, monkeypatch):
    usual = tiny_folder(tmp_path / "usual", TINY, seed=1, endless=True)
    wrong_at(len(FEW[0].text) + 5, Greedy, monkeypatch)
    common = ["--raw", "--prompts", prompts, "-n", 16, "--temp", 0, "--drafter", "ngram"]
    code, out, err = specdec("audit", "--target", twins, *common)
    assert code == 0, err
    assert "near-tie at token 6, gap " in out and " ≤ 0.001" in " ".join(out.split())
    assert "in doubt here: 0 of 2 answers are identical, 2 up to a near-tie, so " in " ".join(out.split())
    code, out, err = specdec("audit", "--target", usual, *common)
    assert code == 1 and "DIVERGED at token 6, gap " in out
    assert error_lines(err)[0].startswith("error: 2 of 2 answers diverge")
    # The limit decides: by hand it is moved below the near-tie's gap, and above the other's.
    assert specdec("audit", "--target", twins, *common, "--gap", 0)[0] == 1
    code, out, _ = specdec("audit", "--target", usual, *common, "--gap", 1000)
    assert code == 0 and "a near-tie is a gap of at most 1000 (--gap)" in " ".join(out.split())


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
    assert [rows_of(ks) for ks in ([0, 1, 16], ["auto"], [4, "auto"])] == [[1, 2, 17], [5, 9], [5, 9]]


def test_a_line_of_a_file_is_a_prompt_named_by_its_number(tmp_path):
    file = tmp_path / "p.txt"
    file.write_text("one\n\n  two \r\n")
    assert read_prompts(file) == (("line 1", "one"), ("line 3", "two"))
    for content, message in ((b" \n\n", "3 lines, all empty"), (b"a\xff", "not UTF-8: byte 1")):
        file.write_bytes(content)
        with pytest.raises(UsageError, match=message):
            read_prompts(file)
