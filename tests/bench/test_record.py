"""What --write puts into models.toml, and when it refuses to."""

import pytest

from specdec_cli.bench.record import require_pair
from specdec_cli.errors import UsageError


@pytest.mark.parametrize("what", [(False, 0, 1, 1), (True, 1, 1, 1), (True, 0, 2, 1), (True, 0, 1, 2)])
def test_nothing_is_written_where_it_has_no_one_place(what):
    require_pair(True, 0, 1, 1)
    with pytest.raises(UsageError, match="--write"):
        require_pair(*what)
