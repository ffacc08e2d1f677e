"""Record what mlx-vlm's MTP drafter proposes on tiny random Qwen3.5 checkpoints: an oracle that shares no code.

Not run by the tests, which read the recording. In an environment of its own, since mlx-vlm brings its own models:

    python -m venv oracle && oracle/bin/pip install mlx-vlm==0.7.10 'mlx[cpu]'
    PYTHONPATH=tests oracle/bin/python tests/tools/record_mtp.py > tests/unit/engine/heads/mlx_vlm_mtp.json

A verdict is scripted: every number of accepted tokens 0 … K comes five times or more. mlx-vlm keeps the entries of
accepted drafts, which come from the head's own states; `refed` are its proposals when it reads them again with the
target's, which is what a recomputation gives, `stock` those of the drafter as it is. The target's states come from a
pass of mlx-vlm's model over the whole text.
"""

import json
import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.models.qwen3_5 import qwen3_5
from mlx_vlm.models.qwen3_5_moe import qwen3_5_moe
from mlx_vlm.speculative.drafters.qwen3_5_mtp.config import Qwen3_5MTPConfig
from mlx_vlm.speculative.drafters.qwen3_5_mtp.qwen3_5_mtp import Qwen3_5MTPDraftModel

from fakes.raw_qwen import config_of, raw_tensors

K, ROUNDS = 4, 30
PROMPT = [(7 * i) % 89 + 3 for i in range(11)]


def models(moe):
    family = qwen3_5_moe if moe else qwen3_5
    config, tensors = config_of(moe), {name: mx.array(value) for name, value in raw_tensors(moe).items()}
    drafter = Qwen3_5MTPDraftModel(Qwen3_5MTPConfig.from_dict({"text_config": config["text_config"]}))
    head = drafter.sanitize({name: value for name, value in tensors.items() if name.startswith("mtp.")})
    drafter.load_weights(list(head.items()))
    text = family.ModelConfig.from_dict(config | {"vision_config": {}}).text_config
    owner = SimpleNamespace(config=SimpleNamespace(text_config=text, vision_config=None))
    trunk = family.Model.sanitize(owner, tensors)
    language = family.LanguageModel(text)
    language.load_weights([(name.removeprefix("language_model."), value) for name, value in trunk.items()])
    return language, drafter


def states(language, ids):
    return language.model(mx.array([ids]), cache=language.make_cache())


def lead(language, state):
    scores = mx.sort(language.lm_head(state)[0, -1])
    return float(scores[-1] - scores[-2])


def played(moe, refed):
    language, drafter = models(moe)
    context, rounds = list(PROMPT), []
    drafter.reset(language)
    bonus = 5
    drafter.prefill_from_target_hidden(mx.array([context]), states(language, context), bonus, None, greedy=True)
    context.append(bonus)
    for index in range(ROUNDS):
        sure = lead(language, drafter._seed_hidden)
        draft = drafter.draft_block(context[-1], None, None, K + 1, None, greedy=True)
        tokens = draft[0].tolist()
        accepted, correction = (3 * index) % (K + 1), (11 * index) % 89 + 3
        rounds.append({"draft": tokens, "accepted": accepted, "next": correction, "lead": sure})
        hidden = states(language, context + tokens)[:, len(context) - 1 :]
        if refed:
            for cache in drafter._cache:
                cache.trim(drafter._round_appended)
            drafter._next_position -= drafter._round_appended
            drafter._round_appended = 0
        new = [*tokens[:accepted], correction]
        drafter.accept_verified_tokens(hidden, draft, accepted, new, None, greedy=True)
        context += new
    return rounds


def main():
    cases = {
        f"{'moe' if moe else 'dense'} {'refed' if refed else 'stock'}": played(moe, refed)
        for moe in (False, True)
        for refed in (True, False)
    }
    recorded = {"mlx_vlm": version("mlx-vlm"), "mlx": version("mlx"), "prompt": PROMPT, "bonus": 5, "cases": cases}
    json.dump(recorded, sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
