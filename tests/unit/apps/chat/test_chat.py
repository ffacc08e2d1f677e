"""A chat's own state: its pair, its context, its file and its toolbar."""

from __future__ import annotations

from types import SimpleNamespace

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from fakes.chat import chat_with, networks, ran, recorded
from specdec_cli.apps.chat.chat import Loaded
from specdec_cli.apps.chat.commands import run_command
from specdec_cli.apps.chat.screen import toolbar
from specdec_cli.core.errors import NotAvailable


def test_a_saved_chat_writes_every_turn_and_clear_begins_another_file(opened, tmp_path):
    chat, _, _ = opened
    chat.saved_to = path = tmp_path / "chat.jsonl"
    ran(opened, "hello")
    assert len(path.read_text().splitlines()) == 3
    ran(opened, "again", "/undo")
    assert len(path.read_text().splitlines()) == 3
    ran(opened, "/clear", "anew")
    assert len(path.read_text().splitlines()) == 3
    assert len((tmp_path / "chat-2.jsonl").read_text().splitlines()) == 3


def test_overflow_drops_the_oldest_visibly_or_refuses(opened):
    chat, _, err = opened
    for line in ("/system be kind", "/set max-context 120", "one " * 5, "two " * 5):
        ran(opened, line)
    assert ran(opened, "three " * 5)[0] == 5
    assert "tokens > 119 maximum" in err.getvalue()
    assert ran(opened, "/set overflow drop-oldest", "three " * 5)[0] == 0
    assert "left out the 2 oldest turns: the context holds 120 tokens" in err.getvalue()
    ids = chat.loaded.session.replies[-1][0]
    text = "".join(map(chat.loaded.session.pair.tokenizer.piece, ids))
    assert "be kind" in text and "one one" not in text and "three three" in text
    assert len(chat.conversation.turns) == 3


def test_the_drafts_own_context_counts(pair):
    session = recorded(*pair)
    session.slot.draft.context_limit = 50
    chat, _, _ = chat_with(session)
    assert chat.context_limit == 50
    run_command(chat, "/draft off")
    assert chat.context_limit is None


def test_another_pair_takes_over_and_a_failing_one_leaves_the_old(pair):
    session, opened = recorded(*pair), []

    def open_pair(spec):
        opened.append(spec.pair.name)
        if spec.pair.name == "demo" and len(opened) == 1:
            raise NotAvailable("broken", "mend it")
        return Loaded(spec, session)

    chat, _, err = chat_with(session, open_pair)
    with pytest.raises(NotAvailable):
        run_command(chat, "/pair demo")
    assert (chat.loaded.pair.name, opened) == ("tiny", ["demo", "tiny"])
    run_command(chat, "/pair demo")
    assert chat.loaded.pair.name == "demo" and "demo: target target, draft draft" in err.getvalue()
    with pytest.raises(NotAvailable, match="no pair named dmeo"):
        run_command(chat, "/pair dmeo")
    assert chat.loaded.pair.name == "demo"


def test_another_pair_is_opened_after_the_old_weights_left_the_cache_of_freed_buffers(pair):
    """The bug: freed weights went into mlx's cache, so that both pairs were in memory."""
    nets = networks("qwen3")
    mx.eval([net.parameters() for net in nets])
    weights = sum(array.nbytes for net in nets for _, array in tree_flatten(net.parameters()))
    found = []

    def open_pair(spec):
        found.append((mx.get_active_memory(), mx.get_cache_memory()))
        return Loaded(spec, recorded(*pair))

    chat, _, _ = chat_with(recorded(nets, pair[1]), open_pair)
    del nets
    before = mx.get_active_memory()
    run_command(chat, "/pair demo")
    assert before - found[0][0] >= weights and found[0][1] == 0


def test_the_toolbar_says_pair_k_temperature_context_and_acceptance(opened):
    chat, _, _ = opened
    assert toolbar(chat.toolbar, 100) == "tiny · K 4 · temp 0 · context 0"
    chat.settings = chat.settings.with_value("max-context", "500")
    chat.ask("hello")
    rate = chat.stats.rounds.draft_acceptance_rate
    assert (
        toolbar(chat.toolbar, 100)
        == f"tiny · K 4 · temp 0 · context {chat.context_tokens} / 500 · accepted {round(100 * rate)} %"
    )
    assert toolbar(chat.toolbar, 22) == "tiny · K 4 · temp 0"
    assert "\x1b" not in toolbar(["a\x1b[2Jb", "c\nd"], 90)
    run_command(chat, "/draft off")
    assert "plain decoding" in toolbar(chat.toolbar, 100)


def test_a_head_is_not_named_as_if_it_were_a_second_model(opened):
    """`target specdec:demo/hybrid, draft specdec:demo/hybrid`."""
    own = SimpleNamespace(pair=SimpleNamespace(names=("org/hybrid", "org/hybrid"), draft_kind="mtp"))
    spec = opened[0].loaded.spec
    same = SimpleNamespace(pair=SimpleNamespace(names=("org/m", "org/m"), draft_kind="model"))
    assert Loaded(spec, same).summary.endswith("target org/m, draft org/m")  # the same folder twice
    assert Loaded(spec, own).summary == f"{spec.pair.name}: target org/hybrid, its own head (mtp)"
