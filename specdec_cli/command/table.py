"""The table of options. From a row come the option itself, its line in every help, and its variable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import TyperGroup

from specdec_cli.core.errors import SpecdecError, UsageError
from specdec_cli.core.kinds import DEFAULT_DRAFTER, DRAFTERS, HEADS, MODEL, RULES, TRAINED, rule_names
from specdec_cli.core.request import BOUNDS, DEFAULT_K, KV_BITS, MAX_K, one_name, one_of, within
from specdec_cli.core.template import THINK_WORDS
from specdec_cli.session.conversation import OVERFLOWS

PREFIX = "SPECDEC_"
# Of whom `specdec serve --print-config` knows the settings.
CLIENTS = ("codex", "claude", "opencode", "qwen-code", "continue", "zed", "aider", "llm")
# Those to choose between; what is another's kind by itself has nothing to be told.
CHOSEN = [kind for kind in DRAFTERS.values() if kind.about]
CONTENDERS = tuple(kind.name for kind in CHOSEN if kind.drafts)
DOCUMENTS = Path(__file__).parents[1] / "docs"


def named(drafters: Iterable[str]) -> str:
    """Names of `drafters` in a line: the kinds of heads, which the pair's draft brings, are one."""
    return f"{', '.join(name for name in drafters if name not in HEADS)}, or a head"


def documents() -> dict[str, Path]:
    """The documents by their topics, sorted."""
    return {path.stem: path for path in sorted(DOCUMENTS.glob("*.md"))}


def pair_names(incomplete: str) -> list[str]:
    """Names in both models.toml, in their order."""
    from specdec_cli.pairs.registry import load_registry, packaged_file, user_file

    try:
        known = load_registry(packaged_file(), user_file())
    except SpecdecError:
        return []
    return [name for name in known.pairs if name.startswith(incomplete)]


class _Completion(str):
    """One that is offered in whatever case it was begun: Typer asks this of each."""

    __slots__ = ()

    def startswith(self, *_: object) -> bool:
        return True


def complete_models(incomplete: str) -> list[str]:
    """Pairs and models in any case, those that are here first; those too large for this machine are left out."""
    from specdec_cli.pairs.catalog import other_rows, registry, rows

    try:
        listed = rows(known := registry())
        every = [row for row in (*listed, *other_rows(known, listed)) if row.fits is not False]
    except SpecdecError:
        return []
    usable = [row for row in every if row.downloaded or row.folder is None]
    names = {row.pair.name: row.downloaded for row in usable}
    names |= {row.pair.target: True for row in usable if row.folder and "/" in incomplete}
    found = [_Completion(name) for name in names if name.lower().startswith(incomplete.lower())]
    return sorted(found, key=lambda name: not names[name])


def complete_kinds(incomplete: str) -> list[str]:
    """Kinds of bundled prompts; of several, with commas between them, the last."""
    from specdec_cli.measure.prompts import KINDS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{kind}" for kind in KINDS if kind.startswith(last) and kind not in before.split(",")]


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """Documents and commands that begin as typed."""
    commands = cast(TyperGroup, context.find_root().command).commands
    return [name for name in sorted({*documents(), *commands}) if name.startswith(incomplete)]


def complete_from(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Any of `names`."""
    known = tuple(names)
    return lambda incomplete: [name for name in known if name.startswith(incomplete)]


@dataclass(frozen=True, slots=True)
class Row:
    """One option (`-n, --max-tokens N`) or argument (`PROMPT`), as a help spells it.

    `env`: its variable without SPECDEC_. `more`: sentences for `specdec help COMMAND`, where alone a `rare` one is.
    `default`: what holds where nothing is given, if the command's default is no value. A `setting` is no option: the
    config, a preset or its variable says it.
    A value is a whole number from `low` to `high`, one of `names`, or what `check` lets pass.
    `of`: the commands that have a row of their own. `name`: the parameter's, if it is not the last spelling.
    """

    spelled: str
    help: str
    env: str = ""
    more: str = ""
    default: str = ""
    rare: bool = False
    setting: bool = False
    low: int | None = None
    high: int | None = None
    names: tuple[str, ...] = ()
    check: Callable[[Any], Any] | None = None
    complete: Callable[..., list[str]] | None = None
    of: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        last = [*self.spelled.split()[:1], *self.flags][-1]
        object.__setattr__(self, "name", self.name or last.split("/")[0].strip("-").replace("-", "_").lower())

    @property
    def flags(self) -> list[str]:
        """As it may be typed: `-n`, `--max-tokens`; none of an argument."""
        return [word.rstrip(",") for word in self.spelled.split() if word.startswith("-")]

    @property
    def spellings(self) -> set[str]:
        """Every one of them alone: of a switch `--panel` and `--no-panel`."""
        return {one for flag in self.flags for one in flag.split("/")}

    @property
    def variable(self) -> str | None:
        """The variable that sets its default, if any."""
        return PREFIX + self.env if self.env else None

    @property
    def metavar(self) -> str:
        """What stands for its value, empty of a switch."""
        return " ".join(word for word in self.spelled.split() if not word.startswith("-"))

    @property
    def checks(self) -> Callable[..., Any] | None:
        """What refuses a wrong value."""
        if self.low is not None:
            return within(self.flags[0], self.low, self.high)
        if not self.names:
            return self.check
        known = one_name(self.flags[0], self.names)
        return lambda value: value if value is None else known(value)

    def parameter(self, **more: Any) -> Any:
        """What Typer reads beside the type."""
        complete = self.complete or (complete_from(self.names) if self.names else None)
        more = {"callback": self.checks, "autocompletion": complete, "metavar": self.metavar or None, **more}
        if not self.flags:
            return typer.Argument(help=self.help, **more)
        return typer.Option(*self.flags, help=self.help, envvar=self.variable, **more)


# fmt: off
TARGETS = "the target's own"
HOSTS = Row("--hosts A,B", "Machines that share the target, this one first",
            more="Names or addresses for ssh; specdec help several-machines.")
# Sections and their rows, in the order of the helps.
TABLE: Mapping[str, tuple[Row, ...]] = {
    "Arguments": (
        Row("MODEL", "The pair or model that answers, as after -p", complete=complete_models),
        Row("PROMPT", "The prompt; stdin and --file come before it"),
        Row("PROMPT", "The first message, sent before you type", of="chat"),
        Row("PROMPT", "The prompt; stdin comes before it", of="race"),
        Row("NAME", "A pair from models.toml", complete=pair_names),
        Row("NAME", "A pair, or a target's Hub id or folder", complete=complete_models, of="check pull"),
        Row("NAME", "A name for the pair", of="add"),
        Row("NAME", "A pair, or a model's Hub id", complete=pair_names, of="rm"),
        Row("FILE", "What --trace or --json wrote", of="replay"),
        Row("TOPIC", "A document, or a command", complete=topics),
        Row("SERVER", "Its pid, port or pair; else the only one"),
        Row("N", "A chat's number, as specdec chats lists it", name="number"),
        Row("SETTING", "A setting's name, or presets.NAME.SETTING"),
        Row("VALUE", "Its value; without one, the setting is removed"),
    ),
    "Options": (
        Row("-f, --file FILE", "Read a prompt from FILE; PROMPT follows it"),
        Row("-c, --continue", "Continue the chat that was kept last", name="last"),
        Row("-t, --preset NAME", "Settings of that name in your config.toml", rare=True),
        Row("-s, --system TEXT", "System message", "SYSTEM"),
        Row("--think HOW", "How hard to think: on, off, low, medium, high", "THINK", names=THINK_WORDS),
        Row("-n, --max-tokens N", "Longest answer in tokens", "MAX_TOKENS", low=1),
        Row("-n, --max-tokens N", "Longest answer in tokens", default="128, fewer where the budget demands",
            rare=True, low=8, of="bench"),
        Row("--stop TEXT", "Stop before this text; repeatable", rare=True),
        Row("--stop-repetition N", "Stop when the last N tokens repeat one phrase", "STOP_REPETITION", "0 never stops.",
            "the pair's, else 0", setting=True, low=0),
        Row("--raw", "Continue the text itself: no chat template"),
        Row("--kinds KIND,…", "Kinds of bundled prompts", default="all seven", complete=complete_kinds),
        Row("--prompts FILE", "Your own prompts: lines, or JSON Lines", default="bundled ones"),
        Row("--time-budget TIME", "Time to measure: 90s, 2m, 1h",
            more="Loading is left out, and three prompts of a bench are measured in any case."),
        Row("--cooldown TIME", "Rest before every answer", rare=True),
        Row("--fixed-length", "Answers never stop early, which changes them", rare=True),
        Row("--gap X", "Largest gap that counts as a near-tie", default="the largest change measured", rare=True),
        Row("--write", "Put the recommended K into your models.toml"),
        Row("--text PATH", "Your text, a file or a folder; repeatable"),
        Row("--chats", "Your kept chats instead"),
        Row("--what WHAT", "Train draft, head, or medusa: new heads", default="what drafts", names=TRAINED),
        Row("--minutes N", "Longest time for training", low=1,
            more="With the target's own words; measuring before and after takes as long at most."),
        Row("--predict-only", "Only say how much could be gained"),
        Row("--out NAME", "A name for the tuned pair", default="PAIR-tuned"),
        Row("--write", "Put the tuned pair into your models.toml", of="tune"),
        Row("--selftest", "Test here that rollback changes nothing",
            more="With small models of eight kinds, in 16 and 4 bits."),
        Row("--speed X", "Play X times as fast; inf does not wait", default="1; inf into a pipe"),
        Row("-a, --all", "List also the pairs that need more memory", name="every"),
        Row("-a, --all", "End every server", name="every", of="stop"),
        Row("--all", "Delete every kept chat", of="delete", name="every"),
        Row("-a, --all", "List also what is at its default", of="show", name="every"),
        Row("--verify", "Compare every file's checksum with the Hub's"),
        Row("--print-config CLIENT", "Print a client's settings, and end", more=f"One of {', '.join(CLIENTS)}.",
            names=CLIENTS, name="config"),
        Row("--detach", "Run in the background; specdec stop ends it"),
        Row("--switch", "Load whatever local pair a request names"),
        Row("--parallel N", "Answers at the same time; others wait", "PARALLEL", low=1),
        Row("--idle-unload TIME", "Idle time before models unload", "IDLE_UNLOAD", "never keeps them."),
        Row("--slots N", "Conversations whose caches are kept", "SLOTS", default="16", setting=True, low=1),
        Row("--cache-bytes N", "Memory for the caches of kept conversations", "CACHE_BYTES",
            default="half of the memory left", setting=True, low=1),
        Row("--cache-disk SIZE|off", "Disk for what was read, so that a restart reads less", "CACHE_DISK",
            "Private text is kept as token ids; specdec rm disk-cache removes all.", "off", rare=True),
        Row("--cache-disk SIZE|off", "Disk for what was read of kept chats", "CACHE_DISK",
            default="8 GB, at most 2 % of what is free", setting=True, of="chat"),
        Row("-y, --yes", "Do not ask"),
        Row("--json", "Print JSON instead of text",
            more="Answers, races and self-tests are JSON Lines of events or results; everything else is one value."),
        Row("-q, --quiet", "Print results only: no panel, no summary"),
        Row("-q, --quiet", "Print errors only: no line per reply", of="serve"),
        Row("--version", "Print the version", name="show"),
        Row("--install-completion", "Complete words in this shell from now on"),
        Row("--show-completion", "Print what --install-completion installs"),
        Row("-h, --help", "Print this help"),
    ),
    "Models": (
        Row("-p, -m, --model, --pair NAME", "A pair, or a target's Hub id or folder", "PAIR",
            complete=complete_models),
        Row("-p, -m, --model, --pair NAME", "The same as NAME", complete=pair_names, of="check pull rm use remove"),
        Row("--target ID", "Target: a Hub id or a local folder", "TARGET"),
        Row("--draft ID", "Draft: a Hub id or a local folder", "DRAFT"),
        Row("--draft ID", "Draft to try: a Hub id or folder; repeatable", of="bench"),
        Row("--target-revision REV", "Pin the target to a commit"),
        Row("--draft-revision REV", "Pin the draft to a commit"),
        Row("--head-from ID", "Draft with the MTP head of ID, its original"),
        Row("--adapter FOLDER", "LoRA adapter of the target"),
        Row("--draft-adapter FOLDER", "LoRA adapter of the draft"),
        Row("--max-context N", "Most tokens of prompt and answer together", "MAX_CONTEXT",
            default="what the models were made for", rare=True, low=1),
        Row("--on-overflow NAME", "When the context is full", "ON_OVERFLOW", f"{' or '.join(OVERFLOWS)}.",
            setting=True, names=OVERFLOWS),
        Row("--kv-bits N", "Quantize the KV caches to 2, 4 or 8 bits", "KV_BITS", default="off",
            rare=True, check=one_of("--kv-bits", KV_BITS)),
        HOSTS,
        replace(HOSTS, rare=True, of="chat"),
        Row("--force", "Go ahead even if it does not fit", rare=True),
        Row("--force", "Make it the default even if it is not here", of="use"),
    ),
    "Drafting": (
        Row("-k, --num-draft-tokens N|auto", f"Tokens drafted per round: 0 to {MAX_K}, or auto", "K",
            "0 is plain decoding, auto adapts every round.", "the pair's", name="k"),
        Row("-k, --num-draft-tokens LIST", "Draft lengths to compare, as in 1,4,auto", "K",
            default=f"the pair's, else {DEFAULT_K}", of="audit", name="k"),
        Row("-k, --num-draft-tokens LIST", "Draft lengths to try",
            more=f"Numbers, ranges, auto; at most {MAX_K}. 0, the baseline, is always there.", of="bench", name="k"),
        Row("--drafter NAME", f"One of {named(kind.name for kind in CHOSEN)}", "DRAFTER",
            "; ".join(f"{kind.name}: {kind.about}" for kind in CHOSEN) + ".", DEFAULT_DRAFTER,
            names=tuple(DRAFTERS), complete=complete_from([kind.name for kind in CHOSEN])),
        Row("--drafter NAME", f"Any of {named(CONTENDERS)}", more="Repeatable.", default=MODEL.name,
            complete=complete_from(CONTENDERS), name="drafters"),
        Row("--rule NAME", "How a draft is accepted", "RULE",
            f"Above temperature 0: {', '.join(RULES)}; auto is coupled under --seed, else block.", rare=True,
            names=rule_names()),
        Row("--rule NAME", "How a draft is accepted",
            more="auto is coupled. Under token and block, acceptance comes from real runs.", rare=True,
            names=rule_names(), of="bench"),
        Row("--predict FILE", "Draft from a file the answer will resemble",
            more="For example one to edit; it is never shown to the model.", rare=True),
        Row("--draft-context N|full", "The part of a long context that the draft reads", "DRAFT_CONTEXT",
            "Its last N tokens, of which it holds at most about 2 N; full: all.", "the pair's", setting=True),
    ),
    "Sampling": (
        Row("--temp T", "Temperature; 0 is greedy", "TEMP", default=TARGETS),
        Row("--temp T", "Temperature of the coupled answers", more="0 leaves them out.", of="audit"),
        Row("--temp T", "Temperature; repeatable", default="0", name="temps"),
        Row("--seed N", "Same seed, same text, at every K", "SEED",
            "Up to rounding, and whoever drafts (rule coupled).", "a new one"),
        Row("--seed N", "Seed of every draw", rare=True, of="audit bench"),
        Row("--seed N", "Seed of the split and of every draw", of="tune"),
        Row("--top-p P", "Sample from the best tokens with total mass P", "TOP_P", default=TARGETS, rare=True),
        Row("--top-k N", "Sample from the N best tokens", "TOP_K", default=TARGETS, rare=True),
        Row("--min-p P", "Drop tokens less likely than P times the best", "MIN_P", default=TARGETS, setting=True),
        Row("--repetition-penalty X", "Make tokens seen so far less likely; 1 is off", "REPETITION_PENALTY",
            default=TARGETS, setting=True),
        Row("--presence-penalty X", "Subtract X from the logits of tokens used so far", "PRESENCE_PENALTY",
            "In the answer, not in the prompt.", TARGETS, setting=True),
        Row("--frequency-penalty X", "The same, once for each use of a token", "FREQUENCY_PENALTY", default=TARGETS,
            setting=True),
        Row("--logit-bias ID=V", "Add V to a token's logit; several with spaces", "LOGIT_BIAS", default="none",
            setting=True),
    ),
    "Shape": (
        Row("--schema FILE|JSON", "The answer is JSON of this JSON schema"),
        Row("--regex RE", "The answer matches RE as a whole", rare=True),
        Row("--grammar FILE", "The answer is of this grammar", more="In llguidance's Lark.", rare=True),
    ),
    "Display": (
        Row("--panel/--no-panel", "Show or hide the live panel", "PANEL",
            default="where stderr is a terminal", rare=True),
        Row("--colour-answer/--no-colour-answer", "Show by colour who wrote a token", "COLOUR_ANSWER",
            "Above the panel: what the draft guessed right in green, the target's own tokens in bold violet.",
            "on", setting=True),
        Row("--rounds", "Print every round as a line on stderr", "ROUNDS",
            "What was drafted, accepted, rejected and written instead.", rare=True),
        Row("-v, --verbose", "Print speeds, and what a round costs and yields", rare=True),
        Row("--plain", "Print no control codes, not even colours", "PLAIN", rare=True),
    ),
    "Files": (
        Row("--save FILE", "Write the conversation to FILE, every turn"),
        Row("--resume FILE|N", "Continue a saved conversation", more="N is the number of a kept chat."),
        Row("--private", "Keep neither the chat nor what you typed", "PRIVATE"),
        Row("--trace FILE", "Write all events to FILE, as JSON Lines"),
        Row("--export FILE", "Write the result to FILE; repeatable",
            more="Of a bench .json, or .html, a page; of a race .svg, a picture."),
        Row("--svg FILE", "Write text and rounds as a picture instead"),
        Row("--log FILE", "Write every prompt and answer to FILE", more="As JSON Lines."),
    ),
    "Network": (
        Row("--host ADDRESS", "Interface to listen on", "HOST", "Any but this machine's own needs a key."),
        Row("--port N", "Port; 0 takes a free one", "PORT", low=0, high=65_535),
        Row("--api-key-file FILE", "File with the key that clients must send", more=f"Else {PREFIX}API_KEY."),
        Row("--allow-origin URL", "A web page that may use the server; repeatable", rare=True),
        Row("--allow-host NAME[:PORT]", "Another name that clients find it by; repeatable", rare=True),
        Row("--offline", "Make no network calls", "OFFLINE", rare=True),
    ),
}
# What a command does not take, and who does; what is a setting is not in it.
KEPT_BY_A_PAIR = "a pair keeps it: specdec pairs add NAME --target ID {} …, then -p NAME"
SHAPE = "specdec run and chat hold an answer to a shape"
MOVED: Mapping[str, str] = {
    "--target-revision": KEPT_BY_A_PAIR.format("--target-revision COMMIT"),
    "--draft-revision": KEPT_BY_A_PAIR.format("--draft ID --draft-revision COMMIT"),
    "--adapter": KEPT_BY_A_PAIR.format("--adapter FOLDER"),
    "--draft-adapter": KEPT_BY_A_PAIR.format("--draft ID --draft-adapter FOLDER"),
    "--head-from": KEPT_BY_A_PAIR.format("--head-from ID"),
    "--hostfile": "--hosts A,B; over Thunderbolt (jaccl): specdec help several-machines",
    "--private": "specdec chat --private",
    **dict.fromkeys(("--panel", "--no-panel"), "leave it out: no panel is drawn here"),
    "--schema": SHAPE, "--regex": SHAPE, "--grammar": SHAPE,
}
# fmt: on
ROWS = {f"{command}.{row.name}": row for rows in TABLE.values() for row in rows for command in row.of.split() or [""]}

# What the config may set: options with a variable. Those that name models are a pair's (`pairs add`).
OF_A_PAIR = ("target", "draft")
SETTINGS = {row.name: row for row in ROWS.values() if row.variable and not row.of and row.name not in OF_A_PAIR}


def row_of(command: str, parameter: str) -> Row:
    """What the table says of a command's parameter."""
    return ROWS.get(f"{command}.{parameter}") or ROWS[f".{parameter}"]


def is_setting(command: str, parameter: str) -> bool:
    """Whether the config may set this parameter of the command."""
    return parameter in SETTINGS and row_of(command, parameter).variable is not None


def variables() -> dict[str, set[str]]:
    """Every variable that is the default of an option -> the spellings of that option."""
    found: dict[str, set[str]] = {}
    for row in ROWS.values():
        if row.variable:
            found.setdefault(row.variable, set()).update(row.spellings)
    return found


def require_values(arguments: Sequence[str]) -> None:
    """Refuse an option that is given an empty value, as a shell's variable is that nobody set; --system may be empty.

    Raises: UsageError.
    """
    own = [row for row in ROWS.values() if not row.of or {*arguments[:2]} & {*row.of.split()}]
    rows = [row for row in own if row.metavar and row.name != "system"]
    metavars = {flag: row.metavar for row in rows for flag in row.flags}
    words = takewhile(lambda word: word != "--", arguments)
    for word, after in pairwise([*words, "the end"]):
        option, equals, value = word.partition("=")
        if option in metavars and not (value if equals else after):
            raise UsageError(f"{option} is empty", f"leave it out, or give it a value: {option} {metavars[option]}")


def moved(option: str) -> str:
    """What there is instead of an option that a command does not take; empty where nobody takes it."""
    if option in MOVED:
        return MOVED[option]
    row = next((row for row in SETTINGS.values() if row.setting and option in row.spellings), None)
    if row is None:
        return ""
    value = row.metavar or str(not option.startswith("--no-")).lower()
    asked = "; or in a request to specdec serve" if row.name in BOUNDS or row.name == "logit_bias" else ""
    return f"specdec config set {row.name} {value}, or {row.variable}={value} for one command{asked}"
