"""The only door to transformers and to mlx-lm's tokenizers. It never runs repository code."""

from __future__ import annotations

import filecmp
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from mlx_lm.tokenizer_utils import NaiveStreamingDetokenizer
from mlx_lm.utils import load_tokenizer
from tokenizers.decoders import DecodeStream
from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers.utils import chat_template_utils

from specdec_cli import jsonfile
from specdec_cli.errors import NotAvailable, SpecdecError, UsageError, untrusted
from specdec_cli.models.checkpoint import stop_ids
from specdec_cli.models.pieces import Between, PieceEncoder, unwatched
from specdec_cli.models.template import BoundedEnvironment, Spellings, limited, unused_marks
from specdec_cli.models.text import Thinking
from specdec_cli.models.tool_calls import ToolCall, read_calls
from specdec_cli.models.vocab import TokenTable, byte_level, require_characters, sentence_piece, token_bytes

# Readers of a vocabulary keep a list as long as its largest id; the largest vocabularies have a million tokens.
MOST_ID = 10_000_000
LARGE = re.compile(rb'[:\s"]\d{8,}')
ID_FILES = ("tokenizer.json", "tokenizer_config.json", "added_tokens.json", "vocab.json")


def read_alike(one: Path, other: Path) -> bool:
    """Whether the files of two tokenizers are the same, byte for byte; templates say nothing about ids."""
    names, others = ({path.name for path in folder.iterdir() if _is_of_tokenizer(path)} for folder in (one, other))
    return names == others and all(filecmp.cmp(one / name, other / name, shallow=False) for name in names)


def _is_of_tokenizer(path: Path) -> bool:
    model = path.name in ("config.json", "generation_config.json") or path.name.endswith(".index.json")
    return path.is_file() and not model and path.suffix in (".json", ".model", ".txt", ".tiktoken")


def damaged_file(folder: Path) -> str:
    """The first of the tokenizer's JSON files that cannot be read, and why; empty if all can."""
    for path in sorted(folder.glob("*.json")):
        if path.name == "config.json" or path.name.endswith(".index.json"):
            continue
        try:
            jsonfile.parse_object(path.read_bytes())
        except OSError as error:
            return f"{path.name}: {error.strerror}"
        except jsonfile.NotJson as error:
            return f"{path.name}: {error}"
    return ""


def require_small_ids(folder: Path) -> None:
    """Raises: ValueError for an id above MOST_ID, before anything makes room for it; OSError."""
    for path in (folder / name for name in ID_FILES):
        data = path.read_bytes() if path.is_file() else b""
        if LARGE.search(data):  # few files have such a number, so few are read twice
            for text, token in _ids(jsonfile.parse_object(data)):
                if token > MOST_ID:
                    raise ValueError(f"{path.name} gives {text!r} the id {token}, and none is above {MOST_ID}")


def _ids(values: Mapping[str, Any]) -> Iterator[tuple[object, int]]:
    """(text, id) of every token that one of ID_FILES names."""
    model, added, decoder = (values.get(key) for key in ("model", "added_tokens", "added_tokens_decoder"))
    vocabulary = model.get("vocab") if isinstance(model, dict) else values
    found = list(vocabulary.items()) if isinstance(vocabulary, dict) else []
    found += [(one.get("content"), one.get("id")) for one in added or () if isinstance(one, dict)]
    if isinstance(decoder, dict):
        entries = [(one, int(key)) for key, one in decoder.items() if key.isdigit()]
        found += [(one.get("content") if isinstance(one, dict) else one, token) for one, token in entries]
    # The other whole numbers of a tokenizer's configuration, such as its longest text, are no ids.
    known = values.keys() if "tokenizer_class" in values or "model_max_length" in values else ()
    yield from ((text, token) for text, token in found if isinstance(token, int) and text not in known)


Message = Mapping[str, Any]
# gpt-oss answers in channels; mlx-lm knows no tags for them.
CHANNELS = Thinking("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>")
# A character that merges with none: SentencePiece puts its space before the first one of a text.
ANCHOR = "\u263a"
ASSISTANT = "assistant"


class TextStream(Protocol):
    """Turns tokens into text as soon as it is certain; a character may span tokens."""

    def step(self, token: int) -> str:
        """Text that `token` completed, often empty."""

    def finish(self) -> str:
        """The rest; an incomplete character is U+FFFD."""


class Tokenizer:
    """One model's tokenizer with its chat template and stop tokens."""

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper
        self._backend = getattr(wrapper._tokenizer, "backend_tokenizer", None)
        self._table: TokenTable | None = None
        self._pieces = self._backend and PieceEncoder(self._backend, lambda: self.table().tokens)
        self._spellings: tuple[Spellings, Spellings] | None = None
        self.stop_tokens: frozenset[int] = frozenset(wrapper.eos_token_ids)

    @classmethod
    def load(cls, folder: Path, name: str, config: Mapping[str, Any]) -> Tokenizer:
        """The tokenizer in `folder`; `config` is the model's, for its end-of-sequence ids.

        Raises: NotAvailable if there is none or it cannot be read.
        """
        ends = stop_ids(folder, name, config)

        def refused(reason: str) -> SpecdecError:
            reason = damaged_file(folder) or reason
            return NotAvailable(f"the tokenizer of {name} cannot be read: {reason}", "download the model again")

        with untrusted(refused):
            require_small_ids(folder)
            options = {"trust_remote_code": False, "config": _class_hints(folder, config)}
            tokenizer = cls(load_tokenizer(folder, options, eos_token_ids=ends))
            tokenizer.table()
            return tokenizer

    @property
    def has_template(self) -> bool:
        return bool(self._wrapper.has_chat_template)

    def encode(self, text: str, between: Between = unwatched) -> list[int]:
        """Ids of plain text, with the begin-of-sequence token where the model wants one.

        `between` is told how far a long text has come, and may end its encoding.

        Raises: UsageError for text with a byte that is not UTF-8.
        """
        begin, end = self._frame
        return [*begin, *self.continuation(text, between), *end]

    def continuation(self, text: str, between: Between = unwatched) -> list[int]:
        """Ids of `text` alone, as it may follow any other; `between` and errors are those of `encode`."""
        require_characters(text)
        if self._pieces is None:
            return list(self._wrapper._tokenizer.encode(text, add_special_tokens=False))
        return self._pieces.ids(text, between)

    @cached_property
    def _frame(self) -> tuple[list[int], list[int]]:
        """The special tokens before and behind every text."""
        encode = self._wrapper._tokenizer.encode
        whole, bare = list(encode("a")), list(encode("a", add_special_tokens=False))
        at = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
        return whole[:at], whole[at + len(bare) :]

    def encode_after(self, text: str, between: Between = unwatched) -> list[int]:
        """Ids of a text that goes on after some other: nothing is put before it. Raises: as `encode`."""
        if self.is_byte_level:
            return self.continuation(text, between)
        return self.continuation(ANCHOR + text, between)[len(self.continuation(ANCHOR)) :]

    def join(self, messages: Sequence[Message], between: Between = unwatched) -> list[int]:
        """Ids of a conversation for a model without a chat template: the contents, between blank lines.

        Raises: UsageError for text with a byte that is not UTF-8.
        """
        mark = next(unused_marks(messages))
        texts = [{"role": message["role"], "content": str(message["content"])} for message in messages]
        begin, end = self._frame
        parts = "\n\n".join(text["content"] for text in self._cut(texts, mark)).split(mark)
        return [*begin, *self._encode_parts(parts, between), *end]

    def _encode_parts(self, parts: Sequence[str], between: Between) -> list[int]:
        """Ids of texts that follow each other, with no token across their borders."""
        if self._pieces is not None:
            between(self._pieces.least_tokens("".join(parts)))
        ids: list[int] = []

        def look(tokens: int) -> None:
            between(known + tokens)

        for part in parts:
            known = len(ids)
            between(known)
            ids += (self.encode_after if known else self.continuation)(part, look)
        return ids

    def render(
        self,
        messages: Sequence[Message],
        thinks: bool = True,
        tools: Sequence[Mapping[str, Any]] = (),
        between: Between = unwatched,
    ) -> list[int]:
        """Ids of a conversation under the chat template, ready for the assistant's turn.

        A last message that is the assistant's is a beginning of its answer, to be continued. `tools` are JSON schemas
        of functions, as the template expects them. Special tokens are the template's own: what spells one in a text is
        letters. But of what the assistant said earlier only the tokens that end an answer are certain to be letters;
        the others may be what it generated, and are read as such. `between` is that of `encode`.

        Raises: UsageError if the template refuses these messages, as some do with a system message, if it fails or does
        not end, if a last message of the assistant's has no text or calls functions, and for text with a byte that is
        not UTF-8.
        """
        more: dict[str, Any] = {} if thinks else {"enable_thinking": False}
        for message in messages:
            require_characters(str(message.get("content", "")))

        def refused(reason: str) -> SpecdecError:
            roles = ", ".join(str(message["role"]) for message in messages[:4]) + (", …" if len(messages) > 4 else "")
            return UsageError(
                f"the model's chat template refuses the messages {roles}: {reason}",
                "leave out the system message, or ask without a template: --raw",
            )

        chat_template_utils.ImmutableSandboxedEnvironment = BoundedEnvironment
        with untrusted(refused):
            marks = unused_marks(messages, tools)
            mark, end = next(marks), next(marks)
            given = self._cut(messages, mark)
            if tools:
                more["tools"] = [self._special()[0].cut(dict(tool), mark) for tool in tools]
            begun = bool(given) and given[-1]["role"] == ASSISTANT
            if begun:
                given[-1] = _mark_beginning(given[-1], end)
            with limited():
                text = self._wrapper.apply_chat_template(given, add_generation_prompt=not begun, tokenize=False, **more)
            if begun and end not in text:
                raise ValueError("it leaves out the last one, which is to be continued")
        return self._encode_parts(text.rpartition(end)[0 if begun else 2].split(mark), between)

    def _cut(self, messages: Sequence[Message], mark: str) -> list[dict[str, Any]]:
        """`messages` with `mark` inside what would be read as a special token."""
        special, ends = self._special()
        return [(ends if m["role"] == ASSISTANT else special).cut(dict(m), mark) for m in messages]

    def _special(self) -> tuple[Spellings, Spellings]:
        """(texts of special tokens and of those that end an answer, texts of the latter alone)."""
        if self._spellings is None:
            added = self.added_tokens()
            ends = {text for token, (text, _) in added.items() if token in self.stop_tokens}
            special = {text for text, special in added.values() if special} | ends
            self._spellings = Spellings(special), Spellings(ends)
        return self._spellings

    @property
    def call_marks(self) -> tuple[str, str] | None:
        """What a call of a function begins and ends with, None where the model knows no calls; an end may be empty."""
        start, end = self._wrapper.tool_call_start, self._wrapper.tool_call_end
        return None if start is None or self._wrapper.tool_parser is None else (start, end or "")

    @property
    def call_format(self) -> str:
        """mlx-lm's name of the form that calls have, such as `json_tools`; empty where there is none."""
        parse = self._wrapper.tool_parser
        return "" if parse is None else str(parse.__module__).rpartition(".")[2]

    def token_of(self, text: str) -> int | None:
        """The one token that `text` is, if the vocabulary has such an entry."""
        if self._backend is None:
            found: int | None = self._wrapper._tokenizer.get_vocab().get(text)
        else:
            found = self._backend.token_to_id(text)
        return found

    def added_tokens(self) -> dict[int, tuple[str, bool]]:
        """The tokens beside the vocabulary proper: id -> (text, whether it is special)."""
        return {token: (str(one), one.special) for token, one in self._wrapper._tokenizer.added_tokens_decoder.items()}

    @property
    def template(self) -> str:
        """The chat template's own text; empty where there is none, or where it is a program."""
        text = self._wrapper._tokenizer.chat_template
        return text if isinstance(text, str) else ""

    def tool_calls(self, text: str, tools: Sequence[Mapping[str, Any]] = ()) -> tuple[str, list[ToolCall]]:
        """(`text` without its calls, the calls), as mlx-lm's parser for this model reads them.

        Raises: UsageError if the model has none, or if it wrote a call that cannot be read.
        """
        if self.call_marks is None:
            raise UsageError("this model's template knows no tools", "take a model that was trained to call tools")
        return read_calls(text, self.call_marks, self._wrapper.tool_parser, tools)

    def thinking(self, prompt: Sequence[int]) -> Thinking | None:
        """The tags around the model's thinking, and whether `prompt` leaves them open; None if it has none."""
        if self._wrapper.has_thinking:
            opened = self._wrapper.rfind_think_start(prompt) > self._wrapper.rfind_think_end(prompt)
            return Thinking(self._wrapper.think_start, self._wrapper.think_end, opened)
        marks = map(self.token_of, ("<|channel|>", "<|message|>", "<|start|>"))
        return None if None in marks else CHANNELS

    def to_json(self) -> str:
        """The tokenizer as `tokenizer.json` says it. Raises: UsageError for one without a fast backend."""
        if self._backend is None:
            raise UsageError(
                "this model's tokenizer cannot be constrained: it has no tokenizer.json", "take another model"
            )
        text: str = self._backend.to_str()
        return text

    def stream(self, after: Sequence[int] = ()) -> TextStream:
        """A fresh text stream; `after` are ids the text continues (they decide about a leading space)."""
        if self._backend is None:
            return _NaiveStream(self._wrapper._tokenizer)
        return _FastStream(self._backend, after)

    def piece(self, token: int) -> str:
        """One token on its own, as text; bytes that are no character show as U+FFFD."""
        return self.table().tokens.get(token, b"").decode("utf-8", "replace")

    def table(self) -> TokenTable:
        """ids -> bytes and roles, built once. Raises: ValueError for two strings of one kind with one id."""
        if self._table is None:
            inner = self._wrapper._tokenizer
            added = {str(token) for token in inner.added_tokens_decoder.values()}
            tokens = token_bytes(inner.get_vocab(), added, byte_level if self.is_byte_level else sentence_piece)
            self._table = TokenTable(tokens, {"bos": inner.bos_token_id, "eos": inner.eos_token_id})
        return self._table

    def encoding_rules(self) -> dict[str, str]:
        """The rules that turn text into ids: merges, normalizer, pre-tokenizer."""
        if self._backend is None:
            return {}
        rules = json.loads(self._backend.to_str())
        parts = {"merges": rules["model"].get("merges"), **{k: rules[k] for k in ("normalizer", "pre_tokenizer")}}
        return {name.replace("_", "-") + "s" * (name != "merges"): json.dumps(part) for name, part in parts.items()}

    @property
    def is_byte_level(self) -> bool:
        """Whether every token stands for bytes, so that no space is put before a text."""
        return self._backend is not None and "ByteLevel" in repr(self._backend.decoder)


def _mark_beginning(message: Mapping[str, Any], end: str) -> dict[str, Any]:
    """`message` with `end` behind its text. Raises: UsageError for one that cannot be continued."""
    if message.get("tool_calls"):
        raise UsageError("the last message calls functions, and their results are missing", "send them as messages")
    if not isinstance(message.get("content"), str):
        raise UsageError("the last message is the assistant's, and has no text to continue", "end with the user's")
    return {**message, "content": message["content"] + end}


class _FastStream:
    """huggingface tokenizers' own incremental decoder."""

    def __init__(self, backend: Any, preceding: Sequence[int]) -> None:
        self._backend = backend
        self._preceding = list(preceding)[-8:]
        self._stream = DecodeStream(ids=self._preceding, skip_special_tokens=False)
        self._pending: list[int] = []

    def step(self, token: int) -> str:
        self._pending.append(token)
        text: str | None = self._stream.step(self._backend, token)
        if text is None:
            return ""
        self._preceding, self._pending = (self._preceding + self._pending)[-8:], []
        return text

    def finish(self) -> str:
        """The pending bytes, decoded in the context of the preceding ones."""
        if not self._pending:
            return ""
        before = self._backend.decode(self._preceding, skip_special_tokens=False)
        both = self._backend.decode(self._preceding + self._pending, skip_special_tokens=False)
        self._pending = []
        return str(both[len(before) :])


class _NaiveStream:
    """mlx-lm's decoder for tokenizers without a fast backend."""

    def __init__(self, tokenizer: Any) -> None:
        self._detokenizer = NaiveStreamingDetokenizer(tokenizer)

    def step(self, token: int) -> str:
        self._detokenizer.add_token(token)
        return str(self._detokenizer.last_segment)

    def finish(self) -> str:
        self._detokenizer.finalize()
        return str(self._detokenizer.last_segment)


def _class_hints(folder: Path, config: Mapping[str, Any]) -> Any:
    """What transformers chooses a tokenizer's class by: the model's type, and the class its configuration names.

    transformers would read and check all of config.json for that, and refuses values that mlx-lm accepts.
    """
    kind = str(config.get("model_type", ""))
    if kind == "mistral" and "layer_types" in config:  # as its AutoConfig does
        kind = "ministral"
    known = CONFIG_MAPPING[kind] if kind in CONFIG_MAPPING else PreTrainedConfig  # noqa: SIM401 - its .get is empty
    hints = object.__new__(known)  # made without its values, it has none to refuse
    named = {key: config[key] for key in ("tokenizer_class", "model_name") if isinstance(config.get(key), str)}
    vars(hints).update(named, model_type=kind, _name_or_path=str(folder))
    return hints
