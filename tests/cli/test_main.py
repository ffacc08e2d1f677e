"""The command line: whole output and exit codes in this process; pipes and signals in real ones."""

import json
import os
import signal
import subprocess
import sys

import pytest

from fakes.models import TINY, byte_tokenizer, tiny_folder
from specdec_cli.cli.main import PANELS, app

ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}


def ran(*arguments):
    """(exit code, stdout, stderr) of a real process."""
    command = [sys.executable, "-m", "specdec_cli", *arguments]
    done = subprocess.run(command, capture_output=True, env=ENVIRONMENT, timeout=300, text=True)
    return done.returncode, done.stdout, done.stderr


def tiny(tiny_pair, *more):
    target, draft = map(str, tiny_pair)
    return ["run", "--target", target, "--draft", draft, "--raw", "-n", "24", *more]


@pytest.mark.slow
def test_help_is_fast_and_imports_nothing_heavy():
    script = (
        "import sys; sys.argv = ['specdec', '--help']\n"
        "from specdec_cli.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'mlx', 'mlx_lm', 'transformers', 'huggingface_hub', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, env=ENVIRONMENT)
    seconds = []
    for _ in range(7):
        before = os.times()
        assert ran("--help")[0] == 0
        after = os.times()
        seconds.append(sum(after[2:4]) - sum(before[2:4]))
    # Seconds of computing, the least of seven: what the program needs, not what a busy machine adds.
    assert min(seconds) < 0.3 * float(os.environ.get("TEST_SLOWNESS", "1")), seconds


def test_the_answer_alone_is_on_stdout_and_the_summary_on_stderr(specdec, tiny_pair):
    code, out, err = specdec(*tiny(tiny_pair), "def f(")
    quiet_code, quiet_out, quiet_err = specdec(*tiny(tiny_pair, "-q"), "def f(")
    assert (code, quiet_code, quiet_err) == (0, 0, "")
    assert out == quiet_out
    assert "24 tokens in" in err and "\x1b" not in err


def test_json_is_one_event_a_line_and_the_trace_is_the_same(specdec, tiny_pair, tmp_path):
    trace = tmp_path / "trace.jsonl"
    code, out, err = specdec(*tiny(tiny_pair, "--json", "--trace", str(trace)), "def f(")
    events = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [event["event"] for event in events[:3]] == ["start", "prefill", "round"]
    finish = events[-1]
    assert "".join(e["text"] for e in events if e["event"] == "round") + finish["text_tail"] == finish["text"]
    assert finish["stats"]["emitted_tokens"] == len(finish["tokens"]) == 24
    assert trace.read_text() == out


def test_options_are_read_from_the_environment(specdec, tiny_pair, monkeypatch):
    target, draft = map(str, tiny_pair)
    settings = {"SPECDEC_TARGET": target, "SPECDEC_DRAFT": draft, "SPECDEC_MAX_TOKENS": "5", "SPECDEC_K": "2"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    events = [json.loads(line) for line in specdec("run", "--raw", "--json", "x")[1].splitlines()]
    assert (events[0]["k"], events[-1]["stats"]["emitted_tokens"]) == (2, 5)


@pytest.mark.parametrize(("stdin", "message"), [(b" \n", "the prompt is empty"), (b"caf\xe9", "byte 0xe9 at 3 of 4")])
def test_what_is_piped_is_refused_where_it_is_no_prompt(specdec, stdin, message):
    code, said, _ = specdec.refused("run", stdin=stdin)
    assert code == 2 and message in said


def damaged(tmp_path, how):
    folder = tiny_folder(tmp_path / "model")
    weights, config = folder / "model.safetensors", folder / "config.json"
    if how == "no weights":
        weights.unlink()
    elif how == "truncated":
        weights.write_bytes(weights.read_bytes()[:1000])
    else:
        config.write_text(json.dumps(TINY | json.loads(how)))
    return folder


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ("no weights", 3, "no weights for"),
        ("truncated", 3, "is damaged (1000 bytes)"),
        ('{"model_type": "riddle"}', 3, "is of type riddle"),
        ('{"auto_map": {"AutoModel": "evil.Model"}}', 4, "asks to run code from the repository"),
        ('{"model_type": "olmo"}', 3, "mlx-lm needs the package hf_olmo"),
    ],
)
def test_bad_folders_are_two_lines_and_the_right_code(specdec, tmp_path, how, code, message):
    found, said, _ = specdec.refused("run", "x", "--target", damaged(tmp_path, how))
    assert found == code and message in said


def test_mismatched_tokenizers_exit_4_with_the_first_difference(specdec, tiny_pair, tmp_path):
    draft = tiny_folder(tmp_path / "draft")
    (draft / "tokenizer.json").write_text(byte_tokenizer().to_str().replace('"a":', '"@":', 1))
    code, message, hint = specdec.refused("run", "x", "--target", tiny_pair[0], "--draft", draft)
    assert code == 4 and "is 'a' in the target and '@' in the draft" in message and "--drafter none" in hint


def test_a_prompt_longer_than_the_context_exits_5(specdec, tiny_pair):
    code, message, _ = specdec.refused(*tiny(tiny_pair), "x" * 300)
    assert code == 5 and "300 tokens and the context holds 256" in message


@pytest.mark.slow
def test_ctrl_c_keeps_the_partial_text_and_exits_130(tmp_path):
    """A context so long that the reply cannot end by itself before the signal."""
    folder = tiny_folder(tmp_path / "slow", TINY | {"max_position_embeddings": 100_000}, seed=1, endless=True)
    arguments = ["run", "--target", str(folder), "--raw", "-n", "90000", "--json", "def f("]
    command = [sys.executable, "-m", "specdec_cli", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
    seen = b""
    while b'"index": 5' not in seen:
        seen += os.read(process.stdout.fileno(), 65536)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    finish = json.loads((seen + out).splitlines()[-1])
    assert (process.returncode, finish["event"], finish["reason"]) == (130, "finish", "interrupted")
    assert finish["text"] and b"Traceback" not in err


def test_without_arguments_it_shows_its_help(specdec):
    assert specdec() == specdec("--help")


def test_no_command_is_missing_from_the_panels():
    registered = (
        info.name or info.callback.__name__
        for group in app.registered_groups
        for info in (*group.typer_instance.registered_commands, *group.typer_instance.registered_groups)
    )
    assert sorted(registered) == sorted(name for names in PANELS.values() for name in names)


def test_one_seed_gives_one_text_for_every_k_and_drafter(specdec, tiny_pair):
    """The promise of `coupled`, through the whole program."""
    texts = set()
    for more in (("-k", "0"), ("-k", "1"), ("-k", "5"), ("--drafter", "ngram"), ("--drafter", "none")):
        code, out, err = specdec(*tiny(tiny_pair, "--temp", "0.9", "--seed", "7", *more), "hello")
        assert code == 0, err
        texts.add(out)
    assert len(texts) == 1
    assert specdec(*tiny(tiny_pair, "--temp", "0.9", "--seed", "8"), "hello")[1] not in texts


def test_the_start_event_names_the_values_in_effect(specdec, tmp_path):
    target = tiny_folder(tmp_path / "target", TINY, seed=1)
    (target / "generation_config.json").write_text('{"do_sample": true, "temperature": 0.6, "top_k": 20}')
    _, out, _ = specdec(
        "run", "x", "--target", str(target), "--drafter", "ngram", "-n", "4", "--json", "--top-p", "0.9"
    )
    start = json.loads(out.splitlines()[0])
    assert (start["rule"], start["temperature"], start["seed"]) == ("block", 0.6, None)
    assert (start["sampling"]["top_k"], start["sampling"]["top_p"], start["sampling"]["min_p"]) == (20, 0.9, 0.0)


@pytest.mark.slow
def test_where_ascii_is_all_there_is_the_summary_spells_its_signs_and_the_answer_keeps_its_own(tiny_pair):
    command = [sys.executable, "-m", "specdec_cli", *tiny(tiny_pair), "def f("]
    settings = {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=ENVIRONMENT | settings, timeout=120)
    assert done.returncode == 0 and b" - " in done.stderr and b"?" not in done.stderr
    usual = subprocess.run(command, capture_output=True, env=ENVIRONMENT, timeout=120)
    assert done.stdout.decode() == usual.stdout.decode().encode("ascii", "replace").decode()
