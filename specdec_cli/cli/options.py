"""Options that several commands share: one spelling, one help line, and SPECDEC_* in the environment as default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specdec_cli.kinds import rule_names
from specdec_cli.request import KV_BITS, MAX_K, one_name, one_of, within

ADVANCED = "Advanced"


Prompt = Annotated[str | None, typer.Argument(help="The prompt; piped stdin comes before it.", show_default=False)]
PairName = Annotated[
    str | None,
    typer.Option(
        "--pair", "-p", metavar="NAME", envvar="SPECDEC_PAIR", show_envvar=False, help="A pair from models.toml."
    ),
]
Target = Annotated[
    str | None,
    typer.Option(metavar="ID", envvar="SPECDEC_TARGET", show_envvar=False, help="Target: a local folder or a Hub id."),
]
DraftModel = Annotated[
    str | None,
    typer.Option(
        "--draft", metavar="ID", envvar="SPECDEC_DRAFT", show_envvar=False, help="Draft: a local folder or a Hub id."
    ),
]
KOrAuto = Annotated[
    str | None,
    typer.Option(
        "--num-draft-tokens",
        "-k",
        metavar="N|auto",
        envvar="SPECDEC_K",
        show_envvar=False,
        help=f"Tokens drafted per round, 0 to {MAX_K}; 0 is plain decoding, auto adapts every round.",
        show_default="the pair's",
    ),
]
MaxTokens = Annotated[
    int,
    typer.Option(
        "--max-tokens",
        "-n",
        callback=within("-n", 1),
        metavar="N",
        envvar="SPECDEC_MAX_TOKENS",
        show_envvar=False,
        help="Longest answer, in tokens.",
    ),
]
Stop = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Stop before this text; repeatable.")]
System = Annotated[str | None, typer.Option("--system", "-s", metavar="TEXT", help="System message.")]
Raw = Annotated[bool, typer.Option("--raw", help="Continue the prompt's own text: no chat template.")]
Json = Annotated[bool, typer.Option("--json", help="Events as JSON Lines on stdout instead of text.")]
Panel = Annotated[
    bool | None,
    typer.Option("--panel/--no-panel", help="The live panel.", show_default="where stderr is a terminal"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="The answer only: no panel, no summary.")]
Plain = Annotated[
    bool,
    typer.Option(
        "--plain", envvar="SPECDEC_PLAIN", show_envvar=False, help="No control codes at all.", rich_help_panel=ADVANCED
    ),
]
DrafterName = Annotated[
    str | None,
    typer.Option(
        "--drafter",
        metavar="NAME",
        envvar="SPECDEC_DRAFTER",
        show_envvar=False,
        help="Who drafts: model, ngram (the text itself), auto (the better of both), none.",
        show_default="model",
        rich_help_panel=ADVANCED,
    ),
]
Temp = Annotated[
    float | None,
    typer.Option(
        metavar="T",
        envvar="SPECDEC_TEMP",
        show_envvar=False,
        help="Temperature; 0 is greedy.",
        show_default="the target's own",
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        metavar="P",
        envvar="SPECDEC_TOP_P",
        show_envvar=False,
        help="Sample from the best tokens that hold this mass.",
        show_default="the target's own",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        envvar="SPECDEC_SEED",
        show_envvar=False,
        help="Same seed, same text, for every K and drafter (rule coupled).",
        show_default="a new one",
    ),
]
Rule = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        callback=one_name("--rule", rule_names()),
        envvar="SPECDEC_RULE",
        show_envvar=False,
        help="Above temperature 0: token, block, coupled or match; auto is coupled under --seed, else block.",
        rich_help_panel=ADVANCED,
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        envvar="SPECDEC_TOP_K",
        show_envvar=False,
        help="Sample from the N best tokens.",
        show_default="the target's own",
        rich_help_panel=ADVANCED,
    ),
]
MinP = Annotated[
    float | None,
    typer.Option(
        metavar="P",
        envvar="SPECDEC_MIN_P",
        show_envvar=False,
        help="Leave out tokens less likely than this share of the best.",
        show_default="the target's own",
        rich_help_panel=ADVANCED,
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        envvar="SPECDEC_REPETITION_PENALTY",
        show_envvar=False,
        help="Over 1: tokens already in prompt or answer lose.",
        show_default="the target's own",
        rich_help_panel=ADVANCED,
    ),
]
PresencePenalty = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        envvar="SPECDEC_PRESENCE_PENALTY",
        show_envvar=False,
        help="Taken from the logits of tokens the answer has used.",
        show_default="the target's own",
        rich_help_panel=ADVANCED,
    ),
]
FrequencyPenalty = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        envvar="SPECDEC_FREQUENCY_PENALTY",
        show_envvar=False,
        help="The same, times how often.",
        show_default="the target's own",
        rich_help_panel=ADVANCED,
    ),
]
LogitBias = Annotated[
    list[str] | None,
    typer.Option(metavar="ID=V", help="Add V to a token's logit; repeatable.", rich_help_panel=ADVANCED),
]
TargetRevision = Annotated[
    str | None, typer.Option(metavar="REV", help="Pin the target to a commit.", rich_help_panel=ADVANCED)
]
DraftRevision = Annotated[
    str | None, typer.Option(metavar="REV", help="Pin the draft to a commit.", rich_help_panel=ADVANCED)
]
MaxContext = Annotated[
    int | None,
    typer.Option(
        callback=within("--max-context", 1),
        metavar="N",
        envvar="SPECDEC_MAX_CONTEXT",
        show_envvar=False,
        help="Prompt and answer together, in tokens.",
        show_default="the models' own",
        rich_help_panel=ADVANCED,
    ),
]
KvBits = Annotated[
    int | None,
    typer.Option(
        "--kv-bits",
        callback=one_of("--kv-bits", KV_BITS),
        metavar="N",
        envvar="SPECDEC_KV_BITS",
        show_envvar=False,
        help=f"Quantize the KV caches to N bits: {', '.join(map(str, KV_BITS))}.",
        show_default="off",
        rich_help_panel=ADVANCED,
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the JSON Lines to FILE as well.", rich_help_panel=ADVANCED),
]
Offline = Annotated[
    bool, typer.Option("--offline", envvar="SPECDEC_OFFLINE", show_envvar=False, help="No network call at all.")
]
Force = Annotated[bool, typer.Option("--force", help="Go on although it does not fit.", rich_help_panel=ADVANCED)]
