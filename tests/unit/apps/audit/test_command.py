"""`specdec audit`: its list of K, and its table."""

import pytest

from specdec_cli.apps.audit.command import parse_ks
from specdec_cli.core.errors import UsageError
from specdec_cli.core.request import MAX_K


def test_a_list_of_k_comes_back_in_order_and_each_once():
    assert parse_ks(" 4 , auto,0,4") == (4, "auto", 0)
    for text in ("", "1,,2", "x", str(MAX_K + 1), "-1"):
        with pytest.raises(UsageError):
            parse_ks(text)


@pytest.fixture
def arguments(tiny_pair, tmp_path):
    target, draft = map(str, tiny_pair)
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("def f(\n")
    return ["audit", "--target", target, "--draft", draft, "--raw", "-n", "8", "-k", "3", "--prompts", str(prompts)]


def test_a_lossless_pair_gets_a_table_on_stdout_and_exits_0(specdec, arguments):
    code, out, err = specdec(*arguments)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["prompt", "rule", "accepted", "tokens", "against", "plain", "decoding"]
    assert out.count("identical") >= 2 and max(map(len, out.splitlines())) <= 80
