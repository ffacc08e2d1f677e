"""A tiny assistant that was really trained, for a tiny Gemma 4: `python tests/benchmarks/trained_assistant.py FOLDER`.

A target of six layers (windows of 32, the last three share keys and values) learns the bytes of this repository's text;
an assistant learns what that target says, by the loop of `specdec tune`. Both are kept in FOLDER, and loaded from it as
the product loads them. Counted on files that neither has seen: tokens accepted by position at K = 3, and the speed of
`auto` and of K = 3 over K = 0, in turns, in one process (`ways.py`); and the same for an assistant that was never
trained, which guesses nothing. With `--width` both are that wide and never trained: steps of tens of milliseconds,
where the host's own time does not decide. Greedy answers must be equal.
"""

# ruff: noqa: E402 - mlx takes the BLAS that is loaded before it
import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from specdec_cli.system import blas

BLAS = blas.load() or "its own BLAS"  # before mlx is imported

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models import gemma4
from paired import Ratio, interleaved
from ways import Ways

from fakes.chat import BYTES
from fakes.gemma import config_over
from fakes.models import byte_tokenizer, write_tokenizer
from fakes.raw_gemma import FULL, SLIDING, TEXTS
from fakes.raw_qwen import write_checkpoint
from specdec_cli.engine import device
from specdec_cli.engine.heads.assistant import ASSISTANT_BUILD
from specdec_cli.engine.heads.cached_head import CachedHead, Head
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.training import HeadStudent, own_words
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.load import load
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.slot import Slot

SIZE, OWN, WIDTH, BATCH, K = 128, 64, 128, 16, 3


def config_of(size, inner):
    """A target `size` wide, with `inner` columns between a layer's two products."""
    text = TEXTS["e"] | {"hidden_size": size, "intermediate_size": inner, "num_hidden_layers": 6, "sliding_window": 32}
    text |= {"vocab_size": BYTES, "vocab_size_per_layer_input": BYTES}
    ends = {"eos_token_id": [2, 0]}
    return {"model_type": "gemma4", "dtype": "float32", "vocab_size": BYTES, "text_config": text} | ends


CONFIG = config_of(SIZE, 256)


def files():
    """(bytes to learn from, texts of files that are held out)."""
    paths = sorted(
        [*ROOT.glob("specdec_cli/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("specdec_cli/docs/*.md")]
    )
    held = paths[7::29]
    kept = "\n".join(path.read_text("utf-8") for path in paths if path not in held)
    return np.frombuffer(kept.encode(), np.uint8).astype(np.int32) + 3, [path.read_text("utf-8") for path in held]


def windows(data, drawn, rows, width):
    starts = drawn.integers(0, len(data) - width - 1, rows)
    return mx.array(np.stack([data[at : at + width] for at in starts]))


def trained_target(data, steps):
    network = gemma4.Model(gemma4.ModelArgs.from_dict(CONFIG))
    optimizer, drawn = optim.AdamW(learning_rate=3e-3, weight_decay=0.01), np.random.default_rng(1)

    def loss(ids):
        return nn.losses.cross_entropy(network(ids[:, :-1]), ids[:, 1:], reduction="mean")

    gradient = nn.value_and_grad(network, loss)
    for step in range(steps):
        optimizer.learning_rate = mx.array(3e-3 * min(1.0, step / 20) * (1 - step / steps))
        value, found = gradient(windows(data, drawn, BATCH, WIDTH + 1))
        optimizer.update(network, optim.clip_grad_norm(found, 1.0)[0])
        mx.eval(network.parameters(), optimizer.state)
        if step % 50 == 49:
            print(f"target: step {step + 1} of {steps}, {value.item():.3f} nats a byte", flush=True)
    return network


def untrained(pair, target):
    """The pair of that target with an assistant that was never trained."""
    module, _ = new_assistant(target.network.module)
    head = CachedHead(Head(module, target.network, "untrained", recent=1))
    return LoadedPair(pair.pair, pair.names, pair.tokenizer, Slot(target, head), pair.fit)


def new_assistant(network):
    own = {"hidden_size": OWN, "intermediate_size": 128, "num_hidden_layers": 4}
    own |= {"layer_types": [SLIDING, SLIDING, SLIDING, FULL]}
    config = config_over(network.language_model.model.config, 37, 12)
    config["text_config"] |= own | {"num_kv_shared_layers": 4}
    module = ASSISTANT_BUILD.head(config, True, network.language_model.model.config.hidden_size)
    embedding = network.language_model.model.embed_tokens.weight
    # Its output head is not trained by tune's loop: the target's, in fewer directions.
    directions = np.linalg.svd(np.array(embedding), full_matrices=False)[2][:OWN]
    module.model.embed_tokens.weight = embedding @ mx.array(directions.T)
    order = np.argsort(np.array(module.model.embed_tokens.weight)[:, 0])
    module.masked_embedding.token_ordering = mx.array(order.astype(np.int32))
    rows = module.model.embed_tokens.weight[module.masked_embedding.token_ordering]
    module.masked_embedding.centroids.weight = rows.reshape(37, -1, OWN).mean(1)
    mx.eval(module.parameters())
    return module, config


def trained_assistant(target, data, steps, folder):
    module, config = new_assistant(target.network.module)
    student = HeadStudent(module, target, K, 3e-3, config)
    target.network.hidden.expose()
    drawn = np.random.default_rng(2)
    for step in range(steps):
        if step % 4 == 0:
            pieces = windows(data, drawn, BATCH, 48).tolist()
            lesson = own_words(target, pieces, 48, float(step // 4 % 2), step, ())
        value = student.step(lesson, step / steps)
        if step % 50 == 49:
            print(f"assistant: step {step + 1} of {steps}, loss {value:.3f}", flush=True)
    folder.mkdir()
    student.save(folder)


def compared(pair, prompts, tokens):
    """Prints acceptance by position, and speed over plain decoding."""
    ways, drafted, accepted = Ways(pair, tokens), np.zeros(K), np.zeros(K)
    answers = {k: ways.ours(k=k, drafter="model") for k in (0, K, "auto")}
    ways.warm_up(answers.values(), prompts[0][:40])

    def note(_, k):
        for round in ways.rounds if k == K else ():
            drafted[: len(round.draft)] += 1
            accepted[: round.accepted] += 1

    seconds = interleaved(answers, prompts, note)
    assert not ways.differed, ways.differed
    rates = " ".join(f"{100 * a / d:.0f}" for a, d in zip(accepted, drafted, strict=True))
    print(f"accepted by position {rates} % of {drafted.astype(int).tolist()}")
    for k in (K, "auto"):
        print(f"K = {k}: {Ratio(seconds[0], seconds[k])} x plain, of {len(prompts)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--width", type=int, help="of a pair that was never trained, in place of the trained one")
    args = parser.parse_args()
    data, held = files()
    print(
        f"{device.device_name()}, {BLAS}, mlx {device.versions()['mlx']}; {len(data)} bytes, {len(held)} files held out"
    )
    if not args.folder.exists():
        if args.width:
            config = config_of(args.width, 4 * args.width)
            network = gemma4.Model(gemma4.ModelArgs.from_dict(config))
        else:
            config, network = CONFIG, trained_target(data, args.steps)
        tensors = {name: np.array(value) for name, value in tree_flatten(network.parameters())}
        write_checkpoint(args.folder / "target", tensors, config, metadata={"format": "mlx"})
        write_tokenizer(args.folder / "target", byte_tokenizer(), chat_template="{{ messages[-1]['content'] }}")
        if not args.width:
            trained_assistant(CachedModel(network, "target"), data, args.steps, args.folder / "assistant")
    assistant = None if args.width else str(args.folder / "assistant")
    pair = load(Pair("trained", str(args.folder / "target"), assistant))
    prompts = [pair.text_tokens(text[200:600]) for text in held if len(text) > 700][: args.prompts]
    if not args.width:
        print(f"proven at load: {pair.first.draft.head.agreement}")
        compared(pair, prompts, args.tokens)
    print("an assistant that was never trained:")
    compared(untrained(pair, pair.first.target), prompts, args.tokens)


if __name__ == "__main__":
    main()
