"""A real model with weights that says what a script says, in a context of 64k: agents can be driven with it.

Its one layer adds nothing, so the next token depends on the last one alone: embeddings are unit vectors, and row y of
the output head holds the unit vector of x wherever y follows x. A script is a chain of words that exist for it alone.
Its template chooses the script by the functions that a request offers, and its ending once a result has come.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise

import mlx.core as mx
from mlx.utils import tree_flatten

from fakes.models import TINY, byte_tokenizer, tiny_network, write_model
from fakes.tool_model import LONG, MARKS, SAID

END = 2  # <|im_end|>
WIDTH = 512
WORD = 6  # characters of a word, at least
OTHERWISE = "This model follows a script, and nobody offered it a function that it knows."


@dataclass(frozen=True, slots=True)
class Script:
    """The call where a request offers `function`, and what is said once its result has come."""

    function: str
    arguments: dict[str, object]
    ending: str

    @property
    def call(self):
        return f"{MARKS[0]}\n{json.dumps({'name': self.function, 'arguments': self.arguments})}\n{MARKS[1]}"


def scripted_folder(folder, scripts):
    """A loadable folder; the first of `scripts` whose function is offered is followed."""
    used: set[str] = set()
    chains = [(f"<|call{i}|>", words_of(script.call, used)) for i, script in enumerate(scripts)]
    chains += [(f"<|ending{i}|>", words_of(script.ending, used)) for i, script in enumerate(scripts)]
    chains.append(("<|otherwise|>", words_of(OTHERWISE, used)))
    words = [word for _, said in chains for word in said]
    tokenizer = byte_tokenizer(words, MARKS, [opener for opener, _ in chains])
    first, follows = tokenizer.get_vocab_size() - len(words) - len(MARKS) - len(chains), {}
    for opener, said in chains:
        ids = range(first, first := first + len(said))
        follows |= dict(pairwise([tokenizer.token_to_id(opener), *ids, END]))
    config = TINY | {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": WIDTH,
        "num_hidden_layers": 1,
        "max_position_embeddings": LONG,
    }
    return write_model(folder, weights(config, follows), config, tokenizer, chat_template=template(scripts))


def words_of(text, used):
    """`text` in words that no other script has, for a word decides what follows it."""
    found, begin = [], 0
    while begin < len(text):
        end = begin + WORD
        while end < len(text) and (text[begin:end] in used or len(text) - end < WORD):
            end += 1
        found.append(text[begin:end])
        assert found[-1] not in used, f"{found[-1]!r} ends two scripts"
        used.add(found[-1])
        begin = end
    return found


def weights(config, follows):
    """Of a network whose most probable token after x is `follows[x]`, else the end."""
    found = dict(tree_flatten(tiny_network(config).parameters()))
    size = config["vocab_size"]
    assert size <= WIDTH, f"{size} tokens, and {WIDTH} unit vectors"
    for name, weight in found.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            found[name] = mx.zeros_like(weight)
    found["model.embed_tokens.weight"] = mx.eye(size, WIDTH)
    rows = mx.array([follows.get(token, END) for token in range(size)])
    found["lm_head.weight"] = mx.zeros((size, WIDTH)).at[rows, mx.arange(size)].add(1.0)
    return found


def template(scripts):
    """What was said, and the opener of the script to follow."""
    names = "{%- set offered = tools | map(attribute='function') | map(attribute='name') | list if tools else [] -%}"
    chosen = "".join(
        f"{{%- {'elif' if i else 'if'} '{script.function}' in offered -%}}"
        f"{{{{ '<|ending{i}|>' if messages[-1]['role'] == 'tool' else '<|call{i}|>' }}}}"
        for i, script in enumerate(scripts)
    )
    opener = f"{names}{chosen}{{%- else -%}}{{{{ '<|otherwise|>' }}}}{{%- endif -%}}"
    return f"{SAID}{{%- if add_generation_prompt -%}}{{{{ '<|im_start|>assistant\\n' }}}}{opener}{{%- endif -%}}"
