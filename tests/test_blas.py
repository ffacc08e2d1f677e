"""Which library multiplies for mlx on Linux, and with how many threads."""

import os
import subprocess
import sys

import pytest

from specdec_cli import blas

LINUX = pytest.mark.skipif(blas.load() is None, reason="mlx has a BLAS of its own here")


def loaded(expression="blas.load()", **environment):
    """What a fresh process prints of `expression`."""
    code = f"from specdec_cli import blas; print({expression})"
    ours = (blas.VARIABLE, *blas.THREADS, "OMP_NUM_THREADS")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run([sys.executable, "-c", code], env=kept | environment, capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def cores(tmp_path, siblings, quota=None):
    for cpu, text in zip(sorted(os.sched_getaffinity(0)), siblings, strict=False):
        file = tmp_path / f"cpu{cpu}/topology/thread_siblings_list"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    limit = tmp_path / "cpu.max"
    if quota:
        limit.write_text(quota)
    return blas.physical_cores(tmp_path, limit)


@LINUX
@pytest.mark.slow
def test_a_file_that_is_no_library_and_a_library_that_is_no_blas_are_refused_by_name():
    assert "SPECDEC_BLAS=/nowhere.so cannot be loaded" in loaded(SPECDEC_BLAS="/nowhere.so")
    assert "SPECDEC_BLAS=libm.so.6 is no BLAS" in loaded(SPECDEC_BLAS="libm.so.6")


@LINUX
@pytest.mark.slow
def test_a_fast_blas_runs_one_thread_a_free_core_unless_the_user_says_how_many():
    if blas.load() == blas.REFERENCE:
        pytest.skip("no fast BLAS on this machine")
    threads = "(blas.load(), __import__('os').environ.get('OPENBLAS_NUM_THREADS'))[1]"
    assert 1 <= int(loaded(threads)) <= blas.physical_cores()
    assert loaded(threads, OPENBLAS_NUM_THREADS="7") == "7"
    assert loaded(threads, OMP_NUM_THREADS="1") == "None"


@LINUX
@pytest.mark.slow
def test_mlx_multiplies_with_what_was_loaded():
    """Eight rows cost eight passes with the reference BLAS, and far fewer with any other."""
    if blas.load() == blas.REFERENCE:
        pytest.skip("no fast BLAS on this machine")
    ratio = (
        "(lambda one, many: many / one)(*__import__('specdec_cli.engine.device').engine.device.product_seconds((1, 8)))"
    )
    assert float(loaded(ratio)) < 0.6 * float(loaded(ratio, SPECDEC_BLAS="none"))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux alone says which cores a process may use")
def test_threads_of_one_core_count_once_and_a_containers_quota_bounds_them(tmp_path):
    allowed = len(os.sched_getaffinity(0))
    assert cores(tmp_path / "apart", [str(cpu) for cpu in range(allowed)]) == allowed
    assert cores(tmp_path / "twins", ["0-1"] * allowed) == 1
    assert cores(tmp_path / "half", [str(cpu) for cpu in range(allowed)], "50000 100000") == 1
    assert cores(tmp_path / "free", [str(cpu) for cpu in range(allowed)], "max 100000") == allowed
