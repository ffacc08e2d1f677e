"""Promises of docs/serve.md that no other test holds: names, lengths, sampling, refusals, numbers, framing."""

import gzip
import json
import math
import time

import httpx
import pytest

from fakes.desk import ScriptedDesk
from fakes.models import TINY
from fakes.server import local, posted, raw, serving, until
from specdec_cli.apps.serve.http import completions
from specdec_cli.apps.serve.http.access import AccessPolicy
from specdec_cli.apps.serve.http.reading import USUAL_TOKENS
from specdec_cli.core.events import TokenLogprob
from specdec_cli.models.tokenizer import Tokenizer

CHAT, TEXT, CODEX, CLAUDE = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
USER = {"role": "user", "content": "Hi"}
ASKED = {CHAT: {"messages": [USER]}, TEXT: {"prompt": "Hi"}, CODEX: {"input": "Hi"}, CLAUDE: {"messages": [USER]}}
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def asked(tooled):
    """(what asks, the desk)."""
    desk = ScriptedDesk(["ok"] * 40)
    with local(tooled, desk) as client:
        yield lambda path, **fields: client.post(path, json={**ASKED.get(path, {}), **fields}), desk
    desk.close()


def test_the_model_is_the_pair_s_name_its_target_s_default_or_nothing(asked, tooled):
    ask, desk = asked
    for name in (tooled.name, tooled.target, "default", "", None):
        assert ask(CHAT, model=name).status_code == 200, name
    for name in ("gpt-5", "/etc/passwd", "file:///etc", "~/models/a", "https://x.example/m", "../tool"):
        assert ask(CHAT, model=name).status_code == 404, name
    assert len(desk.jobs) == 5


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"])
def test_the_length_has_four_names_and_is_usual_without_any(asked, name):
    ask, desk = asked
    for fields in ({name: 7}, {name: 0}, {name: -1}, {}):
        assert ask(CHAT, **fields).status_code == 200
    assert [ticket.job.request.max_tokens for ticket in desk.jobs] == [7, 0, USUAL_TOKENS, USUAL_TOKENS]


def test_every_sampling_value_reaches_the_model(asked):
    ask, desk = asked
    values = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "presence_penalty": 0.2}
    values |= {"frequency_penalty": 0.3, "repetition_penalty": 1.1}
    ask(CHAT, **values, seed=9, logit_bias={"5": -2}, stop=["a"], n=2)
    ask(CLAUDE, max_tokens=4, stop_sequences=["b"], repeat_penalty=1.2)
    first, second, third = (ticket.job.request for ticket in desk.jobs)
    assert (first.sampling, first.seed, first.logit_bias, first.stop) == (values, 9, ((5, -2.0),), ("a",))
    assert (first.attempt, second.attempt) == (0, 1)
    assert (third.stop, third.sampling) == (("b",), {"repetition_penalty": 1.2})


def test_a_template_of_the_client_s_is_never_used(asked):
    ask, desk = asked
    ask(CHAT)
    ask(CHAT, chat_template="{{ 7 * 191 }}", chat_template_kwargs={"bos_token": "1337"})
    assert desk.jobs[0].job.prompt == desk.jobs[1].job.prompt


@pytest.mark.parametrize(
    "body", [b'{"n": NaN}', b'{"n": 1e400}', b'{"n": 1' + b"0" * 5000 + b"}", gzip.compress(b"{}", mtime=0)]
)
def test_what_is_no_json_is_a_400_and_nothing_is_unpacked(tooled, body):
    with local(tooled, None) as client:
        reply = client.post(CHAT, content=body, headers={**JSON, "Content-Encoding": "gzip"})
    assert reply.status_code == 400 and reply.json()["error"]["message"]


@pytest.mark.parametrize("depth", [1_000, 100_000, 1_000_000])
@pytest.mark.parametrize("opening, closing", [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_costs_nothing(tooled, depth, opening, closing):
    body = b'{"messages": ' + opening * depth + b"1" + closing * depth + b"}"
    with local(tooled, None) as client:
        began = time.process_time()
        reply = client.post(CHAT, content=body, headers=JSON)
        assert reply.status_code == 400 and time.process_time() - began < 2


def test_a_body_has_32_megabytes_at_most():
    assert AccessPolicy(1).most_body_bytes == 32_000_000


LENGTH = b"POST /v1/chat/completions HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "head",
    [
        *(b"Content-Length: %b\r\n" % value for value in (b"+5", b"1_0", b"-1", b"0x5", b"5\r\nContent-Length: 6")),
        b"Transfer-Encoding: identity, chunked\r\n",
        b"Transfer-Encoding: gzip\r\n",
        b"Bad Name: y\r\n",
    ],
    ids=lambda head: head[:30].decode(),
)
def test_a_head_that_could_be_read_in_two_ways_is_a_400_or_501_and_the_end(tooled, head):
    desk = ScriptedDesk([])
    with serving(tooled, desk) as (url, _):
        said, closed = raw(url, LENGTH + head + b"\r\n{}   ")
        assert closed and said.split(b" ")[1] in (b"400", b"501"), said
    desk.close()
    assert not desk.jobs


@pytest.mark.slow
def test_who_does_not_read_an_answer_holds_nobody_up(tooled):
    """Its answer ends, and others are answered meanwhile."""
    desk = ScriptedDesk(
        ["word " * 20_000, "ok"], steps=lambda text: [text[at : at + 500] for at in range(0, len(text), 500)]
    )
    with serving(tooled, desk) as (url, _), posted(url, CHAT, {"messages": [USER], "stream": True}):
        assert httpx.post(url + CHAT, json={"messages": [USER]}, timeout=20).status_code == 200
        until(lambda: desk.running is None and not desk.waiting)
        assert len(desk.jobs) == 2 and json.loads(httpx.get(f"{url}/health").text)["running"] == 0
    desk.close()


@pytest.mark.parametrize("dialect", [completions.ChatDialect, completions.TextDialect])
def test_a_logprob_of_nothing_is_a_number_of_json(dialect, tiny_pair):
    """Beside a bias of minus infinity; JSON has no infinity, and clients fail at the word."""
    tokenizer = Tokenizer.load(tiny_pair[0], "tiny", TINY)
    score = TokenLogprob(5, -math.inf, ((5, -math.inf), (6, -0.5)))
    text = json.dumps(dialect.table(None, tokenizer, [score]), allow_nan=False)
    assert text.count("-9999.0") == 2 and "-0.5" in text
