"""Everything that can be typed after a slash, without a terminal; /schema, /regex and /grammar keep their shape."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from fakes.chat import chat_with, ran, recorded
from fakes.models import tiny_folder
from specdec_cli.apps.chat.chat import Loaded
from specdec_cli.apps.chat.commands import ALIASES, COMMANDS, Leave, run_command, settings_rows, stats_rows, suggestions
from specdec_cli.apps.chat.settings import ChatSettings
from specdec_cli.core.errors import UsageError
from specdec_cli.core.events import Round
from specdec_cli.core.request import Request
from specdec_cli.core.stats import ChatStats
from specdec_cli.pairs.catalog import registry
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session.slot import Slot

AS_MESSAGE = "; to send it as a message, put a space before the /"
# What is typed, how the error begins, and the hint, or how it begins.
REFUSED = [
    ("/hlep", "there is no command /hlep", f"the nearest: /help{AS_MESSAGE}"),
    ("/sve x", "there is no command /sve", f"the nearest: /save{AS_MESSAGE}"),
    ("/k 99", "-k 99 is outside 0 to 16", ""),
    ("/k x", "-k x is neither a whole number nor auto", ""),
    ("/set temp 900", "--temp 900.0 is outside 0 to 100", "off is --temp 0"),
    ("/set temp nan", "--temp nan is outside 0 to 100", "off is --temp 0"),
    ("/set temp warm", "/set temp warm is not a number", "off is /set temp 0"),
    ("/set max-tokens 0", "/set max-tokens 0 is below 1", "the nearest that works: /set max-tokens 1"),
    ("/set overflow drop", "/set overflow drop is none of", "the nearest: /set overflow drop-oldest"),
    ("/set tmep 1", "/set tmep is none of", "the nearest: /set temp"),
    ("/show nothing", "/show nothing is none of settings, last, thinking, all", ""),
    ('/schema {"not": {}}', "cannot be enforced: Unimplemented keys", ""),
    (r"/regex [^\s\S]", "it allows nothing", ""),
    ("/grammar nowhere.lark", "/grammar nowhere.lark cannot be read", ""),
    ("/pair dmeo", "no pair named dmeo", ""),
    ("/pair x-7b-GGUF", "x-7b-GGUF is GGUF", ""),
]


@pytest.mark.parametrize(("typed", "message", "hint"), REFUSED)
def test_a_wrong_command_is_two_lines_never_a_prompt_and_changes_nothing(opened, typed, message, hint):
    chat = opened[0]
    before = chat.settings, chat.loaded, chat.conversation
    code, out, err = ran(opened, typed)
    error, advice = err.splitlines()
    assert code in (2, 3) and out == "" and error.startswith("error: ") and message in error, err
    assert advice.startswith(f"hint: {hint}") and advice != "hint: "
    assert (chat.settings, chat.loaded, chat.conversation) == before


def test_every_command_is_in_the_help_and_helps_itself(opened):
    run_command(opened[0], "/help")
    shown = opened[2].getvalue()
    assert all(command.name in shown and command.help for command in COMMANDS)
    assert "Ctrl-C" in shown and "Alt-Enter" in shown


def test_draft_off_is_plain_decoding_in_the_same_conversation(opened):
    chat, _, err = opened
    ran(opened, "hello", "/draft off", "again", "/draft on", "again")
    kinds = [turn.answer.facts["drafter"] for turn in chat.conversation.turns]
    assert kinds == ["model", "none", "model"]
    assert "nothing drafted" not in err.getvalue() and "the draft is off: plain decoding" in err.getvalue()


def test_k_is_checked_and_used(opened):
    chat, _, err = opened
    run_command(chat, "/k 2")
    chat.ask("hello")
    assert chat.conversation.turns[-1].answer.facts["k"] == 2
    run_command(chat, "/k auto")
    assert chat.request().k == "auto"
    run_command(chat, "/k")  # shows it alone
    assert chat.request().k == "auto" and err.getvalue().splitlines()[-1] == "K auto"


def test_system_is_set_shown_and_taken_off(opened):
    chat, _, err = opened
    run_command(chat, "/system be kind\nand brief")
    assert chat.conversation.system == "be kind\nand brief" and chat.context_tokens
    run_command(chat, "/system")
    run_command(chat, "/system off")
    assert chat.conversation.system is None
    assert err.getvalue().endswith("no system message; /system TEXT sets one\n")


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


def test_the_settings_shown_are_those_in_effect(opened):
    chat, _, _ = opened
    for typed in ("temp 0.7", "seed 7", "max-context 99"):
        run_command(chat, f"/set {typed}")
    rows = dict(settings_rows(chat))
    assert (rows["temp"], rows["top-p"], rows["seed"], rows["stop"]) == ("0.7", "1", "7", "off")
    assert (rows["k"], rows["context"], rows["system"]) == ("4, drafter model", "0 of 99 tokens", "none")
    assert rows["pair"] == "tiny: target target, draft draft" and rows["saved to"].startswith("nothing: /save FILE")


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
