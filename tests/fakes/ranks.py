"""Replies by a group of processes on loopback. As a program it is rank 0 or, to plant a fault, any further one."""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map
from mlx_lm.utils import _get_classes

from fakes.models import byte_tokenizer, write_tokenizer
from specdec_cli.apps.several import launch, rank
from specdec_cli.apps.several.launch import read_hosts
from specdec_cli.core.errors import SpecdecError
from specdec_cli.core.events import Finish, RoundDone
from specdec_cli.core.kinds import DEFAULT_DRAFTER
from specdec_cli.core.request import Constraint, request_of
from specdec_cli.engine import group as groups
from specdec_cli.engine.drafters.lookup import ForcedDrafter, LookupDrafter
from specdec_cli.engine.pipeline import Pipeline
from specdec_cli.engine.planning import policy
from specdec_cli.engine.planning.policy import Plan
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session import several
from specdec_cli.session.load import Wishes

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


def answers(case):
    """For each request of a conversation: its tokens, the rounds, what was drafted, why it ended; and sums in all."""
    pair = several.open_spec(PairSpec(Pair("named", **{"draft": None} | case["pair"]), DEFAULT_DRAFTER), Wishes())
    session, found, context = pair.session(), [], []
    for ask in case["asks"]:
        context = (context if ask.get("goes_on") else []) + pair.text_tokens(ask["prompt"])
        if ask.get("plain"):
            found.append({"tokens": [step.token for step in session.plain(context, request_of(ask["options"]))]})
            continue
        if "regex" in ask:
            ask["options"]["constraint"] = Constraint("regex", ask["regex"])
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


def together(ranks, cases, root, host="127.0.0.1", fault=""):
    """(exit code, what rank 0 found); further ranks have the `fault`, a name of FAULTS and what it is given.

    Raises: SpecdecError where a rank does.
    """
    asked, told = Path(root, "asked.json"), Path(root, "told.json")
    asked.write_text(json.dumps(cases))
    before, launch.PYTHON = launch.PYTHON, [sys.executable, __file__] if fault else launch.PYTHON
    path = os.pathsep.join(str(Path(__file__).parents[n]) for n in (1, 2))
    os.environ |= {"PYTHONPATH": path, "FAULT": fault}
    try:
        code = launch.launch(read_hosts(",".join([host] * ranks)), [sys.executable, __file__, asked, told])
        found = json.loads(told.read_text())
        if isinstance(found, dict):
            raise SpecdecError(**found)
        return code, found
    finally:
        launch.PYTHON = before
        del os.environ["PYTHONPATH"], os.environ["FAULT"]


def main(asked, told):
    groups.joined()
    sums, total = count(), mx.distributed.all_sum

    def counted(*args, **options):
        next(sums)
        return total(*args, **options)

    mx.distributed.all_sum = counted
    found = []
    try:
        for case in json.loads(Path(asked).read_text()):
            before = next(sums)
            found.append({"replies": answers(case), "sums": next(sums) - before - 1})
    except SpecdecError as error:
        found = {"message": error.message, "hint": error.hint}
    Path(told).write_text(json.dumps(found))


def other_version():
    groups.__version__ = "0.0.1"


def own_k():
    """It listens to no plan, and drafts a token more or less."""
    agreed = groups.Ranks.plan

    def own(self, situation):
        agreed(self, situation)
        plan = policy.plan(situation)
        return Plan(plan.drafter, max(plan.k - 1, 0))

    groups.Ranks.plan = own


def unlike():
    """A chip that rounds otherwise: at odds of a half it finds another token the best. Its drafts are others too."""
    best, coin = mx.argmax, random.Random(1)

    def flipped(found, width):
        coins = mx.array([coin.random() < 0.5 for _ in range(found.size)], mx.bool_).reshape(found.shape)
        return mx.where(coins, (found + 1) % width, found).astype(found.dtype)

    def looked_up(propose):
        def changed(self, context, k):
            draft = yield from propose(self, context, k)
            return replace(draft, tokens=flipped(draft.tokens, 259)) if len(draft) else draft

        return changed

    mx.argmax = lambda scores, **how: flipped(best(scores, **how), scores.shape[-1])
    for drafter in (LookupDrafter, ForcedDrafter):
        drafter.propose = looked_up(drafter.propose)


def other_token(place, token):
    """The token at that `place` of an answer is another one on its way to the host."""
    read = Pipeline.read
    said = Counter()

    def misread(self, *arguments):
        round, queued = read(self, *arguments)
        at = int(place) - said[self]
        said[self] += len(round.emitted)
        if 0 <= at < len(round.emitted):
            round = replace(round, emitted=(*round.emitted[:at], int(token), *round.emitted[at + 1 :]))
        return round, queued

    Pipeline.read = misread


def other_files(here, there):
    """What others find in the folder `here`, it finds in `there`."""

    def moved(spec, tell):
        parts = {name: value.replace(here, there) for name, value in asdict(spec.pair).items() if here in str(value)}
        return found(replace(spec, pair=replace(spec.pair, **parts)), tell)

    found, several.find = several.find, moved


FAULTS = {fault.__name__: fault for fault in (other_version, own_k, unlike, other_token, other_files)}

if __name__ == "__main__":
    if sys.argv[1] == "specdec_cli.apps.several.rank":
        name, *given = os.environ["FAULT"].split()
        FAULTS[name](*given)
        rank.main()
    else:
        main(*sys.argv[1:])
