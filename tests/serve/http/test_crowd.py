"""Eight clients at random, some of whom leave: whoever stays reads the session's answer, greedily and seeded."""

import asyncio
import json
import random

import httpx
import pytest

from specdec_cli.request import Request

PROMPTS = ("Return the lines of a file.", "Sort a list.", "Open a socket.", "Add two numbers.", "Close the window.")
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")


def told(path, text):
    """The text in the events of a stream, and whether they end as they should."""
    said, last = "", None
    for line in text.splitlines():
        if not line.startswith("data: {"):
            continue
        last = json.loads(line[6:])
        if path.endswith("completions"):
            said += "".join(choice["delta"].get("content") or "" for choice in last["choices"])
        elif last["type"] in ("content_block_delta", "response.output_text.delta"):
            said += last["delta"]["text"] if isinstance(last["delta"], dict) else last["delta"]
    return said, last.get("type") or last["choices"][0]["finish_reason"]


def body_of(path, prompt, tokens, seed):
    body = {"stream": True, "max_tokens": tokens, "temperature": 0.9 if seed else 0}
    if path.endswith("responses"):
        body["input"] = prompt
    else:
        body["messages"] = [{"role": "user", "content": prompt}]
    return body | ({"seed": seed} if seed else {})


@pytest.mark.slow
def test_eight_clients_at_random_read_their_own_answers_and_leave_nothing_behind(pair, served):
    url, service = served
    luck = random.Random(19)
    wanted = {}

    def answer(prompt, tokens, seed):
        key = prompt, tokens, seed
        if key not in wanted:
            sampling = {"temperature": 0.9 if seed else 0.0}
            request = Request(k=4, max_tokens=tokens, seed=seed, sampling=sampling)
            ids = pair.message_tokens([{"role": "user", "content": prompt}])
            wanted[key] = list(pair.session().reply(ids, request))[-1].text
        return wanted[key]

    async def visit(client, luck):
        for _ in range(6):
            path, prompt = luck.choice(PATHS), luck.choice(PROMPTS)
            tokens, seed = luck.choice([1, 9, 30]), luck.choice([None, 7, 8])
            body = body_of(path, prompt, tokens, seed)
            if luck.random() < 0.3:
                async with client.stream("POST", path, json=body) as reply:
                    if luck.random() < 0.5:
                        await anext(reply.aiter_bytes(), b"")
                continue
            reply = await client.post(path, json=body)
            found, end = told(path, reply.text)
            read.append((path, prompt, tokens, seed, found))
            assert end in ("stop", "length", "message_stop", "response.completed", "response.incomplete"), reply.text

    async def crowd():
        async with httpx.AsyncClient(base_url=url, timeout=200) as client:
            await asyncio.gather(*[visit(client, random.Random(luck.random())) for _ in range(8)])

    read = []
    asyncio.run(crowd())
    assert len(read) > 20
    wrong = [one for one in read if one[-1] != answer(*one[1:4])]
    assert not wrong, wrong[:2]
    health = httpx.get(f"{url}/health").json()
    assert (health["running"], health["waiting"], service.open) == (0, 0, set())
