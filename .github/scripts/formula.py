"""formula.py SDIST PYLOCK HOMEPAGE URL: a Homebrew formula for a tap, on stdout. The sdist will be found below URL.

Each locked package is a resource: the wheel that a Mac with Apple Silicon takes, by address and checksum. Wheels,
because mlx is built with Xcode. Where macOS 14, 15 and 26 take different wheels, each has its own. PyYAML's has
libyaml inside: `brew style` asks for it all the same.
"""

from __future__ import annotations

import hashlib
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import parse_wheel_filename

PYTHON = (3, 13)
SYSTEMS = {"tahoe": (26, 0), "sequoia": (15, 0), "sonoma": (14, 0)}  # in the order that Homebrew wants
MAC = {
    "sys_platform": "darwin",
    "platform_system": "Darwin",
    "os_name": "posix",
    "platform_machine": "arm64",
    "python_version": "3.13",
    "python_full_version": "3.13.0",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "extra": "",
}
FORMULA = """\
class Specdec < Formula
  include Language::Python::Virtualenv

  desc "Speculative decoding for local LLMs that you can see"
  homepage "{homepage}"
  url "{url}"
  sha256 "{sha256}"
  license "MIT"

  depends_on arch: :arm64
  depends_on macos: :sonoma
  depends_on "python@{python}"

{resources}
  def install
    virtualenv_create(libexec, "python{python}")
    wheels = buildpath/"wheels"
    wheels.mkpath
    resources.each {{ |r| cp r.cached_download, wheels/File.basename(r.url) }}
    pip = ["python{python}", "-m", "pip", "--python=#{{libexec}}/bin/python", "install", "--no-deps", "--no-index"]
    system(*pip, *Dir[wheels/"*.whl"])
    system(*pip, "--no-build-isolation", buildpath.to_s)
    bin.install_symlink libexec/"bin/specdec"
    generate_completions_from_executable(bin/"specdec", shell_parameter_format: :typer)
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/specdec --version")
    assert_match(/\\S/, shell_output("#{{bin}}/specdec run --raw -q -n 8 'def f(x):'"))
  end
end
"""


def tags(system: tuple[int, int]) -> list[Tag]:
    """Tags of wheels that this macOS takes, the best first."""
    platforms = list(mac_platforms(system, "arm64"))
    return [*cpython_tags(PYTHON, platforms=platforms), *compatible_tags(PYTHON, "cp313", platforms)]


def wheel_for(package: dict[str, Any], system: tuple[int, int]) -> tuple[str, str]:
    """(address, sha256) of the wheel that pip would take there. Raises: SystemExit where there is none."""
    ranks = {tag: rank for rank, tag in enumerate(tags(system))}
    found = []
    for wheel in package.get("wheels", []):
        name = wheel.get("name") or wheel["url"].rsplit("/", 1)[-1]
        fitting = [ranks[tag] for tag in parse_wheel_filename(name)[3] if tag in ranks]
        if fitting:
            found.append((min(fitting), wheel["url"], wheel["hashes"]["sha256"]))
    if not found:
        version = f"{package['name']} {package['version']}"
        raise SystemExit(f"error: {version} has no wheel for macOS {system[0]}\nhint: pin a version that has one")
    return min(found)[1:]


def resource(package: dict[str, Any]) -> Iterator[str]:
    """The lines of one resource."""
    chosen = {name: wheel_for(package, system) for name, system in SYSTEMS.items()}
    yield f'  resource "{package["name"]}" do'
    if len(set(chosen.values())) == 1:
        url, sha256 = chosen["sonoma"]
        yield from (f'    url "{url}"', f'    sha256 "{sha256}"')
    else:
        for name, (url, sha256) in chosen.items():
            newest = " :or_newer" if name == "tahoe" else ""
            yield from (f"    on_{name}{newest} do", f'      url "{url}"', f'      sha256 "{sha256}"', "    end")
    yield from ("  end", "")


def formula(sdist: Path, lock: dict[str, Any], homepage: str, url: str) -> str:
    """The text of specdec.rb."""
    wanted = [one for one in lock["packages"] if "marker" not in one or Marker(one["marker"]).evaluate(MAC)]
    lines = [line for package in sorted(wanted, key=lambda one: one["name"]) for line in resource(package)]
    python, sha256 = ".".join(map(str, PYTHON)), hashlib.sha256(sdist.read_bytes()).hexdigest()
    url = f"{url}/{sdist.name}"
    return FORMULA.format(homepage=homepage, url=url, sha256=sha256, python=python, resources="\n".join(lines))


def main(sdist: str, pylock: str, homepage: str, url: str) -> None:
    if not tarfile.is_tarfile(sdist):
        raise SystemExit(f"error: {sdist} is no sdist\nhint: .github/scripts/build.sh makes one")
    lock = tomllib.loads(Path(pylock).read_text("utf-8"))
    sys.stdout.write(formula(Path(sdist), lock, homepage, url))


if __name__ == "__main__":
    main(*sys.argv[1:])
