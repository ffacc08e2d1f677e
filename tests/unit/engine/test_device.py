"""The device as it is asked: its products, its memory on a fake of Metal's allocator, and its failures."""

from __future__ import annotations

import mlx.core as mx
import pytest

from fakes.chat import networks, recorded, tokenizer_in
from fakes.device import GIGABYTE, MEMORY, SCREEN, FailingDevice, FakeMemory
from fakes.drafting import open_session
from fakes.models import tiny_folder
from specdec_cli.core.errors import DoesNotFit
from specdec_cli.core.events import Finish
from specdec_cli.core.request import Request
from specdec_cli.engine import device
from specdec_cli.engine.device import READ_TOKENS
from specdec_cli.engine.failure import NotFinite, device_failure, recovering
from specdec_cli.engine.model import CachedModel
from specdec_cli.pairs.pair import Pair


def test_a_device_that_rounds_is_found_by_trying(monkeypatch, device_says):
    """Negative control for the claim above."""
    device_says(backend="cuda")
    assert device.float32_products() == "float32"
    monkeypatch.setattr(mx, "full", lambda shape, value: mx.ones(shape))  # 1 + 2^-12 became 1
    assert device.float32_products() == "TF32"


@pytest.mark.parametrize(("backend", "told"), [("metal", "applegpu_g15s"), ("cpu", ""), ("cuda", "")])
def test_the_architecture_whose_kernels_mlx_takes_is_the_one_that_is_forced_and_metals_alone(
    monkeypatch, device_says, backend, told
):
    device_says(backend=backend)
    monkeypatch.setenv("MLX_METAL_GPU_ARCH", "applegpu_g15s")
    assert device.kernel_architecture() == told


def test_settling_drops_the_error_of_a_pass_that_nobody_read(monkeypatch):
    def fail():
        raise RuntimeError("[METAL] Command buffer execution failed: Insufficient Memory.")

    monkeypatch.setattr(mx, "synchronize", fail)
    device.settle()


# Memory.


@pytest.fixture
def fake(monkeypatch):
    return FakeMemory().install(monkeypatch)


@pytest.mark.parametrize(
    ("backend", "chunks", "clears"),
    [("metal", 3, [READ_TOKENS, 5000]), ("cuda", 10, [READ_TOKENS, 5000]), ("cpu", 10, [])],
)
def test_a_prompt_is_read_in_the_devices_chunks_and_cleared_every_4096_tokens(
    pair, monkeypatch, device_says, backend, chunks, clears
):
    """The bug: each chunk of 512 gave all buffers back, which the next one allocated again."""
    cleared: list[int] = []
    device_says(backend=backend)
    model = recorded(*pair).slot.target
    monkeypatch.setattr(device, "clear_cache", lambda: cleared.append(model.length))
    monkeypatch.setattr(model._caches, "evaluate", lambda: None)
    assert len(list(model.prefill([5] * 5001))) == chunks
    assert cleared == clears


def test_the_weights_bytes_are_wired_and_nothing_else_is_there_when_they_are(fake, monkeypatch):
    """The bug: all that fitted was wired, caches and scratch too: the setting that Macs panicked with (mlx#3186)."""
    monkeypatch.setenv("SPECDEC_WIRE", "1")
    assert device.wire(0) and device.wire(3 * GIGABYTE)
    assert fake.asked == ["settle", "clear", 0, "settle", "clear", 3 * GIGABYTE]


@pytest.mark.parametrize(("asked", "reads"), [("1", 0), ("0", 1)])
def test_a_wired_draft_is_not_dropped_as_caches_would_be_wired_in_its_place(fake, monkeypatch, asked, reads):
    monkeypatch.setenv("SPECDEC_WIRE", asked)
    network, read = networks("qwen3")[1], []
    model = CachedModel(network, "draft", reread=lambda: read.append(1) or network.parameters())
    model.forward(model.ids([5, 6]))
    model.release()
    assert len(read) == reads and model.length == 0


# Failures: two lines, and models that can be used again.


PROMPT = [3 + i % 50 for i in range(30)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return networks("qwen3"), tokenizer_in(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def short_chunks(device_says):
    device_says(prefill_tokens=8)


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
def test_what_mlx_says_becomes_one_line_with_both_values_and_a_hint(text, code, device_says):
    device_says(active_memory_bytes=13_140_000_000, usable_bytes=12_000_000_000)
    found = device_failure(RuntimeError(text))
    assert found is not None and found.exit_code == code
    assert text[:60] in found.message and "\n" not in found.message
    assert "-k 0" in found.hint
    assert code != 5 or ("13.1 GB in use and 12.0 GB usable" in found.message and "--kv-bits 8" in found.hint)


COMPILER = [
    "filesystem error: temp_directory_path: No such file or directory",
    "filesystem error: cannot create directories: Operation not permitted [/tmp/mlx/0.32.4/cpu]",
    "Could not load C++ shared library /tmp/mlx/0.32.4/cpu/libCf4ISigmoid.so: failed to map segment",
    "[Compile::eval_cpu] Failed to compile function Cf4ISigmoid: No space left on device",
]


@pytest.mark.parametrize("text", COMPILER)
def test_a_temporary_folder_that_mlx_cannot_compile_in_is_named(text, monkeypatch, tmp_path):
    """It was called unexpected, with a mangled kernel name and no cause; servers often forbid running from /tmp."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    found = device_failure(RuntimeError(text))
    message = f"mlx cannot compile in the temporary folder {tmp_path / 'none'}: there is no such folder"
    assert found.message == message and "TMPDIR=FOLDER" in found.hint
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert device_failure(RuntimeError(text)) is None  # the folder is not to blame


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


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("stage", ["prefill", "draft", "verify"])
def test_after_a_failure_the_next_reply_is_a_fresh_sessions(pair, monkeypatch, stage):
    session = failed_at(stages(calls_of(pair, monkeypatch))[stage], pair, monkeypatch)
    assert session.slot.target.length == session.slot.draft.length == 0
    assert answer(session) == answer(recorded(*pair))


def spoiled(folder, value, name="model.layers.0.mlp.down_proj.weight"):
    path = str(folder / "model.safetensors")
    weights = dict(mx.load(path))
    weights[name] = weights[name] * 0 + value
    mx.eval(weights)
    mx.save_safetensors(path, weights)
    return folder


def _session(target, draft):
    return open_session(Pair("p", str(target), str(draft)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("k", [0, 3])
def test_a_target_that_computes_no_numbers_is_refused_before_a_token(tmp_path, value, k):
    """It answered with id 0 until the end of the reply, and exit 0."""
    target, draft = spoiled(tiny_folder(tmp_path / "t"), value), tiny_folder(tmp_path / "d")
    session = _session(target, draft)
    with pytest.raises(NotFinite, match=r"the target .*t computes values that are not numbers") as caught:
        list(session.reply([5, 6, 7], Request(max_tokens=8, k=k)))
    assert caught.value.exit_code == 3 and session.slot.target.length == 0
