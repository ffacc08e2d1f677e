"""A slot whose draft is a head: it belongs to the conversation, is copied with it, and no state is read twice."""

import pytest

from fakes.chat import tokenizer_in
from fakes.heads import agreeing_head, cached_head, tiny_target
from fakes.serving import Client, alone, answer, desk_of, job
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.slot import Slot

pytestmark = pytest.mark.slow

SYSTEM = [3 + i * i % 90 for i in range(80)]


@pytest.fixture(scope="module", params=["qwen3_5", pytest.param("qwen3", marks=pytest.mark.slow)])
def pair(request, tmp_path_factory):
    target = tiny_target(request.param)
    head = cached_head(target, agreeing_head(target))
    slot = Slot(target, None, head)
    return LoadedPair(Pair("tiny", "t", "h"), ("t", "h"), tokenizer_in(tmp_path_factory.mktemp("tokenizer")), slot)


def turn(prompt, tokens=12, ends=()):
    return job(prompt, tokens, ends, drafter="model")


def test_conversations_of_a_pair_with_a_head_are_those_of_fresh_sessions_and_read_what_is_new(pair):
    desk, read, accepted = desk_of(pair), [], 0
    prompts = [[*SYSTEM, *[5 + n] * 3, *range(9, 30)] for n in range(2)]
    for _ in range(3):
        clients = [Client(desk, turn(prompt, ends=(80, len(prompt)))) for prompt in prompts]
        for number, client in enumerate(clients):
            prompt = prompts[number]
            assert client.wait().end.tokens == alone(pair, turn(prompt))
            accepted += client.end.stats["draft_n_accepted"]
            read.append(client.read_tokens)
            prompts[number] = [*prompt, *client.end.tokens, 7, 8, 9]
    print("tokens read, turn by turn:", read)
    assert accepted > 0, "the head guessed nothing: nothing of it is tested here"
    assert read[0] == 104 and all(tokens <= 26 for tokens in read[1:2]) and all(tokens <= 6 for tokens in read[2:])
    desk.close()


def test_a_copied_head_and_its_origin_go_on_apart(pair):
    desk = desk_of(pair)
    answer(desk, turn([*SYSTEM, 5, 6, 7], ends=(80, 83)))
    origin, copied = turn([*SYSTEM, 5, 6, 7, 8]), turn([*SYSTEM, 9, 6, 7])
    for one in (copied, origin, copied):
        assert answer(desk, one).end.tokens == alone(pair, one)
    desk.close()
