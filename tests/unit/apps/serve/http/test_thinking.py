"""Tokens of thinking in the usage: exactly those until the thinking is closed."""

import pytest

from fakes.desk import ScriptedDesk
from fakes.server import local

ASKED = [{"role": "user", "content": "Hi"}]
DETAILS = {
    "/v1/chat/completions": ("completion_tokens_details", {"messages": ASKED}),
    "/v1/responses": ("output_tokens_details", {"input": "Hi", "reasoning": {"effort": "low"}}),
}


def reasoning(usage, path):
    return usage[DETAILS[path][0]]["reasoning_tokens"]


@pytest.mark.parametrize("path", DETAILS)
@pytest.mark.parametrize(
    "steps, expected",
    [(["a", "b\n", "</thi", "nk>", "\n", "The answer, with </think>"], 4), (["a", "b"], 2), (["</think>", "x"], 1)],
    ids=["closed", "never closed", "at once"],
)
def test_the_tokens_until_the_end_of_the_thinking_are_counted(thinking, path, steps, expected):
    desk = ScriptedDesk(["".join(steps)], steps=lambda text: steps)
    with local(thinking, desk) as client:
        answer = client.post(path, json=DETAILS[path][1]).json()
    desk.close()
    assert reasoning(answer["usage"], path) == expected
