"""A stand-in for macOS: on Linux, Python and the system lack what they lack on a Mac, and the product is told "darwin".

`PYTHONPATH=tests/macos python -m pytest -m macos`. It takes away the names that typeshed marks as Linux's, the folders
of Linux's kernel, its libraries and its variables for threads; file names know no case and are listed decomposed (NFD);
the programs that the product starts on a Mac are there, say what a Mac's said, and note each start in `STARTS`; no loop
of events waits for /dev/tty, as kqueue does not.
Other libraries are told "linux", as their code for macOS needs macOS.
"""

from __future__ import annotations

# Nothing here may import a module that looks, when it is imported, for a name that is taken away later.
import ast
import atexit
import builtins
import errno
import importlib
import importlib.util
import io
import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
FOLDER, STARTS = "MACOS_FOLDER", "MACOS_STARTS"
"""Variables: the folder of the stand-in's own files, and the file that gets a line for each program started."""
NAMES = "names.json"
TOLD = ("specdec_cli", "platformdirs")
SAID = {"system": "Darwin", "machine": "arm64", "release": "24.6.0", "mac_ver": ("15.6.1", ("", "", ""), "arm64")}
# What the kernel and the distribution show of themselves.
ABSENT = ("/proc", "/sys", "/run", "/dev/shm", "/etc/os-release")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS")
# Functions of `os` by how many of their first arguments are paths, which may not be there yet.
ONE_PATH = ("stat", "lstat", "open", "access", "chmod", "utime", "unlink", "remove", "rmdir", "mkdir", "readlink")
ONE_PATH += ("statvfs", "truncate", "chdir")
TWO_PATHS = ("rename", "replace", "link")
real_listdir, real_lstat = os.listdir, os.lstat
listings: dict[str, tuple[int, dict[str, str]]] = {}
"""Of folders that were looked through: when they last changed, and their names by what macOS takes for the same."""


def begin() -> None:
    """Stand in from now on, in this process and in its children."""
    if FOLDER not in os.environ:
        _settle()
    take_away(json.loads(Path(os.environ[FOLDER], NAMES).read_text()))
    import tempfile

    tell()
    refuse_to_wait_for_the_terminal()
    FileSystem(Path(tempfile.gettempdir()).resolve()).stand_in()
    sys.addaudithook(_refuse_libraries)


def _settle() -> None:
    """In the first process: a folder for what is noted, and variables for all that follow."""
    folder = f"{os.environ.get('TMPDIR', '/tmp')}/specdec macos-{os.getpid()}"
    Path(folder).mkdir()
    atexit.register(_leave, folder, os.getpid())
    others = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one and Path(one).resolve() != HERE]
    # Without sitecustomize, and so without this module's effects: to import importlib.metadata is to import sockets.
    if os.spawnl(os.P_WAIT, sys.executable, sys.executable, "-I", __file__, f"{folder}/{NAMES}"):
        raise SystemExit("the stand-in for macOS reads mypy's stubs: pip install -e '.[test]'")
    for name in THREADS:
        os.environ.pop(name, None)
    os.environ.setdefault(STARTS, f"{folder}/starts")
    os.environ |= {
        FOLDER: folder,
        "PYTHONPATH": os.pathsep.join([str(HERE), *others]),
        "PATH": os.pathsep.join([str(HERE / "programs"), os.environ["PATH"]]),
    }


def _leave(folder: str, pid: int) -> None:
    if os.getpid() == pid:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


# Names.


def linux_only(stubs: Path) -> dict[str, list[str]]:
    """Of each compiled module, and `os`, the names that the stubs give to Linux and not to macOS."""
    found: dict[str, set[str]] = {}
    for path in stubs.rglob("*.pyi"):
        name = ".".join(path.relative_to(stubs).with_suffix("").parts).removesuffix(".__init__")
        if "sys.platform" in (text := path.read_text(encoding="utf-8")):
            body = ast.parse(text).body
            missing = set(_defined(body, "linux")) - set(_defined(body, "darwin"))
            for one in (name, f"_{name}"):  # such as signal, whose names are those of _signal
                if missing and (one == "os" or _is_compiled(one)):
                    found.setdefault(one, set()).update(missing)
    return {name: sorted(missing) for name, missing in sorted(found.items())}


def _is_compiled(name: str) -> bool:
    if "." in name or (spec := importlib.util.find_spec(name)) is None:
        return False
    return spec.origin == "built-in" or str(spec.origin).endswith(".so")


def _defined(body: list[ast.stmt], platform: str) -> Iterator[str]:
    """The names that `body` defines on `platform`, by its conditions on that and on Python's version."""
    told = {"sys": SimpleNamespace(platform=platform, version_info=sys.version_info)}
    for node in body:
        match node:
            case ast.If():
                try:
                    holds = eval(compile(ast.Expression(node.test), "stub", "eval"), told)
                except NameError:  # TYPE_CHECKING and the like
                    holds = True
                yield from _defined(node.body if holds else node.orelse, platform)
            case ast.FunctionDef() | ast.ClassDef():
                yield node.name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case ast.ImportFrom() | ast.Import():
                yield from (alias.asname or alias.name for alias in node.names)


def take_away(names: Mapping[str, list[str]]) -> None:
    """Delete `names` from their modules; these come before modules in Python that look whether they are there."""
    for module_name, missing in names.items():
        module = importlib.import_module(module_name)
        for name in missing:
            vars(module).pop(name, None)
        if hasattr(module, "__all__"):
            module.__all__ = [name for name in module.__all__ if name not in missing]


# What the product asks.


def tell() -> None:
    """Whoever is in `TOLD` and asks for the system hears what a Mac says."""
    import platform

    class System(ModuleType):
        """`sys`, but for its platform."""

        @property
        def platform(self) -> str:
            value: str = vars(self)["platform"]
            return "darwin" if value == "linux" and _is_told() else value

        @platform.setter
        def platform(self, value: str) -> None:
            vars(self)["platform"] = value

    sys.__class__ = System
    for name, said in SAID.items():
        setattr(platform, name, _saying(getattr(platform, name), said))


def _is_told() -> bool:
    return str(sys._getframe(2).f_globals.get("__name__", "")).startswith(TOLD)


def _saying(original: Callable[..., Any], said: Any) -> Callable[..., Any]:
    def say(*args: Any, **kwargs: Any) -> Any:
        return said if _is_told() else original(*args, **kwargs)

    return say


def refuse_to_wait_for_the_terminal() -> None:
    """`/dev/tty` is what kqueue answers EINVAL for; `select` waits for it."""
    import selectors

    register = selectors.DefaultSelector.register

    def refuse(self: Any, fileobj: Any, events: int, data: Any = None) -> Any:
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        if os.fstat(descriptor).st_rdev == os.makedev(5, 0):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return register(self, fileobj, events, data)

    selectors.DefaultSelector.register = refuse  # type: ignore[method-assign]


def _refuse_libraries(event: str, arguments: tuple[Any, ...]) -> None:
    """No shared object of Linux is there for `ctypes`: a BLAS, say."""
    if event == "ctypes.dlopen" and arguments[0] and ".so" in Path(str(arguments[0])).name:
        raise OSError(f"dlopen({arguments[0]}, 0x0006): tried: '{arguments[0]}' (no such file)")


# Files.


class FileSystem:
    """Below `root`, names differ neither by case nor by how they are composed, and are listed decomposed."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)

    def stand_in(self) -> None:
        """For Python; libraries in C go on with the names that they are given."""
        for name in ONE_PATH:
            setattr(os, name, self._found(getattr(os, name), 1))
        for name in TWO_PATHS:
            setattr(os, name, self._found(getattr(os, name), 2))
        os.symlink = self._linked(os.symlink)
        builtins.open = io.open = self._found(io.open, 1)
        os.listdir, os.scandir = self._listed(os.listdir), self._scanned(os.scandir)

    def real(self, path: Any) -> Any:
        """The name under which `path` is there, or may come. Raises: FileNotFoundError for what no Mac has."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return path
        text = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links stay
        if text.startswith(ABSENT) and any(text == one or text.startswith(f"{one}/") for one in ABSENT):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path))
        if not text.startswith(f"{self._root}/") or _is_there(text):
            return path
        found, *missing = text, ""
        while not _is_there(found):
            found, name = found.rsplit("/", 1)
            missing.append(name)
        while missing[-1] and (name := _entry(found, missing[-1])):
            found = f"{found}/{name}"
            missing.pop()
        found = "/".join([found, *missing[:0:-1]])
        return found if found != text else path

    def _found(self, original: Callable[..., Any], paths: int) -> Callable[..., Any]:
        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("dir_fd") is None:
                real = [self.real(path) for path in args[:paths]]
                if paths == 2 and real[0] == real[1] and args[0] != args[1]:
                    real[1] = args[1]  # from one case to another
                args = (*real, *args[paths:])
            return original(*args, **kwargs)

        return call

    def _linked(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call(source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            return original(source, self.real(target), *args, **kwargs)

        return call

    def _listed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call(path: Any = ".") -> Any:
            return [_decomposed(name) for name in original(self.real(path))]

        return call

    def _scanned(self, original: Callable[..., Any]) -> Callable[..., Any]:
        real = self.real

        class Scan:
            def __init__(self, path: Any = ".") -> None:
                self._entries = original(real(path))

            def __enter__(self) -> Scan:
                return self

            def __exit__(self, *_: Any) -> None:
                self._entries.close()

            def __iter__(self) -> Scan:
                return self

            def __next__(self) -> Any:
                entry = next(self._entries)
                return entry if entry.name.isascii() else Entry(entry)

            def close(self) -> None:
                self._entries.close()

        return Scan


class Entry:
    """An entry of a folder under its decomposed name."""

    def __init__(self, entry: os.DirEntry[Any]) -> None:
        self._entry, self.name, self.path = entry, _decomposed(entry.name), _decomposed(entry.path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    def __fspath__(self) -> Any:
        return self.path


def _is_there(path: str) -> bool:
    try:
        real_lstat(path)
    except (OSError, ValueError):
        return False
    return True


def _entry(folder: str, name: str) -> str:
    """What `folder` has under `name`, in any case and composition; empty if it has nothing."""
    if _is_there(f"{folder}/{name}"):
        return name
    try:
        changed = real_lstat(folder).st_mtime_ns
        if listings.get(folder, (0, {}))[0] != changed:
            listings[folder] = changed, {_key(one): one for one in real_listdir(folder)}
    except OSError:
        return ""
    return listings[folder][1].get(_key(name), "")


def _key(name: str) -> str:
    return _decomposed(name).casefold()


def _decomposed(name: Any) -> Any:
    return unicodedata.normalize("NFD", name) if isinstance(name, str) and not name.isascii() else name


if __name__ == "__main__":
    from importlib.metadata import distribution

    stubs = Path(str(distribution("mypy").locate_file("mypy/typeshed/stdlib")))
    Path(sys.argv[1]).write_text(json.dumps(linux_only(stubs)))
