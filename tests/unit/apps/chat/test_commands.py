"""Everything that can be typed after a slash, without a terminal; /schema, /regex and /grammar keep their shape."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from fakes.chat import chat_with, ran, recorded
from fakes.models import tiny_folder
from specdec_cli.apps.chat.chat import Loaded
from specdec_cli.apps.chat.commands import ALIASES, Leave, run_command, stats_rows, suggestions
from specdec_cli.apps.chat.settings import ChatSettings
from specdec_cli.core.errors import UsageError
from specdec_cli.core.events import Round
from specdec_cli.core.request import Request
from specdec_cli.core.stats import ChatStats
from specdec_cli.pairs.catalog import registry
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session.slot import Slot


def test_draft_off_is_plain_decoding_in_the_same_conversation(opened):
    chat, _, err = opened
    ran(opened, "hello", "/draft off", "again", "/draft on", "again")
    kinds = [turn.answer.facts["drafter"] for turn in chat.conversation.turns]
    assert kinds == ["model", "none", "model"]
    assert "nothing drafted" not in err.getvalue() and "the draft is off: plain decoding" in err.getvalue()


def test_show_tells_settings_the_answer_and_all(opened):
    chat, _, err = opened
    ran(opened, "hello", "/show", "/show last", "/show all", "/show thinking")
    shown = err.getvalue()
    assert "context" in shown and f"{chat.context_tokens} of" in shown
    assert shown.count(chat.conversation.turns[0].answer.text.split()[0]) >= 2
    assert "the last answer has no thinking" in shown


def test_stats_have_one_acceptance_rate_and_every_position():
    stats = ChatStats(replies=1, prompt_tokens=30, cached_tokens=20)
    stats.rounds.decode_seconds = 1.0
    for drafted, accepted in ((0, 0), (2, 2), (2, 0)):
        draft = tuple(range(drafted))
        stats.rounds.fold(Round(0, "model", draft, accepted, 9, (*draft[:accepted], 9), 0.0, 0.1))
    rows = dict(stats_rows(stats))
    assert rows["tokens"] == "5 in 3 target passes, 1.67 a pass"
    assert (rows["accepted"], rows["position"]) == ("50 % of drafted", "1: 50 % 2: 50 %")
    assert rows["prompts"] == "30 tokens, 20 from cache"


def test_save_and_load_bring_the_conversation_back(opened, pair, tmp_path):
    path = tmp_path / "chat.jsonl"
    ran(opened, "hello", "again", f"/save {path}", f"/save {path}")
    other, _, err = chat_with(recorded(*pair))
    run_command(other, f"/load {path}")
    again = tmp_path / "again.jsonl"
    run_command(other, f"/save {again}")
    assert again.read_text().splitlines()[1:] == path.read_text().splitlines()[1:]
    assert other.context_tokens > 0 and "2 turns loaded from" in err.getvalue()
    lines = list(map(json.loads, path.read_text().splitlines()))
    assert lines[0]["target"] == "specdec:demo/target" and "target_revision" in lines[0]
    assert lines[2]["reason"] == "length" and lines[2]["stats"]["draft_acceptance_rate"] is not None
    assert (lines[2]["k"], lines[2]["pair"], lines[2]["temperature"]) == (4, "tiny", 0.0)


def test_draft_on_without_a_draft_lets_the_text_draft(pair):
    session = recorded(*pair)
    session.pair = replace(session.pair, names=("target", None), first=Slot(session.slot.target))
    session.slot = session.pair.first
    chat, _, err = chat_with(session)
    chat.loaded = Loaded(PairSpec(Pair("alone", "specdec:demo/target", None, 4), "model"), session)
    run_command(chat, "/draft on")
    assert chat.request().drafter == "ngram" and "own text drafts" in err.getvalue()


def test_draft_on_takes_the_head_that_drafter_none_left_out_and_drafts_at_k_0_as_the_pair_does(pair):
    """Of a pair with its own head the text drafted; after `-k 0` "the draft is on" was said, and nobody drafted."""
    session, opened = recorded(*pair), []
    session.pair = replace(session.pair, names=("target", None), first=Slot(session.slot.target))
    chat, _, err = chat_with(session, lambda spec: opened.append(spec) or Loaded(spec, recorded(*pair)), k=0)
    chat.loaded = Loaded(PairSpec(registry().pairs["demo-hybrid"], "none"), session)
    chat.settings = replace(chat.settings, drafter="none")
    run_command(chat, "/draft on")
    assert [spec.drafter for spec in opened] == ["mtp"] and chat.request().drafter == "mtp"
    assert chat.request().k == 2 and err.getvalue().endswith("the draft is on: K 2\n")
    run_command(chat, "/pair demo")  # `none` was asked for until then
    assert opened[-1].drafter == "model"


@pytest.mark.parametrize("typed", ["/exit", *(alias for alias, name in ALIASES.items() if name == "/exit")])
def test_other_names_of_leaving_leave_too(opened, typed):
    with pytest.raises(Leave):
        run_command(opened[0], typed)


def words(typed):
    return [word for word, _, _ in suggestions(typed)]


def test_commands_values_pairs_and_files_are_completed_and_messages_are_not(tmp_path, monkeypatch):
    assert words("/s") == ["/system", "/set", "/show", "/stats", "/schema", "/save"]
    assert words("/draft o") == ["on", "off"] and words("/k a") == ["auto"]
    assert words("/pair dem") == ["demo", "demo-hybrid"]
    assert words("/set te") == ["temp"] and words("/think h") == ["high", "hidden"]
    (tmp_path / "other.jsonl").touch()
    (tmp_path / "folder").mkdir()
    assert words(f"/load {tmp_path}/") == [f"{tmp_path}/folder/", f"{tmp_path}/other.jsonl"]
    monkeypatch.chdir(tmp_path)
    assert words("/schema o") == ["off", "other.jsonl"] and words("/regex ") == ["off"]
    assert words("/load nowhere/") == []
    assert words("hello /s") == words("/system a\nb") == words("/unknown x") == []


def test_pair_takes_every_name_that_the_option_takes(pair, tmp_path, monkeypatch):
    """It knew only those of models.toml, and kept a drafter that was the last pair's for want of a draft."""
    session, opened = recorded(*pair), []
    chat, _, _ = chat_with(session, lambda spec: opened.append(spec) or Loaded(spec, session))
    chat.loaded = replace(chat.loaded, spec=replace(chat.loaded.spec, drafter="none"))
    monkeypatch.setenv("SPECDEC_MODEL_FOLDERS", str(tmp_path))
    tiny_folder(tmp_path / "org/Big-1B", seed=2)
    for name in ("org/Big-1B", "big-1b", "demo"):
        run_command(chat, f"/pair {name}")
    assert [(spec.pair.target, spec.drafter) for spec in opened] == [
        ("org/Big-1B", "ngram"), ("org/Big-1B", "ngram"), ("specdec:demo/target", "model"),
    ]  # fmt: skip


SETTINGS = ChatSettings(Request())


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("temp 0.7", "sampling", {"temperature": 0.7}),
        ("top-k 40", "sampling", {"top_k": 40}),
        ("seed 7", "seed", 7),
        ("max-tokens 9", "max_tokens", 9),
        ("max-context default", "max_context", None),
        (r"stop \n\n", "stop", ("\n\n",)),
        ("k 3", "k", 3),
        ("overflow drop-oldest", "overflow", "drop-oldest"),
    ],
)
def test_set_changes_the_request_and_what_a_chat_alone_has(line, field, value):
    changed = SETTINGS.with_value(*line.split(" ", 1))
    assert getattr(changed if hasattr(changed, field) else changed.request, field) == value


SCHEMA = {"enum": ["yes", "no", "perhaps"]}
TEXT = json.dumps(SCHEMA)


@pytest.fixture
def long_chat(opened):
    chat = opened[0]
    chat.settings = chat.settings.with_value("max-tokens", "40")
    return chat


def last(chat):
    return chat.conversation.turns[-1].answer.text


def test_every_answer_keeps_the_shape_until_it_is_taken_off(opened, long_chat):
    chat = long_chat
    run_command(chat, "/regex (ab){2,4}")
    run_command(chat, "/regex")
    assert opened[2].getvalue().endswith("every answer matches this regular expression: (ab){2,4}\n")
    for message in ("hello", "again"):
        chat.ask(message)
        assert re.fullmatch("(ab){2,4}", last(chat))
    run_command(chat, "/regex off")
    chat.ask("free")
    assert chat.settings.request.constraint is None and not re.fullmatch("(ab){2,4}", last(chat))


def test_a_schema_is_text_or_a_file_and_a_grammar_takes_its_place(long_chat, tmp_path):
    chat = long_chat
    path = tmp_path / "s.json"
    path.write_text(TEXT)
    for given in (TEXT, path):
        run_command(chat, f"/schema {given}")
        chat.ask("well?")
        assert json.loads(last(chat)) in SCHEMA["enum"] and "schema" in chat.toolbar
    (tmp_path / "g.lark").write_text('start: "on" | "off"\n')
    run_command(chat, f"/grammar {tmp_path / 'g.lark'}")
    chat.ask("well?")
    assert last(chat) in ("on", "off")


def test_a_stop_string_that_could_cut_a_shape_is_refused_on_either_side(long_chat):
    chat = long_chat
    run_command(chat, "/set stop }")
    with pytest.raises(UsageError):
        run_command(chat, f"/schema {TEXT}")
    run_command(chat, "/set stop off")
    run_command(chat, f"/schema {TEXT}")
    with pytest.raises(UsageError):
        run_command(chat, "/set stop no")
    assert chat.settings.request.stop == ()
    run_command(chat, "/set stop \\n")
