"""Records what drafts would say all along the target's own answers: `python tests/benchmarks/record_answers.py`.

The texts that simulations of `-k auto` replay (`tests/fakes/recorded/answers.jsonl`): prompts of the released pair
(`released_pair.py`), the target's greedy answer, and, in one pass over prompt and answer, each draft's most probable
token at every position of it. A greedy draft that was right so far has read the answer itself, so these guesses decide
every round of every K.

* `draft`: Qwen2.5-Coder-0.5B, the pair's own.
* `stranger`: Gemma 3 270M, a base model with another tokenizer, as it reads the text. Its guess is the first token of
  the target's tokenizer in what it would write next; -1 where its tokens do not begin where the target's do.
* `nothing`: the same model as it reads the target's ids, which mean other words to it: a draft that is always wrong.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import released_pair  # isort: skip  # first: it loads the BLAS that mlx takes
import mlx.core as mx
from mlx_lm.utils import load_model
from tokenizers import Tokenizer

import specdec_cli as specdec
from real import released

DRAFTS = ("draft", "stranger", "nothing")


def guesses(module, ids, count):
    """The most probable token before each of the last `count` of `ids`."""
    return mx.argmax(module(mx.array([ids]))[0, -count - 1 : -1], axis=-1).tolist()


def starts(tokenizer, ids):
    """Where the text of each token starts, in characters; -1 inside a character."""
    texts = [tokenizer.decode(ids[:i], skip_special_tokens=False) for i in range(len(ids))]
    return [-1 if text.endswith("\ufffd") else len(text) for text in texts]


def stranger_guesses(module, theirs, ours, prompt, answer):
    """As `guesses`, of a model whose tokenizer is `theirs`, in tokens of `ours`."""
    text = ours.decode(answer, skip_special_tokens=False)
    head = theirs.encode(prompt + "\n\n").ids
    ids = [*head, *theirs.encode(text, add_special_tokens=False).ids]
    count = len(ids) - len(head)
    places = dict(zip(starts(theirs, ids[-count:]), guesses(module, ids, count), strict=True))
    found = []
    for place in starts(ours, answer):
        said = ours.encode(theirs.decode([places[place]]), add_special_tokens=False).ids if place in places else []
        found.append(said[0] if said else -1)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=3, help="of each kind")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "fakes" / "recorded" / "answers.jsonl")
    args = parser.parse_args()
    pair = specdec.load(target=str(released.qwen()), draft=str(released.qwen_draft()))
    stranger, _ = load_model(released.gemma())
    theirs, ours = (
        Tokenizer.from_file(str(folder / "tokenizer.json")) for folder in (released.gemma(), released.qwen())
    )
    chosen = [released_pair.prompts(kind, args.prompts) for kind in released_pair.KINDS]
    lines = [
        (kind, *one) for row in zip(*chosen, strict=True) for kind, one in zip(released_pair.KINDS, row, strict=True)
    ]
    args.out.parent.mkdir(exist_ok=True)
    with args.out.open("w") as out:
        for kind, name, text in lines:
            session = pair.session()
            ids = session.pair.chat_tokens(text)
            events = session.reply(ids, max_tokens=args.tokens, k=2, drafter="model", temperature=0.0)
            answer = [token for event in events if event.event == "round" for token in event.round.emitted]
            row = {"kind": kind, "name": name, "prompt": len(ids), "answer": answer}
            row["draft"] = guesses(session.slot.draft.network.module, [*ids, *answer], len(answer))
            row["stranger"] = stranger_guesses(stranger, theirs, ours, text, answer)
            row["nothing"] = guesses(stranger, [*ids, *answer], len(answer))
            out.write(json.dumps(row, separators=(",", ":")) + "\n")
            out.flush()
            hits = {who: sum(a == b for a, b in zip(row[who], answer, strict=True)) for who in DRAFTS}
            print(kind, name, len(ids), len(answer), hits, flush=True)


if __name__ == "__main__":
    main()
