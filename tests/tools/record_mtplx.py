"""Record what MTPLX's heads propose on tiny random checkpoints of four families: an oracle that shares no code.

Not run by the tests, which read the recording. In an environment of its own, since MTPLX wants an older mlx-lm:

    python -m venv oracle && oracle/bin/pip install 'mlx[cpu]==0.32.2' 'mlx-lm==0.31.3' 'transformers==5.16.1'
    oracle/bin/pip install --no-deps mtplx==2.12.2
    PYTHONPATH=tests oracle/bin/python tests/tools/record_mtplx.py > tests/engine/heads/mtplx_heads.json

MTPLX finds and loads the tensors and computes every step; which hidden states it reads and what it carries on are its
own. In every round its head reads the whole text anew with the target's states. Verdicts are scripted.
"""

import json
import logging
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
from mlx_lm.utils import load_model
from mtplx.deepseek_mtp_patch import inject_deepseek_mtp_support
from mtplx.glm_mtp_patch import inject_glm_mtp_support
from mtplx.mimo_mtp_patch import inject_mimo_mtp_support

from fakes.raw_families import CONFIGS, NAMES, raw_family
from fakes.raw_qwen import write_checkpoint

K, ROUNDS = 4, 30
PROMPT = [(7 * i) % 89 + 3 for i in range(11)]
INJECT = {
    "deepseek_v3": inject_deepseek_mtp_support,
    "glm4_moe": inject_glm_mtp_support,
    "glm4_moe_lite": inject_glm_mtp_support,
    "mimo": inject_mimo_mtp_support,
}


def model_of(family, root):
    trunk, head = raw_family(family)
    files = {"mtp.safetensors": NAMES[family][0] + "."}  # mlx-lm takes no tensors that it does not know
    folder = write_checkpoint(root / family, trunk | head, CONFIGS[family], files)
    model, config = load_model(folder)
    assert INJECT[family](model, folder, config), family
    return model


def proposals(model, context):
    """(K tokens behind `context`, the smallest lead of one of them over the next best)."""
    cache, tokens, leads = model.make_mtp_cache(), [], []
    _, states = model(mx.array([context[:-1]]), return_hidden=True)
    ids = mx.array([context[1:]])
    for _ in range(K):
        logits, states = model.mtp_forward(states, ids, mtp_cache=cache, return_hidden=True)
        best = mx.sort(logits[0, -1])
        leads.append(float(best[-1] - best[-2]))
        tokens.append(int(mx.argmax(logits[0, -1])))
        states, ids = states[:, -1:], mx.array([tokens[-1:]])
    return tokens, min(leads)


def played(model):
    context, rounds = [*PROMPT, 5], []
    for index in range(ROUNDS):
        draft, lead = proposals(model, context)
        accepted, correction = (3 * index) % (K + 1), (11 * index) % 89 + 3
        rounds.append({"draft": draft, "lead": lead})
        context += [*draft[:accepted], correction]
    return rounds


def main():
    logging.disable()
    with tempfile.TemporaryDirectory() as root:
        cases = {family: played(model_of(family, Path(root))) for family in CONFIGS}
    versions = {name: version(name) for name in ("mtplx", "mlx", "mlx-lm")}
    json.dump({"versions": versions, "cases": cases}, sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
