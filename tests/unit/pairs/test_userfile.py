"""Edits of the user's models.toml: what stays, what goes, and what an interruption leaves."""

import stat

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.models_toml import users
from specdec_cli.pairs import registry as models_toml
from specdec_cli.pairs.pair import Pair
from specdec_cli.pairs.registry import load_registry, packaged_file

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
    known = load_registry(*files)
    assert (known.find("mine").draft, known.find("mine").k) == ("org/d", 5)
    assert files[1].read_text().startswith("# Your pairs")


def test_edits_keep_every_hand_written_line_that_they_do_not_change(files):
    users(files, HAND_WRITTEN)
    models_toml.add_pair(files[1], Pair("new", "org/n", None))
    assert set(HAND_WRITTEN.splitlines()) <= set(files[1].read_text().splitlines())
    assert load_registry(*files).find("new").draft is None


def test_the_default_pair_moves_into_the_config_when_the_next_one_is_set(files, tmp_path):
    """Until then the one of models.toml counts; afterwards models.toml names none, and its other lines stay."""
    config = tmp_path / "config.toml"
    users(files, HAND_WRITTEN)
    assert load_registry(*files, config).default_pair == "a" and not config.exists()
    config.write_text("# mine\nk = 3\n")
    models_toml.set_default(config, files[1], "b")
    assert load_registry(*files, config).default_pair == "b"
    assert config.read_text() == '# mine\nk = 3\npair = "b"\n'
    assert files[1].read_text() == HAND_WRITTEN.replace('default_pair = "a"\n', "")
    models_toml.set_default(config, files[1], None)
    assert load_registry(*files, config).default_pair is None and config.read_text() == "# mine\nk = 3\n"


def test_the_configs_default_pair_stands_above_that_of_models_toml(files, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text('\npair = "b"\n')
    users(files, HAND_WRITTEN)
    known = load_registry(*files, config)
    assert (known.default_pair, known.default_place) == ("b", f"{config}:2")


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
    config = path.with_name("config.toml")
    models_toml.add_pair(path, Pair(name, "org/t", "org/d", k))
    models_toml.set_default(config, path, name)
    known = load_registry(packaged_file(), path, config)
    assert (known.find(name).k, known.default_pair) == (k, name)


def test_a_link_stays_a_link_and_the_files_mode_stays(files, tmp_path):
    """A rename onto the link made it a file, readable by its owner only: dotfiles kept elsewhere were cut off."""
    real = tmp_path / "dotfiles.toml"
    real.write_text(HAND_WRITTEN)
    real.chmod(0o664)
    files[1].parent.mkdir()
    files[1].symlink_to(real)
    models_toml.add_pair(files[1], Pair("new", "org/n", None))
    assert files[1].is_symlink() and "[pairs.new]" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o664
