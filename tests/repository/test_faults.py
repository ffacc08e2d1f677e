"""Faults that are planted by hand (`python tests/faults.py`) still have their place in the source."""

import pytest

from faults import FAULTS, ROOT


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_faults_old_text_is_in_its_file_once(fault):
    assert (ROOT / "specdec_cli" / fault.file).read_text(encoding="utf-8").count(fault.old) == 1
    assert fault.new not in ("", fault.old) or not fault.new
