"""Replies by a group of processes on loopback. As a program it is rank 0 or, to plant a fault, any further one."""

from __future__ import annotations

import json
import os
import sys
from itertools import count
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map
from mlx_lm.utils import _get_classes

from fakes.models import byte_tokenizer, write_tokenizer
from specdec_cli.core.events import Finish, RoundDone
from specdec_cli.engine import group as groups
from specdec_cli.engine.planning.policy import Plan
from specdec_cli.session.load import load
from specdec_cli.several import launch, rank
from specdec_cli.several.hosts import read_hosts

BASE = {
    "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 64, "num_attention_heads": 4, "head_dim": 16,
    "num_key_value_heads": 4, "rms_norm_eps": 1e-6, "vocab_size": 259, "max_position_embeddings": 1024,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "eos_token_id": [2, 0], "dtype": "float32",
}  # fmt: skip
CONFIGS = {
    "qwen3": BASE | {"model_type": "qwen3"},
    "llama": BASE | {"model_type": "llama"},
    "gpt_oss": BASE
    | {"model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16}
    | {"layer_types": ["sliding_attention", "full_attention"]},
}


def folders(root, name, gain=0.25, noise=0.03):
    """(target, draft): random float32 models of which the second says now and then what the first does."""
    model_class, args_class = _get_classes(CONFIGS[name])
    network = model_class(args_class.from_dict(CONFIGS[name]))
    for part, scale in (("target", gain), ("draft", noise)):
        mx.random.seed(1)
        moved = tree_map(lambda p: p + mx.random.normal(p.shape) * scale if p.ndim > 1 else p, network.parameters())  # noqa: B023
        network.update(moved)
        folder = root / name / part
        folder.mkdir(parents=True)
        mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(network.parameters())))
        (folder / "config.json").write_text(json.dumps(CONFIGS[name]))
        write_tokenizer(folder, byte_tokenizer())
    return {"target": str(root / name / "target"), "draft": str(root / name / "draft")}


def answers(case, group=None):
    """For each request of a conversation: its tokens, the rounds, what was drafted, why it ended; and sums in all."""
    pair = load(**case["pair"], group=group)
    session, found, context = pair.session(), [], []
    for ask in case["asks"]:
        context = (context if ask.get("goes_on") else []) + pair.text_tokens(ask["prompt"])
        tokens, rounds, drafted, reason = [], 0, 0, ""
        stops = ask.get("cancelled_after", -1)
        events = session.reply(context, None, lambda: rounds == stops, raw=True, **ask["options"])  # noqa: B023
        for event in events:
            if isinstance(event, RoundDone):
                tokens, rounds = tokens + list(event.round.emitted), rounds + 1
                drafted += len(event.round.draft)
            if isinstance(event, Finish):
                reason = event.reason
            if rounds == ask.get("left_after", -1):
                events.close()
                break
        context = context + tokens
        found.append({"tokens": tokens, "rounds": rounds, "drafted": drafted, "reason": reason})
    return found


def together(ranks, cases, root, host="127.0.0.1", python=()):
    """(exit code, what rank 0 found); `python` is what further ranks run on, if not their own module."""
    asked, told = Path(root, "asked.json"), Path(root, "told.json")
    asked.write_text(json.dumps(cases))
    before, launch.PYTHON = launch.PYTHON, [*python] or launch.PYTHON
    path = os.pathsep.join(str(Path(__file__).parents[n]) for n in (1, 2))
    os.environ["PYTHONPATH"] = path
    try:
        code = launch.launch(read_hosts(",".join([host] * ranks), None), [sys.executable, __file__, asked, told])
        return code, json.loads(told.read_text())
    finally:
        launch.PYTHON = before
        del os.environ["PYTHONPATH"]


def main(asked, told):
    group, sums, total = groups.joined(), count(), mx.distributed.all_sum

    def counted(*args, **options):
        next(sums)
        return total(*args, **options)

    mx.distributed.all_sum = counted
    found = []
    for case in json.loads(Path(asked).read_text()):
        before = next(sums)
        found.append({"replies": answers(case, group), "sums": next(sums) - before - 1})
    Path(told).write_text(json.dumps(found))


if __name__ == "__main__":
    if os.environ.get("FAULT") == "version":
        groups.__version__ = "0.0.1"
        rank.main()
    elif sys.argv[1] == "specdec_cli.several.rank":  # this one listens to no plan, and drafts a token more or less
        groups.SharedDecisions.decide = lambda self, plan, drafters: (
            self._read(*self._send(plan, drafters), drafters) and Plan(plan.drafter, max(plan.k - 1, 0))
        )
        rank.main()
    else:
        main(*sys.argv[1:])
