"""The library that multiplies matrices for mlx on Linux. It is loaded before mlx, or not at all.

mlx's CPU wheel carries the reference BLAS, where a pass over n rows costs as much as n passes over one: a draft rarely
pays there. The dynamic linker takes what is in the process's global namespace before what the wheel carries, so a
library that is loaded there before mlx is imported serves mlx too. A Mac and CUDA have their own: nothing is done.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from specdec_cli.errors import UsageError

VARIABLE = "SPECDEC_BLAS"
REFERENCE = "mlx's reference BLAS"
INSTALL = "apt install libopenblas0, or pip install 'specdec-cli[fast]'"
# MKL first, the fastest on a Xeon; then the commonest. Fedora's OpenBLAS with threads has a name of its own.
LIBRARIES = ("libmkl_rt.so.3", "libmkl_rt.so.2", "libopenblasp.so.0", "libopenblas.so.0", "libblis.so.4")
THREADS = ("MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS")
CPUS, QUOTA = Path("/sys/devices/system/cpu"), Path("/sys/fs/cgroup/cpu.max")


@cache
def load() -> str | None:
    """Load the best BLAS there is; what mlx multiplies with, with how many threads; None where it has its own.

    `SPECDEC_BLAS` names another library, or `none`. Raises: UsageError where that cannot be loaded.
    """
    wanted = os.environ.get(VARIABLE, "")
    if sys.platform != "linux" or not _carries_reference():
        return None
    if wanted != "none" and _name() is None and "mlx.core" not in sys.modules:
        threads = os.environ.get("OMP_NUM_THREADS") or str(physical_cores())
        if "OMP_NUM_THREADS" not in os.environ:
            for variable in THREADS:
                threads = os.environ.setdefault(variable, threads)
        _load_named(wanted) if wanted else _load_first()
        if name := _name():
            return f"{name}, {threads} thread{'s' * (threads != '1')}"
    return _name() or REFERENCE


def _carries_reference() -> bool:
    with suppress(PackageNotFoundError):
        return any("libblas" in file.name for file in distribution("mlx-cpu").files or ())
    return False


def _load_named(library: str) -> None:
    try:
        ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise UsageError(f"{VARIABLE}={library} cannot be loaded: {error}", f"{VARIABLE}=none does without") from error
    if _name() is None:
        raise UsageError(f"{VARIABLE}={library} is no BLAS: it lacks cblas_sgemm", f"{VARIABLE}=none does without")


def _load_first() -> None:
    """What pip installed beside this Python, else what the system has."""
    beside = [str(path) for name in LIBRARIES if (path := Path(sys.prefix, "lib", name)).exists()]
    for library in (*beside, *LIBRARIES):
        with suppress(OSError):
            ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
            return


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
    allowed = os.sched_getaffinity(0)
    siblings = set()
    for cpu in allowed:
        try:
            siblings.add((cpus / f"cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            siblings.add(str(cpu))
    with suppress(OSError, ValueError):
        share, period = quota.read_text().split()
        return max(min(len(siblings), int(share) // int(period)), 1)
    return len(siblings)
