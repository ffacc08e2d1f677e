"""models.toml, the packaged and the user's: what overlays what, what is complained about where, what edits keep."""

import shlex

import pytest

from fakes.models_toml import users
from specdec_cli.core.errors import NotAvailable, UsageError
from specdec_cli.pairs import registry as models_toml
from specdec_cli.pairs.choose import choose
from specdec_cli.pairs.pair import Pair, PairSpec, nearest
from specdec_cli.pairs.registry import add_pair, load_registry, packaged_file, read_registry


def complaint(files, text) -> UsageError:
    with pytest.raises(UsageError) as caught:
        users(files, text)
    return caught.value


def test_without_a_users_file_the_packaged_pairs_speak(files):
    known = load_registry(*files)
    assert (list(known.pairs), known.default_pair) == (["a", "b"], None)


def test_the_users_pair_replaces_the_packaged_one_of_its_name_whole(files):
    known = users(files, 'schema_version = 1\n[pairs.a]\ntarget = "my/a"\n[pairs.c]\ntarget = "my/c"\n')
    assert list(known.pairs) == ["a", "b", "c"]
    assert (known.find("a").target, known.find("a").k, known.find("a").source) == ("my/a", "auto", "yours")
    assert known.find("b").source == "packaged"


def test_an_unknown_default_pair_is_named_with_its_line(files):
    error = complaint(files, 'schema_version = 1\n\ndefault_pair = "bb"\n')
    assert error.message == f"{files[1]}:3: the default pair is bb, and no pair has that name"
    assert error.hint == "did you mean b?"


def test_the_packaged_pairs_are_sound():
    known = read_registry(packaged_file(), "packaged")
    assert len(known.pairs) >= 20
    for pair in known.pairs.values():
        shipped = pair.target.startswith("specdec:")
        assert pair.verified == shipped == (pair.name in ("demo", "demo-hybrid"))
        assert pair.own_head or (pair.draft and pair.draft != pair.target)
        assert shipped or pair.min_memory_gb


def test_what_a_packaged_pairs_source_gives_is_whole():
    """Bytes and commit come together, and one model has the same in every pair."""
    known, seen = read_registry(packaged_file(), "packaged").pairs.values(), {}
    for pair in known:
        sides = zip(pair.models, (pair.target_bytes, pair.draft_bytes), strict=False)
        for (name, revision), size in sides:
            assert revision is None or size, name
            assert seen.setdefault(name, (revision, size)) == (revision, size), name
        assert not pair.evidence or pair.target_revision, pair.name
    assert 12 <= sum(bool(pair.evidence) for pair in known) < sum(not pair.verified for pair in known)


def test_every_packaged_pair_fits_the_memory_it_names():
    for pair in read_registry(packaged_file(), "packaged").pairs.values():
        if pair.target_bytes and pair.draft_bytes and pair.min_memory_gb:
            assert pair.target_bytes + pair.draft_bytes < pair.min_memory_gb * 0.75e9, pair.name


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('schema_version = 1\ndefault_pear = "a"\n', "2: unknown key default_pear", "did you mean default_pair?"),
        (
            'schema_version = 1\n[pairs.a-b]\ntarget = "x"\n[pairs.a]\ntarget = "y"\nnotes = "z"\n',
            "6: unknown key notes",
            "did you mean note?",
        ),
        (
            'schema_version = 1\n[pairs."qwen2.5"]\ntarget = "x"\ntarget_byte = 3\n',
            "4: unknown key target_byte",
            "did you mean target_bytes",
        ),
        ("schema_version = 1\n[pairs.a]\nk = 3\n", "2: pairs.a.target is missing", 'such as: target = "mlx'),
        ("schema_version = 2\n", "1: schema_version is 2: Input should be 1", "correct that line"),
        (
            'schema_version = 1\n[pairs.a]\ntarget = "x"\nk = 99\n',
            "4: pairs.a.k is 99: Input should be less than or equal to 16",
            "correct that line",
        ),
        (
            'schema_version = 1\n[pairs.a]\ntarget = "x"\ntarget_revision = "main"\n',
            "4: pairs.a.target_revision is 'main': a revision here is a commit's 40 hex digits",
            "correct that line",
        ),
        (
            'schema_version = 1\n[pairs.a]\ntarget = "x"\nsource = "a card"\n',
            "4: pairs.a.source is 'a card': end it with its day",
            "correct that line",
        ),
        ("schema_version = 1\npairs.a = 3\n", "2: pairs.a is 3: it must be a table", "correct that line"),
    ],
)
def test_a_complaint_names_file_line_value_and_the_nearest_key(files, text, message, hint):
    error = complaint(files, text)
    assert error.message.startswith(f"{files[1]}:{message}")
    assert hint in error.hint
    assert "\n" not in error.message + error.hint


@pytest.mark.parametrize("content", [b"schema_version = [", b"a = " + b"[" * 100_000])
def test_what_is_no_toml_is_a_usage_error_and_edits_leave_it_alone(files, content):
    files[1].parent.mkdir()
    files[1].write_bytes(content)
    with pytest.raises(UsageError, match=r"is not valid TOML|cannot be read|is nested too deeply"):
        load_registry(*files)
    with pytest.raises(UsageError, match=r"is not valid TOML|is nested too deeply"):
        models_toml.add_pair(files[1], Pair("a", "org/t", None))
    assert files[1].read_bytes() == content


def test_a_pair_may_say_who_drafts(tmp_path):
    path = tmp_path / "models.toml"
    path.write_text('schema_version = 1\n[pairs.a]\ntarget = "x/y"\ndrafter = "ngram"\n[pairs.b]\ntarget = "x/y"\n')
    found = read_registry(path, "yours").pairs
    assert (found["a"].drafter, found["b"].drafter) == ("ngram", None)
    path.write_text('schema_version = 1\n[pairs.a]\ntarget = "x/y"\ndrafter = "modle"\n')
    with pytest.raises(UsageError, match=r":4: pairs\.a\.drafter is 'modle': .*known drafters are model, ngram"):
        read_registry(path, "yours")


def test_a_pair_may_say_how_much_of_a_context_its_draft_reads(tmp_path):
    text = 'schema_version = 1\n[pairs.a]\ntarget = "x/y"\ndraft_context = %s\n[pairs.b]\ntarget = "x/y"\n'
    for value, recent in (("64", 64), ('"full"', None)):
        found = read_registry(write(tmp_path, text % value), "yours").pairs
        assert (found["a"].recent, found["b"].recent) == (recent, 1024)
    with pytest.raises(UsageError, match=r":4: pairs\.a\.draft_context.* is 3"):
        read_registry(write(tmp_path, text % "3"), "yours")


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
    assert pair.stored == ["--target", "org/t", *options]
    assert pair.options == ([*pair.stored] if "--head-from" not in options else ["--target", "org/t"])
    assert pair.run_command == f"specdec run {shlex.join(pair.options)} 'your prompt'"
    assert Pair("t", "org/t", draft, source="yours").run_command == "specdec run -p t 'your prompt'"


def test_a_models_id_where_only_a_pair_will_do_gets_the_command_that_makes_a_pair_of_it():
    with pytest.raises(NotAvailable, match="no pair named org/model") as caught:
        read_registry(packaged_file(), "packaged").find("org/model")
    assert caught.value.hint == "specdec pull org/model makes a pair of it"


def test_a_pair_names_its_adapters_and_the_option_of_tune_takes_the_targets_place(tmp_path, monkeypatch):
    """Another draft has none of its adapter, and neither has a pair of other models under the same name."""
    users, mine = tmp_path / "models.toml", Pair("mine", "t", "d", target_adapter="/a", draft_adapter="/b")
    add_pair(users, mine)
    found = read_registry(users, "yours").pairs["mine"]
    assert (found.target_adapter, found.draft_adapter) == ("/a", "/b")
    kept, other = (PairSpec(found).adapted(name).pair for name in (None, "/c"))
    assert (kept.target_adapter, other.target_adapter, other.draft_adapter) == ("/a", "/c", "/b")
    assert found.stored == ["--target", "t", "--adapter", "/a", "--draft", "d", "--draft-adapter", "/b"]
    monkeypatch.setenv("SPECDEC_MODELS", str(users))
    other = choose("mine", None, "/other").pair
    assert (other.target_adapter, other.draft, other.draft_adapter) == ("/a", "/other", None)
    add_pair(users, Pair("mine", "t", "other"))
    assert read_registry(users, "yours").pairs["mine"].draft_adapter is None
