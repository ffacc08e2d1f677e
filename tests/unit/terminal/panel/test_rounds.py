"""A round as a row: whole rows as `--rounds` prints them into a pipe, and what the panel's narrower ones keep."""

from __future__ import annotations

import io
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fakes.ui_script import ROUNDS, START, drafted, folded
from specdec_cli.terminal.display import Look, open_display
from specdec_cli.terminal.panel.rounds import RoundRows, round_rows
from specdec_cli.terminal.panel.state import KEPT_ROUNDS

EVERY_FATE = """\
  1                                           – def                plain  9.4 ms
  2  ✓␣read ✓_lines ✓( ✓path                  ★ ):                4 of 4   12 ms
  3  ✓↵␣␣␣␣ ✓with ✗日本 ·␛[2J                 ↳ ⇥open             2 of 4   12 ms
  4  ✓( ✓path ✓) ✗↵                           ↳ ␣as               3 of 4   12 ms
  5  ✗␣f ·:                                   ↳ ␣handle           0 of 2   12 ms
""".splitlines()


def lines(*rounds, start=START):
    """What `--rounds` prints of them into a pipe."""
    err = io.StringIO()
    with open_display(io.StringIO(), err, Look(rounds=True), "demo") as display:
        for event in (start, *rounds):
            display.handle(event)
    return err.getvalue().splitlines()


def rows_of(done, width=76, start=START):
    (row,) = round_rows([done], start, width)
    return row.plain.rstrip()


def test_a_row_has_every_fate_the_target_s_own_token_the_count_and_the_time():
    assert lines(*ROUNDS) == EVERY_FATE


def test_a_draft_that_does_not_fit_loses_the_ends_of_long_words_then_the_discarded_then_the_first_accepted():
    words = [" accepted", " words", " without", " end", " rejected", " lost", " too", " and", " gone"]
    long = drafted(7, words, 4, " corrected")
    rows = {width: rows_of(long, width, replace(START, k="auto")) for width in (116, 76, 56)}
    assert rows == {
        116: "  8  ✓␣accept… ✓␣words ✓␣without ✓␣end ✗␣reject… ·␣lost ·␣too ·␣and ·␣gone ↳ ␣corrected"
        "               4 of 9   12 ms",
        76: "  8  ✓␣ac… ✓␣wo… ✓␣wi… ✓␣end ✗␣re… ·4 more  ↳ ␣corrected      4 of 9   12 ms",
        56: "  8  ✓4 more ✗␣reje… ·4 more  ↳ ␣corre…   4 of 9   12 ms",
    }


def test_a_drafter_is_named_where_it_changes_and_a_plain_round_changes_none():
    auto = replace(START, drafter="auto", k="auto")
    rounds = [
        drafted(0, [], 0, "a", "none"),
        drafted(1, ["b"], 1, "c", "model"),
        drafted(2, ["d"], 1, "e", "model"),
        drafted(3, [], 0, "f", "none"),
        drafted(4, ["g"], 1, "h", "model"),
        drafted(5, ["i"], 0, "j", "ngram"),
    ]
    shown = [line[5:20].rstrip() for line in lines(*rounds, start=auto)]
    assert shown == ["", "model: ✓b", "✓d", "", "✓g", "ngram: ✗i"]
    head = [drafted(1, ["b"], 1, "c", "mtp"), drafted(2, ["d"], 1, "e", "grammar")]
    assert [line[5:20].rstrip() for line in lines(*head, start=replace(START, drafter="mtp"))] == ["✓b", "grammar: ✓d"]


def test_an_accepted_stop_token_ends_the_round_without_a_token_of_the_target_s():
    done = drafted(1, ["a", "<end>"], 2, "z")
    stopped = replace(done, round=replace(done.round, emitted=done.round.draft[:2]))
    (line,) = lines(stopped)
    assert "✓<end>" in line and "ends here" in line and "↳" not in line


pieces = st.text(st.sampled_from("ab 日👍\n\t\x1b\u200d\u0301\ufe0f\u202e(."), max_size=14)


@given(
    st.lists(pieces, max_size=32), st.integers(0, 32), pieces, st.integers(52, 116), st.sampled_from([4, 16, "auto"])
)
def test_a_row_is_as_wide_as_asked_and_keeps_the_count(drafts, accepted, own, width, k):
    accepted = min(accepted, len(drafts))
    (row,) = round_rows([drafted(99_999, drafts, accepted, own, "prediction")], replace(START, k=k), width)
    assert row.cell_len == width and "\x1b" not in row.plain
    assert (f"{accepted} of {len(drafts)}" if drafts else "plain") in row.plain
    whole = RoundRows(replace(START, k=k), width, cut=False).row(drafted(9, drafts, accepted, own))
    assert whole.cell_len >= width and "…" not in whole.plain and " more" not in whole.plain


def test_only_the_rounds_that_are_drawn_are_kept_and_they_are_the_newest_at_any_pace():
    state = folded(tuple(drafted(index, ["a"], 1, "b") for index in range(100)))
    assert [done.round.index for done in state.recent] == list(range(100 - KEPT_ROUNDS, 100))
    assert state.stats.rounds == 100
