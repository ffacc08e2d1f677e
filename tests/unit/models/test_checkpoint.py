"""Folders as people have them, and mlx-lm says what is right; of the wrong ones `golden/data/refusals.txt` has all."""

import json
import shutil
from dataclasses import replace

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm import load as mlx_load
from mlx_lm.generate import generate_step
from mlx_lm.tuner.utils import linear_to_lora_layers

import specdec_cli
from fakes.models import TINY, tiny_folder
from specdec_cli.core.errors import DoesNotFit, Refused
from specdec_cli.core.safetensors import INDEX
from specdec_cli.engine.load import load, load_network
from specdec_cli.models.checkpoint import ADAPTER, Checkpoint, read_checkpoint
from specdec_cli.pairs.check import judge
from specdec_cli.pairs.files import find
from specdec_cli.pairs.fit import Fit
from specdec_cli.pairs.limits import ContextLimit
from specdec_cli.pairs.pair import Pair, PairSpec


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("tiny") / "m")


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "m")


@pytest.mark.parametrize(("asked", "read", "limit"), [(None, None, 256), (33, 33, None), (1024, (256 - 44) // 2, None)])
def test_a_draft_reads_what_fits_its_own_context_and_bounds_nobody_elses(folder, asked, read, limit):
    found = read_checkpoint(folder, "m").as_draft(asked)
    assert (found.recent, found.context_limit) == (read, limit)
    assert (load(found).recent, load(found).context_limit) == (read, limit)


@pytest.mark.parametrize("stored", [mx.float32, mx.float16])
def test_weights_declared_float32_count_as_float32_however_they_are_stored(folder, stored):
    path = folder / "model.safetensors"
    weights = {name: value.astype(stored) for name, value in mx.load(str(path)).items()}
    mx.save_safetensors(str(path), weights)
    checkpoint = read_checkpoint(folder, "m")
    network = load_network(checkpoint)
    assert checkpoint.loaded_bytes == sum(value.nbytes for _, value in tree_flatten(network.parameters()))


def test_what_is_dropped_of_a_file_takes_no_memory(folder):
    """The bug: towers of pictures and sound were a fifth to a third of what small models were said to need."""
    path, before = folder / "model.safetensors", read_checkpoint(folder, "m").loaded_bytes
    towers = ("vision_tower.a", "model.visual.b", "model.audio_tower.c", "model.embed_vision.d", "mm_projector.e")
    more = {f"{name}.weight": mx.ones((64, 64)) for name in (*towers, "mtp.f", "model.layers.99.eh_proj")}
    mx.save_safetensors(str(path), {**mx.load(str(path)), **more})
    found = read_checkpoint(folder, "m")
    assert found.loaded_bytes == before > 0
    # mlx-lm loads the tower of pictures of this type where the configuration has one.
    muse = {**found.config, "model_type": "muse_spark"}
    for config, kept in ((muse, 0), (muse | {"vision_config": {"hidden_size": 64}}, 64 * 64 * 4)):
        assert replace(found, config=config).loaded_bytes == before + kept


def changed(file, **values):
    def change(folder):
        there = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
        (folder / file).write_text(json.dumps(there | values))

    return change


SHARDS = {"a": "model-00001-of-00002.safetensors", "b": "model.safetensors"}
# Each an input of a public report


def said(folder, draft=None, **options):
    """Sixteen tokens that specdec says with this folder's model."""
    return said_by(Pair("p", str(folder), draft and str(draft)), **options)


def said_by(pair, **options):
    session = specdec_cli.load(pair).session()
    events = session.reply([3, 4, 5, 6, 7], max_tokens=16, temperature=0, **options)
    return [token for event in events if event.event == "round" for token in event.round.emitted]


def theirs(folder, prompt=(3, 4, 5, 6, 7), **options):
    """What mlx-lm says."""
    network, tokenizer = mlx_load(str(folder), **options)
    tokens = []
    for token, _ in generate_step(mx.array(prompt), network, max_tokens=16):
        tokens.append(int(token))
        if tokens[-1] in tokenizer.eos_token_ids:
            break
    return tokens


def index(folder, *names):
    (folder / INDEX).write_text(json.dumps({"weight_map": {f"t{i}": name for i, name in enumerate(names)}}))


def test_an_index_of_files_that_nobody_has_hides_no_weights(folder):
    """50: mlx-community's Qwen3-VL-4B is shipped so."""
    expected = theirs(folder)
    index(folder, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    assert said(folder, k=0) == expected


def test_a_stray_file_beside_a_whole_index_is_ignored_and_named(folder):
    """52: mlx-lm reads both, and fails."""
    expected = theirs(folder)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    index(folder, "model-00001-of-00001.safetensors")
    mx.save_safetensors(str(folder / "model.safetensors"), {"another": mx.zeros((4, 4))})
    assert said(folder, k=0) == expected
    (warning,) = judge(Fit.of(find(PairSpec(Pair("m", str(folder), None)))), None).warnings
    assert warning == f"model.safetensors of {folder} is not read: its index does not name it"


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_that_auto_map_names_neither_runs_nor_refuses(folder, tmp_path, file):
    """56: Phi-3.5, MiniCPM3 and others keep the key, and mlx-lm has their architectures."""
    expected, path = theirs(folder), folder / file
    code = f"open({str(tmp_path / 'mark')!r}, 'w')\nclass A: pass\nclass B: pass\n"
    (folder / "code.py").write_text(code)
    names = {"AutoConfig": "code.A", "AutoModelForCausalLM": "code.A", "AutoTokenizer": ["code.A", "code.B"]}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": names}))
    assert said(folder, k=0) == expected and not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("rope", "tokens"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}, 512),
        ({"type": "yarn", "factor": 4.0}, 640),
        ({"rope_type": "linear", "factor": 2}, 320),
        ({"rope_type": "dynamic", "factor": 2.0}, 160),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 128}, 160),
        ({"rope_type": "longrope", "factor": 8.0, "long_factor": [1.0]}, 160),
        ({"rope_type": "yarn", "factor": 0.25, "original_max_position_embeddings": 128}, 160),
        ({"rope_type": "default"}, 160),
        (None, 160),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_stretched_context_is_as_long_as_its_rope_makes_it(tmp_path, rope, tokens, nested):
    """58: vLLM's rule."""
    config = {"max_position_embeddings": 160, "rope_scaling": rope}
    found = Checkpoint("m", tmp_path, {"text_config": config} if nested else config, ())
    field = "original_max_position_embeddings × 4, rope yarn" if tokens == 512 else "max_position_embeddings"
    assert found.context_limit == tokens and found.stated_context[1].startswith("text_config." * nested + field)


def test_a_context_may_be_longer_than_the_model_was_made_for_with_a_word_of_warning(tmp_path):
    """58: mlx-lm has no limit at all. A longer context changes no token within the shorter one."""
    folder, warnings = tiny_folder(tmp_path / "m", TINY | {"max_position_embeddings": 20}), []
    pair, prompt = Pair("p", str(folder), None), [3, 4, 5, 6, 7] * 4
    with pytest.raises(DoesNotFit, match="20 tokens > 19 maximum"):
        next(iter(specdec_cli.load(pair).session().reply(prompt, k=0, max_tokens=8)))
    request = specdec_cli.Request(max_context=40, k=0, max_tokens=8, sampling={"temperature": 0})
    events = specdec_cli.load(pair, request=request, tell=warnings.append).session().reply(prompt, request)
    told = [token for event in events if event.event == "round" for token in event.round.emitted]
    assert told == theirs(folder, prompt)[: len(told)] and len(told) == 8
    assert warnings == ["--max-context 40 exceeds the 20 tokens that the pair was made for; beyond them it may err"]


def test_learned_positions_end_where_they_end():
    request = specdec_cli.Request(max_context=40)
    limit = ContextLimit(20, None, positions=20)
    assert limit.tokens(request) == 20 and "is cut to 20" in limit.warning(request)


def adapter(folder, network_folder, kind="lora"):
    """One that mlx-lm's own trainer would write, with weights that change every answer."""
    config = {"fine_tune_type": kind, "num_layers": 1, "lora_parameters": {"rank": 2, "scale": 20.0, "dropout": 0.0}}
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(config))
    network, _ = mlx_load(str(network_folder))
    linear_to_lora_layers(network, 1, config["lora_parameters"], use_dora=kind == "dora")
    mx.random.seed(1)
    weights = {name: mx.random.normal(value.shape) for name, value in tree_flatten(network.trainable_parameters())}
    names = ("lora_a", "lora_b", "m")
    mx.save_safetensors(str(folder / ADAPTER), {n: v for n, v in weights.items() if n.rpartition(".")[2] in names})
    return folder


@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_an_adapter_of_the_target_or_the_draft_is_loaded_as_mlx_lm_does(tmp_path, kind):
    target, draft = tiny_folder(tmp_path / "t", seed=1), tiny_folder(tmp_path / "d", seed=1, noise=0.05)
    lora = adapter(tmp_path / "a", target, kind)
    expected = theirs(target, adapter_path=str(lora))
    pair = Pair("p", str(target), str(draft), target_adapter=str(lora))
    assert said_by(pair, k=4) == said_by(pair, k=0) == expected != theirs(target)
    assert said_by(Pair("p", str(target), str(draft), draft_adapter=str(lora)), k=4) == theirs(target)


def test_an_adapter_of_another_model_is_refused(tmp_path):
    other = adapter(tmp_path / "a", tiny_folder(tmp_path / "o", TINY | {"hidden_size": 32}))
    with pytest.raises(Refused, match="does not fit"):
        said_by(Pair("p", str(tiny_folder(tmp_path / "m")), None, target_adapter=str(other)), k=0)


def test_a_shard_that_the_index_leaves_out_is_read_where_it_is_needed(folder):
    """mlx-swift-lm#562: mlx-lm reads all model*.safetensors, and it loads."""
    weights = mx.load(str(folder / "model.safetensors"))
    names = sorted(weights)
    (folder / "model.safetensors").unlink()
    for place, part in enumerate((names[::2], names[1::2]), 1):
        mx.save_safetensors(str(folder / f"model-0000{place}-of-00002.safetensors"), {n: weights[n] for n in part})
    expected = theirs(folder)
    mapped = dict.fromkeys(names[::2], "model-00001-of-00002.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": mapped}))
    assert theirs(folder) == expected == said(folder, k=0)


def test_gemma_3_s_length_is_stretched_already(tmp_path):
    """vllm#33911: rope linear × 8 beside 131072, which is what its card says; vLLM leaves gemma3 out of its rule."""
    rope = {"factor": 8.0, "rope_type": "linear"}
    text = {"model_type": "gemma3_text", "max_position_embeddings": 131072, "rope_scaling": rope}
    for config in (text, {"model_type": "gemma3", "text_config": text}):
        assert Checkpoint("m", tmp_path, config, ()).context_limit == 131072


# What is needed and there decides, not what files are called: `unit/hub/test_places` has the table of that.


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("file", ["mtp.safetensors", "mtp/weights.safetensors", "head.safetensors"])
def test_a_head_in_a_file_of_its_own_leaves_the_target_whole(folder, file, there):
    """jundot/omlx#2062: an export of MTPLX lacked "1 of 2 weight files", though every file was there."""
    own = dict.fromkeys(mx.load(str(folder / "model.safetensors")), "model.safetensors")
    changed(INDEX, weight_map=own | {"mtp.fc.weight": file})(folder)
    if there:
        (folder / file).parent.mkdir(exist_ok=True)
        mx.save_safetensors(str(folder / file), {"mtp.fc.weight": mx.zeros((4, 8))})
    assert read_checkpoint(folder, "m").weights == (folder / "model.safetensors",)


def test_what_an_absent_file_had_may_lie_in_one_that_the_index_does_not_name(folder):
    one, *others = mx.load(str(folder / "model.safetensors"))
    mx.save_safetensors(str(folder / SHARDS["a"]), {one: mx.zeros((1,))})
    changed(INDEX, weight_map={one: SHARDS["a"], **dict.fromkeys(others, "model-00002-of-00002.safetensors")})(folder)
    assert read_checkpoint(folder, "m").weights == (folder / SHARDS["a"], folder / "model.safetensors")
