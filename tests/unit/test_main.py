"""The command line: whole output and exit codes in this process; pipes and signals in real ones."""

import json
import os
import subprocess
import sys

import pytest

from specdec_cli.main import PANELS, app

ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}


@pytest.mark.slow
def test_help_and_documents_are_fast_and_import_nothing_heavy():
    script = (
        "import sys\n"
        "from specdec_cli.main import main\n"
        "for sys.argv in (['specdec', '--help'], ['specdec', 'help', 'bench']):\n"
        "    try: main()\n"
        "    except SystemExit: pass\n"
        "assert not {'mlx', 'mlx_lm', 'transformers', 'huggingface_hub', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, env=ENVIRONMENT)
    ratios = []
    for _ in range(5):  # in turns, so that a busy or a slow machine burdens both alike
        alone, whole = computed("-c", "import typer, typer.rich_utils"), computed("-m", "specdec_cli", "--help")
        ratios.append(whole / alone)
    # Typer with the library that would draw its own helps.
    assert sorted(ratios)[2] < 2, ratios


def computed(*arguments):
    """Seconds that a process computes."""
    before = os.times()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=ENVIRONMENT)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


@pytest.mark.parametrize(("stdin", "message"), [(b" \n", "the prompt is empty"), (b"caf\xe9", "byte 0xe9 at 3 of 4")])
def test_what_is_piped_is_refused_where_it_is_no_prompt(specdec, stdin, message):
    code, said, _ = specdec.refused("run", stdin=stdin)
    assert code == 2 and message in said


def test_what_nobody_foresaw_is_two_lines_with_the_way_to_see_where(specdec, tiny_pair, monkeypatch):
    monkeypatch.setattr("specdec_cli.session.load.load_weights", None)
    code, message, hint = specdec.refused("run", "x", "--target", tiny_pair[0])
    assert code == 1 and message.startswith("specdec failed unexpectedly: ")
    assert hint.startswith("SPECDEC_DEBUG=1 shows where")


def test_no_command_is_missing_from_the_panels():
    registered = (
        info.name or info.callback.__name__
        for group in app.registered_groups
        for info in (*group.typer_instance.registered_commands, *group.typer_instance.registered_groups)
    )
    assert sorted(registered) == sorted(
        name for rows in PANELS.values() for names in rows.values() for name in names.split()
    )


@pytest.mark.parametrize("command", ["run", "race"])
def test_where_events_are_asked_for_a_failure_before_the_start_is_one_too(specdec, command):
    code, out, err = specdec(command, "--json", "-k", "99", "x")
    message, hint = (line.partition(": ")[2] for line in err.splitlines())
    assert json.loads(out) == {"event": "error", "message": message, "hint": hint, "exit_code": code} and code == 2
    assert specdec(command, "-k", "99", "x")[1] == ""
    code, out, _ = specdec(command, "--json", "--no-such-option")
    assert (json.loads(out)["exit_code"], code) == (2, 2)


def test_a_command_whose_json_is_one_value_writes_none_where_it_fails(specdec):
    assert specdec("check", "--json", "no-such-pair")[:2] == (3, "")
