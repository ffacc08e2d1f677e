"""A chat without a terminal: its pair, context, file and toolbar; its loop; its memory; and that it survives."""

from __future__ import annotations

import errno
import io
import json
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import pytest
from huggingface_hub import constants
from mlx.utils import tree_flatten

from fakes.chat import PAIR, chat_with, networks, ran, recorded, tokenizer_in
from fakes.hub_cache import COMMIT, NAME, OTHER_COMMIT, place
from specdec_cli.apps.chat import talk
from specdec_cli.apps.chat.chat import Chat, Loaded
from specdec_cli.apps.chat.commands import run_command
from specdec_cli.apps.chat.screen import toolbar
from specdec_cli.apps.chat.talk import LineReader, spec_for
from specdec_cli.command.load import AnswerSettings
from specdec_cli.command.options import AnswerOptions, DisplayOptions, ModelOptions, SamplingOptions
from specdec_cli.core.errors import NotAvailable, UsageError
from specdec_cli.hub import locate
from specdec_cli.pairs.catalog import is_downloaded, registry
from specdec_cli.pairs.limits import HEADROOM
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session.conversation import Conversation
from specdec_cli.session.session import Session
from specdec_cli.session.signals import Presses
from specdec_cli.session.slot import Slot
from specdec_cli.session.transcript import Transcript


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


@pytest.mark.parametrize("watched", [False, True])
def test_an_answer_is_measured_behind_its_end_for_a_person_at_a_terminal_alone(opened, monkeypatch, watched):
    monkeypatch.setattr(opened[2], "isatty", lambda: watched)
    ran(opened, "hello")
    assert opened[0].loaded.session.measured_last == [watched]


def test_each_retry_is_a_further_attempt_which_has_noise_of_its_own(opened):
    ran(opened, "hello", "/retry", "/retry", "and now")
    replies = opened[0].loaded.session.replies
    assert [request.attempt for _, request, *_ in replies] == [0, 1, 2, 0]
    assert len(opened[0].conversation.turns) == 2


def test_a_retry_that_is_stopped_at_once_says_that_the_answer_stays(opened, monkeypatch):
    chat, _, err = opened
    ran(opened, "hello")
    before = chat.conversation
    monkeypatch.setattr("specdec_cli.apps.chat.chat.Interrupt.requested", lambda self: True)
    ran(opened, "/retry", "and now")
    told = [line for line in err.getvalue().splitlines() if "stopped before" in line]
    assert [line.partition(": ")[2] for line in told] == ["the answer before it stays", "the message was taken back"]
    assert chat.conversation == before


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
    with pytest.raises(NotAvailable):
        run_command(chat, "/pair dmeo")
    assert chat.loaded.pair.name == "demo"


@pytest.mark.parametrize("again", [True, False])
def test_ctrl_c_amid_a_switch_loads_the_old_pair_again_and_without_one_the_chat_ends(pair, again):
    """The bug: every further message failed with `'Chat' object has no attribute 'loaded'`."""
    session = recorded(*pair)

    def open_pair(spec):
        if spec.pair.name == "demo":
            raise KeyboardInterrupt
        if not again:
            raise NotAvailable("tiny is gone", "mend it")
        return Loaded(spec, session)

    opened = chat, _, err = chat_with(session, open_pair, max_tokens=4)
    if again:
        assert ran(opened, "/pair demo", "hello")[0] == 0 and len(chat.conversation.turns) == 1
        assert chat.loaded.pair.name == "tiny" and "Ctrl-D or /exit leaves" in err.getvalue()
        return
    with pytest.raises(NotAvailable, match="tiny is gone"):
        ran(opened, "/pair demo", "hello", lenient=True)
    chat.close()


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


def test_each_pair_left_the_memory_before_the_next_is_opened(pair, monkeypatch):
    """The bug: `talk` kept the first pair for its whole life, `/draft on` the old one, and an error that of its reply.

    On a Mac with little memory two pairs swap.
    """
    nets, there = [], []

    def load_session(spec, models, **_):
        there.append(sum(net() is not None for net in nets))
        session = recorded(made := networks("qwen3"), pair[1])
        nets.append(weakref.ref(made[0]))
        if spec.drafter == "none":
            alone = Slot(session.slot.target)
            session.pair = replace(session.pair, names=("target", None), first=alone)
        return session

    def fail(session, *_, **__):
        raise UsageError("no", "x")

    monkeypatch.setattr(talk, "load_session", load_session)
    monkeypatch.setattr(Session, "reply", fail)
    lines = b"/draft on\nhello\n/pair demo\nhello\n/pair demo-hybrid\n"
    assert talked(monkeypatch, lines, ModelOptions(pair="demo", drafter="none"), AnswerOptions()) == 2
    assert there == [0, 0, 0, 0]


def talked(monkeypatch, lines, models, answer):
    """The exit code of a quiet chat that reads these lines from a pipe and keeps nothing."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    asked, transcript = AnswerSettings.read(answer, SamplingOptions()), Transcript(Conversation())
    return talk.talk(models, asked, DisplayOptions(quiet=True), transcript, None, history=False)


@pytest.mark.parametrize(
    ("models", "answer", "first", "second"),
    [
        (ModelOptions(pair="demo"), AnswerOptions(), (2, 64, "model"), (2, 64, "mtp")),
        (ModelOptions(pair="demo"), AnswerOptions(k="3", stop_repetition=9), (3, 9, "model"), (3, 9, "mtp")),
        (ModelOptions(pair="demo", drafter="ngram"), AnswerOptions(k="0"), (0, 64, "ngram"), (0, 64, "ngram")),
    ],
)
def test_what_the_line_asks_for_holds_for_every_pair_of_a_chat(pair, monkeypatch, models, answer, first, second):
    """`/pair` forgot `-k`, `--drafter` and the config's `stop_repetition` for those of the new pair."""
    requests = []
    monkeypatch.setattr(talk, "load_session", lambda *_, **__: recorded(*pair))
    monkeypatch.setattr(Session, "reply", lambda session, ids, request, *_, **__: requests.append(request) or ())
    assert talked(monkeypatch, b"hello\n/pair demo-hybrid\nhello\n", models, answer)
    assert [(one.k, one.stop_repetition, one.drafter) for one in requests] == [first, second]


def test_draft_on_takes_back_that_the_line_drafts_nothing_whatever_the_pair(pair, monkeypatch):
    requests = []
    monkeypatch.setattr(talk, "load_session", lambda *_, **__: recorded(*pair))
    monkeypatch.setattr(Session, "reply", lambda session, ids, request, *_, **__: requests.append(request) or ())
    lines = b"hello\n/draft on\nhello\n/pair demo-hybrid\nhello\n"
    assert talked(monkeypatch, lines, ModelOptions(pair="demo"), AnswerOptions(k="0"))
    assert [(one.k, one.drafter) for one in requests] == [(0, "model"), (2, "model"), (2, "mtp")]


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


@pytest.mark.parametrize("ours", [True, False])
def test_a_chat_goes_on_with_a_model_wherever_it_lies(tmp_path, monkeypatch, ours):
    """The bug: the commit of a model in another Hub cache was kept, by which it is not found there."""
    other = Path.home() / ".cache/huggingface/hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(other if ours else tmp_path))
    place(other)
    kept = Loaded(PairSpec(Pair("tiny", NAME, None)), None).to_dict()
    assert kept["target_revision"] == (COMMIT if ours else None)
    assert locate(kept["target"], kept["target_revision"]).is_relative_to(other)


@pytest.mark.parametrize("pinned", [None, COMMIT])
def test_a_chat_goes_on_where_its_commit_was_replaced_by_another_and_says_so(tmp_path, monkeypatch, pinned):
    """The bug: after `rm` and `pull` of a model that had moved on, `chat -c` refused for ever."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("SPECDEC_MODELS", str(tmp_path / "models.toml"))
    entry = f'[pairs.mine]\ntarget = "{NAME}"\n' + f'target_revision = "{pinned}"\n' * bool(pinned)
    (tmp_path / "models.toml").write_text(f"schema_version = 1\n{entry}")
    place(tmp_path)
    for commit, kept in ((COMMIT, COMMIT), (OTHER_COMMIT, pinned)):
        for name in ("mine", "tiny"):
            header = {"pair": name, "target": NAME, "draft": None, "target_revision": commit}
            found = spec_for(Transcript(Conversation(), header=header), ModelOptions(), shown=False, plain=True)
            assert found.pair.target_revision == (kept if name == "mine" or kept == commit else None)
            assert found.reason.endswith(f"its commit {commit[:7]} is not here") == (commit == OTHER_COMMIT)
            assert is_downloaded(*found.pair.models[0])


def test_a_chat_goes_on_from_another_folder(tmp_path, monkeypatch):
    """The bug: `--target m` was kept as `m`, which is nothing elsewhere."""
    (tmp_path / "m").mkdir()
    monkeypatch.chdir(tmp_path)
    kept = Loaded(PairSpec(Pair("m", "m", "specdec:demo/draft")), None).to_dict()
    assert (kept["target"], kept["draft"]) == (str(tmp_path / "m"), "specdec:demo/draft")


@pytest.mark.parametrize("listed", [True, False])
def test_a_chat_goes_on_with_all_that_its_pair_says(tmp_path, monkeypatch, listed):
    """The bug: adapters, drafter, draft context and stop_repetition were lost, so that another model answered."""
    adapters = {"target_adapter": str(tmp_path / "a"), "draft_adapter": str(tmp_path / "b")}
    own = {"drafter": "ngram", "draft_context": 99, "stop_repetition": 3, "k": 5} if listed else {}
    pair = Pair("mine", PAIR.target, PAIR.draft, **adapters, **own)
    if listed:
        monkeypatch.setenv("SPECDEC_MODELS", str(tmp_path / "models.toml"))
        values = {"target": pair.target, "draft": pair.draft} | adapters | own
        lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
        (tmp_path / "models.toml").write_text("\n".join(["schema_version = 1", "[pairs.mine]", *lines]))
        pair = registry().pairs["mine"]
    header = Loaded(PairSpec.of(pair), None).to_dict()
    found = spec_for(Transcript(Conversation(), header=header), ModelOptions(), shown=False, plain=True)
    assert (found.pair, found.drafter) == (pair, PairSpec.of(pair).drafter)


def test_a_chat_goes_on_with_all_that_its_pair_says_whose_draft_was_found(tmp_path, monkeypatch):
    """K was `auto` again, and the guard against loops gone."""
    monkeypatch.setenv("SPECDEC_MODELS", str(tmp_path / "models.toml"))
    own = f'target = "{PAIR.target}"\nk = 2\nstop_repetition = 60\ndraft_context = "full"\n'
    (tmp_path / "models.toml").write_text(f"schema_version = 1\n[pairs.mine]\n{own}")
    pair = replace(registry().pairs["mine"], draft=PAIR.draft)
    header = Loaded(PairSpec.of(pair), None).to_dict()
    assert spec_for(Transcript(Conversation(), header=header), ModelOptions(), shown=False, plain=True).pair == pair


def test_a_failure_leaves_the_chat_going_and_gives_the_message_back(opened):
    chat, _, err = opened
    chat.settings = chat.settings.with_value("max-context", "60")
    code, out, _ = ran(opened, "x" * 90, "hi")
    assert code == 5 and "prompt is too long: 108 tokens > 59 maximum" in err.getvalue()
    assert chat.given == ["", "x" * 90, ""] and [why[:16] for why in chat.refusals] == ["", "prompt is too lo", ""]
    assert len(chat.conversation.turns) == 1 and out
    assert ran(opened, "/nothing", lenient=True)[0] == 0 and chat.refusals == ["", ""]  # a person saw it


def test_ctrl_c_twice_within_a_second_leaves_with_130(opened):
    slow = Presses(iter([0.0, 1.5, 3.0]).__next__)
    assert ran(opened, KeyboardInterrupt, KeyboardInterrupt, KeyboardInterrupt, presses=slow)[0] == 0
    fast = Presses(iter([0.0, 1.5, 2.4]).__next__)
    assert ran(opened, *[KeyboardInterrupt] * 3, "hello", presses=fast)[:2] == (130, "")


def test_a_message_that_begins_with_a_slash_needs_a_space_or_fences(opened):
    ran(opened, " /etc is a folder", '"""/etc"""')
    assert [turn.user for turn in opened[0].conversation.turns] == [" /etc is a folder", "/etc"]


def test_blank_lines_are_no_messages_and_leaving_reads_no_further(opened):
    assert ran(opened, "", "   ", '""""""')[:2] == ran(opened, "/exit", "hello")[:2] == (0, "")


def lines_of(text, prompt=None):
    reader, found = LineReader(io.BytesIO(text), prompt), []
    while True:
        try:
            found.append(reader.read(""))
        except EOFError:
            return found


def test_a_line_is_a_message_and_fences_hold_several_lines():
    assert lines_of(b'a\r\n"""b\nc\n"""\nd') == ["a", '"""b\nc\n"""', "d"]
    assert lines_of(b'"""never\nclosed') == ['"""never\nclosed']


def test_a_line_that_is_not_utf8_is_a_usage_error():
    with pytest.raises(UsageError, match="byte 0xe9 at 1 of 3"):
        lines_of(b"h\xe9\n")


def test_a_dumb_terminal_gets_a_prompt():
    prompt = io.StringIO()
    assert lines_of('"""\nü\n"""\n'.encode(), prompt) == ['"""\nü\n"""']
    assert prompt.getvalue() == "> … … > "


TOKENS = 1536


@pytest.fixture
def small(pair, device_says):
    """A chat on a device that holds the weights and the caches of TOKENS tokens."""
    room = recorded(*pair).pair.fit.at(TOKENS).peak_bytes
    device_says(working_set_bytes=int(1.02 * room / HEADROOM))
    return chat_with(recorded(*pair), max_tokens=8)


@pytest.mark.slow
def test_from_nine_tenths_on_a_chat_says_so_then_refuses_loses_nothing_and_goes_on_after_clear(small):
    """The bug: a chat looked at its memory for 4,096 tokens when it began, and crossed it in silence."""
    chat, _, err = small
    assert chat.context_limit == chat.request().max_context == TOKENS
    assert ran(small, "x" * 300)[0] == 0
    assert "memory" not in err.getvalue() + "".join(chat.toolbar)
    assert ran(small, *["x" * 300] * 3)[0] == 0
    assert err.getvalue().count("memory 9") == 1 and chat.toolbar[0].startswith("memory 9")
    assert "--kv-bits 8 shrinks the caches, --drafter none frees" in chat.toolbar[0]
    turns = chat.conversation.turns
    assert ran(small, "y" * 900)[0] == 5
    assert chat.conversation.turns == turns and chat.given[-1] == "y" * 900
    assert f"tokens > {TOKENS - 1} maximum: the memory of " in err.getvalue()
    assert "/clear starts anew; --kv-bits 8" in err.getvalue()
    assert ran(small, "/clear", "y" * 900)[0] == 0
    assert len(chat.conversation.turns) == 1


def test_a_pair_that_was_loaded_though_it_does_not_fit_is_not_refused_word_by_word(pair, device_says):
    device_says(working_set_bytes=1000)
    assert ran(chat_with(recorded(*pair), max_tokens=8), "hello")[0] == 0


SECOND_TURN_FAILS = "{% if messages|length > 1 %}{{ 1 / 0 }}{% endif %}{{ messages[0].content }}"


def test_a_save_that_fails_shows_one_line_and_the_message_is_not_given_back(opened, tmp_path, full_disk):
    """It was: the message stood in the editor again and in the conversation, so it was sent twice."""
    chat, _, err = opened
    chat.saved_to = tmp_path / "chat.jsonl"
    with full_disk(errno.ENOSPC):
        code, _, _ = ran(opened, "hello", "again")
    assert (code, chat.given) == (5, ["", "", ""])
    assert [turn.user for turn in chat.conversation.turns] == ["hello", "again"]
    assert err.getvalue().count("chat.jsonl cannot be written: No space left on device") == 2
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_template_that_fails_on_the_second_turn_leaves_the_first_and_loads_no_transcript_of_two(pair, tmp_path):
    """A division by zero in a template ended the chat with exit 1 and its Python name."""
    tokenizer = tokenizer_in(tmp_path / "t", chat_template=SECOND_TURN_FAILS)
    path = tmp_path / "two.jsonl"
    turn = '{"role": "user", "content": "a"}\n{"role": "assistant", "content": "b"}\n'
    path.write_text('{"transcript": 1, "id": "x"}\n' + turn * 2)
    opened = chat_with(recorded(pair[0], tokenizer))
    code, _, err = ran(opened, "hello", "again", "/show settings", f"/load {path}")
    assert code == 2 and "chat template refuses the messages user, assistant, user: division by zero" in err
    assert [turn.user for turn in opened[0].conversation.turns] == ["hello"] and err.count("division by zero") == 2
    assert opened[0].given == ["", "", "again", "", ""]


@pytest.mark.parametrize("error", [RecursionError("too deep"), OSError(28, "No space left")])
def test_a_failure_that_nobody_foresaw_ends_one_line(opened, monkeypatch, error):
    def ask(self, text, attempt=0):
        raise error

    monkeypatch.setattr(Chat, "ask", ask)
    code, _, err = ran(opened, "hello", "again", lenient=True)
    assert (code, opened[0].given) == (0, ["", "hello", "again"])
    assert err.count("hint: ") == 2 and type(error).__name__ not in err
