"""models.toml, the packaged and the user's: what overlays what, what is complained about where, what edits keep."""

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.pairs import userfile
from specdec_cli.pairs.pair import Pair
from specdec_cli.pairs.registry import load_registry, packaged_file, read_registry

PACKAGED = 'schema_version = 1\n[pairs.a]\ntarget = "org/a"\nk = 4\n[pairs.b]\ntarget = "org/b"\n'
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


def complaint(files, text) -> UsageError:
    with pytest.raises(UsageError) as caught:
        users(files, text)
    return caught.value


# What overlays what


def test_without_a_users_file_the_packaged_pairs_speak(files):
    known = load_registry(*files)
    assert (list(known.pairs), known.default_pair) == (["a", "b"], None)


def test_the_users_pair_replaces_the_packaged_one_of_its_name_whole(files):
    known = users(files, 'schema_version = 1\n[pairs.a]\ntarget = "my/a"\n[pairs.c]\ntarget = "my/c"\n')
    assert list(known.pairs) == ["a", "b", "c"]
    assert (known.find("a").target, known.find("a").k, known.find("a").source) == ("my/a", "auto", "yours")
    assert known.find("b").source == "packaged"


def test_the_default_pair_may_be_a_packaged_one(files):
    assert users(files, 'schema_version = 1\ndefault_pair = "b"\n').default_pair == "b"


def test_an_unknown_default_pair_is_named_with_its_line(files):
    error = complaint(files, 'schema_version = 1\n\ndefault_pair = "bb"\n')
    assert error.message == f"{files[1]}:3: default_pair is bb, and no pair has that name"
    assert error.hint == "did you mean b?"


def test_the_packaged_pairs_are_sound():
    known = read_registry(packaged_file(), "packaged")
    assert len(known.pairs) >= 20
    for pair in known.pairs.values():
        assert pair.verified == (pair.name == "demo")
        assert pair.draft and pair.draft != pair.target
        assert pair.name == "demo" or pair.min_memory_gb


def test_every_packaged_pair_fits_the_memory_it_names():
    for pair in read_registry(packaged_file(), "packaged").pairs.values():
        if pair.target_bytes and pair.draft_bytes and pair.min_memory_gb:
            assert pair.target_bytes + pair.draft_bytes < pair.min_memory_gb * 0.75e9, pair.name


# What is complained about


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
        (
            'schema_version = 1\n[pairs]\na = { target = "x", drat = "y" }\n',
            "3: unknown key drat",
            "did you mean draft",
        ),
        ("schema_version = 1\n[pairs.a]\nk = 3\n", "2: pairs.a.target is missing", 'such as: target = "mlx'),
        ('[pairs.a]\ntarget = "x"\n', "1: schema_version is missing", "add: schema_version = 1"),
        ("schema_version = 2\n", "1: schema_version is 2: Input should be 1", "mend that line"),
        (
            'schema_version = 1\n[pairs.a]\ntarget = "x"\nk = 99\n',
            "4: pairs.a.k is 99: Input should be less than or equal to 16",
            "mend that line",
        ),
        ('schema_version = 1\n[pairs.a]\ntarget = "x"\nk = "many"\n', "4: pairs.a.k is 'many'", "mend that line"),
        ("schema_version = 1\npairs.a = 3\n", "2: pairs.a is 3: it must be a table", "mend that line"),
        (
            'schema_version = 1\n[pairs.a]\ntarget = "x"\nmin_memory_gb = -8\n',
            "4: pairs.a.min_memory_gb is -8",
            "mend that line",
        ),
    ],
)
def test_a_complaint_names_file_line_value_and_the_nearest_key(files, text, message, hint):
    error = complaint(files, text)
    assert error.message.startswith(f"{files[1]}:{message}")
    assert hint in error.hint
    assert "\n" not in error.message + error.hint


@pytest.mark.parametrize("content", [b"schema_version = [", b"\xff\xfe", b'a = "'])
def test_what_is_no_toml_is_a_usage_error_and_edits_leave_it_alone(files, content):
    files[1].parent.mkdir()
    files[1].write_bytes(content)
    with pytest.raises(UsageError, match=r"is not valid TOML|cannot be read"):
        load_registry(*files)
    with pytest.raises(UsageError, match="is not valid TOML"):
        userfile.set_default(files[1], "a")
    assert files[1].read_bytes() == content


def test_k_auto_is_understood(files):
    assert users(files, 'schema_version = 1\n[pairs.a]\ntarget = "x"\nk = "auto"\n').find("a").k == "auto"


# What edits keep


def test_the_first_edit_makes_the_file_and_its_folder(files):
    userfile.add_pair(files[1], Pair("mine", "org/t", "org/d", 5))
    userfile.set_default(files[1], "mine")
    known = load_registry(*files)
    assert (known.default_pair, known.find("mine").draft, known.find("mine").k) == ("mine", "org/d", 5)
    assert files[1].read_text().startswith("# Your pairs")


def test_edits_keep_every_hand_written_line_that_they_do_not_change(files):
    users(files, HAND_WRITTEN)
    userfile.add_pair(files[1], Pair("new", "org/n", None))
    userfile.set_default(files[1], "new")
    text = files[1].read_text()
    changed = set(HAND_WRITTEN.splitlines()) - set(text.splitlines())
    assert changed == {'default_pair = "a"'}
    assert load_registry(*files).find("new").draft is None


def test_replacing_a_pairs_models_drops_what_was_true_of_the_old_ones_only(files):
    users(files, HAND_WRITTEN)
    userfile.add_pair(files[1], Pair("a", "org/other", "org/d"))
    pair = load_registry(*files).find("a")
    assert (pair.target, pair.note, pair.target_bytes) == ("org/other", "mine", None)
    userfile.add_pair(files[1], Pair("a", "org/other", None))
    assert load_registry(*files).find("a").draft is None


@given(st.from_regex(r"[A-Za-z0-9][\w.-]{0,8}", fullmatch=True), st.integers(0, 16))
def test_any_name_that_pairs_add_takes_is_read_back(tmp_path_factory, name, k):
    path = tmp_path_factory.mktemp("any") / "models.toml"
    userfile.add_pair(path, Pair(name, "org/t", "org/d", k))
    userfile.set_default(path, name)
    known = read_registry(path, "yours")
    assert (known.find(name).k, known.default_pair) == (k, name)


def test_a_link_stays_a_link_and_the_files_mode_stays(files, tmp_path):
    """A rename onto the link made it a file, readable by its owner only: dotfiles kept elsewhere were cut off."""
    real = tmp_path / "dotfiles.toml"
    real.write_text(HAND_WRITTEN)
    real.chmod(0o664)
    files[1].parent.mkdir()
    files[1].symlink_to(real)
    userfile.set_default(files[1], "b")
    assert files[1].is_symlink() and 'default_pair = "b"' in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o664


def test_a_write_that_fails_leaves_the_old_file_and_no_other(files, monkeypatch):
    users(files, HAND_WRITTEN)
    monkeypatch.setattr(
        "pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(SpecdecError, match="cannot be written: No space left on device"):
        userfile.set_default(files[1], "b")
    assert files[1].read_text() == HAND_WRITTEN
    assert [path.name for path in files[1].parent.iterdir()] == ["models.toml"]
