"""mlx-vlm's answers and their seconds, for `tests/benchmarks/heads.py`: a line of JSON in, a line out.

Runs in an environment of its own, since mlx-vlm brings its own models:

    python -m venv peer && peer/bin/pip install mlx-vlm==0.7.10 'mlx[cpu]'
    peer/bin/python tests/tools/answer_mtp.py FOLDER

FOLDER holds a Qwen3.5 with its own MTP tensors. Asked is {"prompt": [ids], "k": K, "tokens": most}, K = 0 for plain
decoding; answered {"seconds": of the whole answer, "first": until its first token, "tokens": [ids]}. Greedy; no token
ends an answer.
"""

import json
import sys
import time
from pathlib import Path

import mlx.core as mx
from mlx_vlm.generate import generate_step
from mlx_vlm.models.qwen3_5_text import config as text_config
from mlx_vlm.models.qwen3_5_text import qwen3_5_text
from mlx_vlm.speculative.drafters.qwen3_5_mtp.config import Qwen3_5MTPConfig
from mlx_vlm.speculative.drafters.qwen3_5_mtp.qwen3_5_mtp import Qwen3_5MTPDraftModel


def models(folder):
    config = json.loads((folder / "config.json").read_text())
    text = config["text_config"]
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= mx.load(str(path))
    target = qwen3_5_text.Model(text_config.ModelConfig.from_dict(text | {"model_type": "qwen3_5_text"}))
    target.load_weights(list(target.sanitize(dict(tensors)).items()))
    drafter = Qwen3_5MTPDraftModel(Qwen3_5MTPConfig.from_dict({"text_config": text}))
    head = drafter.sanitize({name: value for name, value in tensors.items() if name.startswith("mtp.")})
    drafter.load_weights(list(head.items()))
    for model in (target, drafter):
        model.set_dtype(mx.float32)
        mx.eval(model.parameters())
    return target, drafter


def answered(target, drafter, prompt, k, tokens):
    more = {"draft_model": drafter, "draft_kind": "mtp", "draft_block_size": k + 1} if k else {}
    began = time.perf_counter()
    steps = generate_step(mx.array([prompt]), target, None, None, max_tokens=tokens, temperature=0.0, **more)
    said, first = [int(next(steps)[0])], time.perf_counter() - began
    said += [int(token) for token, _ in steps]
    return {"seconds": time.perf_counter() - began, "first": first, "tokens": said}


def main():
    pair = models(Path(sys.argv[1]))
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(answered(*pair, asked["prompt"], asked["k"], asked["tokens"])), flush=True)


if __name__ == "__main__":
    main()
