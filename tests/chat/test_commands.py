"""Everything that can be typed after a slash, and the loop around it, without a terminal."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from fakes.chat import networks, only_ascii, recorded, talk_with, tokenizer_in
from specdec_cli.chat.chat import Loaded
from specdec_cli.chat.commands import COMMANDS, Leave, find, run_command
from specdec_cli.chat.completion import suggestions
from specdec_cli.chat.loop import LineReader, is_open, run_chat, unfenced
from specdec_cli.chat.settings import Settings
from specdec_cli.errors import NotAvailable, SpecdecError, UsageError
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.interrupt import Presses
from specdec_cli.session.load import Slot
from specdec_cli.ui.chat.reports import toolbar
from specdec_cli.ui.chat.screen import copied_here


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return networks("qwen3"), tokenizer_in(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def chat(pair):
    return talk_with(recorded(*pair), max_tokens=8, logit_bias=only_ascii(pair[1]))


def ran(chat, *lines, lenient=False, presses=None):
    """(exit code, stdout, stderr) of a chat that reads these lines; a KeyboardInterrupt in them is pressed."""
    talk, out, err = chat
    talk.presses = presses or Presses(iter(range(0, 1000, 10)).__next__)

    class Script:
        def __init__(self):
            self.lines, self.given = list(lines), []

        def read(self, text):
            self.given.append(text)
            if not self.lines:
                raise EOFError
            line = self.lines.pop(0)
            if line is KeyboardInterrupt:
                raise KeyboardInterrupt
            return line

    reader = Script()
    code = run_chat(talk, reader, lenient)
    talk.given = reader.given
    return code, out.getvalue(), err.getvalue()


def test_answers_alone_are_on_stdout(chat):
    code, out, err = ran(chat, "hello", "and then?")
    answers = [turn.answer.text for turn in chat[0].conversation.turns]
    assert (code, out) == (0, "".join(f"{answer}\n" for answer in answers))
    assert err.count("8 tokens in") == 2


@pytest.mark.parametrize(
    ("typed", "nearest"), [("/hlep", "/help"), ("/retyr", "/retry"), ("/sve x", "/save"), ("/by", "/bye")]
)
def test_a_mistyped_command_is_an_error_with_the_nearest_and_never_a_prompt(chat, typed, nearest):
    code, out, err = ran(chat, typed)
    assert (code, out, chat[0].conversation.turns) == (2, "", ())
    assert err == (
        f"error: {typed.split()[0]} is no command\n"
        f"hint: the nearest: {nearest}; a message that begins with / needs a space before it\n"
    )


def test_a_failure_leaves_the_chat_going_and_gives_the_message_back(chat):
    talk, _, err = chat
    talk.settings = talk.settings.with_value("max-context", "60")
    code, out, _ = ran(chat, "x" * 90, "hi")
    assert code == 5 and "has 108 tokens and the context holds 60" in err.getvalue()
    assert talk.given == ["", "x" * 90, ""]
    assert len(talk.conversation.turns) == 1 and out


def test_a_person_sees_each_failure_so_the_chat_ends_with_0(chat):
    assert ran(chat, "/nothing", lenient=True)[0] == 0


def test_ctrl_c_twice_within_a_second_leaves_with_130(chat):
    slow = Presses(iter([0.0, 1.5, 3.0]).__next__)
    assert ran(chat, KeyboardInterrupt, KeyboardInterrupt, KeyboardInterrupt, presses=slow)[0] == 0
    fast = Presses(iter([0.0, 1.5, 2.4]).__next__)
    assert ran(chat, *[KeyboardInterrupt] * 3, "hello", presses=fast)[:2] == (130, "")


@pytest.mark.parametrize("word", ["/exit", "/bye", "/quit"])
def test_leaving_reads_no_further(chat, word):
    assert ran(chat, word, "hello")[:2] == (0, "")


def test_a_message_that_begins_with_a_slash_needs_a_space_or_fences(chat):
    ran(chat, " /etc is a folder", '"""/etc"""')
    assert [turn.user for turn in chat[0].conversation.turns] == [" /etc is a folder", "/etc"]


def test_blank_lines_are_no_messages(chat):
    assert ran(chat, "", "   ", '""""""')[:2] == (0, "")


# Lines


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


@pytest.mark.parametrize(
    ("text", "open_", "inner"),
    [
        ("a", False, "a"),
        ('"""a', True, "a"),
        ('"""', True, ""),
        ('"""a"""', False, "a"),
        ('"""\na\nb\n"""', False, "a\nb"),
        ('a"""', False, 'a"""'),
        ('""""', True, '"'),
    ],
)
def test_fences_open_close_and_go(text, open_, inner):
    assert (is_open(text), unfenced(text)) == (open_, inner)


# Commands


def test_every_command_is_in_the_help_and_helps_itself(chat):
    run_command(chat[0], "/help")
    told = chat[2].getvalue()
    assert all(command.name in told and command.help for command in COMMANDS)
    assert "Ctrl-C" in told and "Alt-Enter" in told


def test_draft_off_is_plain_decoding_in_the_same_conversation(chat):
    talk, _, err = chat
    ran(chat, "hello", "/draft off", "again", "/draft on", "again")
    kinds = [turn.answer.facts["drafter"] for turn in talk.conversation.turns]
    assert kinds == ["model", "none", "model"]
    assert "nothing drafted" not in err.getvalue() and "the draft is off: plain decoding" in err.getvalue()


def test_k_is_checked_and_used(chat):
    talk, _, _ = chat
    run_command(talk, "/k 2")
    talk.ask("hello")
    assert talk.conversation.turns[-1].answer.facts["k"] == 2
    run_command(talk, "/k auto")
    assert talk.request().k == "auto"
    with pytest.raises(UsageError, match="/k 99 is outside 0 to 16") as caught:
        run_command(talk, "/k 99")
    assert caught.value.hint == "the nearest that works: /k 16"
    with pytest.raises(UsageError, match="/k x is no whole number"):
        run_command(talk, "/k x")
    assert talk.request().k == "auto"


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("temp 0.7", "sampling", {"temperature": 0.7}),
        ("top-k 40", "sampling", {"top_k": 40}),
        ("temp default", "sampling", {"temperature": None}),
        ("seed 7", "seed", 7),
        ("seed off", "seed", None),
        ("max-tokens 9", "max_tokens", 9),
        ("max-context 99", "max_context", 99),
        ("overflow drop-oldest", "overflow", "drop-oldest"),
        ("think hidden", "think", "hidden"),
        ("rule coupled", "rule", "coupled"),
        (r"stop \n\n", "stop", ("\n\n",)),
        ("k 3", "k", 3),
    ],
)
def test_set_sets(line, field, value):
    assert getattr(Settings().with_value(*line.split(" ", 1)), field) == value


@pytest.mark.parametrize(
    ("name", "value", "message", "hint"),
    [
        ("temp", "900", "/set temp 900 is outside 0 to 100", "off is /set temp 0"),
        ("temp", "nan", "/set temp nan is outside 0 to 100", "off is /set temp 0"),
        ("top-p", "x", "/set top-p x is no number", "for example: /set top-p 1"),
        ("max-tokens", "0", "/set max-tokens 0 is below 1", "the nearest that works: /set max-tokens 1"),
        (
            "overflow",
            "drop",
            "/set overflow drop is none of refuse, drop-oldest",
            "the nearest: /set overflow drop-oldest",
        ),
        ("tmep", "1", "/set tmep is none of", "the nearest: /set temp VALUE"),
    ],
)
def test_set_checks_with_both_values(name, value, message, hint):
    with pytest.raises(UsageError) as caught:
        Settings().with_value(name, value)
    assert message in caught.value.message and caught.value.hint == hint


def test_set_without_a_value_lists_the_names(chat):
    with pytest.raises(UsageError, match="/set temp lacks a value") as caught:
        run_command(chat[0], "/set temp")
    assert "top-p" in caught.value.hint


def test_system_is_set_shown_and_taken_off(chat):
    talk, _, err = chat
    run_command(talk, "/system be kind\nand brief")
    assert talk.conversation.system == "be kind\nand brief" and talk.context_tokens
    run_command(talk, "/system")
    run_command(talk, "/system off")
    assert talk.conversation.system is None
    assert err.getvalue().endswith("no system message; /system TEXT sets one\n")


def test_show_tells_settings_the_answer_and_all(chat):
    talk, _, err = chat
    ran(chat, "hello", "/show", "/show last", "/show all", "/show thinking", "/show nothing")
    told = err.getvalue()
    assert "context" in told and f"{talk.context_tokens} of" in told
    assert told.count(talk.conversation.turns[0].answer.text.split()[0]) >= 2
    assert "it did not think" in told and "/show nothing is none of settings, last, thinking, all" in told


def test_commands_that_need_an_answer_say_so(chat):
    for line in ("/retry", "/undo", "/show last", "/copy"):
        with pytest.raises(UsageError, match="needs an answer, and there is none yet"):
            run_command(chat[0], line)


def test_stats_sum_over_replies(chat):
    talk, _, err = chat
    ran(chat, "/stats", "hello", "again", "/stats")
    _, *rest = err.getvalue().split("replies")
    assert "none yet" in rest[0] and "16 in" in rest[1]
    assert talk.stats.rounds.emitted_tokens == 16 and talk.stats.cached_tokens > 0
    assert "accepted" in rest[1] and "by position" in rest[1]


def test_save_and_load_bring_the_conversation_back(chat, pair, tmp_path):
    path = tmp_path / "chat.jsonl"
    ran(chat, "hello", "again", f"/save {path}", f"/save {path}")
    other, _, err = talk_with(recorded(*pair))
    run_command(other, f"/load {path}")
    again = tmp_path / "again.jsonl"
    run_command(other, f"/save {again}")
    assert again.read_text().splitlines()[1:] == path.read_text().splitlines()[1:]
    assert other.context_tokens > 0 and "2 turns loaded from" in err.getvalue()
    lines = list(map(json.loads, path.read_text().splitlines()))
    assert (
        lines[0]["target"] == "specdec:demo/target" and "target_revision" in lines[0] and lines[0]["settings"]["drafts"]
    )
    assert lines[2]["reason"] == "length" and lines[2]["stats"]["draft_acceptance_rate"] is not None
    assert (lines[2]["k"], lines[2]["pair"], lines[2]["temperature"]) == (4, "tiny", 0.0)


def test_a_damaged_file_is_not_loaded_and_the_conversation_stays(chat, tmp_path):
    talk, _, err = chat
    path = tmp_path / "bad.jsonl"
    path.write_text('{"transcript": 1}\n{"role": "user"')
    code, _, _ = ran(chat, "hello", f"/load {path}")
    assert code == 2 and len(talk.conversation.turns) == 1
    assert f"error: {path}:2 is damaged: it is not JSON\nhint: nothing was loaded" in err.getvalue()


def test_a_saved_chat_writes_every_turn_and_clear_begins_another_file(chat, tmp_path):
    talk, _, _ = chat
    talk.saved_to = path = tmp_path / "chat.jsonl"
    ran(chat, "hello")
    assert len(path.read_text().splitlines()) == 3
    ran(chat, "again", "/undo")
    assert len(path.read_text().splitlines()) == 3
    ran(chat, "/clear", "anew")
    assert len(path.read_text().splitlines()) == 3
    assert len((tmp_path / "chat-2.jsonl").read_text().splitlines()) == 3


def test_overflow_drops_the_oldest_visibly_or_refuses(chat):
    talk, _, err = chat
    for line in ("/system be kind", "/set max-context 120", "one " * 5, "two " * 5):
        ran(chat, line)
    assert ran(chat, "three " * 5)[0] == 5
    assert "the context holds 120" in err.getvalue()
    assert ran(chat, "/set overflow drop-oldest", "three " * 5)[0] == 0
    assert "left out the 2 oldest turns: the context holds 120 tokens; the system message stays" in err.getvalue()
    ids = talk.loaded.session.replies[-1][0]
    text = talk.loaded.session._tokenizer._wrapper.decode(ids)
    assert "be kind" in text and "one one" not in text and "three three" in text
    assert len(talk.conversation.turns) == 3


def test_the_drafts_own_context_counts(pair):
    session = recorded(*pair)
    session.slot.draft.network.context_limit = 50
    talk, _, _ = talk_with(session)
    assert talk.context_limit == 50
    run_command(talk, "/draft off")
    assert talk.context_limit is None


def test_another_pair_takes_over_and_a_failing_one_leaves_the_old(pair):
    session, opened = recorded(*pair), []

    def open_pair(chosen, drafter):
        opened.append(chosen.name)
        if chosen.name == "demo" and len(opened) == 1:
            raise NotAvailable("broken", "mend it")
        return Loaded(chosen, session, drafter)

    talk, _, err = talk_with(session, open_pair)
    with pytest.raises(NotAvailable):
        run_command(talk, "/pair demo")
    assert (talk.loaded.pair.name, opened) == ("tiny", ["demo", "tiny"])
    run_command(talk, "/pair demo")
    assert talk.loaded.pair.name == "demo" and "demo: target target, draft draft" in err.getvalue()
    with pytest.raises(NotAvailable, match="no pair named dmeo"):
        run_command(talk, "/pair dmeo")
    assert talk.loaded.pair.name == "demo"


def test_draft_on_without_a_draft_lets_the_text_draft(pair):
    session = recorded(*pair)
    session.pair = replace(session.pair, names=("target", None), first=Slot(session.slot.target))
    session.slot = session.pair.first
    talk, _, err = talk_with(session)
    talk.loaded = Loaded(Pair("alone", "specdec:demo/target", None, 4), session, "model")
    run_command(talk, "/draft on")
    assert talk.request().drafter == "ngram" and "own text drafts" in err.getvalue()


def test_copy_needs_a_terminal(chat, monkeypatch):
    ran(chat, "hello")
    monkeypatch.setattr("specdec_cli.ui.chat_screen.copied_here", lambda text: False)
    with pytest.raises(SpecdecError, match="no terminal here"):
        run_command(chat[0], "/copy")


def test_a_local_clipboard_is_preferred_to_the_terminals(tmp_path):
    command = tmp_path / "pbcopy"
    command.write_text(f"#!/bin/sh\ncat > {tmp_path}/copied\n")
    command.chmod(0o755)
    here = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert copied_here("é日", here, "darwin") and (tmp_path / "copied").read_text() == "é日"
    assert not copied_here("a", here | {"SSH_CONNECTION": "1"}, "darwin")
    assert not copied_here("a", here, "linux")
    command.write_text("#!/bin/sh\nexit 1\n")
    assert not copied_here("a", here, "darwin")


def test_edit_needs_a_terminal(chat, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(UsageError, match="/edit needs a terminal"):
        run_command(chat[0], "/edit")


def test_names_and_aliases_are_unique():
    names = [name for command in COMMANDS for name in (command.name, *command.aliases)]
    assert len(names) == len(set(names))
    with pytest.raises(Leave):
        find("/quit").act(None, "")


# Completion


def words(typed):
    return [found.word for found in suggestions(typed)]


def test_commands_values_pairs_and_files_are_completed(tmp_path, monkeypatch):
    assert words("/s") == ["/system", "/set", "/show", "/stats", "/save"]
    assert words("/draft o") == ["on", "off"]
    assert words("/pair dem") == ["demo"]
    assert words("/set te") == ["temp"]
    assert words("/set think h") == ["think hidden"]
    assert words("/k a") == ["auto"]
    (tmp_path / "talk.jsonl").touch()
    (tmp_path / "folder").mkdir()
    assert words(f"/load {tmp_path}/") == [f"{tmp_path}/folder/", f"{tmp_path}/talk.jsonl"]
    monkeypatch.chdir(tmp_path)
    assert words("/load t") == ["talk.jsonl"]
    assert words("/load nowhere/") == []


def test_messages_are_not_completed():
    assert words("hello /s") == [] and words("/system a\nb") == [] and words("/unknown x") == []


def test_the_toolbar_says_pair_k_temperature_context_and_acceptance(chat):
    talk, _, _ = chat
    assert toolbar(talk.toolbar, 100) == "tiny · K 4 · temp 0 · context 0"
    talk.settings = talk.settings.with_value("max-context", "500")
    talk.ask("hello")
    rate = talk.stats.rounds.draft_acceptance_rate
    assert (
        toolbar(talk.toolbar, 100)
        == f"tiny · K 4 · temp 0 · context {talk.context_tokens} / 500 · accepted {round(100 * rate)} %"
    )
    assert toolbar(talk.toolbar, 22) == "tiny · K 4 · temp 0"
    run_command(talk, "/draft off")
    assert "plain decoding" in toolbar(talk.toolbar, 100)
