"""Record what mlx-vlm's assistants propose on tiny random Gemma 4 checkpoints: an oracle that shares no code.

Not run by the tests, which read the recording. In an environment of its own, since mlx-vlm brings its own models:

    python -m venv oracle && oracle/bin/pip install mlx-vlm==0.7.10 'mlx[cpu]'
    PYTHONPATH=tests oracle/bin/python tests/tools/record_assistant.py > tests/fakes/recorded/mlx_vlm_assistant.json

A verdict is scripted: K runs from 1 to 8, and every number of accepted tokens 0 … K comes. The target's states, keys
and values come from a pass of mlx-vlm's model over the whole text. All steps stand at the bonus token's position, which
is transformers' (`SinglePositionMultiTokenCandidateGenerator`) and the default of mlx-vlm's drafter; `earlier` are the
proposals from one position before, where its own loop stands: a reader who errs by one says these.
"""

import json
import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.gemma4.config import TextConfig
from mlx_vlm.models.gemma4.language import LanguageModel
from mlx_vlm.speculative.drafters import gemma4_assistant, gemma4_unified_assistant

from fakes.raw_gemma import assistant_config, assistant_tensors, target_tensors, text_of

ROUNDS, MOST = 56, 8
PROMPT = [(7 * i) % 119 + 3 for i in range(11)]
DRAFTERS = {"e": gemma4_assistant, "unified": gemma4_unified_assistant}


def models(kind):
    module = DRAFTERS[kind]
    drafter = module.Model(module.ModelConfig.from_dict(assistant_config(kind)))
    drafter.load_weights(list(drafter.sanitize(arrays(assistant_tensors(kind))).items()))
    language = LanguageModel(TextConfig.from_dict(text_of(kind)))
    weights = {name.removeprefix("language_model."): value for name, value in target_tensors(kind).items()}
    language.load_weights(list(arrays(weights).items()))
    drafter.bind(language)
    return language, drafter


def arrays(tensors):
    return {name: mx.array(value) for name, value in tensors.items()}


def draft(language, drafter, context, k, back=0):
    """([k] tokens, the least lead of a token over the next best)."""
    keys, leads = {}, []
    hidden = language.model(mx.array([context[:-1]]), cache=language.make_cache(), shared_kv_sink=keys)
    drafter.set_shared_kv(keys, len(context) - 1, position=len(context) - 1 - back, kv_valid_len=len(context) - 1)

    def best(logits):
        scores = mx.sort(logits[0, -1])
        leads.append(float(scores[-1] - scores[-2]))
        return mx.argmax(logits, axis=-1)

    tokens = drafter.draft_block(context[-1], hidden[:, -1:], None, k + 1, best)
    return tokens[0].tolist(), min(leads)


def played(kind):
    language, drafter = models(kind)
    context, rounds = [*PROMPT, 5], []
    for index in range(ROUNDS):
        k = index % MOST + 1
        tokens, sure = draft(language, drafter, context, k)
        accepted, after = (3 * index + index // MOST) % (k + 1), (11 * index) % 119 + 3
        earlier, _ = draft(language, drafter, context, k, back=1)
        rounds.append({"draft": tokens, "accepted": accepted, "next": after, "lead": sure, "earlier": earlier})
        context += [*tokens[:accepted], after]
    return rounds


def main():
    cases = {kind: played(kind) for kind in DRAFTERS}
    recorded = {"mlx_vlm": version("mlx-vlm"), "mlx": version("mlx"), "prompt": PROMPT, "bonus": 5, "cases": cases}
    json.dump(recorded, sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
