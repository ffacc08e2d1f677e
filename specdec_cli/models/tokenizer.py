"""The only module that imports transformers and mlx-lm's tokenizers. It never runs repository code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from inspect import signature
from pathlib import Path
from typing import Any

from mlx_lm.utils import load_tokenizer
from transformers import CONFIG_MAPPING, PreTrainedConfig

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import NotAvailable, SpecdecError, UsageError, untrusted
from specdec_cli.core.readfile import read_file
from specdec_cli.core.safetensors import refuse_pointer
from specdec_cli.core.template import GIVEN, NO_VALUES, TEMPLATES_FOLDER, TemplateValues, names_read, nearest_effort
from specdec_cli.models.call_forms import CallForm, ends_of, form_of
from specdec_cli.models.checkpoint import Checkpoint, stop_ids
from specdec_cli.models.text import Thinking
from specdec_cli.models.tokenizer_files import read_alike, tokenizer_files
from specdec_cli.models.tool_calls import MarkedCalls, ToolCall
from specdec_cli.models.turns import ASSISTANT, Message, acceptable, holds_all_words, joined
from specdec_cli.models.vocab import (
    Spellings,
    TokenTable,
    byte_level,
    is_fallback,
    require_characters,
    sentence_piece,
    token_bytes,
    unused_marks,
)

Between = Callable[[int], None]
"""Called before a text is encoded with the number of tokens that it has at least; what it raises ends the encoding."""

# gpt-oss answers in channels; mlx-lm knows no tags for them.
CHANNELS = Thinking("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>")
# A character that merges with none: SentencePiece puts its space before the first one of a text.
ANCHOR = "\u263a"
# What a decoder puts in the place of bytes that form no character.
UNREADABLE = "\ufffd"
# What transformers makes a tokenizer of, the likeliest first: files that are a whole one, then two that are together.
WHOLE = ("tokenizer.json", "tekken.json", "*.model", "*.tiktoken", "vocab.txt", "*.vocab")
IN_PARTS = ("vocab.json", "merges.txt")


# The backend counts ids in 32 bits.
MOST_IDS = 1 << 32


def unwatched(tokens: int) -> None:
    """A `Between` that lets every text be encoded."""


class Tokenizer:
    """One model's tokenizer with its chat template and stop tokens."""

    def __init__(self, wrapper: Any) -> None:
        """Raises: ValueError for one without a fast backend."""
        self._wrapper = wrapper
        self._inner = wrapper._tokenizer
        if not hasattr(self._inner, "backend_tokenizer"):
            raise ValueError("it has no tokenizer.json")
        self._backend: Any = self._inner.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        ends = filter(None, map(self.token_of, ends_of(lambda text: self.token_of(text) is not None)))
        self.stop_tokens: frozenset[int] = frozenset(wrapper.eos_token_ids).union(ends)

    @classmethod
    def load(cls, folder: Path, name: str, config: Mapping[str, Any]) -> Tokenizer:
        """The tokenizer in `folder`; `config` is the model's, for its end-of-sequence ids.

        Raises: NotAvailable if there is none or it cannot be read.
        """
        ends, file = stop_ids(folder, name, config), _main_file(folder, name)

        def refused(reason: str) -> SpecdecError:
            reason = _damaged_file(folder) or f"{file.name}: {reason}"
            return NotAvailable(f"the tokenizer of {name} cannot be read: {reason}", "download the model again")

        with untrusted(refused):
            return _load(folder, _state(folder), _class_names(config), None if ends is None else tuple(ends))

    @classmethod
    def of(cls, model: Checkpoint) -> Tokenizer:
        """As `load`."""
        return cls.load(model.folder, model.name, model.config)

    def or_of(self, model: Checkpoint, draft: Checkpoint) -> Tokenizer:
        """The tokenizer of `draft`: this one, of `model`, where files, type and ends are the same, byte for byte.

        One of 262,144 tokens takes seconds to read; templates say nothing about ids.
        """
        both = [(one.model_type, stop_ids(one.folder, one.name, one.config)) for one in (model, draft)]
        alike = both[0] == both[1] and read_alike(model.folder, draft.folder)
        return self if alike else Tokenizer.of(draft)

    @property
    def has_template(self) -> bool:
        return bool(self._wrapper.has_chat_template) and self._inner.chat_template != ""

    def encode(self, text: str, between: Between = unwatched) -> list[int]:
        """Ids of plain text, with the begin-of-sequence token where the model wants one.

        `between` is told how long the text is at least, and may end its encoding.
        Raises: UsageError for text with a byte that is not UTF-8.
        """
        return [*self._begin(text), *self.continuation(text, between)]

    def _begin(self, text: str) -> list[int]:
        """What stands before a text; nothing where the text brings it itself."""
        begin = self._frame
        brought = "".join(self._backend.id_to_token(token) or "" for token in begin)
        return [] if brought and text.startswith(brought) else begin

    def continuation(self, text: str, between: Between = unwatched) -> list[int]:
        """Ids of `text` alone, as it may follow any other; `between` and errors are those of `encode`."""
        require_characters(text)
        self._announce(len(text), between)
        # `encode` itself would keep all other threads waiting.
        (encoding,) = self._backend.encode_batch_fast([text], add_special_tokens=False)
        return list(encoding.ids)

    def _announce(self, characters: int, between: Between) -> None:
        """Tell how many tokens they are at least, where anybody listens: for the longest token a table is made."""
        if between is not unwatched:
            between(characters // self._longest_token)

    @cached_property
    def _longest_token(self) -> int:
        return max(map(len, self.table().tokens.values()))

    @cached_property
    def _frame(self) -> list[int]:
        """The special tokens before every text. Those behind it would end what is to be continued."""
        whole, bare = list(self._inner.encode("a")), list(self._inner.encode("a", add_special_tokens=False))
        at = next((i for i in range(len(whole) + 1) if whole[i : i + len(bare)] == bare), None)
        if at is None:
            raise ValueError("the special tokens around a text change its own")
        return whole[:at]

    def encode_after(self, text: str) -> list[int]:
        """Ids of a text that goes on after some other: nothing is put before it. Raises: as `encode`."""
        if self.is_byte_level:
            return self.continuation(text)
        return self.continuation(ANCHOR + text)[len(self.continuation(ANCHOR)) :]

    def join(self, messages: Sequence[Message], between: Between = unwatched) -> list[int]:
        """Ids of a conversation for a model without a chat template: the contents, between blank lines.

        Raises: UsageError for text with a byte that is not UTF-8.
        """
        mark = next(unused_marks(messages))
        texts = [{"role": message["role"], "content": str(message["content"])} for message in messages]
        parts = "\n\n".join(text["content"] for text in self._cut(texts, mark)).split(mark)
        return [*self._begin("".join(parts)), *self._encode_parts(parts, between)]

    def _encode_parts(self, parts: Sequence[str], between: Between) -> list[int]:
        """Ids of texts that follow each other, with no token across their borders."""
        self._announce(sum(map(len, parts)), between)
        ids: list[int] = []
        for part in parts:
            between(len(ids))
            ids += (self.encode_after if ids else self.continuation)(part)
        return ids

    def render(
        self,
        messages: Sequence[Message],
        values: TemplateValues = NO_VALUES,
        tools: Sequence[Mapping[str, Any]] = (),
        between: Between = unwatched,
    ) -> list[int]:
        """Ids of a conversation under the chat template, ready for the assistant's turn.

        A last message that is the assistant's is a beginning of its answer, to be continued, unless `values` say
        otherwise. `tools` are JSON schemas of functions, as the template expects them. Special tokens are the
        template's own: what spells one in a text is letters. But of what the assistant said earlier only the tokens
        that end an answer are certain to be letters; the others may be what it generated, and are read as such.
        Messages in an order that the template refuses, or of which it leaves something out, are given in another
        (`acceptable`). `between` is that of `encode`.
        Raises: UsageError if the template refuses all of these orders, or fails, if a message to be continued has no
        text or calls functions, and for text with a byte that is not UTF-8.
        """
        for message in messages:
            require_characters(str(message.get("content", "")))
        form = self.call_form
        if form is not None and (told := form.description(tools)):
            messages, tools = joined([{"role": "system", "content": told}, *messages]), ()
        if form is not None:
            messages = form.history(messages)
        marks = unused_marks(messages, tools, values.named)
        mark, end = next(marks), next(marks)
        special = self._special[0]
        more = special.cut(values.read_by(self.template_names), mark)
        if tools:
            more["tools"] = [special.cut(dict(tool), mark) for tool in tools]
        continued = values.turn == "last" or (values.turn is None and messages[-1]["role"] == ASSISTANT)
        if continued:
            require_continuable(messages[-1])
        more["add_generation_prompt"] = not continued and values.turn != "none"

        def refused(reason: str) -> SpecdecError:
            roles = ", ".join(str(message["role"]) for message in messages[:4]) + (", …" if len(messages) > 4 else "")
            return UsageError(
                f"the model's chat template refuses the messages {roles}: {reason}",
                "send other messages, or ask without a template: --raw",
            )

        def text_of(messages: Sequence[Message]) -> str:
            given = self._cut(messages, mark)
            if continued:
                mark_end(given[-1], end)
            text = self._templated(given, more)
            if continued and end not in text:
                raise ValueError("it leaves out the last one, which is to be continued")
            return text.rpartition(end)[0 if continued else 2]

        text = _in_some_order(messages, text_of, refused, mark)
        if (nearest := nearest_effort(more, self._template_reads[1])) != more:  # it does not refuse one, nor know it
            more = nearest
            text = _in_some_order(messages, text_of, refused, mark)
        return self._encode_parts(text.split(mark), between)

    def _templated(self, messages: Sequence[Message], more: Mapping[str, Any]) -> str:
        """What the template makes of them. mlx-lm's wrapper would decide whether to think, by the vocabulary."""
        if (program := self._wrapper._chat_template) is not None:
            return str(program(messages, **more))
        return str(self._inner.apply_chat_template(messages, tokenize=False, return_dict=False, **more))

    def _cut(self, messages: Sequence[Message], mark: str) -> list[dict[str, Any]]:
        """`messages` with `mark` inside what would be read as a special token."""
        special, ends = self._special
        return [(ends if m["role"] == ASSISTANT else special).cut(dict(m), mark) for m in messages]

    @cached_property
    def _special(self) -> tuple[Spellings, Spellings]:
        """(texts of special tokens and of those that end an answer, texts of the latter alone)."""
        added = self.added_tokens()
        ends = {text for token, (text, _) in added.items() if token in self.stop_tokens}
        special = {text for text, special in added.values() if special} | ends
        return Spellings(special), Spellings(ends)

    @cached_property
    def call_form(self) -> CallForm | None:
        """The form that its calls have: mlx-lm's where that has a parser for them, or ours; None if none is known."""
        start, parse = self._wrapper.tool_call_start, self._wrapper.tool_parser
        if start and parse is not None:
            return MarkedCalls((start, self._wrapper.tool_call_end or ""), parse)
        return form_of(self.template, "tools" in self._template_reads[0], lambda text: self.token_of(text) is not None)

    def token_of(self, text: str) -> int | None:
        """The one token that `text` is, if the vocabulary has such an entry."""
        found: int | None = self._backend.token_to_id(text)
        return found

    def added_tokens(self) -> dict[int, tuple[str, bool]]:
        """The tokens beside the vocabulary proper: id -> (text, whether it is special)."""
        return {token: (str(one), one.special) for token, one in self._inner.added_tokens_decoder.items()}

    @property
    def template_names(self) -> frozenset[str]:
        """The names of values that the chat template reads."""
        return self._template_reads[0] - GIVEN

    @cached_property
    def _template_reads(self) -> tuple[frozenset[str], frozenset[str]]:
        """(names of values that the template reads, texts that are written in it)."""
        if self._wrapper._chat_template is not None:  # one of mlx-lm's own, which is a function
            return frozenset(signature(self._wrapper._chat_template).parameters), frozenset()
        templates = self._inner.chat_template
        found = [
            names_read(text) for text in (templates.values() if isinstance(templates, dict) else [templates or ""])
        ]
        names, texts = (frozenset().union(*kind) for kind in zip(*found, strict=True))
        return frozenset(name for name in names if name[-6:] != "_token"), texts

    @property
    def template(self) -> str:
        """The chat template's own text; empty where there is none, or where it is a program."""
        text = self._inner.chat_template
        return text if isinstance(text, str) else ""

    def tool_calls(
        self, text: str, tools: Sequence[Mapping[str, Any]] = (), cut: bool = False
    ) -> tuple[str, list[ToolCall]]:
        """(`text` without its calls, the calls), as the parser of this form reads them; what it cannot read is text.

        `cut`: the model did not end it, so that arguments may be missing of its last call. Raises: UsageError if the
        model calls none.
        """
        if self.call_form is None:
            raise UsageError(
                "this model's template does not support tools", "use a model that was trained to call tools"
            )
        reader = self.call_form.reader(tools)
        pieces = [*reader.feed(text), *reader.finish(cut)]
        said = "".join(one[1] for one in pieces if not isinstance(one, ToolCall) and one[0] == "text")
        return said, [one for one in pieces if isinstance(one, ToolCall)]

    def thinking(self, prompt: Sequence[int]) -> Thinking | None:
        """The tags around the model's thinking, and whether `prompt` leaves them open; None if it has none.

        Anybody may write a tag, and behind it there is then the mark of another turn, which is a token of its own.
        """
        if self._wrapper.has_thinking:
            begin = self._wrapper.rfind_think_start(prompt)
            behind = prompt[begin + len(self._wrapper.think_start_tokens) :]
            opened = begin > self._wrapper.rfind_think_end(prompt) and self.added_tokens().keys().isdisjoint(behind)
            return Thinking(self._wrapper.think_start, self._wrapper.think_end, opened)
        marks = map(self.token_of, ("<|channel|>", "<|message|>", "<|start|>"))
        return None if None in marks else CHANNELS

    def to_json(self) -> str:
        """The tokenizer as `tokenizer.json` says it."""
        return str(self._backend.to_str())

    def stream(self, after: Sequence[int] = ()) -> TextStream:
        """A fresh text stream; `after` are ids the text continues (they decide about a leading space)."""
        return TextStream(self._backend, after)

    def piece(self, token: int) -> str:
        """One token on its own, as text; bytes that are no character show as U+FFFD."""
        text = self._backend.id_to_token(token) if 0 <= token < MOST_IDS else None
        if text is None:
            return ""
        return text if text in self._added else self._spelling(text).decode("utf-8", "replace")

    @property
    def size(self) -> int:
        """How many ids it has."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    def table(self) -> TokenTable:
        """ids -> bytes and roles, built once. Raises: NotAvailable for two strings of one kind with one id."""
        return self._table

    @cached_property
    def _table(self) -> TokenTable:
        try:
            tokens = token_bytes(self._inner.get_vocab(), self._added, self._spelling)
        except ValueError as error:
            raise NotAvailable(f"the tokenizer cannot be read: {error}", "download the model again") from error
        roles = {"bos": self._inner.bos_token_id, "eos": self._inner.eos_token_id}
        special = frozenset(token for token, (_, special) in self.added_tokens().items() if special)
        fallback = frozenset(token for text, token in self._inner.get_vocab().items() if is_fallback(text))
        return TokenTable(tokens, roles, special, frozenset() if self.is_byte_level else fallback)

    @cached_property
    def _added(self) -> frozenset[str]:
        """Those that mean their own text. Where spaces are spelled, a word of them is spelled all the same."""
        texts = self.added_tokens().values()
        return frozenset(text for text, special in texts if special or self.is_byte_level or "\u2581" not in text)

    @property
    def _spelling(self) -> Callable[[str], bytes]:
        return byte_level if self.is_byte_level else sentence_piece

    @cached_property
    def is_byte_level(self) -> bool:
        """Whether every token stands for bytes, so that no space is put before a text."""
        return "ByteLevel" in repr(self._backend.decoder)


def require_continuable(message: Message) -> None:
    """Raises: UsageError for a last message that cannot be continued."""
    if message.get("tool_calls"):
        raise UsageError("the last message calls functions, and their results are missing", "send them as messages")
    if not isinstance(message.get("content"), str):
        raise UsageError("the last message is the assistant's, and has no text to continue", "end with the user's")


def mark_end(message: dict[str, Any], end: str) -> None:
    """Put `end` behind its text."""
    if isinstance(message["content"], str):
        message["content"] += end
    else:
        message["content"][-1]["text"] += end


def _in_some_order(
    messages: Sequence[Message],
    text_of: Callable[[Sequence[Message]], str],
    refused: Callable[[str], SpecdecError],
    mark: str,
) -> str:
    """The text of the first order of `messages` that is rendered whole, else of the first that is rendered at all.

    Raises: `refused`, with what the template raised for them as they are.
    """
    texts: list[str] = []
    refusals: list[SpecdecError] = []
    for order in acceptable(messages):
        try:
            with untrusted(refused):
                texts.append(text_of(order))
        except SpecdecError as error:
            refusals.append(error)
            continue
        if holds_all_words(texts[-1].replace(mark, ""), order):
            return texts[-1]
    if not texts:
        raise refusals[0]
    return texts[0]


class TextStream:
    """Turns tokens into text as soon as it is certain, by huggingface's decoder; a character may span tokens.

    The pieces joined are the text of all tokens decoded at once, with one exception. A decoder with byte fallback
    takes a whole run of byte tokens back, a replacement character a byte, once the run as a whole is not UTF-8. What
    was shown of such a run stays, and each byte after it is U+FFFD, as if a run began there.
    """

    def __init__(self, backend: Any, preceding: Sequence[int]) -> None:
        self._backend = backend
        # A window that begins inside a character would be read otherwise than the whole.
        windows = (list(preceding)[-tokens:] for tokens in range(8, 12))
        clean = (window for window in windows if UNREADABLE not in self._decode(window))
        self._settle(next(clean, list(preceding)[-8:]))

    def step(self, token: int) -> str:
        """Text that `token` completed, often empty."""
        self._pending.append(token)
        text = self._decode(self._settled + self._pending)
        # It may be the beginning of a character. A token without text is context for the next one.
        return "" if text.endswith(UNREADABLE) or text == self._shown else self._take(text)

    def finish(self) -> str:
        """The rest; what is incomplete of a character is U+FFFD."""
        return self._take(self._decode(self._settled + self._pending)) if self._pending else ""

    def _take(self, text: str) -> str:
        """What the pending tokens add to the settled ones, as both are `text`; they are settled then."""
        # The first characters after a prompt may complete its last one.
        shown = next((s for s in (self._shown, self._shown.rstrip(UNREADABLE)) if text.startswith(s)), None)
        if shown is None:  # the decoder took back what was shown: the new tokens are read behind a letter
            pieces = (self._backend.id_to_token(token) or "" for token in self._pending)
            shown, text = "a", self._backend.decoder.decode(["a", *pieces])
        self._settle(self._pending)
        return text[len(shown) :]

    def _settle(self, tokens: list[int]) -> None:
        """`tokens` end with a character; what follows is decoded in their context."""
        self._settled, self._shown = tokens, self._decode(tokens)
        self._pending: list[int] = []

    def _decode(self, tokens: list[int]) -> str:
        text: str = self._backend.decode(tokens, skip_special_tokens=False)
        return text


Names = tuple[tuple[str, str], ...]


# Of a pair's two models: who chooses a draft has read what loading reads, and each reading parses megabytes of JSON.
@lru_cache(maxsize=2)
def _load(folder: Path, state: tuple[object, ...], names: Names, ends: tuple[int, ...] | None) -> Tokenizer:
    """The tokenizer in `folder`, whose files are in `state`. Raises: ValueError, and whatever transformers does."""
    options, templates = {"trust_remote_code": False, "config": _class_hints(folder, names)}, _templates(folder)
    if templates:
        options["chat_template"] = templates.get("tool_use") or next(iter(templates.values()))
    wrapper = load_tokenizer(folder, options, eos_token_ids=None if ends is None else list(ends))
    if len(templates) > 1:  # mlx-lm looks for the form of calls in one template alone
        wrapper._tokenizer.chat_template = templates
    tokenizer = Tokenizer(wrapper)
    if tokenizer.size <= sum(special for _, special in tokenizer.added_tokens().values()):
        raise ValueError("it has special tokens only, and none for a text")
    tokenizer.continuation("a")
    return tokenizer


def _templates(folder: Path) -> dict[str, str]:
    """Templates by name where there are several, or the one of a processor's file; empty where there is one, as usual.

    transformers reads the first by itself, and the second not for a text model. Raises: ValueError.
    """
    given = jsonfile.read_or_empty(folder / "tokenizer_config.json").get("chat_template")
    beside = {path.stem: read_file(path).decode() for path in sorted(folder.glob(f"{TEMPLATES_FOLDER}/*.jinja"))}
    if (main := folder / "chat_template.jinja").is_file():
        given = read_file(main).decode()
    if isinstance(given, str) and not beside:
        return {}
    if given is None:
        given = jsonfile.read_or_empty(folder / "chat_template.json").get("chat_template")
    if not isinstance(given, list):
        return ({"default": given} if isinstance(given, str) else {}) | beside
    named = ((one.get("name"), one.get("template")) for one in given if isinstance(one, dict))
    return {str(name): text for name, text in named if isinstance(text, str)} | beside


def _state(folder: Path) -> tuple[object, ...]:
    """Of every file its name, size and date; in a snapshot that is partly here, some lead nowhere."""
    paths = sorted([*folder.iterdir(), *folder.glob(f"{TEMPLATES_FOLDER}/*")])
    status = {path: path.stat() for path in paths if path.is_file()}
    return tuple((str(path), found.st_size, found.st_mtime_ns) for path, found in status.items())


def _class_names(config: Mapping[str, Any]) -> Names:
    """What transformers chooses a tokenizer's class by: the model's type, and the class its configuration names."""
    kind = str(config.get("model_type", ""))
    if kind == "mistral" and "layer_types" in config:  # as its AutoConfig does
        kind = "ministral"
    named = ((key, config[key]) for key in ("tokenizer_class", "model_name") if isinstance(config.get(key), str))
    return (("model_type", kind), *named)


def _class_hints(folder: Path, names: Names) -> Any:
    """A configuration of `names` alone: transformers checks all of config.json, and refuses what mlx-lm accepts."""
    kind = dict(names)["model_type"]
    known = CONFIG_MAPPING[kind] if kind in CONFIG_MAPPING else PreTrainedConfig  # noqa: SIM401 - its .get is empty
    hints = object.__new__(known)  # made without its values, it has none to refuse
    vars(hints).update(names, _name_or_path=str(folder))
    return hints


def _main_file(folder: Path, name: str) -> Path:
    """The file that the tokenizer is made of. Raises: NotAvailable, by name, if there is none, or an empty one."""
    there = (path for pattern in WHOLE for path in sorted(folder.glob(pattern)))
    found = [path for path in there if path.is_file() and path.name[0] != "."]
    parts = [folder / part for part in IN_PARTS]
    found += parts if all(part.is_file() for part in parts) else []
    if not found:
        hint = "put the model's own tokenizer.json beside its config.json, or download the model again"
        raise NotAvailable(f"no tokenizer in {name}: tokenizer.json is needed", hint)
    refuse_pointer(found[0])
    if not found[0].stat().st_size:
        message = f"the tokenizer of {name} cannot be read: {found[0].name} is empty (0 bytes)"
        raise NotAvailable(message, "download the model again")
    return found[0]


def _damaged_file(folder: Path) -> str:
    """The first of the tokenizer's JSON files that cannot be read, and why; empty if all can."""
    for path in (path for path in tokenizer_files(folder) if path.suffix == ".json"):
        try:
            jsonfile.read_object(path)
        except (OSError, jsonfile.NotJson) as error:
            return f"{path.name}: {error}"
    return ""
