"""The rows of /stats and /show settings."""

from specdec_cli.chat.rows import settings_rows, stats_rows
from specdec_cli.events import Round
from specdec_cli.stats import Stats


def figures(*rounds):
    stats = Stats(decode_seconds=1.0)
    for drafted, accepted in rounds:
        draft = tuple(range(drafted))
        stats.fold(Round(0, "model", draft, accepted, 9, (*draft[:accepted], 9), 0.0, 0.1))
    return stats.to_dict() | {"replies": 1, "prompt_tokens": 30, "cached_tokens": 20}


def test_before_the_first_reply_there_is_one_row():
    assert stats_rows({"replies": 0}) == (("replies", "none yet"),)


def test_stats_have_one_acceptance_rate_and_every_position():
    rows = dict(stats_rows(figures((0, 0), (2, 2), (2, 0))))
    assert rows["tokens"] == "5 in 3 target passes, 1.67 a pass"
    assert rows["accepted"] == "50 % of drafted"
    assert rows["by position"] == "1: 50 % 2: 50 %"
    assert rows["prompts"] == "30 tokens, 10 of them read, the others were in the cache"


def test_plain_decoding_has_no_acceptance():
    rows = dict(stats_rows(figures((0, 0), (0, 0))))
    assert rows["accepted"] == "nothing drafted" and "by position" not in rows


def test_settings_are_those_in_effect(opened):
    chat, _, _ = opened
    chat.settings = chat.settings.with_value("temp", "0.7").with_value("seed", "7").with_value("max-context", "99")
    rows = dict(settings_rows(chat))
    assert (rows["temp"], rows["top-p"], rows["seed"], rows["stop"]) == ("0.7", "1", "7", "off")
    assert (rows["k"], rows["context"], rows["system"]) == ("4, drafter model", "0 of 99 tokens", "none")
    assert rows["pair"] == "tiny: target target, draft draft" and rows["saved to"].startswith("nothing: /save FILE")
