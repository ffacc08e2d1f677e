"""The pair of tests/benchmarks/released_pair.py, Qwen2.5-Coder 1.5B with its 0.5B, as typed and from Python."""

from __future__ import annotations

import json

import pytest

import specdec_cli as specdec
from real import released
from real.answers import TEXTS, equal

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
ASKED = "Write a Python function that adds two numbers."
AUDITED = {"code": ASKED, "prose": "Tell me about the sea."}
SHORT = ("--temp", "0", "-n", "24")


@pytest.fixture(scope="module")
def models(qwen):
    return ["--target", str(qwen), "--draft", str(released.had(released.qwen_draft))]


@pytest.fixture(scope="module")
def pair(models):
    return specdec.load(target=models[1], draft=models[3])


def test_run_and_chat_answer_a_question(command, models):
    code, out, _ = command("run", *models, *SHORT, "-q", ASKED)
    assert code == 0 and "def " in out + command("run", *models, "--temp", "0", "-n", "64", "-q", ASKED)[1]
    code, said, _ = command("chat", *models, *SHORT, "-q", stdin=f"{ASKED}\nNow subtract.\n".encode())
    assert code == 0 and said.startswith(out.rstrip("\n"))


def test_an_audit_finds_it_lossless_in_float32(command, models, tmp_path):
    """Of two prompts: all bundled ones take more than nine minutes on two CPU cores."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"name": name, "text": text}) + "\n" for name, text in AUDITED.items()))
    code, out, _ = command("audit", *models, "-k", "3", "-n", "8", "--prompts", prompts, "--json")
    findings = json.loads(out)["findings"]
    assert code == 0 and findings and all(one["result"] == "identical" for one in findings)


@pytest.mark.parametrize(("drafter", "k"), [("model", 2), ("model", 4), ("ngram", 4), ("auto", "auto")])
def test_every_draft_length_says_mlx_lm_s_own_tokens(pair, drafter, k):
    for text in TEXTS[:3]:
        equal(pair, pair.text_tokens(text), 32, drafter=drafter, k=k)
