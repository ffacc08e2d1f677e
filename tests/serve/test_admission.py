"""Refused before anything is allocated, with both numbers."""

import pytest

from fakes.serving import ids, job
from specdec_cli.serve.job import TooLarge, TooLong, most_tokens, require_room, room_beside
from specdec_cli.session.capacity import Capacity

GB = 10**9
CAPACITY = Capacity(4 * GB, 10 * GB, ((0, 0), (10_000, 10 * GB)), target_limit=8000, draft_limit=4000, has_draft=True)


def test_a_prompt_that_fills_the_context_is_too_long():
    with pytest.raises(TooLong, match=r"^prompt is too long: 4000 tokens > 3999 maximum$"):
        require_room(job(ids(4000)), CAPACITY)
    with pytest.raises(TooLong, match=r"100 tokens > 49 maximum"):
        require_room(job(ids(100), max_context=50), CAPACITY)
    require_room(job(ids(3999)), CAPACITY)
    require_room(job(ids(5000), drafter="none"), CAPACITY)  # only the draft's context is short


def test_an_answer_longer_than_the_context_is_cut_and_not_refused():
    assert most_tokens(job(ids(100), 50_000), CAPACITY) == 4000


def test_caches_beside_the_weights_that_need_too_much_are_too_large():
    with pytest.raises(TooLarge, match=r"7000 tokens of prompt and answer need 11\.00 GB .*; 10\.00 GB are usable"):
        require_room(job(ids(5000), 2000, drafter="none"), CAPACITY)
    require_room(job(ids(5000), 1000, drafter="none"), CAPACITY)


def test_what_is_left_is_counted_without_the_weights_and_all_that_runs():
    jobs = [job(ids(1000), 1000), job(ids(500), 500)]
    assert room_beside(jobs, CAPACITY) == 3 * GB
