import shlex

import pytest

from specdec_cli.errors import NotAvailable, UsageError
from specdec_cli.pairs.pair import Pair, nearest
from specdec_cli.pairs.registry import packaged_file, read_registry


def write(tmp_path, text):
    path = tmp_path / "models.toml"
    path.write_text(text)
    return path


def test_the_packaged_file_holds_the_demo_pair():
    demo = read_registry(packaged_file(), "packaged").find("demo")
    assert (demo.target, demo.draft, demo.k) == ("specdec:demo/target", "specdec:demo/draft", 2)


def test_the_packaged_hybrid_is_drafted_for_by_its_own_head():
    known = read_registry(packaged_file(), "packaged")
    hybrid = known.find("demo-hybrid")
    assert (hybrid.target, hybrid.draft, hybrid.own_head) == ("specdec:demo/hybrid", None, True)
    assert hybrid.described == "specdec:demo/hybrid with its own head"
    assert not known.find("demo").own_head


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("qwne", "did you mean Qwen?"),
        ("LLAMA", "did you mean llama-3b or llama-8b?"),
        ("x", "did you mean xy?"),
        ("nope", "known: Qwen, llama-3b, llama-8b, xy"),
        ("", "known: Qwen, llama-3b, llama-8b, xy"),
    ],
)
def test_the_nearest_names_hold_what_was_typed_or_are_like_it(name, hint):
    known = ["Qwen", "llama-3b", "llama-8b", "xy"]
    assert nearest(name, known) == hint
    assert nearest(name, known, "specdec pairs") == (hint if hint.startswith("did") else "specdec pairs")


def test_a_draft_and_a_head_to_draft_with_are_refused_at_the_line_of_the_head(tmp_path):
    """The head once took the draft's place without a word."""
    text = 'schema_version = 1\n[pairs.a]\ntarget = "org/t"\ndraft = "org/d"\nhead_from = "org/o"\n'
    with pytest.raises(UsageError) as caught:
        read_registry(write(tmp_path, text), "yours")
    message = "models.toml:5: pair a has draft org/d and head_from org/o, which both name a draft"
    assert caught.value.message.endswith(message)
    assert (caught.value.hint, caught.value.exit_code) == ("keep one of the two", 2)


@pytest.mark.parametrize(
    ("draft", "options"),
    [(None, []), ("org/d e", ["--draft", "org/d e"]), ("head:org/o", ["--head-from", "org/o"])],
)
def test_a_command_names_the_draft_by_the_option_that_it_came_from(draft, options):
    pair = Pair("t", "org/t", draft)
    assert pair.options == ["--target", "org/t", *options]
    assert pair.run_command == f"specdec run {shlex.join(pair.options)} 'your prompt'"
    assert Pair("t", "org/t", draft, source="yours").run_command == "specdec run -p t 'your prompt'"


def test_a_models_id_where_only_a_pair_will_do_gets_the_command_that_makes_a_pair_of_it():
    with pytest.raises(NotAvailable, match="no pair named org/model") as caught:
        read_registry(packaged_file(), "packaged").find("org/model")
    assert caught.value.hint == "specdec pull org/model makes a pair of it"
