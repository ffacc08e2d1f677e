"""The suite in a home of its own. Law: no test reads or writes a person's folders and settings, and no child of one.

`move_in` comes before anything asks where a folder is; `refuse_writes` is an audit hook. Every folder follows HOME, so
a test that wants another home sets HOME and nothing else.
"""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

import platformdirs

SUITE = ("SPECDEC_BLAS", "REAL_MODELS")  # read by the suite itself, or before it starts
PERSONAL = ("SPECDEC_", "XDG_", "HF_", "HUGGING_FACE_", "HUGGINGFACE_", "TRANSFORMERS_", "OLLAMA_")
INDEXES = {"PIP_CONFIG_FILE": ".config/pip/pip.conf", "NPM_CONFIG_USERCONFIG": ".npmrc"}  # where packages come from
CACHES = {"__pycache__", ".pytest_cache", ".hypothesis"}
REPOSITORY = Path(__file__).resolve().parents[1]
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# What else changes files, as the interpreter names it: which arguments are paths, and which a folder's descriptor.
CHANGES = {
    "os.mkdir": ((0,), 2), "os.rmdir": ((0,), 1), "os.remove": ((0,), 1), "shutil.rmtree": ((0,), 1),
    "os.rename": ((0, 1), 2), "os.link": ((1,), 3), "os.symlink": ((1,), 2), "os.chmod": ((0,), 2),
    "os.utime": ((0,), 3), "os.chown": ((0,), 3), "os.truncate": ((0,), None),
}  # fmt: skip
open_folders = {Path(path).resolve() for path in (tempfile.gettempdir(), "/tmp", "/dev", "/proc")}
watching = False


def persons_home() -> Path:
    """As the system knows it: a worker's HOME is the suite's already."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir).resolve()
    except KeyError:  # a container's user without an entry
        return Path("/")


CLOSED_FOLDERS = {REPOSITORY, persons_home(), Path("/")}


def move_in() -> Path:
    """A new HOME, from which all folders follow; settings of the person or the caller are gone."""
    os.environ.setdefault("REAL_MODELS", str(platformdirs.user_cache_path("specdec-real")))
    open_folders.add(Path(os.environ["REAL_MODELS"]).resolve())
    for name, file in INDEXES.items():
        if (Path.home() / file).is_file():
            os.environ.setdefault(name, str(Path.home() / file))
    for name in [name for name in os.environ if name.startswith(PERSONAL) and name not in SUITE]:
        del os.environ[name]
    home = Path(tempfile.mkdtemp(prefix="specdec home-")).resolve()
    (home / "runtime").mkdir(mode=0o700)
    os.environ |= {"HOME": str(home), "XDG_RUNTIME_DIR": str(home / "runtime"), "HF_HUB_OFFLINE": "1"}
    return home


def refuse_writes(event: str, arguments: tuple) -> None:
    """While `watching`: AssertionError for what would change a file outside the open folders and the caches."""
    if not watching:
        return
    if event == "open":
        path, _, flags = arguments
        if flags & WRITING and not isinstance(path, int):
            _require_open(event, Path(os.fsdecode(path)).resolve())
    elif event in CHANGES:
        places, descriptor = CHANGES[event]
        for place in places:
            path = arguments[place]
            # A path under a descriptor was named when the folder was opened: `shutil.rmtree` works so.
            if isinstance(path, int) or (descriptor and arguments[descriptor] not in (None, -1)):
                continue
            named = Path(os.fsdecode(path))  # itself, not what it links to
            _require_open(event, named.parent.resolve() / named.name)


def _require_open(event: str, path: Path) -> None:
    if CACHES.intersection(path.parts) or not path.parent.is_dir():
        return  # without its folder nothing can be written: the system says so itself
    nearest = next(folder for folder in (path, *path.parents) if folder in open_folders | CLOSED_FOLDERS)
    if nearest not in open_folders:
        raise AssertionError(f"{event} of {path}, which is no temporary file; hint: write below tmp_path or HOME")
