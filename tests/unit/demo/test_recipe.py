"""The recipe's parts against what they are meant to compute, and a miniature of the whole. Skipped without torch."""

import json
import shutil
from contextlib import nullcontext
from math import log
from pathlib import Path

import pytest

import specdec_cli
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
