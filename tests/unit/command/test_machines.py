"""Several machines on the command line: what is refused before any of them is asked."""

import pytest


@pytest.mark.parametrize("command", ["bench", "serve", "race", "tune"])
@pytest.mark.parametrize("options", [["--hosts=a,b"], ["--hosts", "a,b"]])
def test_what_runs_on_one_machine_refuses_hosts_by_name(command, options, specdec):
    code, message, hint = specdec.refused(command, *options)
    assert (code, message) == (2, f"specdec {command} runs on one machine, and --hosts a,b names several")
    assert hint == "run, chat and audit share a target: specdec help several-machines"


def test_a_launcher_of_ranks_is_refused_as_well(specdec, monkeypatch):
    monkeypatch.setenv("MLX_RANK", "1")
    code, message, _ = specdec.refused("bench")
    assert (code, message) == (2, "specdec bench runs on one machine, and MLX_RANK 1 names several")


@pytest.mark.parametrize("command", ["run", "chat", "audit", "check"])
def test_quantized_caches_are_not_shared(command, specdec):
    code, message, _ = specdec.refused(command, "--hosts", "a,b", "--kv-bits", 8)
    assert (code, message) == (4, "--kv-bits 8 and several machines were asked for")
