"""Which library multiplies for mlx on Linux, and with how many threads."""

import ctypes
import os
import platform
import subprocess
import sys

import pytest

from specdec_cli.system import blas

LINUX = pytest.mark.skipif(blas.load() is None, reason="mlx has a BLAS of its own here")
X86 = pytest.mark.skipif(
    blas.load() is None or platform.machine() != "x86_64", reason="numpy's OpenBLAS is taken on Linux on x86-64"
)
# As on a Linux without a BLAS of its own, whatever this one has.
BARE = "blas.LIBRARIES = ()"


def loaded(expression="blas.load()", *before, **environment):
    """What a fresh process prints of `expression`, after the statements `before`."""
    code = "\n".join(["from specdec_cli.system import blas", *before, f"print({expression})"])
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
    assert "SPECDEC_BLAS=libm.so.6 is not a BLAS" in loaded(SPECDEC_BLAS="libm.so.6")


DEVICE = "blas.load(); from specdec_cli.engine import device"
EIGHT_ROWS = "(lambda one, many: many / one)(*device.product_seconds((1, 8)))"


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("before", ["", pytest.param(BARE, marks=X86, id="bare")])
def test_mlx_multiplies_with_what_was_loaded(before):
    """Eight rows cost eight passes with the reference BLAS, and far fewer with any other."""
    if not before and blas.load() == blas.REFERENCE:
        pytest.skip("no fast BLAS on this machine")
    slow = float(loaded(EIGHT_ROWS, DEVICE, SPECDEC_BLAS="none"))
    assert float(loaded(EIGHT_ROWS, before, DEVICE, OMP_NUM_THREADS="1")) < 0.6 * slow


# Of each type that mlx multiplies on a CPU, numpy's product being the right one.
ERROR = """
import numpy as np, mlx.core as mx
mx.set_default_device(mx.cpu)
a, b = np.arange(231.0).reshape(7, 33) - 100, np.arange(627.0).reshape(19, 33) % 31
error = 0.0
for ours, theirs, i in ((mx.float32, "f4", 0), (mx.float64, "f8", 0), (mx.complex64, "c8", 1j)):
    left, right = (a + i * a[::-1]).astype(theirs), b.astype(theirs)
    product = np.array(mx.array(left, dtype=ours) @ mx.array(right, dtype=ours).T)
    error = max(error, np.abs(product - left @ right.T).max())
stack = next(line.split()[1] for line in open("/proc/self/maps") if "[stack]" in line)
"""


@X86
@pytest.mark.slow
def test_a_bare_linux_multiplies_with_numpys_openblas_and_no_stack_becomes_executable():
    """mlx's wheel carries the reference BLAS: the demo pair could not be faster there than plain decoding."""
    name, error, stack = loaded("blas.load(), float(error), stack, sep='|'", BARE, "blas.load()", ERROR).split("|")
    assert name.startswith("OpenBLAS 0.")
    assert " of numpy, " in name
    assert (error, stack) == ("0.0", "rw-p")


@X86
@pytest.mark.slow
@pytest.mark.parametrize(
    "without",
    ["blas.multiplies = lambda library: False", "blas._numpys_library = lambda: None", "blas.os.memfd_create = None.x"],
    ids=["wrong", "missing", "forbidden"],
)
def test_where_numpys_openblas_cannot_be_had_the_reference_blas_multiplies(without):
    without = without.replace("None.x", "lambda name: open('/nowhere/at/all')")
    assert loaded("blas.load()", BARE, without) == blas.REFERENCE


@X86
@pytest.mark.slow
def test_small_weights_may_take_one_thread_and_large_ones_take_one_a_core_unless_the_user_says_how_many():
    used = "[(blas.set_threads(c), space.openblas_get_num_threads())[1] for c in blas.thread_counts(n)]"
    counts = f"[{used} for n in (1, 1 << 40)]"
    numpys = "blas.FUNCTIONS['openblas_get_num_threads'] = ()"
    space = "space = __import__('ctypes').CDLL(None)"
    cores = blas.physical_cores()
    assert loaded(counts, BARE, numpys, "blas.load()", space) == (
        f"[[{cores}, 1], [{cores}]]" if cores > 1 else "[[1], [1]]"
    )
    assert loaded(counts, BARE, numpys, "blas.load()", space, OPENBLAS_NUM_THREADS="2") == "[[], []]"


@pytest.fixture
def linked(tmp_path):
    """The library of `blas.shared_object`, loaded."""

    def link(targets):
        path = tmp_path / "library.so"
        path.write_bytes(blas.shared_object(targets))
        return ctypes.CDLL(str(path))

    return link


def address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


@X86
def test_a_library_whose_product_is_wrong_is_not_trusted(linked):
    nothing = ctypes.CFUNCTYPE(None)(lambda: None)
    assert not blas.multiplies(linked(dict.fromkeys(blas.PRODUCTS, address(nothing))))


@X86
@pytest.mark.parametrize(
    ("name", "factor"),
    [("cblas_sgemm", ctypes.c_float), ("cblas_dgemm", ctypes.c_double), ("cblas_cgemm", ctypes.c_void_p)],
)
def test_integers_of_32_bits_arrive_with_64_whatever_stands_in_their_upper_halves(linked, name, factor):
    """All other arguments arrive as they were."""
    whole, array, seen = ctypes.c_int64, ctypes.c_void_p, []
    types = [*[whole] * 6, factor, *[array, whole] * 2, factor, array, whole]
    target = ctypes.CFUNCTYPE(None, *types)(lambda *values: seen.extend(values))
    function = getattr(linked({name: address(target)}), name)
    function.argtypes = types
    m, n, k, lda, ldb, ldc = (0x12345678 << 32 | value & 0xFFFFFFFF for value in (3, -4, 5, 6, -7, 8))
    pointer = 0x0F0E0D0C0B0A0908
    one = pointer if factor is array else 1.5
    function(101, 111, 112, m, n, k, one, pointer, lda, pointer, ldb, one, pointer, ldc)
    assert seen == [101, 111, 112, 3, -4, 5, one, pointer, 6, pointer, -7, one, pointer, 8]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux alone says which cores a process may use")
def test_threads_of_one_core_count_once_and_a_containers_quota_bounds_them(tmp_path):
    allowed = len(os.sched_getaffinity(0))
    assert cores(tmp_path / "apart", [str(cpu) for cpu in range(allowed)]) == allowed
    assert cores(tmp_path / "twins", ["0-1"] * allowed) == 1
    assert cores(tmp_path / "half", [str(cpu) for cpu in range(allowed)], "50000 100000") == 1
    assert cores(tmp_path / "free", [str(cpu) for cpu in range(allowed)], "max 100000") == allowed
