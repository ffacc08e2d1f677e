"""The pair of tests/benchmarks/released_pair.py, Qwen2.5-Coder 1.5B with its 0.5B, through every command as typed."""

from __future__ import annotations

import json

import anthropic
import openai
import pytest

import specdec_cli as specdec
from fakes.server import serving
from fakes.serving import model_of
from real import released
from real.answers import TEXTS, equal
from specdec_cli.apps.serve.scheduler import Scheduler, SchedulerOptions

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


def test_a_race_ends_with_the_same_text(command, models):
    code, out, _ = command("race", *models, *SHORT, "-k", "3", "--json", ASKED)
    finish = json.loads(out.splitlines()[-1])
    assert code == 0 and finish["same_text"] and finish["target_passes"]["drafted"] < finish["target_passes"]["plain"]


def test_an_audit_finds_it_lossless_in_float32(command, models, tmp_path):
    """Of two prompts: all bundled ones take more than nine minutes on two CPU cores."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"name": name, "text": text}) + "\n" for name, text in AUDITED.items()))
    code, out, _ = command("audit", *models, "-k", "3", "-n", "8", "--prompts", prompts, "--json")
    findings = json.loads(out)["findings"]
    assert code == 0 and findings and all(one["result"] == "identical" for one in findings)


def test_a_bench_measures_what_it_was_asked_for(command, models):
    asked = ("-k", "2", "--kinds", "code", "-n", "8", "--time-budget", "10s", "--json", "-q")
    code, out, _ = command("bench", *models, *asked)
    found = json.loads(out)
    assert code == 0 and {sample["arm"]["k"] for sample in found["samples"]} == {0, 2}


def test_check_finds_one_tokenizer(command, models):
    code, out, _ = command("check", *models, "--json")
    found = json.loads(out)
    assert code == 0 and found["tokenizers"]["status"] == "identical" and found["has_template"]


def test_a_schema_holds(command, models):
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    asked = "What is 17 + 25? Answer in JSON."
    code, out, _ = command("run", *models, "--temp", "0", "-n", "48", "-q", "--schema", json.dumps(schema), asked)
    assert code == 0 and json.loads(out)["sum"] == 42


@pytest.mark.parametrize(("drafter", "k"), [("model", 2), ("model", 4), ("ngram", 4), ("auto", "auto")])
def test_every_draft_length_says_mlx_lm_s_own_tokens(pair, drafter, k):
    for text in TEXTS[:3]:
        equal(pair, pair.text_tokens(text), 32, drafter=drafter, k=k)


def test_two_clients_get_what_a_session_says(pair):
    (finish,) = (e for e in pair.session().reply(ASKED, max_tokens=24, temperature=0) if e.event == "finish")
    desk = Scheduler(lambda name: pair, SchedulerOptions(idle_seconds=None))
    with serving(model_of(pair, specdec.Request(), 1), desk) as (url, _):
        messages = [{"role": "user", "content": ASKED}]
        with openai.OpenAI(base_url=f"{url}/v1", api_key="any", timeout=900) as client:
            said = client.chat.completions.create(model="default", messages=messages, temperature=0, max_tokens=24)
        with anthropic.Anthropic(base_url=url, api_key="any", timeout=900) as client:
            more = {"extra_body": {"temperature": 0}}
            told = client.messages.create(model="default", messages=messages, max_tokens=24, **more)
    desk.close()
    assert said.choices[0].message.content == told.content[0].text == finish.text
