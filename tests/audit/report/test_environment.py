"""What macOS and Linux say of themselves, as they word it."""

import socket

import pytest

from specdec_cli.audit.report.environment import (
    environment,
    power_mode,
    state,
    system_name,
    wired_bytes,
    wired_limit_mb,
)

VM_STAT = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               12345.
Pages wired down:                        200000.
"""


@pytest.mark.parametrize(("number", "words"), [(0, "automatic"), (1, "low power"), (2, "high power"), (7, None)])
def test_the_power_mode_is_said_in_words(number, words):
    assert (
        power_mode("darwin", lambda command: f"System-wide power settings:\n powermode            {number}\n") == words
    )


def test_a_mac_without_power_modes_says_none():
    assert power_mode("darwin", lambda command: " lowpowermode         0\n") is None
    assert power_mode("linux", lambda command: " powermode 1") is None


def test_wired_memory_is_pages_times_their_size():
    assert wired_bytes("darwin", lambda command: VM_STAT) == 200_000 * 16_384
    assert wired_bytes("darwin", lambda command: "") is None
    assert wired_bytes("linux", lambda command: VM_STAT) is None


def test_the_users_wired_limit_is_asked_for_on_a_mac_only():
    assert wired_limit_mb("darwin", lambda command: "28672\n") == 28_672
    assert wired_limit_mb("darwin", lambda command: "") is None
    assert wired_limit_mb("linux", lambda command: "28672\n") is None


def test_the_system_is_named_without_the_host():
    assert system_name() and socket.gethostname() not in system_name().split()


def test_the_environment_and_its_state_have_every_fact_of_the_checklist():
    facts = {"chip", "backend", "system", "memory_bytes", "working_set_bytes", "wired_limit_mb", "versions"}
    assert facts <= set(environment())
    assert set(state()) == {"power", "low_power_mode", "thermal", "load", "power_mode", "wired_bytes"}
