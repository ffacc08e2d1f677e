"""The options of `specdec bench`: their defaults, and what is refused before anything is loaded."""

import pytest

from specdec_cli.cli.bench_options import CONTENDERS, BenchOptions, ContenderOptions
from specdec_cli.kinds import DRAFTERS

REFUSED = [
    (("-k", "0"), "-k 0 drafts nothing"),
    (("-k", "17"), "-k 17"),
    (("-n", "7"), "-n 7 is below 8"),
    (("--kinds", "cod"), "--kinds cod is none of code, chat"),
    (("--kinds", "code", "--prompts", "prompts.txt"), "both choose the prompts"),
    (("--time-budget", "soon"), "--time-budget soon is not a time"),
    (("--cooldown", "soon"), "--cooldown soon is not a time"),
    (("--export", "bench.xls"), "--export bench.xls ends in .xls"),
    (("--export", "nowhere/bench.json"), "there is no such folder"),
    (("--drafter", "magic"), "--drafter magic is none of model, ngram, auto"),
    (("--rule", "blok"), "--rule blok is none of auto"),
    (("--temp", "-1"), "--temp -1.0 is outside 0 to 100"),
    (("--write", "--temp", "0", "--temp", "1"), "--write keeps one K"),
    (("--compare", "prompts.txt", "prompts.txt"), "prompts.txt is no bench result"),
    (("--compare", "none.json", "none.json"), "none.json cannot be read: No such file"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[" ".join(case[0]) for case in REFUSED])
def test_a_bad_option_is_refused_before_anything_is_loaded(specdec, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts.txt").write_text("def f(\n")
    monkeypatch.setattr("specdec_cli.bench.live.load_machine", None)
    code, said, _ = specdec.refused("bench", "-p", "demo", *arguments)
    assert code == 2 and message in said


def test_a_drafter_that_needs_a_draft_is_refused_where_the_pair_has_none(specdec, tiny_pair):
    code, message, hint = specdec.refused("bench", "--target", tiny_pair[0], "--drafter", "model")
    assert (code, hint) == (2, "name one: --draft ID")
    assert message == f"--drafter model, and {tiny_pair[0].name} has no draft"


def test_whoever_drafts_can_be_a_contender_and_nobody_cannot():
    assert set(DRAFTERS) - set(CONTENDERS) == {"none"}


def test_the_defaults_are_those_of_the_contract():
    defaults = BenchOptions()
    assert (defaults.k, defaults.time_budget, defaults.seed, defaults.rule) == ("0-8,auto", "2m", 0, "auto")
    assert ContenderOptions().draft is None and not defaults.write
