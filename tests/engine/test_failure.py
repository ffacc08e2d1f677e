"""Failures of the device: two lines, and models that can be used again."""

from __future__ import annotations

import mlx.core as mx
import pytest

from fakes.chat import chat_with, networks, only_ascii, ran, recorded, tokenizer_in
from fakes.failing import MEMORY, SCREEN, FailingDevice
from specdec_cli.cli.process import _of_the_device
from specdec_cli.engine.failure import device_failure, recovering
from specdec_cli.engine.model import CachedModel
from specdec_cli.errors import DoesNotFit, SpecdecError
from specdec_cli.events import Finish
from specdec_cli.request import Request

PROMPT = [3 + i % 50 for i in range(30)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return networks("qwen3"), tokenizer_in(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    monkeypatch.setattr("specdec_cli.engine.device.prefill_tokens", lambda: 8)


def answer(session, prompt=PROMPT):
    """The tokens of a reply at temperature 0."""
    *_, finish = session.reply(prompt, Request(max_tokens=12, k=3))
    assert isinstance(finish, Finish)
    return finish.tokens


def calls_of(pair, monkeypatch):
    """What the device is asked for during one reply."""
    with monkeypatch.context() as patch:
        counting = FailingDevice(-1).install(patch)
        answer(recorded(*pair))
    return counting.calls


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (MEMORY, 5),
        ("[malloc] Unable to allocate 123456789 bytes.", 5),
        (
            "[metal::malloc] Attempting to allocate 40000000000 bytes which is greater than the maximum allowed buffer "
            "size of 9534832640 bytes.",
            5,
        ),
        ("[metal::malloc] Resource limit (499000) exceeded.", 5),
        ("cudaMallocAsync(&data, size, stream) failed: out of memory", 5),
        (SCREEN, 1),
        ("[METAL] Command buffer execution failed: Caused GPU Timeout Error (00000002:…).", 1),
        ("[METAL] Command buffer execution failed: Discarded (victim of GPU error/recovery).", 1),
    ],
)
def test_what_mlx_says_becomes_one_line_with_both_values_and_a_hint(text, code, monkeypatch):
    monkeypatch.setattr("specdec_cli.engine.device.active_memory_bytes", lambda: 13_140_000_000)
    monkeypatch.setattr("specdec_cli.engine.device.usable_bytes", lambda: 12_000_000_000)
    found = device_failure(RuntimeError(text))
    assert found is not None and found.exit_code == code
    assert text[:60] in found.message and "\n" not in found.message
    assert ("-k 0" in found.hint) == (code == 5 or "Discarded" not in text)
    assert code != 5 or ("13.1 GB in use and 12.0 GB usable" in found.message and "--kv-bits 8" in found.hint)


def test_a_machine_without_memory_at_all_says_the_same():
    assert isinstance(device_failure(MemoryError()), DoesNotFit)


def test_other_errors_pass_unchanged():
    """Negative control: a fault of the program is not called the device's."""
    assert device_failure(RuntimeError("[reshape] Cannot reshape array of size 6 into shape (4).")) is None
    with pytest.raises(RuntimeError, match="reshape"), recovering():
        raise RuntimeError("[reshape] Cannot reshape array of size 6 into shape (4).")


def failed_at(at, pair, monkeypatch):
    """A session whose reply failed at call `at`."""
    session = recorded(*pair)
    with monkeypatch.context() as patch:
        FailingDevice(at, MEMORY, session.slot.target, session.slot.draft).install(patch)
        with pytest.raises(DoesNotFit, match="out of memory"):
            answer(session)
    return session


def stages(calls):
    """The call of the second chunk of the prompt, of a draft's first token, and of a verified round's read-back."""
    reads = [at for at, name in enumerate(calls) if name == "to_list"]
    assert calls[:4] == ["eval"] * 4  # 29 tokens in chunks of 8
    assert calls[reads[1] + 1] == "async_eval" and reads[2] - reads[1] > 3
    return {"prefill": 1, "draft": reads[1] + 1, "verify": reads[2]}


@pytest.mark.parametrize("stage", ["prefill", "draft", "verify"])
def test_after_a_failure_the_next_reply_is_a_fresh_sessions(pair, monkeypatch, stage):
    session = failed_at(stages(calls_of(pair, monkeypatch))[stage], pair, monkeypatch)
    assert session.slot.target.length == session.slot.draft.length == 0
    assert answer(session) == answer(recorded(*pair))


@pytest.mark.slow
def test_whichever_call_fails_the_next_reply_is_a_fresh_sessions(pair, monkeypatch):
    expected = answer(recorded(*pair))
    for at in range(len(calls_of(pair, monkeypatch))):
        assert answer(failed_at(at, pair, monkeypatch)) == expected


def test_caches_that_are_not_emptied_give_another_answer(pair, monkeypatch):
    """Negative control: the fake spoils what the failed passes wrote."""
    calls = calls_of(pair, monkeypatch)
    monkeypatch.setattr(CachedModel, "forget", lambda model: None)
    assert answer(failed_at(stages(calls)["verify"], pair, monkeypatch)) != answer(recorded(*pair))


def test_a_chat_lives_on_and_answers_as_if_nothing_had_happened(pair, monkeypatch):
    settings = {"max_tokens": 12, "logit_bias": only_ascii(pair[1])}
    calm = chat_with(recorded(*pair), **settings)
    ran(calm, "hello", "again")
    session = recorded(*pair)
    opened = chat_with(session, **settings)
    ran(opened, "hello")
    with monkeypatch.context() as patch:
        FailingDevice(9, SCREEN, session.slot.target, session.slot.draft).install(patch)
        code, _, err = ran(opened, "again")
    assert code == 1 and opened[0].given[-1] == "again"  # the message goes back to the editor
    error, hint = err.splitlines()[-2:]
    assert error.startswith("error: the system stopped a pass that kept the GPU too long") and hint.startswith("hint: ")
    assert ran(opened, "again")[0] == 0
    turns = [[turn.answer.text for turn in chat.conversation.turns] for chat in (calm[0], opened[0])]
    assert turns[0] == turns[1] and len(turns[0]) == 2


def test_a_failure_leaves_nothing_in_mlxs_cache_of_freed_buffers(pair, monkeypatch):
    session = recorded(*pair)
    before = mx.get_active_memory()
    with monkeypatch.context() as patch:
        FailingDevice(12, MEMORY).install(patch)
        with pytest.raises(SpecdecError) as failed:
            answer(session)
    assert mx.get_cache_memory() == 0 and mx.get_active_memory() <= before
    assert failed.value.__cause__ is not None


def test_the_command_line_names_the_device_wherever_it_failed():
    found = _of_the_device(RuntimeError(MEMORY))
    assert isinstance(found, DoesNotFit) and _of_the_device(ValueError(MEMORY)) is None
