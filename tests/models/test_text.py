from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.models.text import StopStrings


def feed_all(stops, parts):
    watcher, shown = StopStrings(stops), ""
    for part in parts:
        text, hit = watcher.feed(part)
        shown += text
        if hit:
            return shown, True
    return shown + watcher.finish(), False


@given(
    st.lists(st.text("abc\n", max_size=6), max_size=12),
    st.lists(st.text("abc\n", min_size=1, max_size=4), max_size=3),
)
def test_shows_exactly_the_text_before_the_first_stop_however_it_is_split(parts, stops):
    shown, hit = feed_all(stops, parts)
    text = "".join(parts)
    # Independent rule: the first prefix of the text that ends with a stop string decides.
    ends = [n for n in range(len(text) + 1) if any(text[:n].endswith(stop) for stop in stops)]
    assert hit == bool(ends)
    if hit:
        longest = max(len(stop) for stop in stops if text[: ends[0]].endswith(stop))
        assert shown == text[: ends[0] - longest]
    else:
        assert shown == text


def test_holds_back_only_what_may_become_a_stop():
    watcher = StopStrings(["\n\n", "END"])
    assert watcher.feed("one\n") == ("one", False)
    assert watcher.feed("two E") == ("\ntwo ", False)
    assert watcher.feed("NDED") == ("", True)
    assert watcher.finish() == ""
