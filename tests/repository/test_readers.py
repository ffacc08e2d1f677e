"""Every file from outside is opened by `core/readfile.py`, so that no pipe is ever waited for."""

from __future__ import annotations

import re

from faults import ROOT

SOURCE = ROOT / "specdec_cli"
READS = re.compile(r"\.read_bytes\(|\.read_text\(|\.open\((\"r|encoding)|(?<![.\w])open\(")
# What the package carries, and what the system's kernel shows.
OURS = {
    "engine/selftest.py",
    "measure/prompts.py",
    "models/translation.py",
    "command/help.py",
    "terminal/html.py",
    "system/blas.py",
    "system/machine.py",
}


def test_no_other_module_opens_a_file_to_read_it():
    found = {
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if READS.search(line) and not line.lstrip().startswith(("#", '"', "def ", '("code"'))
    }
    assert {line.partition(":")[0] for line in found} <= OURS, sorted(found)
    assert any("read_text" in line for line in found)
