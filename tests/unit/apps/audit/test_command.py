"""`specdec audit`: its list of K, its table and its exit code."""

import json

import pytest

from fakes.planted import left_over
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


def test_a_change_that_is_no_rounding_exits_1_though_every_answer_is_identical(specdec, arguments, monkeypatch):
    """A rollback that leaves a thousandth of the first rejected value moves float32 logits more than float32 does."""
    left_over(0.001, monkeypatch)
    code, out, err = specdec(*arguments, "--temp", "0")
    assert code == 1 and "identical" in out and "DIVERGED" not in out
    assert "FAULT" in out and "this is more than rounding: passes of 4 rows" in " ".join(out.split())
    assert err.startswith("error: this is more than rounding: passes of 4 rows, ")
    code, out, _ = specdec(*arguments, "--temp", "0", "--json")
    rounding = json.loads(out)["rounding"]
    (passes,) = rounding["passes"]
    assert code == 1 and passes["ours"]["largest"] > passes["cap"] == 1e-3
    (fault,) = rounding["faults"]
    assert fault["rows"] == 4 and {"prompt", "position", "row"} == set(fault["largest_at"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--temp", "-1"), "--temp -1.0 is outside 0 to 100"),
        (("--gap", "-1"), "--gap -1.0 is below 0"),
        (("--gap", "nan"), "--gap nan is below 0"),
        (("-k", "17"), "-k 17 is outside 0 to 16"),
        (("--prompts", "/nowhere"), "/nowhere"),
    ],
)
def test_what_is_out_of_bounds_is_refused_before_anything_is_loaded(specdec, monkeypatch, more, message):
    monkeypatch.setattr("specdec_cli.session.load.load_spec", None)
    code, said, _ = specdec.refused("audit", *more)
    assert code == 2 and message in said
