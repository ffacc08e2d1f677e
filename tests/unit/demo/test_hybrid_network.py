"""Law: what the recipe trains is what mlx-lm loads: trunk and head give the same logits, in float32."""

import json
import shutil
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import specdec_cli
from specdec_cli.engine.heads.load_head import load_head
from specdec_cli.engine.load import load
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import find_head

TOKENS, STEPS = 70, 3
HYBRID = Path(specdec_cli.__file__).parent / "demo/hybrid"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """As the hybrid that ships, but of four narrow layers."""
    made = tmp_path_factory.mktemp("hybrid") / "hybrid"
    shutil.copytree(HYBRID, made, ignore=shutil.ignore_patterns("*.md"))
    config = json.loads((made / "config.json").read_text())
    config["text_config"] |= {"num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 96}
    (made / "config.json").write_text(json.dumps(config))
    return made


@pytest.fixture(scope="module")
def network(recipe, folder):
    """Random; its weights are numbers that float16 holds, and so are the norms' with 1 added. Its folder has them."""
    torch, networks = recipe("torch"), recipe("networks")
    torch.manual_seed(0)
    made = networks.Hybrid(networks.Config(folder))
    with torch.no_grad():
        for name, value in made.named_parameters():
            value.mul_(3 if value.dim() == 2 else 1)
            if name.endswith("norm.weight") or "norm_" in name:
                value.add_(torch.randn_like(value) * 0.1).mul_(64).round_().div_(64)
            value.copy_(value.half().float())
    halves = {name: value.half() for name, value in made.state_dict().items()}
    recipe("safetensors.torch").save_file(halves, folder / "model.safetensors", metadata={"format": "pt"})
    return made.requires_grad_(False)


@pytest.fixture(scope="module")
def ids(recipe):
    torch = recipe("torch")
    return torch.randint(0, 2048, (1, TOKENS), generator=torch.Generator().manual_seed(1))


def test_the_trunk_is_mlx_lms_qwen3_5(network, folder, ids):
    target = load(read_checkpoint(folder, "hybrid")).network.module
    theirs, ours = np.array(target(mx.array(ids.numpy()))), network(ids).numpy()
    difference = np.abs(theirs - ours).max()
    print(f"max abs logit difference {difference:.1e} of {np.abs(ours).max():.1f}")
    assert difference < 1e-4 * np.abs(ours).max()


def test_the_head_is_specdecs_at_every_step(network, folder, ids):
    output_head = load(read_checkpoint(folder, "hybrid")).network.hidden.output_head
    files = find_head(read_checkpoint(folder, "hybrid"))
    assert files.zero_centred and len(files.tensors) == 15
    states, embedded = network.states(ids), output_head.embed(mx.array(ids[0, 1:].numpy()))[None]
    scored = load_head(files, 64).guesses(embedded, mx.array(states[:, :-1].numpy()), STEPS)
    for step, (rows, ours) in enumerate(zip(scored, network.guesses(ids, states, STEPS), strict=True), 1):
        theirs = np.array(output_head.logits(rows[0, : TOKENS - step]))
        assert np.abs(theirs - ours[0].numpy()).max() < 1e-4 * float(ours.abs().max())


def test_reading_in_parts_is_reading_at_once(recipe, network, ids):
    torch = recipe("torch")
    pasts = [{} for _ in network.model.layers]
    parts = [network(ids[:, :41], pasts), *(network(ids[:, at : at + 1], pasts) for at in range(41, TOKENS))]
    assert float((torch.cat(parts, 1) - network(ids)).abs().max()) < 1e-4


def test_a_guess_reads_no_later_token(recipe, network, ids):
    """Step s behind position p knows the tokens up to p + s, and no more."""
    other = ids.clone()
    other[0, 40:] = (other[0, 40:] + 1) % 2048
    pairs = (network.guesses(each, network.states(each), STEPS) for each in (ids, other))
    for step, (one, two) in enumerate(zip(*pairs, strict=True), 1):
        assert bool((one[0, : 40 - step] == two[0, : 40 - step]).all())
        assert not bool((one[0, 40 - step] == two[0, 40 - step]).all())
