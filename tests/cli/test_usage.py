"""`-h` for the usual options, `--help` for all; completions; hints that name the right command."""

import re

import pytest
import typer

from specdec_cli.cli.main import app


def options(text):
    """Long options in a help text."""
    return set(re.findall(r"^│ (--[\w-]+)", text, re.M))


@pytest.mark.parametrize("name", ["run", "chat", "bench"])
def test_h_shows_the_dozen_usual_options_and_help_all_of_them(specdec, name):
    code, short, err = specdec(name, "-h")
    assert (code, err) == (0, "")
    every = specdec(name, "--help")[1]
    assert options(short) < options(every) and 10 <= len(options(short)) <= 16
    assert "Advanced" not in short and "Advanced" in every
    hidden = len(options(every) - options(short))
    assert f"{hidden} more options: specdec {name} --help" in short


def test_h_shows_everything_where_nothing_is_advanced(specdec):
    assert specdec("rm", "-h") == specdec("rm", "--help")
    assert specdec("-h") == specdec("--help")


def test_60_columns_cut_no_option(specdec, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    out = specdec("run", "-h")[1]
    assert "--num-draft-tokens" in out and "…" not in out and "--no-panel: none" in " ".join(out.split())


def walked(command, path=()):
    yield path
    for name, sub in getattr(command, "commands", {}).items():
        yield from walked(sub, (*path, name))


@pytest.mark.parametrize("path", list(walked(typer.main.get_command(app))))
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_no_help_speaks_of_bool(specdec, path, option):
    code, out, _ = specdec(*path, option)
    assert code == 0 and "<bool>" not in out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("specdec run -p dem", ["demo", "demo-hybrid"]),
        ("specdec run --pair qwen3-8b", ["qwen3-8b", "qwen3-8b-8bit"]),
        ("specdec check llama-3", ["llama-3b"]),
        ("specdec pairs use dem", ["demo", "demo-hybrid"]),
        ("specdec run --drafter n", ["ngram", "none"]),
        ("specdec bench --drafter n", ["ngram"]),
        ("specdec chat --rule co", ["coupled"]),
        ("specdec bench --kinds co", ["code"]),
        ("specdec bench --kinds code,ch", ["code,chat"]),
        ("specdec help pa", ["pairs"]),
        ("specdec help ser", ["serve"]),
        ("specdec help re", ["replay"]),
        ("specdec serve --print-config c", ["codex", "claude", "continue"]),
    ],
)
def test_values_complete_in_the_shell(specdec, monkeypatch, words, found):
    monkeypatch.setenv("_SPECDEC_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert specdec()[1].split() == found


def test_a_broken_models_toml_completes_nothing_and_says_nothing(specdec, monkeypatch):
    specdec.models.write_text("schema_version = ")
    for name, value in {
        "_SPECDEC_COMPLETE": "complete_bash",
        "COMP_WORDS": "specdec run -p d",
        "COMP_CWORD": "3",
    }.items():
        monkeypatch.setenv(name, value)
    assert "".join(specdec()[1:]).strip() == ""


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("ls",), "specdec pairs"),
        (("list",), "specdec pairs"),
        (("version",), "specdec --version"),
        (("generate", "a poem"), "specdec run 'a poem'"),
        (("Why", "is", "the", "sky", "blue?"), "specdec run 'Why is the sky blue?'"),
        (("hello world",), "specdec run 'hello world'"),
        (("pairs", "ls"), "specdec pairs"),
        (("pairs", "rm", "mine"), "specdec pairs remove mine"),
        (("run", "Why", "is", "the", "sky", "blue?"), "specdec run 'Why is the sky blue?'"),
        (("run", "-n", "5", "Why", "is", "-q", "it"), "specdec run -n 5 'Why is it' -q"),
    ],
)
def test_what_people_type_first_gets_the_right_command(specdec, words, hint):
    code, _, found = specdec.refused(*words)
    assert (code, found) == (2, hint)


def test_an_unquoted_prompt_is_called_one(specdec):
    assert specdec.refused("run", "Why", "is", "it")[1] == "the prompt came as 3 words: put quotes around it"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("run", "--temp", "hot", "x"), "--temp hot is not a number", "for example: --temp 1"),
        (("run", "--temp=hot", "x"), "--temp hot is not a number", "for example: --temp 1"),
        (("run", "-n", "1.5", "x"), "--max-tokens 1.5 is not a whole number", "for example: --max-tokens 512"),
        (("serve", "--port", "abc"), "--port abc is not a whole number", "for example: --port 8040"),
        (("run", "-k"), "Option '-k' requires an argument.", "specdec run -h lists its options"),
        (("pairs", "add", "x", "--nope"), "No such option: --nope", "specdec pairs add -h lists its options"),
        (("--nope",), "No such option: --nope", "specdec --help lists commands, specdec COMMAND --help options"),
    ],
)
def test_a_value_of_another_type_is_named_with_an_example(specdec, words, message, hint):
    """pydantic's words: `Input should be a valid number, unable to parse string as a number`."""
    assert specdec.refused(*words) == (2, message, hint)


@pytest.mark.parametrize(
    ("variable", "value", "wanted", "example"),
    [
        ("FREQUENCY_PENALTY", "x", "not a number", 1),
        ("KV_BITS", "1.5", "not a whole number", 8),
        ("PLAIN", "y?", "neither 1 nor 0", 1),
    ],
)
def test_a_variable_of_another_type_is_named_itself(specdec, monkeypatch, variable, value, wanted, example):
    monkeypatch.setenv(f"SPECDEC_{variable}", value)
    answer = (2, f"SPECDEC_{variable}={value} is {wanted}", f"for example: SPECDEC_{variable}={example}")
    assert specdec.refused("run", "hi") == answer
