# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "tokenizers>=0.22", "safetensors>=0.6", "numpy>=2"]
# ///
"""Stretch the demo pair to a context of 4,096 tokens: `uv run stretch.py --out FOLDER`. What it writes is not shipped.

A higher base of the rotary embedding (Xiong et al., arXiv:2309.16039), then mutual learning as in `train`, with windows
of the corpus as long as the new context. For measurements of drafts on long prompts. `stretch_log.jsonl` is the log of
one run: 23 minutes on two shared cores that did other work beside.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from agreement import measure
from corpus import END_OF_TEXT, TURN_END, held_out_prompts, standard_library
from export import write_model
from fitting import Log
from mutual import Both, Pass, fit_together
from network import Network, Shape
from train import DRAFT, TARGET
from train_hybrid import kept_streams

DEMO = Path(__file__).parents[1]
CONTEXT = 4096
# The least turn of the shipped base over 1,024 tokens is that of this one over about 4,400.
THETA = 45_000.0
STRETCH = Pass(steps=64, peak=0.2, rows=96, width=256, lean=0.5, repeats=3.0, seed=120_000, window=CONTEXT)


def stretched(folder: Path, shape: Shape) -> Network:
    """The shipped weights in `folder` as a network of the longer context."""
    network = Network(replace(shape, context=CONTEXT + 1, theta=THETA))
    network.load_state_dict({name: value.float() for name, value in load_file(folder / "model.safetensors").items()})
    network.shape = replace(network.shape, context=CONTEXT)
    return network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder that gets target/ and draft/")
    parser.add_argument("--work", type=Path, default=Path("demo-training"), help="checkpoints")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    args.work.mkdir(parents=True, exist_ok=True)
    log = Log(args.work / "stretch.jsonl")

    tokenizer = Tokenizer.from_file(str(DEMO / "target" / "tokenizer.json"))
    streams = kept_streams(tokenizer, args.work)
    both = Both(stretched(DEMO / "target", TARGET), stretched(DEMO / "draft", DRAFT)).requires_grad_(True)
    fit_together("stretch", both, STRETCH, streams, args.work / "stretch.pt", log)
    both.requires_grad_(False)
    prompts = held_out_prompts(tokenizer, standard_library(), 128, 128)
    log.say(stage="measure", **measure(both.target, both.draft, prompts))
    ends = tokenizer.token_to_id(END_OF_TEXT), tokenizer.token_to_id(TURN_END)
    for network, folder in ((both.target, args.out / "target"), (both.draft, args.out / "draft")):
        write_model(network, tokenizer, ends, folder)
    log.say(stage="done", out=args.out.name)


if __name__ == "__main__":
    main()
