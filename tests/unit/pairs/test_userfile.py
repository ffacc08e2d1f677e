"""Edits of the user's models.toml: what stays, what goes, and what an interruption leaves."""

import stat

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.models_toml import users
from specdec_cli.pairs import registry as models_toml
from specdec_cli.pairs.pair import Pair
from specdec_cli.pairs.registry import load_registry, read_registry

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


def test_the_first_edit_makes_the_file_and_its_folder(files):
    models_toml.add_pair(files[1], Pair("mine", "org/t", "org/d", 5))
    models_toml.set_default(files[1], "mine")
    known = load_registry(*files)
    assert (known.default_pair, known.find("mine").draft, known.find("mine").k) == ("mine", "org/d", 5)
    assert files[1].read_text().startswith("# Your pairs")


def test_edits_keep_every_hand_written_line_that_they_do_not_change(files):
    users(files, HAND_WRITTEN)
    models_toml.add_pair(files[1], Pair("new", "org/n", None))
    models_toml.set_default(files[1], "new")
    text = files[1].read_text()
    changed = set(HAND_WRITTEN.splitlines()) - set(text.splitlines())
    assert changed == {'default_pair = "a"'}
    assert load_registry(*files).find("new").draft is None


def test_replacing_a_pairs_models_drops_what_was_true_of_the_old_ones_only(files):
    users(files, HAND_WRITTEN)
    models_toml.add_pair(files[1], Pair("a", "org/other", "org/d"))
    pair = load_registry(*files).find("a")
    assert (pair.target, pair.note, pair.target_bytes) == ("org/other", "mine", None)
    models_toml.add_pair(files[1], Pair("a", "org/other", None))
    assert load_registry(*files).find("a").draft is None


@settings(max_examples=20)
@given(st.from_regex(r"[A-Za-z0-9][\w.-]{0,8}", fullmatch=True), st.integers(0, 16))
def test_any_name_that_pairs_add_takes_is_read_back(tmp_path_factory, name, k):
    path = tmp_path_factory.mktemp("any") / "models.toml"
    models_toml.add_pair(path, Pair(name, "org/t", "org/d", k))
    models_toml.set_default(path, name)
    known = read_registry(path, "yours")
    assert (known.find(name).k, known.default_pair) == (k, name)


def test_a_link_stays_a_link_and_the_files_mode_stays(files, tmp_path):
    """A rename onto the link made it a file, readable by its owner only: dotfiles kept elsewhere were cut off."""
    real = tmp_path / "dotfiles.toml"
    real.write_text(HAND_WRITTEN)
    real.chmod(0o664)
    files[1].parent.mkdir()
    files[1].symlink_to(real)
    models_toml.set_default(files[1], "b")
    assert files[1].is_symlink() and 'default_pair = "b"' in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o664
