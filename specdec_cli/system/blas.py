"""The library that multiplies matrices for mlx on Linux. It is loaded before mlx, or not at all.

mlx's CPU wheel carries the reference BLAS, where a pass over n rows costs as much as n passes over one: a draft rarely
pays there. The dynamic linker takes what is in the process's global namespace before what the wheel carries, so a
library that is loaded there before mlx is imported serves mlx too. A Mac and CUDA have their own: nothing is done.

The system may have none, but numpy, which mlx-lm needs anyway, carries OpenBLAS, under other names and with integers of
64 bits. A small shared object, written here, gives it the usual names: each of its functions widens the integers that
mlx passes, of 32 bits, and jumps on. For x86-64 alone.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from specdec_cli.core.errors import UsageError

VARIABLE = "SPECDEC_BLAS"
REFERENCE = "mlx's reference BLAS"
INSTALL = "apt install libopenblas0, or in a checkout: pip install '.[fast]'"
# MKL first, the fastest on a Xeon; then the commonest. Fedora's OpenBLAS with threads has a name of its own.
LIBRARIES = ("libmkl_rt.so.3", "libmkl_rt.so.2", "libopenblasp.so.0", "libopenblas.so.0", "libblis.so.4")
THREADS = ("MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS")
# The products that mlx calls, with the places of their integers on the stack, in bytes (System V ABI, x86-64); three
# more integers are in registers. A complex product takes its two factors as addresses, hence other places.
PRODUCTS = {"cblas_sgemm": (16, 32, 48), "cblas_dgemm": (16, 32, 48), "cblas_cgemm": (24, 40, 64)}
FUNCTIONS = PRODUCTS | {"openblas_get_config": (), "openblas_set_num_threads": ()}
# Between products, threads cost more to wake than they save. Whole answers at K = 3 on two cores of an AMD EPYC, tokens
# a second with one thread and with two: 66 and 42 for 20 MB of weights, 17 and 13.5 for 400, 12 and 11 for 800, 5 and
# 6.4 for 1,600. Plain steps of 730 MB took 1.3 times as long with one as with two where both cores were free.
SMALL_BYTES = 800_000_000
CPUS, QUOTA = Path("/sys/devices/system/cpu"), Path("/sys/fs/cgroup/cpu.max")


@cache
def load() -> str | None:
    """Load the best BLAS there is; what mlx multiplies with, with how many threads; None where it has its own.

    In this order: the one that `SPECDEC_BLAS` names (`none` for the wheel's own), what pip installed beside this
    Python, what the system has, numpy's. Raises: UsageError where the named one cannot be loaded.
    """
    wanted = os.environ.get(VARIABLE, "")
    if sys.platform != "linux" or not _carries_reference():
        return None
    if wanted != "none" and _name() is None and "mlx.core" not in sys.modules:
        threads, _ = _threads()
        for variable in THREADS if "OMP_NUM_THREADS" not in os.environ else ():
            os.environ.setdefault(variable, threads)
        name = _load_named(wanted) if wanted else _load_first() or _load_numpys()
        if name:
            return f"{name}, {threads} thread{'s' * (threads != '1')}"
    return _name() or REFERENCE


@cache
def _threads() -> tuple[str, bool]:
    """(how many threads multiply, whether the user chose that), as the environment was at the first call."""
    said = next((os.environ[name] for name in ("OMP_NUM_THREADS", *THREADS) if name in os.environ), None)
    return said or str(physical_cores()), said is not None


def thread_counts(weight_bytes: int) -> tuple[int, ...]:
    """How many threads may be best for weights of that size, most first; none where there is nothing to choose.

    For OpenBLAS alone, and where the user chose no number.
    """
    if load() is None:
        return ()
    threads, chosen = _threads()
    if chosen or not hasattr(ctypes.CDLL(None), "openblas_set_num_threads"):
        return ()
    return (int(threads),) if weight_bytes >= SMALL_BYTES or threads == "1" else (int(threads), 1)


def set_threads(count: int) -> None:
    ctypes.CDLL(None).openblas_set_num_threads(count)


def _carries_reference() -> bool:
    with suppress(PackageNotFoundError):
        return any("libblas" in file.name for file in distribution("mlx-cpu").files or ())
    return False


def _load_named(library: str) -> str:
    try:
        ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise UsageError(
            f"{VARIABLE}={library} cannot be loaded: {error}", f"{VARIABLE}=none runs without it"
        ) from error
    if (name := _name()) is None:
        raise UsageError(
            f"{VARIABLE}={library} is not a BLAS: it lacks cblas_sgemm", f"{VARIABLE}=none runs without it"
        )
    return name


def _load_first() -> str | None:
    """What pip installed beside this Python, else what the system has."""
    beside = [str(path) for name in LIBRARIES if (path := Path(sys.prefix, "lib", name)).exists()]
    for library in (*beside, *LIBRARIES):
        with suppress(OSError):
            ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
            return _name()
    return None


def _load_numpys() -> str | None:
    """numpy's OpenBLAS under the usual names, in a file that only this process sees; None where that cannot be."""
    if platform.machine() != "x86_64" or (library := _numpys_library()) is None:
        return None
    prefix = "scipy_" if "scipy" in library.name else ""
    with suppress(OSError, AttributeError):
        openblas = ctypes.CDLL(str(library))
        functions = {name: getattr(openblas, f"{prefix}{name}64_") for name in FUNCTIONS}
        addresses = {name: ctypes.cast(one, ctypes.c_void_p).value or 0 for name, one in functions.items()}
        with os.fdopen(_memory_file(), "wb") as file:
            file.write(shared_object(addresses))
            file.flush()
            path = f"/proc/self/fd/{file.fileno()}"
            if multiplies(ctypes.CDLL(path)):  # in no namespace yet
                ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
                return f"{_name()} of numpy"
    return None


def _memory_file() -> int:
    if sys.platform == "linux":
        return os.memfd_create("specdec-blas")
    raise OSError("only Linux has files in memory")


def _numpys_library() -> Path | None:
    with suppress(PackageNotFoundError):
        files = distribution("numpy").files or ()
        return next((Path(str(file.locate())) for file in files if "openblas64_" in file.name), None)
    return None


def multiplies(library: ctypes.CDLL) -> bool:
    """Whether each of `PRODUCTS` in `library` gives [1 2 3; 4 5 6] × [7 10; 8 11; 9 12], the latter given transposed.

    Rows are longer than what is multiplied, so every integer counts.
    """
    given, other, right = [1, 2, 3, 99, 4, 5, 6, 99], [7, 8, 9, 99, 10, 11, 12, 99], [50, 68, -1, 122, 167, -1]
    for name in PRODUCTS:
        number = ctypes.c_double if name == "cblas_dgemm" else ctypes.c_float
        parts = 2 if name == "cblas_cgemm" else 1  # real and imaginary
        arrays = [(number * (parts * len(v)))() for v in (given, other, right, [1], [0])]
        for array, values in zip(arrays, (given, other, [-1] * len(right), [1], [0]), strict=True):
            array[::parts] = values
        a, b, out, *factors = arrays
        one, zero = factors if parts == 2 else (number(1), number(0))
        # Row by row, the second transposed; 2 rows, 2 columns, 3 products each; the lengths of rows are 4, 4 and 3.
        getattr(library, name)(101, 111, 112, 2, 2, 3, one, a, 4, b, 4, zero, out, 3)
        if out[::parts] != right:
            return False
    return True


def shared_object(targets: Mapping[str, int]) -> bytes:
    """A library (ELF, x86-64) with a function for each of `targets`, a name of `FUNCTIONS` -> the address it jumps to.

    Its integers have 32 bits, its target's 64.
    """
    code, starts = b"", list[int]()
    for name, address in targets.items():
        starts.append(len(code))
        code += _widening_jump(FUNCTIONS[name], address)
    names, count, page = b"\0" + b"".join(name.encode() + b"\0" for name in targets), len(targets) + 1, 0x1000
    # Header, four program headers; one bucket, whose chain has every symbol but the first, which is none.
    hash_at = 64 + 4 * 56
    chain = struct.pack(f"<{count + 3}I", 1, count, 1, 0, *range(2, count), 0)
    chain += bytes(-len(chain) % 8)
    symbols_at = hash_at + len(chain)
    names_at = symbols_at + 24 * count
    code_at = names_at + len(names)
    symbols = bytes(24)
    for name, start in zip(targets, starts, strict=True):
        symbols += struct.pack("<IBBHQQ", names.index(name.encode() + b"\0"), 0x12, 0, 1, code_at + start, 16)
    tags = {4: hash_at, 5: names_at, 6: symbols_at, 10: len(names), 11: 24, 0: 0}
    dynamic = b"".join(struct.pack("<QQ", tag, value) for tag, value in tags.items())
    body = chain + symbols + names + code
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, 0, 0, 64, 56, 4, 0, 0, 0)
    segments = (
        _segment(1, 5, 0, hash_at + len(body), page),  # to read and run
        _segment(1, 6, page, len(dynamic), page),  # to read and write: the linker writes addresses into its table
        _segment(2, 6, page, len(dynamic), 8),  # that table
        _segment(0x6474E551, 6, 0, 0, 16),  # without it glibc makes every stack executable
    )
    return (head + b"".join(segments) + body).ljust(page, b"\0") + dynamic


def _segment(kind: int, flags: int, at: int, nbytes: int, align: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, flags, at, at, at, nbytes, nbytes, align)


def _widening_jump(places: Sequence[int], address: int) -> bytes:
    """Machine code: the integers in ecx, r8d, r9d and at `places` of the stack to 64 bits; on to `address`."""
    code = bytes.fromhex("4863c9 4d63c0 4d63c9")  # movsxd rcx, ecx; movsxd r8, r8d; movsxd r9, r9d
    for place in places:  # movsxd rax, [rsp + place]; mov [rsp + place], rax
        code += bytes.fromhex("48634424") + bytes([place]) + bytes.fromhex("48894424") + bytes([place])
    return code + bytes.fromhex("48b8") + struct.pack("<Q", address) + bytes.fromhex("ffe0")  # mov rax, …; jmp rax


def _name() -> str | None:
    """The BLAS in the global namespace, None if there is none."""
    space = ctypes.CDLL(None)
    if not hasattr(space, "cblas_sgemm"):
        return None
    if hasattr(space, "MKL_Get_Version_String"):
        text = ctypes.create_string_buffer(200)
        space.MKL_Get_Version_String(text, 200)
        return f"MKL {text.value.decode().partition('Version ')[2].partition(' ')[0]}"
    for symbol, name in (("openblas_get_config", ""), ("bli_info_get_version_str", "BLIS ")):
        if hasattr(space, symbol):
            version = getattr(space, symbol)
            version.restype = ctypes.c_char_p
            return name + " ".join(version().decode().split()[:2])
    return "a BLAS without a name"


def physical_cores(cpus: Path = CPUS, quota: Path = QUOTA) -> int:
    """Cores that this process may use: hardware threads of one core count once, a container's quota is respected."""
    siblings, allowed = set(), set(range(os.cpu_count() or 1))
    if sys.platform == "linux":
        allowed = os.sched_getaffinity(0)
    for cpu in allowed:
        try:
            siblings.add((cpus / f"cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            siblings.add(str(cpu))
    with suppress(OSError, ValueError):
        share, period = quota.read_text().split()
        return max(min(len(siblings), int(share) // int(period)), 1)
    return len(siblings)
