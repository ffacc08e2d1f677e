"""The recipe: its parts against what they are meant to compute, its networks against mlx-lm, and a miniature."""

import json
import shutil
from contextlib import nullcontext
from math import log
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest

import specdec_cli
from specdec_cli.engine.heads.load_head import load_head
from specdec_cli.engine.load import load
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import find_head

DEMO = Path(specdec_cli.__file__).parent / "demo"
# What torch says of itself while it imports its compiler.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_neither_held_out_modules_nor_their_tests_are_learned_from(recipe):
    corpus = recipe("corpus")
    held_out = ["json/decoder.py", "_strptime/csv.py", "heapq.py", "test/test_json/test_dump.py", "test/test_csv.py"]
    learned = ["ast.py", "jsonschema.py", "test/test_stringprep.py", "email/_policybase.py", "importlib/_bootstrap.py"]
    assert [bool(corpus.HELD_OUT.search(path)) for path in held_out + learned] == [True] * 5 + [False] * 5
    tokenizer = recipe("tokenizers").Tokenizer.from_file(str(DEMO / "target" / "tokenizer.json"))
    secret = 'def secret(value):\n    """Say what nobody may learn."""\n    return value\n'
    sources = [corpus.Source(secret, is_test, held_out=True) for is_test in (False, True)]
    sources += [corpus.Source("x = 1\n", False, False), corpus.Source(secret.replace("secret", "open"), True, False)]
    texts = [tokenizer.decode(ids.tolist()) for _, ids in corpus.training_streams(tokenizer, sources)]
    assert "secret" not in "".join(texts) and all("open" in text for text in texts[1:])


def test_unlikelihood_is_the_mean_of_minus_log_of_one_minus_p_over_the_repeated_tokens(recipe, torch):
    learning = recipe("learning")
    width = learning.OWN_PROMPT + 3
    own = torch.ones(1, width + 1, dtype=torch.long)
    share = torch.full((1, width, 2), 0.5)
    share[0, learning.OWN_PROMPT - 1 :, 1] = torch.tensor([0.5, 0.25, 0.75, 0.125])
    looping = torch.tensor([[0.0, 1.0, 1.0, 0.0]])
    loss = learning.unlikelihood(share.log(), own, looping).item()
    assert loss == pytest.approx((-log(0.75) - log(0.25)) / 2)
    assert learning.unlikelihood(share.log(), own, torch.zeros_like(looping)).item() == 0.0


def test_own_text_is_written_anew_every_few_steps_and_marks_what_it_repeats(recipe, torch, monkeypatch):
    learning, written = recipe("learning"), []
    rows, width = learning.FRESH_EVERY * 2, learning.OWN_PROMPT + 32
    monkeypatch.setattr(learning, "windows", lambda streams, length, rng, rows: torch.zeros(rows, length + 1).long())
    looped = torch.arange(9).repeat(8)[: width + 1 - learning.OWN_PROMPT]

    def continue_text(network, prompts, tokens):
        written.append(tokens)
        return torch.cat((prompts, looped.repeat(len(prompts), 1)), 1)

    monkeypatch.setattr(learning, "continue_text", continue_text)
    texts = learning.own_text(None, [], rows, width, 0)
    for step in range(learning.FRESH_EVERY + 1):
        own, repeats = next(texts)
        assert len(written) == 1 + step // learning.FRESH_EVERY
    assert own.shape == (2, width + 1) and repeats.shape == (2, width + 1 - learning.OWN_PROMPT)
    # The first 8-gram that occurred before ends at the second phrase's eighth token.
    assert repeats[0].tolist() == [0.0] * 16 + [1.0] * (repeats.shape[1] - 16)


@pytest.mark.parametrize(("repetitions", "share"), [((0.3, 0.11, 0.05), 0.5), ((0.4, 0.2, 0.3), 0.5)])
def test_the_least_step_that_repeats_little_is_taken_else_the_one_that_repeats_least(
    recipe, torch, monkeypatch, repetitions, share
):
    learning, rates = recipe("learning"), iter(repetitions)
    monkeypatch.setattr(learning, "continue_text", lambda network, prompts, tokens: prompts)
    monkeypatch.setattr(learning, "repetition_rates", lambda ids: torch.tensor([next(rates)]))
    network = torch.nn.Linear(1, 1, bias=False)
    network.weight.data.fill_(8.0)
    learning.take_least_step(network, {"weight": torch.zeros(1, 1)}, network, torch.zeros(1, 1), (0.25, 0.5, 1.0))
    assert network.weight.item() == pytest.approx(8.0 * share)


def test_the_draft_learns_from_the_target_and_the_target_leans_to_the_draft_alone_by_the_lean(recipe, torch):
    learning = recipe("learning")
    p, q = (torch.randn(2, 3, 5, requires_grad=True) for _ in range(2))
    learning.lesson(p.log_softmax(-1), q.log_softmax(-1)).backward()
    assert p.grad is None and q.grad.abs().sum() > 0
    alike = torch.randn(2, 3, 5).log_softmax(-1)
    assert learning.divergence(alike, alike).abs().max() < 1e-6
    assert (learning.divergence(p.log_softmax(-1), q.log_softmax(-1)) > 0).all()


@pytest.fixture
def small_recipe(recipe, torch, monkeypatch, tmp_path):
    """`train.main` with two steps a stage, few and short rows and texts, a part of the library, and narrow networks."""
    train, learning = recipe("train"), recipe("learning")
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4}
    for name in ("target", "draft", "hybrid"):
        shutil.copytree(DEMO / name, tmp_path / "demo" / name, ignore=shutil.ignore_patterns("*.safetensors"))
        file = tmp_path / "demo" / name / "config.json"
        config = json.loads(file.read_text())
        config.get("text_config", config).update(sizes | ({"num_hidden_layers": 1} if name == "draft" else {}))
        file.write_text(json.dumps(config, indent=1) + "\n")
    library, fit, cut, prompts = train.standard_library, train.fit, train.windows, train.validation_prompts
    write = learning.continue_text

    def windows(streams, length, rng, rows):
        return cut(streams, min(length, 160), rng, min(rows, 8))

    monkeypatch.setattr(train, "DEMO", tmp_path / "demo")
    monkeypatch.setattr(train, "standard_library", lambda: library()[::20])
    monkeypatch.setattr(train, "validation_prompts", lambda *given: prompts(*given, count=4))
    monkeypatch.setattr(train, "windows", windows)
    monkeypatch.setattr(learning, "windows", windows)
    monkeypatch.setattr(
        learning, "continue_text", lambda net, ids, tokens, *drawn: write(net, ids, min(tokens, 24), *drawn)
    )
    monkeypatch.setattr(train, "fit", lambda *given, **settings: fit(*given[:4], steps=2, **settings))
    monkeypatch.setattr(torch, "autocast", lambda *given, **settings: nullcontext())  # many CPUs emulate bfloat16
    monkeypatch.setattr(torch, "compile", lambda loss, **settings: loss)
    return train.main


def answer(**pair):
    """What `pair` continues some code with, and what its target does alone."""
    texts = []
    for drafter in ("none", "model" if "draft" in pair else "none"):
        events = list(specdec_cli.load(**pair).session().reply("def f(", raw=True, max_tokens=8, drafter=drafter))
        texts.append(events[-1].tokens)
    return texts


@pytest.mark.slow
def test_a_miniature_of_the_pair_is_trained_to_folders_that_answer(small_recipe, tmp_path):
    out = tmp_path / "out"
    small_recipe(["pair", "--out", str(out)])
    for name in ("target", "draft"):
        for file in ("config.json", "generation_config.json", "tokenizer_config.json"):
            assert (out / name / file).read_bytes() == (tmp_path / "demo" / name / file).read_bytes()
    plain, drafted = answer(target=str(out / "target"), draft=str(out / "draft"))
    assert len(plain) == 8 and plain == drafted


@pytest.mark.slow
def test_a_miniature_of_the_hybrid_is_trained_to_a_folder_that_answers_and_has_a_head(small_recipe, tmp_path):
    small_recipe(["hybrid", "--out", str(tmp_path / "out")])
    folder = tmp_path / "out" / "hybrid"
    files = find_head(read_checkpoint(folder, "hybrid"))
    assert files.zero_centred and len(files.tensors) == 15
    assert len(answer(target=str(folder))[0]) == 8


def test_the_networks_have_the_tensors_that_ship(recipe):
    networks, safetensors = recipe("networks"), recipe("safetensors.torch")
    for name, network in (("target", "Network"), ("draft", "Network"), ("hybrid", "Hybrid")):
        ours = getattr(networks, network)(networks.Config(DEMO / name)).state_dict()
        theirs = safetensors.load_file(DEMO / name / "model.safetensors")
        assert {key: value.shape for key, value in ours.items()} == {key: value.shape for key, value in theirs.items()}


SIZES = SimpleNamespace(
    hidden_size=48,
    linear_num_key_heads=2,
    linear_key_head_dim=32,
    linear_num_value_heads=4,
    linear_value_head_dim=16,
    linear_conv_kernel_dim=4,
    rms_norm_eps=1e-6,
)


def stepped(torch, q, k, v, log_decay, beta, state):
    """The definition, token by token."""
    outputs = []
    for t in range(q.shape[2]):
        state = state * log_decay[:, :, t, None, None].exp()
        key = k[:, :, t, None]
        wrong = v[:, :, t, None] - key @ state
        state = state + key.transpose(-1, -2) @ (wrong * beta[:, :, t, None, None])
        outputs.append(q[:, :, t, None] @ state)
    return torch.cat(outputs, 2), state


def drawn(torch, tokens, seed=0, batch=2, heads=3, key=32, value=16):
    torch.manual_seed(seed)
    q, k = (torch.nn.functional.normalize(torch.randn(batch, heads, tokens, key), dim=-1) for _ in range(2))
    decay, beta = -2 * torch.rand(batch, heads, tokens), torch.rand(batch, heads, tokens)
    return q, k, torch.randn(batch, heads, tokens, value), decay, beta, torch.randn(batch, heads, key, value)


@pytest.mark.parametrize(("tokens", "chunk"), [(1, 32), (32, 32), (64, 32), (75, 32), (75, 16), (20, 32)])
def test_chunks_are_the_recurrence(recipe, tokens, chunk):
    torch, rule = recipe("torch"), recipe("gated_delta")
    given = drawn(torch, tokens)
    for ours, plain in zip(rule.gated_delta(*given, chunk), stepped(torch, *given), strict=True):
        assert float((ours - plain).abs().max()) < 1e-5


def test_equal_keys_that_are_written_whole_do_not_overflow(recipe):
    """The worst case of the triangular system: products of the chunk's own matrix would lose every digit."""
    torch, rule = recipe("torch"), recipe("gated_delta")
    q, k, v, decay, beta, state = drawn(torch, 64)
    k, decay, beta = k[:, :, :1].expand_as(k), torch.zeros_like(decay), torch.ones_like(beta)
    ours, plain = rule.gated_delta(q, k, v, decay, beta, state), stepped(torch, q, k, v, decay, beta, state)
    assert float((ours[0] - plain[0]).abs().max()) < 1e-4


def test_a_wrong_decay_is_noticed(recipe):
    """Negative control."""
    torch, rule = recipe("torch"), recipe("gated_delta")
    q, k, v, decay, beta, state = drawn(torch, 64)
    ours, plain = rule.gated_delta(q, k, v, decay * 1.01, beta, state), stepped(torch, q, k, v, decay, beta, state)
    assert float((ours[0] - plain[0]).abs().max()) > 1e-3


def test_a_layer_that_reads_in_parts_reads_the_same(recipe):
    torch, rule = recipe("torch"), recipe("gated_delta")
    torch.manual_seed(1)
    layer, x = rule.GatedDelta(SIZES), torch.randn(2, 50, 48)
    with torch.no_grad():
        past = {}
        parts = [layer(x[:, :37], past), *(layer(x[:, at : at + 1], past) for at in range(37, 50))]
        assert float((torch.cat(parts, 1) - layer(x, {})).abs().max()) < 1e-5


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
