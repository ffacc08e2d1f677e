# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "tokenizers>=0.22", "safetensors>=0.6", "numpy>=2"]
# ///
"""Train what `specdec_cli/demo` ships, on this machine's own Python: `uv run train.py pair|hybrid --out FOLDER`

A draft is accepted as far as it agrees with the target on text that the *target* writes, so it learns on exactly that
(DistillSpec, Zhou et al., arXiv:2310.08461). Then both learn from each other (Zhang et al., arXiv:1706.00384): where
the corpus decides, nothing changes; where several words would do, both come to prefer the same. Models of this size
decode greedily in loops, which buy acceptance that means nothing, so the target unlearns them.
"""

import argparse
import shutil
from copy import deepcopy
from itertools import count
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import nn

import learning
from corpus import standard_library, train_tokenizer, training_streams, validation_prompts, windows
from learning import cross_entropy, fit, lesson
from networks import Config, Hybrid, Network

DEMO = Path(__file__).parents[2] / "specdec_cli" / "demo"


def batches(streams, seed, tokens, text=None, corpus_share=0.0, long=True):
    """`tokens` a step, of `text` (but for a share) or of the corpus; if `long`, each sixth teaches the full context."""
    for step in count():
        rng, length = np.random.default_rng(seed + step), 1024 if long and step % 6 == 5 else 256
        if text is None or length == 1024 or rng.random() < corpus_share:
            yield (windows(streams, length, rng, tokens // length),)
        else:
            yield (text[rng.integers(0, len(text), tokens // text.shape[1])],)


def train_target(folder, streams):
    """Half the depth first, then all of it, each shallow layer begun twice (Gong et al. 2019, progressive stacking)."""
    target = Network(Config(folder))
    depth = len(target.model.layers) // 2
    shallow = Network(Config(folder, num_hidden_layers=depth))

    def language_loss(network):
        return lambda ids: cross_entropy(network(ids[:, :-1]), ids[:, 1:])

    fit("shallow", shallow, language_loss(shallow), batches(streams, 0, 4096), 2000, cooldown=0.0)
    target.load_state_dict(shallow.state_dict(), strict=False)
    target.model.layers[depth:].load_state_dict(shallow.model.layers.state_dict())
    fit("target", target, language_loss(target), batches(streams, 100_000, 4096), 2400)
    return target


def learn_on_own_text(name, models, streams, steps, peak, rows, width, repeats, seed, window=512, lean=0.0):
    """Train a target, and its draft if `models` has one, on the corpus and on `rows` × `width` tokens of own text.

    The target keeps to the corpus, unlearns what it repeats (weight `repeats`) and leans to the draft's distribution in
    the rest of its text (weight `lean`); the draft learns from the target on both."""

    def loss(corpus, own, looping):
        logits = [[model(ids[:, :-1]).float() for ids in (corpus, own)] for model in models]
        (p_corpus, p), *drafts = [[each.log_softmax(-1) for each in both] for both in logits]
        total = cross_entropy(logits[0][0], corpus[:, 1:]) + repeats * learning.unlikelihood(p, own, looping)
        for q_corpus, q in drafts:
            fresh = torch.cat((torch.ones_like(own[:, 1 : learning.OWN_PROMPT]), 1 - looping), 1)
            leaning = (learning.divergence(q.detach(), p) * fresh).sum() / fresh.sum()
            total = total + lean * leaning + (lesson(p_corpus, q_corpus) + lesson(p, q)) / 2
        return total

    texts = learning.own_text(models[0], streams, rows, width, seed)
    rngs = map(np.random.default_rng, count(seed + 10_000))
    both = ((windows(streams, window, next(rngs), 4096 // window), *text) for text in texts)
    fit(name, nn.ModuleList(models).requires_grad_(True), loss, both, steps, peak=peak)


def write_text(target, streams, groups, rows):
    """[groups × rows at most, 128 + 256]: prompts continued, half greedy, half at temperature 1, without loops."""
    texts = []
    for group in range(groups):
        prompts = windows(streams, 128, np.random.default_rng(10_000 + group), rows)[:, :128]
        ids = learning.continue_text(target, prompts, 256, float(group % 2), group)
        texts.append(ids[learning.repetition_rates(ids[:, 128:]) < 0.5])
    return torch.cat(texts)


def train_draft(folder, target, streams, text):
    """On the target's own text and on the corpus."""
    draft, begun = Network(Config(folder)), target.requires_grad_(False).model.embed_tokens.weight
    # The first columns of the draft's embedding begin as the target's.
    draft.model.embed_tokens.weight.data[:, : begun.shape[1]] = begun

    def loss(ids):
        return lesson(*(network(ids).float().log_softmax(-1) for network in (target, draft)))

    fit("draft", draft, loss, batches(streams, 20_000, 4096, text, 0.3), 2800)
    return draft


def train_jointly(network, streams):
    """Cross-entropy of the corpus, and 0.3 of the head's over a quarter of the rows."""

    def loss(ids):
        read, some = ids[:, :-1], max(len(ids) // 4, 1)
        states = network.states(read)
        guesses = network.guesses(read[:some], states[:some], 2)
        # Guess s of position p is of token p + 1 + s.
        ahead = sum(cross_entropy(guess, ids[:some, 1 + s :]) for s, guess in enumerate(guesses, 1)) / len(guesses)
        return cross_entropy(network.logits(states), ids[:, 1:]) + 0.3 * ahead

    fit("joint", network, loss, batches(streams, 300_000, 2048), 3600, cooldown=0.5)


def train_head(network, streams, text):
    """As a draft learns: what the target says, three tokens ahead, on its own text and on the corpus."""
    network.requires_grad_(False).mtp.requires_grad_(True)

    def loss(ids):
        states = network.states(ids)
        logits = (network.logits(states), *network.guesses(ids, states, 3))
        p, *drafts = (each.float().log_softmax(-1) for each in logits)
        return sum(lesson(p[:, s:], q) for s, q in enumerate(drafts, 1)) / len(drafts)

    fit("head", network.mtp, loss, batches(streams, 400_000, 2048, text, 0.2, long=False), 300)


def train_pair(target_folder, draft_folder):
    sources = standard_library()
    tokenizer = train_tokenizer(sources)
    for folder in (target_folder, draft_folder):
        tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    streams, validation = training_streams(tokenizer, sources), validation_prompts(tokenizer, sources)
    target = train_target(target_folder, streams)
    before = deepcopy(target.state_dict())
    learn_on_own_text("loops", [target], streams, 160, 0.1, 64, 512, 1.0, 30_000)
    learn_on_own_text("loops", [target], streams, 88, 0.25, 128, 288, 2.0, 50_000)
    learning.take_least_step(target, before, target, validation, (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0))
    draft = train_draft(draft_folder, target, streams, write_text(target, streams, 5, 512))
    pair = nn.ModuleList([target, draft])
    learn_on_own_text("agree", pair, streams, 120, 0.2, 96, 256, 2.0, 90_000, window=256, lean=1.0)
    before = deepcopy(pair.state_dict())
    learn_on_own_text("calm", pair, streams, 120, 0.2, 96, 256, 4.0, 95_000, window=256, lean=0.5)
    learning.take_least_step(pair, before, target, validation, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0))
    return pair


def train_hybrid(folder):
    torch._dynamo.config.disable = True  # compiling this network takes longer on a small machine than it saves
    sources, tokenizer = standard_library(), Tokenizer.from_file(str(folder / "tokenizer.json"))
    streams, network = training_streams(tokenizer, sources), Hybrid(Config(folder))
    train_jointly(network, streams)
    before = deepcopy(network.state_dict())
    learn_on_own_text("loops", [network], streams, 24, 0.25, 64, 288, 2.0, 70_000)
    learn_on_own_text("loops", [network], streams, 80, 0.4, 64, 288, 4.0, 80_000)
    learning.take_least_step(network, before, network, validation_prompts(tokenizer, sources), (0.5, 0.75, 1.0))
    train_head(network, streams, write_text(network, streams, 2, 256))
    return [network]


def main(arguments=None):
    recipes = {"pair": train_pair, "hybrid": train_hybrid}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", choices=recipes)
    parser.add_argument("--out", type=Path, required=True, help="gets target/ and draft/, or hybrid/")
    args = parser.parse_args(arguments)
    folders = [args.out / name for name in (("hybrid",) if args.recipe == "hybrid" else ("target", "draft"))]
    for folder in folders:  # sizes, template and what else is no weight are what ships
        shutil.copytree(DEMO / folder.name, folder, ignore=shutil.ignore_patterns("*.md", "*.safetensors"))
    torch.manual_seed(0)
    for network, folder in zip(recipes[args.recipe](*folders), folders, strict=True):
        weights = {name: value.to(torch.float16).contiguous() for name, value in network.state_dict().items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
