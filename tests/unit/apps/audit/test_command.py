"""`specdec audit`: its list of K."""

import pytest

from specdec_cli.apps.audit.command import parse_ks
from specdec_cli.core.errors import UsageError
from specdec_cli.core.request import MAX_K


def test_a_list_of_k_comes_back_in_order_and_each_once():
    assert parse_ks(" 4 , auto,0,4") == (4, "auto", 0)
    for text in ("", "1,,2", "x", str(MAX_K + 1), "-1"):
        with pytest.raises(UsageError):
            parse_ks(text)
