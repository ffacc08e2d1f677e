"""Which pair names mean, and a target's draft among all models here: one alone is taken, several are offered."""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from fakes.models import TINY, byte_tokenizer, other_letters, swap_two_ids, tiny_folder
from specdec_cli import hub
from specdec_cli.apps.serve.build import spec_here
from specdec_cli.core.errors import SpecdecError
from specdec_cli.core.kinds import DEFAULT_DRAFTER
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.pairs import catalog, drafts
from specdec_cli.pairs.choose import choose, drafted
from specdec_cli.pairs.drafts import compared_file, find_drafts
from specdec_cli.pairs.files import PairFiles
from specdec_cli.pairs.pair import Pair

BIG = {"num_hidden_layers": 16, "intermediate_size": 512}
NOBODY = "no draft is known for this target, so its own text drafts: --drafter ngram"
MODEL = "model.safetensors"
CALLED = "Qwen2.5-Coder-{}-Instruct-MLX"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A target, a model of a fortieth of its bytes, and one of a tenth."""
    root = tmp_path_factory.mktemp("made")
    layers = {"7B": BIG, "0.5B": {"num_hidden_layers": 1}, "1.5B": {"num_hidden_layers": 2, "intermediate_size": 192}}
    for name, config in layers.items():
        tiny_folder(root / name, TINY | config, seed=1)
    return root


@pytest.fixture
def lay(made, monkeypatch, tmp_path):
    """Puts one of them into LM Studio's folder, under a name, with other words in its configuration."""
    for name in ("HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    monkeypatch.setenv("SPECDEC_MODELS", str(tmp_path / "models.toml"))

    def lay(which, name="", **config):
        called = name or f"lmstudio-community/{CALLED.format(which)}"
        folder = shutil.copytree(made / which, Path.home() / ".lmstudio/models" / called)
        (folder / "config.json").write_text(json.dumps(json.loads((folder / "config.json").read_text()) | config))
        return folder

    return lay


def other_words(folder, old='"a":', new='"@":'):
    (folder / "tokenizer.json").write_text(byte_tokenizer().to_str().replace(old, new, 1))


def chosen(name="Qwen2.5-Coder-7B-Instruct-MLX", here=True):
    """(draft, drafter, the line that says why) of a target that is named alone."""
    spec = choose(name, None, None, here=here)
    return spec.pair.draft, spec.drafter, spec.reason


def test_the_only_model_here_that_can_draft_is_taken_and_named_with_its_size(lay, tmp_path):
    """`check` of LM Studio's Qwen2.5-Coder-1.5B said that no draft is known, beside the 0.5B: a third was too large."""
    target, draft = lay("1.5B"), lay("0.5B")
    ratio = (target / MODEL).stat().st_size / (draft / MODEL).stat().st_size
    assert 2 < ratio < 4
    taken = f"lmstudio-community/{CALLED.format('0.5B')}"
    why = f"draft {taken}: in LM Studio, {ratio:.1f} times smaller, and its tokenizer agrees"
    name = CALLED.format("1.5B")
    for found in (chosen(name), chosen(name, here=False), chosen(f"lmstudio-community/{name}"), chosen(str(target))):
        assert (found[0], found[2]) == (taken, why)
    assert spec_here(name, None).pair.draft == taken
    # Only a target named by itself did: `pairs add NAME --target ID` made a pair that never drafted with a model.
    (tmp_path / "models.toml").write_text(f'schema_version = 1\n[pairs.mine]\ntarget = "lmstudio-community/{name}"\n')
    mine = choose("mine", None, None, here=True)
    assert (mine.pair.draft, mine.drafter, mine.reason) == (taken, DEFAULT_DRAFTER, why)
    known = catalog.registry()
    rows = {row.pair.name: row.pair for row in drafted(catalog.other_rows(known, ()), known)}
    assert (rows[name].draft, rows[name].note) == (taken, why)
    assert (rows[CALLED.format("0.5B")].draft, rows[CALLED.format("0.5B")].note) == (None, "")


def test_several_are_offered_with_what_to_add_and_none_is_taken(lay, monkeypatch, tmp_path):
    lay("7B"), lay("0.5B")
    own = shutil.copytree(lay("1.5B"), tmp_path / "my own/mid")
    shutil.rmtree(Path.home() / ".lmstudio/models" / f"lmstudio-community/{CALLED.format('1.5B')}")
    monkeypatch.setenv("SPECDEC_MODEL_FOLDERS", str(own.parent))
    draft, drafter, why = chosen()
    assert (draft, drafter) == (None, "ngram") and why.endswith("; until then its own text drafts: --drafter ngram")
    smaller, other = r"\(\d+(\.\d)? times smaller\)", f"lmstudio-community/{CALLED.format('0.5B')}"
    assert re.match(f"add a draft that is here: --draft '{own}' {smaller} or --draft {other} {smaller};", why)
    assert chosen(here=False) == (draft, drafter, why)
    known = catalog.registry()
    (row,) = (row for row in drafted(catalog.other_rows(known, ()), known) if row.pair.name == CALLED.format("7B"))
    assert (row.pair.draft, row.pair.note) == (None, why)


def shrink(folder, tenths=200):
    """Fewer bytes, as a quantization leaves them."""
    weights = folder / MODEL
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size * 10 // tenths])


NO_DRAFTS = {
    "its own quantization": lambda lay: shrink(lay("7B", "org/7B-4bit", quantization={"group_size": 64, "bits": 4})),
    "a larger model of few bits": lambda lay: shrink(lay("7B", "org/14B-4bit", num_hidden_layers=48)),
    "nearly as large": lambda lay: shrink(lay("7B", "org/6B", num_hidden_layers=15), 15),
    "another family": lambda lay: lay("0.5B", model_type="gemma3_text"),
    "other words": lambda lay: other_words(lay("0.5B")),
    "no tokenizer": lambda lay: (lay("0.5B") / "tokenizer.json").unlink(),
    "a broken tokenizer": lambda lay: (lay("0.5B") / "tokenizer.json").write_text("{"),
    "a broken config": lambda lay: (lay("0.5B") / "config.json").write_text('{"model_type": "qwen3", '),
    "an odd config": lambda lay: lay("0.5B", hidden_size="64", text_config=[]),
    "another's code": lambda lay: lay("0.5B", model_file="own.py"),
    "no sizes": lambda lay: lay("0.5B", hidden_size=None),
    "half of it": lambda lay: (f := lay("0.5B") / MODEL).rename(f.with_name("model-00001-of-00002.safetensors")),
    "no weights": lambda lay: (lay("0.5B") / MODEL).unlink(),
    "an embedder": lambda lay: lay("0.5B", "org/Qwen2.5-Embedding-0.5B"),
    "a reranker of another name": lambda lay: (lay("0.5B") / "modules.json").write_text("[]"),
    "a head": lambda lay: lay("0.5B", architectures=["EagleForCausalLM"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", NO_DRAFTS)
def test_what_cannot_draft_is_neither_taken_nor_offered(lay, kind):
    lay("7B")
    NO_DRAFTS[kind](lay)
    assert chosen() == (None, "ngram", NOBODY)
    lay("0.5B", "org/fitting")
    assert chosen()[0] == "org/fitting"


@pytest.mark.parametrize("target", ["qwen3_moe", "qwen3"])
def test_a_family_is_that_of_the_language_model_whatever_its_form(lay, target):
    folder = lay("7B", model_type=target)
    if target == "qwen3":  # as of a model that sees
        values = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({"model_type": "other", "text_config": values}))
    lay("0.5B")
    model = read_checkpoint(folder, "m")
    assert [found.model.short for found in find_drafts(model, hub.models_here())] == [CALLED.format("0.5B")]


def test_special_tokens_and_templates_may_differ_and_what_was_compared_is_kept_until_a_file_changes(lay, monkeypatch):
    """A tokenizer of 151 665 tokens takes seconds to read, at every start."""
    lay("7B")
    draft, compared, really = lay("0.5B"), [], PairFiles.vocab.func
    monkeypatch.setattr(PairFiles, "vocab", property(lambda files: compared.append(files) or really(files)))
    settings = json.loads((draft / "tokenizer_config.json").read_text())
    (draft / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": "{{ other }}"}))
    assert chosen()[0] and not compared and not compared_file().exists()
    other_words(draft, '"<|im_end|>"', '"<|end|>"')
    assert (chosen()[0], chosen()[0], len(compared)) == (f"lmstudio-community/{CALLED.format('0.5B')}",) * 2 + (1,)
    other_words(draft)
    assert (chosen()[0], chosen()[0], len(compared)) == (None, None, 2)
    compared_file().write_text("[1]")
    assert (chosen()[0], len(compared)) == (None, 3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (None, None),
        (swap_two_ids, ("translated", 1.0)),
        (other_letters, ("incompatible", pytest.approx(0.42, abs=0.1))),
        (lambda data: b"{", ("incompatible", None)),
    ],
)
def test_a_listed_pair_says_how_much_a_draft_of_another_tokenizer_can_say(lay, monkeypatch, tmp_path, change, said):
    """`specdec pairs` showed a pair as ready that `check` refused."""
    target, draft = lay("7B"), lay("0.5B")
    if change:
        (draft / "tokenizer.json").write_bytes(change((draft / "tokenizer.json").read_bytes()))
    (tmp_path / "models.toml").write_text(
        f'schema_version = 1\n[pairs.mine]\ntarget = "{target}"\ndraft = "{draft}"\n'
        f'[pairs.alone]\ntarget = "{target}"\ndraft = "{draft}"\ndrafter = "ngram"\n'
    )
    known = catalog.registry()
    for again in (False, True):
        if again:  # what was compared before is not read again
            monkeypatch.setattr(PairFiles, "vocab", None)
        rows = {row.pair.name: row for row in drafted(catalog.rows(known), known)}
        found = rows["mine"].tokenizers
        assert (found and (found.status, found.share)) == said
        assert rows["alone"].tokenizers is rows["demo"].tokenizers is None
    assert rows["mine"].to_dict()["tokenizers"] == (found and asdict(found))


def test_a_draft_that_does_not_fit_beside_the_target_is_not_taken(lay, monkeypatch):
    alone, small = ((lay(which) / MODEL).stat().st_size for which in ("7B", "0.5B"))
    for size, draft in ((alone + small, f"lmstudio-community/{CALLED.format('0.5B')}"), (alone, None)):
        limit = size + catalog.room_bytes(Pair("a", "org/t", draft), size)
        monkeypatch.setattr("specdec_cli.pairs.catalog.limit_bytes", lambda available, limit=limit: limit)
        assert chosen()[0] == draft


def test_a_damaged_target_is_told_where_it_is_loaded_and_hides_no_row(lay):
    (lay("7B") / "tokenizer.json").write_text("{")
    other_words(lay("0.5B"), "a", "b")
    known = catalog.registry()
    assert len(drafted(catalog.other_rows(known, ()), known)) == 2
    assert chosen(here=False)[0] is None
    with pytest.raises(SpecdecError):
        chosen()


def test_three_hundred_models_of_the_family_cost_little_and_few_are_compared(lay, monkeypatch):
    target, one = lay("7B"), lay("0.5B", "org/one")
    for number in range(300):
        folder = target.parent.parent / f"many/m{number}"
        folder.mkdir(parents=True)
        for file in one.iterdir():
            (folder / file.name).hardlink_to(file)
    monkeypatch.setattr("mlx.core.load", None)
    model, before = read_checkpoint(target, "m"), time.process_time()
    found = find_drafts(model, hub.models_here())
    assert len(found) == drafts.MOST_COMPARED and time.process_time() - before < 0.6


# By the names alone


def test_a_draft_beside_a_pairs_name_takes_the_place_of_its_draft(monkeypatch, tmp_path):
    """It was an error: the pair had to be spelled out by its models."""
    monkeypatch.setenv("SPECDEC_MODELS", str(tmp_path / "models.toml"))
    found = choose("demo", None, "org/other")
    assert (found.pair.target, found.pair.draft) == ("specdec:demo/target", "org/other")
    assert found.pair.draft_revision is None
    assert (found.pair.k, found.pair.draft_bytes, found.drafter) == ("auto", None, DEFAULT_DRAFTER)
    assert found.pair.run_command.startswith("specdec run --target specdec:demo/target --draft org/other ")


def test_a_command_names_the_pair_where_only_a_pair_can_say_it(monkeypatch, tmp_path):
    """A revision, an adapter and a head have no option: beside another draft they come from the pair."""
    t1, d1 = "1" * 40, "d" * 40
    models = tmp_path / "models.toml"
    models.write_text(
        f'schema_version = 1\n[pairs.pinned]\ntarget = "org/big"\ntarget_revision = "{t1}"\ndraft = "org/small"\n'
        f'draft_revision = "{d1}"\n[pairs.headed]\ntarget = "org/t"\nhead_from = "org/o"\n'
    )
    monkeypatch.setenv("SPECDEC_MODELS", str(models))
    both, other = choose("pinned", None, None).pair, choose("pinned", None, "org/other").pair
    assert (both.target_revision, both.draft_revision) == (t1, d1)
    assert (other.target_revision, other.draft_revision) == (t1, None)
    assert other.options == ["-p", "pinned", "--draft", "org/other"]
    for target in ("org/big", "org/t"):
        found = choose(None, target, None).pair
        assert found.draft and found.options == ["--target", target] and choose(None, target, None).pair == found


def test_a_target_alone_takes_all_that_its_listed_pair_says(monkeypatch, tmp_path):
    """It took draft and K, and not the drafter and the draft context that K was measured with."""
    models = tmp_path / "models.toml"
    models.write_text(
        'schema_version = 1\n[pairs.mine]\ntarget = "org/big"\ndraft = "org/small"\nk = 3\ndrafter = "auto"\n'
        "draft_context = 33\nstop_repetition = 64\n"
    )
    monkeypatch.setenv("SPECDEC_MODELS", str(models))
    found, listed = choose(None, "org/big", None), choose("mine", None, None)
    assert found.drafter == listed.drafter == "auto"
    for name in ("draft", "k", "drafter", "draft_context", "stop_repetition"):
        assert getattr(found.pair, name) == getattr(listed.pair, name), name


@pytest.mark.parametrize("typed", ["big", "./big/", "{}/big/"])
def test_a_folder_is_that_of_its_pair_however_it_is_typed(monkeypatch, tmp_path, typed):
    """With the slash that Tab writes, or from beside it, the target lost its draft."""
    for name in ("big", "small"):
        (tmp_path / name).mkdir()
    models = tmp_path / "models.toml"
    models.write_text(f'schema_version = 1\n[pairs.mine]\ntarget = "{tmp_path}/big"\ndraft = "{tmp_path}/small"\n')
    monkeypatch.setenv("SPECDEC_MODELS", str(models))
    monkeypatch.chdir(tmp_path)
    assert choose(None, typed.format(tmp_path), None).pair.draft == f"{tmp_path}/small"
