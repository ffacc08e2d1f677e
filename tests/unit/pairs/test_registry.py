"""models.toml, the packaged and the user's: what overlays what, what is complained about where, what edits keep."""

import shlex
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_cli.core.errors import UsageError
from specdec_cli.pairs.choose import choose
from specdec_cli.pairs.pair import Pair, PairSpec, nearest
from specdec_cli.pairs.registry import add_pair, load_registry, packaged_file, read_registry, set_default

VERSION = "schema_version = 1\n"
PACKAGED = VERSION + '[pairs.a]\ntarget = "org/a"\nk = 4\n[pairs.b]\ntarget = "org/b"\n'
OURS = read_registry(packaged_file(), "packaged")


@pytest.fixture
def files(tmp_path):
    """(packaged, the user's); the second does not exist yet."""
    packaged = tmp_path / "packaged.toml"
    packaged.write_text(PACKAGED)
    return packaged, tmp_path / "mine" / "models.toml"


def users(files, text):
    files[1].parent.mkdir(exist_ok=True)
    files[1].write_text(text)
    return load_registry(*files)


def test_the_users_pair_replaces_the_packaged_one_of_its_name_whole(files):
    known = load_registry(*files)
    assert (list(known.pairs), known.default_pair) == (["a", "b"], None)
    known = users(files, VERSION + '[pairs.a]\ntarget = "my/a"\n[pairs.c]\ntarget = "my/c"\n')
    assert list(known.pairs) == ["a", "b", "c"]
    assert (known.find("a").target, known.find("a").k, known.find("a").source) == ("my/a", "auto", "yours")
    assert known.find("b").source == "packaged"


# What is packaged


def test_the_packaged_pairs_are_sound():
    """Bytes and commit come together, and one model has the same in every pair."""
    known, seen = OURS.pairs.values(), {}
    assert len(known) >= 20
    for pair in known:
        shipped = pair.target.startswith("specdec:")
        assert pair.verified == shipped == (pair.name in ("demo", "demo-hybrid"))
        assert pair.own_head or (pair.draft and pair.draft != pair.target)
        assert shipped or pair.min_memory_gb or "no gain" in pair.note
        for (name, revision), size in zip(pair.models, (pair.target_bytes, pair.draft_bytes), strict=False):
            assert revision is None or size, name
            assert seen.setdefault(name, (revision, size)) == (revision, size), name
        assert not pair.evidence or pair.target_revision, pair.name
    assert 12 <= sum(bool(pair.evidence) for pair in known) < sum(not pair.verified for pair in known)


def test_the_demo_pair_has_a_draft_and_the_hybrid_its_own_head():
    demo, hybrid = OURS.find("demo"), OURS.find("demo-hybrid")
    assert (demo.target, demo.draft, demo.k, demo.own_head) == ("specdec:demo/target", "specdec:demo/draft", 2, False)
    assert (hybrid.target, hybrid.draft, hybrid.own_head) == ("specdec:demo/hybrid", None, True)
    assert hybrid.described == "specdec:demo/hybrid with its own head"


# What is wrong

PAIR = VERSION + '[pairs.a]\ntarget = "x"\n'
LINE = "correct that line"
WRONG = [
    (VERSION + 'default_pear = "a"\n', "2: unknown key default_pear", "did you mean default_pair?"),
    (VERSION + '\ndefault_pair = "bb"\n', "3: the default pair is bb, and no pair has that name", "did you mean b?"),
    (VERSION + '[pairs.a-b]\ntarget = "x"\n[pairs.a]\ntarget = "y"\nnotes = "z"\n', "6: unknown key notes", "note?"),
    (VERSION + '[pairs."qwen2.5"]\ntarget = "x"\ntarget_byte = 3\n', "4: unknown key target_byte", "target_bytes"),
    (VERSION + "[pairs.a]\nk = 3\n", "2: pairs.a.target is missing", 'such as: target = "mlx'),
    ("schema_version = 2\n", "1: schema_version is 2: Input should be 1", LINE),
    (PAIR + "k = 99\n", "4: pairs.a.k is 99: Input should be less than or equal to 16", LINE),
    (
        PAIR + 'target_revision = "main"\n',
        "4: pairs.a.target_revision is 'main': a revision here is a commit's 40",
        LINE,
    ),
    (PAIR + 'source = "a card"\n', "4: pairs.a.source is 'a card': end it with its day", LINE),
    (PAIR + 'drafter = "modle"\n', "4: pairs.a.drafter is 'modle': known drafters are model, ngram", LINE),
    (PAIR + "draft_context = 3\n", "4: pairs.a.draft_context is 3: ", LINE),
    (VERSION + "pairs.a = 3\n", "2: pairs.a is 3: it must be a table", LINE),
    # The head once took the draft's place without a word.
    (
        PAIR + 'draft = "org/d"\nhead_from = "org/o"\n',
        "5: pair a has draft org/d and head_from org/o, which both name a draft",
        "keep one of the two",
    ),
]


@pytest.mark.parametrize(("text", "message", "hint"), WRONG)
def test_a_complaint_names_file_line_value_and_the_nearest_key(files, text, message, hint):
    with pytest.raises(UsageError) as caught:
        users(files, text)
    assert caught.value.message.startswith(f"{files[1]}:{message}") and hint in caught.value.hint
    assert "\n" not in caught.value.message + caught.value.hint


def test_a_pair_may_say_who_drafts_and_how_much_of_a_context_its_draft_reads(files):
    for said, recent in (("64", 64), ('"full"', None)):
        pairs = users(files, PAIR + f'drafter = "ngram"\ndraft_context = {said}\n[pairs.b]\ntarget = "x"\n').pairs
        assert (pairs["a"].drafter, pairs["b"].drafter) == ("ngram", None)
        assert (pairs["a"].recent, pairs["b"].recent) == (recent, 1024)


# Names and commands


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


# Edits of the user's file

HAND_WRITTEN = """# top
schema_version = 1  # the format
default_pair = "a"

# Why this one: it is fast here.
[pairs.a]
draft = "org/d"   # small
target = "org/t"
note = "mine"
target_bytes = 100
"""


def test_edits_make_the_file_and_keep_every_hand_written_line_that_they_do_not_change(files):
    add_pair(files[1], Pair("mine", "org/t", "org/d", 5))
    known = load_registry(*files)
    assert (known.find("mine").draft, known.find("mine").k) == ("org/d", 5)
    assert files[1].read_text().startswith("# Your pairs")
    users(files, HAND_WRITTEN)
    add_pair(files[1], Pair("new", "org/n", None))
    assert set(HAND_WRITTEN.splitlines()) <= set(files[1].read_text().splitlines())
    assert load_registry(*files).find("new").draft is None


def test_the_default_pair_moves_into_the_config_when_the_next_one_is_set(files, tmp_path):
    """Until then the one of models.toml counts; afterwards models.toml names none, and its other lines stay."""
    config = tmp_path / "config.toml"
    users(files, HAND_WRITTEN)
    assert load_registry(*files, config).default_pair == "a" and not config.exists()
    config.write_text("# mine\nk = 3\n")
    set_default(config, files[1], "b")
    assert config.read_text() == '# mine\nk = 3\npair = "b"\n'
    assert files[1].read_text() == HAND_WRITTEN.replace('default_pair = "a"\n', "")
    users(files, HAND_WRITTEN)  # the config's stands above it
    known = load_registry(*files, config)
    assert (known.default_pair, known.default_place) == ("b", f"{config}:3")
    set_default(config, files[1], None)
    assert load_registry(*files, config).default_pair is None and config.read_text() == "# mine\nk = 3\n"


def test_replacing_a_pairs_models_drops_what_was_true_of_the_old_ones_only(files):
    users(files, HAND_WRITTEN)
    add_pair(files[1], Pair("a", "org/other", "org/d"))
    pair = load_registry(*files).find("a")
    assert (pair.target, pair.note, pair.target_bytes) == ("org/other", "mine", None)
    add_pair(files[1], Pair("a", "org/other", None))
    assert load_registry(*files).find("a").draft is None


@settings(max_examples=20)
@given(st.from_regex(r"[A-Za-z0-9][\w.-]{0,8}", fullmatch=True), st.integers(0, 16))
def test_any_name_that_pairs_add_takes_is_read_back(tmp_path_factory, name, k):
    path = tmp_path_factory.mktemp("any") / "models.toml"
    config = path.with_name("config.toml")
    add_pair(path, Pair(name, "org/t", "org/d", k))
    set_default(config, path, name)
    known = load_registry(packaged_file(), path, config)
    assert (known.find(name).k, known.default_pair) == (k, name)


def test_a_link_stays_a_link_and_the_files_mode_stays(files, tmp_path):
    """A rename onto the link made it a file, readable by its owner only: dotfiles kept elsewhere were cut off."""
    real = tmp_path / "dotfiles.toml"
    real.write_text(HAND_WRITTEN)
    real.chmod(0o664)
    files[1].parent.mkdir()
    files[1].symlink_to(real)
    add_pair(files[1], Pair("new", "org/n", None))
    assert files[1].is_symlink() and "[pairs.new]" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o664


def test_a_pair_names_its_adapters_and_the_option_of_tune_takes_the_targets_place(tmp_path, monkeypatch):
    """Another draft has none of its adapter, and neither has a pair of other models under the same name."""
    mine = tmp_path / "models.toml"
    add_pair(mine, Pair("mine", "t", "d", target_adapter="/a", draft_adapter="/b"))
    found = read_registry(mine, "yours").pairs["mine"]
    assert (found.target_adapter, found.draft_adapter) == ("/a", "/b")
    kept, other = (PairSpec(found).adapted(name).pair for name in (None, "/c"))
    assert (kept.target_adapter, other.target_adapter, other.draft_adapter) == ("/a", "/c", "/b")
    assert found.stored == ["--target", "t", "--adapter", "/a", "--draft", "d", "--draft-adapter", "/b"]
    monkeypatch.setenv("SPECDEC_MODELS", str(mine))
    other = choose("mine", None, "/other").pair
    assert (other.target_adapter, other.draft, other.draft_adapter) == ("/a", "/other", None)
    add_pair(mine, Pair("mine", "t", "other"))
    assert read_registry(mine, "yours").pairs["mine"].draft_adapter is None
