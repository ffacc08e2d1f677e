"""config.toml: what is refused and how, which source stands above which, presets, and what changes leave alone."""

from __future__ import annotations

import errno
import json
import os
from itertools import pairwise
from unittest.mock import Mock

import pytest
import typer

from specdec_cli import main
from specdec_cli.apps.config.command import KINDS, read_settings
from specdec_cli.command.table import SETTINGS, is_setting
from specdec_cli.core import tomlfile
from specdec_cli.core.errors import UsageError
from specdec_cli.system.config import model_folders
from specdec_cli.terminal import display

OF_ANOTHER_TYPE = {bool: ['"yes"', "1"], int: ['"many"', "1.5"], float: ['"warm"', "true"], str: ["true", "[1]"]}
KIND = {key: KINDS.get(row.metavar, str) for key, row in SETTINGS.items()}
TYPES = [(f"{key} = {value}", key) for key, kind in KIND.items() for value in OF_ANOTHER_TYPE[kind]]


def test_a_value_of_another_type_is_two_lines_with_file_and_line(specdec):
    for text, key in TYPES:
        specdec.config.write_text(f"# mine\n{text}\n")
        with pytest.raises(UsageError) as refused:
            read_settings()
        assert refused.value.message.startswith(f"{specdec.config}:2: {key} "), text
        assert f"specdec config set {key} " in refused.value.hint, text


def test_help_needs_no_config(specdec):
    specdec.config.write_text("k = 99")
    for words in (["-h"], ["run", "-h"], ["help", "run"], ["config", "set", "k", "4"]):
        assert specdec(*words)[0] == 0, words
    assert specdec.config.read_text() == "k = 4"


def test_every_setting_is_an_options_and_has_its_type():
    """The keys of the file are held nowhere else; what stands for a value in the help says its type."""
    commands, seen = typer.main.get_command(main.app).commands, set()
    for name, command in commands.items():
        for option in command.params:
            if is_setting(name, option.name):
                assert option.type_descriptor.annotation is KIND[option.name], (name, option.name)
            seen.add(option.name)
    assert SETTINGS.keys() <= seen and {"system", "k", "pair", "temp", "plain"} <= SETTINGS.keys()


# Which source stands above which.


def of_models_toml(k):
    return f'schema_version = 1\n[pairs.demo]\ntarget = "specdec:demo/target"\ndraft = "specdec:demo/draft"\nk = {k}\n'


SOURCES = ["flag", "preset", "variable", "config", "models.toml", "packaged"]


@pytest.mark.parametrize(("upper", "lower"), [*pairwise(SOURCES)])
def test_each_source_stands_above_the_next(specdec, monkeypatch, upper, lower):
    """K of a reply; where a source is at work, all below it are, too. The demo pair is packaged with a K of 2."""
    values, line = {name: 10 - at for at, name in enumerate(SOURCES)} | {"packaged": 2}, ["run", "-p", "demo"]
    at_work = SOURCES[SOURCES.index(upper) :]
    if "flag" in at_work:
        line += ["-k", values["flag"]]
    if "preset" in at_work:
        line += ["-t", "a"]
    if "variable" in at_work:
        monkeypatch.setenv("SPECDEC_K", str(values["variable"]))
    if "config" in at_work:
        specdec.config.write_text(f"k = {values['config']}\n[presets.a]\nk = {values['preset']}\n")
    if "models.toml" in at_work:
        specdec.models.write_text(of_models_toml(values["models.toml"]))
    start = json.loads(specdec(*line, "--raw", "-n", "1", "--json", "hi")[1].splitlines()[0])
    assert (start["k"], values[upper] != values[lower]) == (values[upper], True)


def test_the_config_stands_above_what_the_target_says_of_itself(specdec):
    """The last of the sources: of no value both the pair and its target say something."""
    line = ("run", "-p", "demo", "--raw", "-n", "1", "--json", "hi")
    own = json.loads(specdec(*line)[1].splitlines()[0])["temperature"]
    specdec.config.write_text(f"temp = {own + 0.5}\n")
    assert json.loads(specdec(*line)[1].splitlines()[0])["temperature"] == own + 0.5


def test_show_names_the_source_of_each_value(specdec, monkeypatch):
    specdec.config.write_text('# mine\nmax_tokens = 9\nplain = true\npair = "demo"\n[presets.a]\nmax_tokens = 8\n')
    monkeypatch.setenv("SPECDEC_TEMP", "0.5")
    monkeypatch.setenv("SPECDEC_MAX_TOKENS", "7")
    shown = {row.split("\t")[0]: row.split("\t")[1:] for row in specdec("config", "show", "--all")[1].splitlines()}
    assert shown["max_tokens"] == ["7", "SPECDEC_MAX_TOKENS"] and shown["temp"] == ["0.5", "SPECDEC_TEMP"]
    assert shown["pair"] == ["demo", "config.toml:4"] and shown["k"] == ["2", "pair demo, packaged models.toml"]
    assert shown["top_p"] == ["–", "the target's own"] and shown["rule"] == ["auto", "default"]
    assert shown["file"] == [str(specdec.config)] and SETTINGS.keys() < shown.keys()
    monkeypatch.delenv("SPECDEC_MAX_TOKENS")
    assert "max_tokens\t9\tconfig.toml:2\n" in specdec("config", "show")[1]
    out = specdec("config", "show", "-t", "a")[1]
    assert "max_tokens\t8\tconfig.toml:6\n" in out and "top_p" not in out
    specdec.config.unlink()
    specdec.models.write_text('default_pair = "demo"\n' + of_models_toml(5))
    out = specdec("config", "show", "--all")[1]
    assert "pair\tdemo\tmodels.toml:1\n" in out and "k\t5\tpair demo, your models.toml\n" in out


def test_show_tells_a_default_that_is_another_in_another_command(specdec):
    """`cache_disk` was "off", while a chat keeps up to 8 GB, and `max_tokens` 512, while its is 2048."""
    rows = {row.split("\t")[0]: row.split("\t")[1:] for row in specdec("config", "show", "--all")[1].splitlines()}
    assert rows["max_tokens"] == ["512", "default; chat: 2048; race: 256; audit: 64"]
    assert rows["cache_disk"] == ["–", "off; chat: 8 GB, at most 2 % of what is free"]
    assert rows["top_p"] == ["–", "the target's own"]


@pytest.mark.parametrize("line", ["8_000_000_000", "'8 GB'", "0", "'off'", "1.5e9"])
def test_a_size_is_a_text_or_a_number_and_another_is_refused_when_it_is_set(specdec, line):
    """A right number stopped every command, and a wrong text only the chats, after it was set."""
    specdec.config.write_text(f"cache_disk = {line}\n")
    assert specdec("chat", "-p", "demo", "-q")[0] == 0
    told = (2, "cache_disk 5XB is not a size", "for example: specdec config set cache_disk 8GB, or specdec config set ")
    code, message, hint = specdec.refused("config", "set", "cache_disk", "5XB")
    assert (code, message, hint) == (*told[:2], told[2] + "cache_disk off")


# Presets.

REVIEWER = '[presets.reviewer]\npair = "demo"\nsystem = "You find faults."\ntemp = 0.25\nmax_tokens = 1\n'


@pytest.mark.parametrize("command", [["run", "--raw", "--json", "-t", "reviewer", "hi"], ["chat", "-t", "reviewer"]])
def test_a_preset_is_taken_by_its_name_and_hides_variables(specdec, monkeypatch, command, tmp_path):
    specdec.config.write_text(REVIEWER)
    monkeypatch.setenv("SPECDEC_TARGET", "org/nowhere")
    monkeypatch.setenv("SPECDEC_MAX_TOKENS", "5")
    monkeypatch.setenv("SPECDEC_TEMP", "3")
    trace = tmp_path / "trace.jsonl"
    code, _, err = specdec(*command, "--trace", trace, stdin=b"hi\n" if "chat" in command else b"")
    events = [json.loads(line) for line in trace.read_text().splitlines()]
    assert code == 0, err
    start, finish = events[0], next(event for event in events if event["event"] == "finish")
    assert (start["temperature"], finish["stats"]["emitted_tokens"]) == (0.25, 1)


def test_a_pair_on_the_line_hides_variables_of_models_and_a_target_the_one_of_a_pair(specdec, monkeypatch, tiny_pair):
    monkeypatch.setenv("SPECDEC_TARGET", "org/nowhere")
    monkeypatch.setenv("SPECDEC_DRAFT", "org/nowhere")
    run = "run", "--raw", "-n", "1"
    for line in ((*run, "-p", "demo", "hi"), (*run, "demo", "hi"), ("check", "demo")):
        assert specdec(*line)[0] == 0, line
    assert "org/nowhere" in specdec.refused("run", "hi")[1]
    monkeypatch.delenv("SPECDEC_TARGET")
    monkeypatch.delenv("SPECDEC_DRAFT")
    monkeypatch.setenv("SPECDEC_PAIR", "nosuch")
    assert specdec(*run, "--target", tiny_pair[0], "hi")[0] == 0


def test_models_on_the_line_hide_a_presets_pair(specdec, tiny_pair):
    specdec.config.write_text(REVIEWER.replace("demo", "llama-70b"))
    assert specdec("run", "-t", "reviewer", "--raw", "--target", tiny_pair[0], "hi")[0] == 0
    assert specdec.refused("run", "-t", "reviewer", "--raw", "hi")[1].startswith("llama-70b is not downloaded (")


def test_a_saved_conversation_keeps_its_system_message_unless_the_line_has_another(specdec, tiny_pair, tmp_path):
    saved, said = tmp_path / "talk.jsonl", lambda text: f'"system", "content": "{text}"' in saved.read_text()
    talk = ("chat", "-q", "--target", tiny_pair[0], "--drafter", "none", "-n", "1")
    assert specdec(*talk, "-s", "One.", "--save", saved, stdin=b"hi\n")[0] == 0
    specdec.config.write_text('system = "Two."\n[presets.a]\nsystem = "Three."\n')
    assert specdec(*talk, "--resume", saved, stdin=b"hi\n")[0] == 0 and said("One.")
    assert specdec(*talk, "--resume", saved, "-t", "a", stdin=b"hi\n")[0] == 0 and said("Three.")


# Changes.

HAND_WRITTEN = '# top\nk = 3  # from the forum\n\n# Liked.\n[presets.a]\ntemp = 0.5 # cool\nsystem = "Be short."\n'


@pytest.mark.parametrize(
    ("words", "old", "new"),
    [
        (["k", "auto"], "k = 3 ", 'k = "auto" '),
        (["presets.a.temp", "1"], "temp = 0.5 #", "temp = 1 #"),
        (["max-tokens", "9"], "forum\n", "forum\nmax_tokens = 9\n"),
        (["plain", "true"], "forum\n", "forum\nplain = true\n"),
        (["system", "12 apples"], "forum\n", 'forum\nsystem = "12 apples"\n'),
        (["presets.a.max_tokens", "9"], '"Be short."\n', '"Be short."\nmax_tokens = 9\n'),
        (["presets.b.k", "0"], '"Be short."\n', '"Be short."\n\n[presets.b]\nk = 0\n'),
        (["pair", "demo"], "forum\n", 'forum\npair = "demo"\n'),
        (["k"], "k = 3  # from the forum\n", ""),
        (["presets.a.temp"], "temp = 0.5 # cool\n", ""),
    ],
)
def test_set_changes_its_line_and_no_other(specdec, words, old, new):
    specdec.config.write_text(HAND_WRITTEN)
    code, out, err = specdec("config", "set", *words)
    assert (code, out, specdec.config.read_text()) == (0, "", HAND_WRITTEN.replace(old, new))
    value = words[-1] if words[-1] in ("4", "1", "9", "true", "-0.5", "0") else f'"{words[-1]}"'
    said = f"removed {words[0]} from" if len(words) < 2 else f"set {words[0]} to {value} in"
    assert err == f"{said} {specdec.config}\n"
    read_settings()


@pytest.mark.parametrize(
    ("number", "code", "hint"),
    [(errno.ENOSPC, 5, "free some space first"), (errno.EACCES, 1, "check the folder's permissions")],
)
def test_a_full_disk_is_not_blamed_on_permissions(specdec, monkeypatch, number, code, hint):
    monkeypatch.setattr(tomlfile, "replace_text", Mock(side_effect=OSError(number, os.strerror(number))))
    for words in ("config set k 3", "pairs use demo"):
        found, *said = specdec.refused(*words.split())
        assert (found, said[1]) == (code, hint) and said[0].endswith(os.strerror(number)), words


def test_folders_are_kept_by_their_whole_paths_and_one_may_be_gone(specdec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert model_folders() == () and specdec("config", "set", "model_folders", "a", tmp_path)[0] == 0
    assert model_folders() == (tmp_path / "a", tmp_path)
    specdec.config.write_text('model_folders = ["~/models"]')
    assert model_folders() == (tmp_path / "models",)
    monkeypatch.setenv("SPECDEC_MODEL_FOLDERS", "a:b")
    assert model_folders() == (tmp_path / "a", tmp_path / "b")
    assert f"model_folders\t{tmp_path}/a, {tmp_path}/b\tSPECDEC_MODEL_FOLDERS\n" in specdec("config", "show")[1]


def test_a_wrong_default_pair_is_replaced_by_the_next(specdec):
    for words in (["pairs", "use", "demo"], ["config", "set", "pair", "demo"]):
        specdec.config.write_text('pair = "gone"\n')
        assert specdec.refused("pairs")[0] == 2
        assert specdec(*words)[0] == 0 and specdec.config.read_text() == 'pair = "demo"\n'


@pytest.mark.parametrize(
    ("config", "variable", "line", "plain"),
    [
        ("", "", ("--plain",), True),
        ("plain = true\n", "", (), True),
        ("plain = true\n", "false", (), False),
        ("plain = 7\n", "", (), False),  # the error that is told is of this line itself
    ],
)
def test_an_error_too_is_plain_where_any_source_says_so(specdec, monkeypatch, config, variable, line, plain):
    seen = []
    monkeypatch.setattr(display, "print_error", lambda err, error, plain: seen.append(plain))
    monkeypatch.setenv("SPECDEC_PLAIN", variable)
    specdec.config.write_text(config)
    assert specdec("run", "-p", "nosuch", "x", *line)[0] and seen == [plain]
