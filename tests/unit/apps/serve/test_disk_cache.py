"""A server that restarts reads what it had read: what many go on with, and what was in memory at its end."""

from dataclasses import replace

import pytest

from fakes.serving import answer, desk_of, ids, job, tiny_loaded
from specdec_cli.session.disk_cache import DiskCache
from specdec_cli.session.disk_entries import facts_files

AGENT = ids(400)


@pytest.fixture(params=["plain", pytest.param("window", marks=pytest.mark.slow), pytest.param("recurrent")])
def desk(request, tmp_path):
    """A function that starts a desk in "another process"."""
    pair, begun = tiny_loaded(tmp_path, request.param), []

    def begin(**options):
        disk = DiskCache(tmp_path / "disk", 10**9, pytest.fail)
        one = desk_of(replace(pair, disk=disk, fingerprint=lambda: request.param), **options)
        begun.append(one)
        one.folder = disk.folder
        return one

    yield begin
    for one in begun:
        one.close()


def test_an_agent_goes_on_after_a_restart_and_the_words_are_the_same(desk):
    first = desk()
    begun = answer(first, job(AGENT, ends=(300, 400)))
    assert not facts_files(first.folder)  # nobody has gone on with it
    first.close()
    assert facts_files(first.folder)
    going = job((*AGENT, *begun.tokens, *ids(20, 5)), ends=(300, 400))
    after = desk()
    read = answer(after, going)
    assert read.prefill.disk_tokens == read.prefill.cached_tokens >= 300
    after.close()
    fresh = desk_of(replace(first._load_first(), disk=None))
    assert read.tokens == answer(fresh, going).tokens
    fresh.close()
    assert after.status().totals.disk_tokens == read.prefill.disk_tokens


def test_others_begin_with_the_agents_instructions(desk):
    first = desk()
    answer(first, job(AGENT, ends=(300, 400)))
    first.close()
    other = answer(desk(), job((*AGENT[:300], *ids(60, 3)), ends=(300,)))
    assert 290 <= other.prefill.disk_tokens <= 300


def test_a_conversation_that_is_gone_on_with_is_on_disk_before_the_end(desk):
    first = desk()
    begun = answer(first, job(AGENT, ends=(400,)))
    answer(first, job((*AGENT, *begun.tokens, *ids(9, 2)), ends=(400,)))
    answer(first, job(ids(30, 9)))  # the thread that writes was begun by the one before
    first._pair.disk.finish()
    assert len(facts_files(first.folder)) == 1
