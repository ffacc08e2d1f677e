"""What a schema costs and what it gains: `python tests/benchmarks/constrained.py --pair FOLDER`.

FOLDER is a pair that `inflate.py --out FOLDER` wrote; without it the demo pair answers. Every prompt is answered under
a schema in every way before the next one, in an order that turns, in one process; the prompt is the unit, and speeds
are tokens after the first by their seconds. Plain ways are mlx-lm's own loop, under the schema with our masks. Greedy
answers under the schema must be equal token for token, or the run stops. What the masks cost alone is in mask_cost.py.
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("MLX_ENABLE_TF32", "0")

from paired import Ratio, environment, interleaved
from speed import CLOCKS
from texts import of_kind

from specdec_cli.engine.baseline import baseline
from specdec_cli.events import Finish, RoundDone
from specdec_cli.kinds import FORCED
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Constraint, Request
from specdec_cli.session.load import load

TEXT = {"type": "string", "maxLength": 40}
PARAMETER = {
    "type": "object",
    "properties": {
        "parameter_name": TEXT,
        "type": {"enum": ["string", "integer", "boolean"]},
        "required": {"type": "boolean"},
    },
    "required": ["parameter_name", "type", "required"],
    "additionalProperties": False,
}
FUNCTION = {
    "type": "object",
    "properties": {
        "function_name": TEXT,
        "description": TEXT,
        "parameters": {"type": "array", "items": PARAMETER, "minItems": 2, "maxItems": 4},
        "returns_a_value": {"type": "boolean"},
        "number_of_lines": {"type": "integer", "minimum": 0, "maximum": 9999},
    },
    "required": ["function_name", "description", "parameters", "returns_a_value", "number_of_lines"],
    "additionalProperties": False,
}
SCHEMA = Constraint("schema", json.dumps(FUNCTION))
K = 4


class Ways:
    """The ways to answer a prompt; `said` holds what plain decoding says under the schema."""

    def __init__(self, session, tokens):
        self._session, self._tokens, self._clock = session, tokens, session.clock
        self.said, self.stats = {}, []

    def free(self, prompt):
        """mlx-lm, without a schema."""
        network = self._session.slot.target.network.module
        began = first = None
        tokens = []
        for round in baseline(network, prompt, self._tokens, frozenset(), self._clock):
            began = self._clock()
            first = first or began
            tokens.append(round.next)
        return (began - first) / (len(tokens) - 1)

    def plain(self, prompt):
        """mlx-lm, under the schema."""
        tokens, first, last = [], None, None
        for step in self._session.plain(prompt, Request(self._tokens, k=0, constraint=SCHEMA)):
            last = self._clock()
            first = first or last
            tokens.append(step.token)
        self.said[tuple(prompt)] = tokens
        return (last - first) / (len(tokens) - 1)

    def ours(self, drafter, k, name):
        session = self._session.pair.session(self._session.slot, self._clock)

        def answer(prompt):
            session.slot.forget()
            request = Request(self._tokens, k=k, drafter=drafter, constraint=SCHEMA)
            events = list(session.reply(prompt, request, raw=True))
            rounds = [event.round for event in events if isinstance(event, RoundDone)]
            tokens = [token for round in rounds for token in round.emitted]
            if tokens != self.said[tuple(prompt)]:
                raise SystemExit(f"{name} says something else than plain decoding")
            stats = next(event.stats for event in events if isinstance(event, Finish))
            self.stats.append((name, stats))
            return stats["decode_seconds"] / (len(tokens) - 1)

        return answer


def speed(session, args):
    """Tokens a second against both plain ways, tokens a pass, and the share of forced tokens."""
    ways = Ways(session, args.tokens)
    named = {"plain": ways.plain, "free": ways.free}
    for drafter, k in (("none", 0), ("model", K), ("auto", "auto")):
        named[f"{drafter} k {k}"] = ways.ours(drafter, k, f"{drafter} k {k}")
    prompts = of_kind("code", args.prompts, session.pair.tokenizer)
    for prompt in prompts:  # what all others must say; it warms the machine as well
        ways.plain(prompt)
    ways.free(prompts[0])
    found = interleaved(named, prompts)
    print(f"{args.prompts} prompts, up to {args.tokens} tokens, greedy; median [95 % interval] of paired ratios")
    print(f"{args.clock} time; plain under the schema over plain without: {Ratio(found['free'], found['plain'])}")
    for name in list(named)[2:]:
        stats = [one for other, one in ways.stats if other == name]
        tokens = sum(one["emitted_tokens"] for one in stats)
        forced = sum(one["accepted_by"].get(FORCED.name, 0) for one in stats)
        passes = sum(one["target_passes"] for one in stats)
        print(f"{name:>11}: over plain under the schema {Ratio(found['plain'], found[name])}, ", end="")
        print(f"over plain without {Ratio(found['free'], found[name])}, ", end="")
        print(f"{tokens / passes:.2f} tokens a pass, {forced / tokens:.0%} forced")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", type=Path, metavar="FOLDER")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="of speeds")
    args = parser.parse_args()
    print(environment())
    parts = ("target", "draft")
    names = [str(args.pair / part) if args.pair else f"specdec:demo/{part}" for part in parts]
    loaded = load(Pair("pair", *names), drafter="model")
    speed(loaded.session(loaded.first, CLOCKS[args.clock]), args)


if __name__ == "__main__":
    main()
