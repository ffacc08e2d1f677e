"""Tiny random heads, and targets of the layout they are trained for."""

from copy import deepcopy
from dataclasses import replace
from functools import partial

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models import qwen3_5

from conformance.architectures import architectures, draw_weight, tiny_network
from specdec_cli.engine.heads.cached_head import CachedHead, Head
from specdec_cli.engine.heads.medusa import MedusaHeads
from specdec_cli.engine.heads.mtp import QWEN, MtpHead
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.selftest import redraw
from specdec_cli.engine.training import HeadStudent, own_words

LAYER = {
    "model_type": "qwen3_5_text",
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rms_norm_eps": 1e-6,
    "vocab_size": 128,
    "max_position_embeddings": 1024,
    "full_attention_interval": 1,
}


ADDING = ("o_proj.weight", "out_proj.weight", "down_proj.weight")


def tiny_head(hidden_size=64, seed=3, recipe=QWEN, config=LAYER):
    """A random float32 head whose proposals vary."""
    args = qwen3_5.TextModelArgs.from_dict(config | {"hidden_size": hidden_size})
    mx.random.seed(seed)
    head = MtpHead(lambda: qwen3_5.DecoderLayer(args, 0), hidden_size, args.rms_norm_eps, recipe)
    redraw(head, seed, partial(draw_weight, gain=1.0, noise=0.0))
    return head


def agreeing_head(target, share=0.3, seed=3, config=LAYER):
    """A head that says what the token before it makes likely; `share` of its state and its layer disturbs that."""
    size = target.network.hidden.output_head.hidden_size
    head = tiny_head(size, seed, config=config)
    head.fc.weight = mx.concatenate([mx.eye(size), share * head.fc.weight[:, size:]], axis=1)
    quieten(head, share)
    mx.eval(head.parameters())
    return head


def random_medusa(hidden_size=64, heads=4, seed=3):
    """Medusa heads that change the state they read."""
    module = MedusaHeads(heads, hidden_size)
    redraw(module, seed, partial(draw_weight, gain=1.0, noise=0.0))
    return module


def trained_medusa(target, heads=4, steps=60):
    """Medusa heads that learned from what `target` says, so that some of their guesses are right."""
    student = HeadStudent.medusa(target, heads)
    vocab_size = target.vocab_size - 3
    for step in range(steps):
        pieces = [[(step + 7 * row + 5 * at * (row + 1)) % vocab_size + 3 for at in range(12)] for row in range(8)]
        student.step(own_words(target, pieces, 16, float(step % 2), step, ()), step / steps)
    return student.network


def quieten(module, share, adding=ADDING):
    """What layers add to the stream of activations, by the weights `adding`, becomes `share` of it."""
    weights = tree_flatten(module.parameters())
    module.update(tree_unflatten([(n, share * v) for n, v in weights if n.endswith(adding)]))


def cached_head(target, head=None, name="head", recipe=None, recent=None):
    """One conversation's head over `target`, a CachedModel."""
    output_head = target.network.hidden.output_head
    module = head or tiny_head(output_head.hidden_size, recipe=recipe or QWEN)
    return CachedHead(Head(module, target.network, name, recent=recent))


def tiny_target(name="qwen3_5", seed=3, share=0.3):
    """A random target of the conformance list, such as `qwen3_5`, whose last token decides a good part of the next."""
    listed = architectures()[name]
    config = deepcopy(dict(listed.config))
    config.get("text_config", config)["tie_word_embeddings"] = False
    network = tiny_network(replace(listed, config=config), seed)
    quieten(network, share)
    embedding = next(module for path, module in network.named_modules() if path.endswith("embed_tokens"))
    embedding.weight = 8 * embedding.weight
    mx.eval(network.parameters())
    return CachedModel(network, name)
