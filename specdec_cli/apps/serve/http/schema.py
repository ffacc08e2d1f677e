"""The bodies of requests as pydantic models: a value of the wrong kind is refused with the name of its field.

`null` is the same as absent; what nobody asks for is ignored. What depends on more than one value is looked at where
the bodies are read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from specdec_cli.apps.serve.http.errors import bad_field
from specdec_cli.core.jsonfile import NotJson, kind_of, parse_object, shown
from specdec_cli.core.request import BOUNDS

# What a field that is not done may be: user interfaces send that by habit.
NOTHING: tuple[Any, ...] = (None, False, "", [], {})
KEPT_NOTHING = "nothing is kept between requests; send the whole conversation"
SAMPLERS = "it is not done; temperature, top_k, top_p and min_p are"
# Entries of all lists together: each becomes an object of some twenty fields.
MOST_ENTRIES = 10_000
MOST_TOKENS, MOST_STOPS, MOST_SEED, MOST_CHOICES, MOST_TOP = 10_000_000, 64, 2**63 - 1, 16, 20
# By field, for programs: on this Anthropic's clients go on with whole conversations.
DETAILS = {"thread": {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}}
# What pydantic says of our classes and errors.
INTEGER = re.compile(r"-?[0-9]{1,12}")
OURS, MOST_NAME = re.compile(r"^Value error, | or instance of \w+$"), 200


@dataclass(frozen=True, slots=True)
class Refusal:
    """`fields`, which change an answer or ask for more than one, are not done for `reason`.

    What one of them is when it changes nothing, one of `neutral`, is let through.
    """

    fields: tuple[str, ...]
    reason: str
    neutral: tuple[Any, ...] = NOTHING


# For code and documents.
REFUSALS = (
    Refusal(("thread", "previous_response_id", "conversation", "session_params"), KEPT_NOTHING),
    Refusal(("background", "background_options"), "answers are not made in the background; use stream"),
    Refusal(("mcp_servers",), "no other server is called from here"),
    Refusal(("container",), "nothing is run here"),
    Refusal(("compaction",), "conversations are not summarized here; send a message that asks for a summary"),
    Refusal(("modalities", "output_modalities"), "the model writes text only", (None, [], ["text"])),
    Refusal(("stop_regex",), "an answer ends at texts; use stop"),
    Refusal(("allowed_token_ids",), "tokens are not chosen from a list; use a constraint, or logit_bias"),
    Refusal(("use_beam_search",), "only one candidate is followed; n gives several"),
    Refusal(("lora", "lora_path", "adapters"), "adapters are of a pair: specdec pairs add --adapter"),
    Refusal(("typical_p", "typical", "tfs_z", "tfs"), SAMPLERS, (None, 1)),
    Refusal(("xtc_probability", "dry_multiplier", "mirostat", "mirostat_mode", "top_a"), SAMPLERS, (None, 0)),
    Refusal(("dynatemp_range", "epsilon_cutoff", "eta_cutoff", "smoothing_factor"), SAMPLERS, (None, 0)),
    Refusal(("top_n_sigma", "nsigma"), SAMPLERS, (None, -1, 0)),
    Refusal(("no_repeat_ngram_size", "penalty_alpha"), SAMPLERS, (None, 0)),
    Refusal(("guidance_scale", "cfg_scale", "encoder_repetition_penalty", "num_beams"), SAMPLERS, (None, 0, 1)),
    Refusal(("include_stop_str_in_output",), "an answer ends before its stop text"),
    Refusal(("prompt_logprobs",), "tokens of a prompt are not scored"),
)
REFUSED = {field: row.reason for row in REFUSALS for field in row.fields}
NEUTRAL = {field: row.neutral for row in REFUSALS for field in row.fields}


class Body(BaseModel):
    """An object of a body. `REFUSED` are fields that nobody may ask for, with the reason, unless they say nothing."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, protected_namespaces=())
    REFUSED: ClassVar[Mapping[str, str]] = {}
    PATH: ClassVar[str] = ""

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        for name, reason in cls.REFUSED.items():
            if values.get(name) not in NEUTRAL.get(name, NOTHING):
                raise bad_field(cls.PATH + name, reason, DETAILS.get(name))
        return {name: value for name, value in values.items() if value is not None}


B = TypeVar("B", bound=Body)


def parse(kind: type[B], values: Mapping[str, Any]) -> B:
    """The body as `kind`. Raises: HttpError with the whole name of the first wrong field."""
    try:
        return kind.model_validate(dict(values), context=Counter())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        places = [part for part in first["loc"] if not str(part).startswith("<")]  # tags of unions are no names
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in places).lstrip(".")
        message, value = OURS.sub("", first["msg"]), first["input"]
        if first["type"] == "missing":
            message = "it is missing"
        elif first["type"] != "value_error":
            long = isinstance(value, dict | list | str) and len(value) > 20
            message = f"it is {kind_of(value) if long else shown(value)}: {message}"
        raise bad_field(name[:MOST_NAME], message) from error


def required(value: Any, name: str) -> str:
    """A text that must be there. Raises: HttpError with its `name`."""
    if value is None:
        raise bad_field(name, "it is missing, but a text is expected")
    return str(value)


def _few(value: Any, info: ValidationInfo) -> Any:
    """Before anything is made of a list's entries: with all before they may not be too many. Raises: ValueError."""
    counted = info.context
    if isinstance(value, list | dict) and isinstance(counted, Counter):
        counted["entries"] += len(value)
        if (found := counted["entries"]) > MOST_ENTRIES:
            before = f", and {found - len(value)} came before" if found > len(value) else ""
            raise ValueError(f"{len(value)} entries{before}: a body may have {MOST_ENTRIES} in all")
    return value


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 16.0 is whole."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _count(value: Any) -> Any:
    """Of best tokens: some clients say whether they want any."""
    return (1 if value else None) if isinstance(value, bool) else value


def _schema(value: Any) -> Any:
    """A JSON schema may come as text. Raises: ValueError."""
    try:
        return parse_object(value) if isinstance(value, str) else value
    except NotJson as error:
        raise ValueError(str(error)) from error


def _text_or_object(value: Any) -> Any:
    if not isinstance(value, str | dict):
        raise ValueError(f"it is {kind_of(value)}, but a text or an object is expected")
    return value


def _unless(*nothing: Any) -> BeforeValidator:
    """How clients say that they name no value."""
    return BeforeValidator(lambda value: None if value in nothing else value)


def wrapped(name: str, **more: str) -> BeforeValidator:
    """A list may come as the text of its only entry."""
    return BeforeValidator(lambda value: [{**more, name: value}] if isinstance(value, str) else value)


def refused(reason: str) -> BeforeValidator:
    """For a field that nobody may give."""

    def refuse(value: Any) -> None:
        raise ValueError(reason)

    return BeforeValidator(refuse)


def by(name: str, tags: Mapping[str, str], other: str) -> Discriminator:
    """Which model of a union reads an object: the tag of its field `name`, else `other`."""
    return Discriminator(lambda value: tags.get(str(value.get(name)), other) if isinstance(value, dict) else other)


def _bound(name: str) -> Any:
    """A sampling value within its bounds, None where it is not given."""
    low, high, _ = BOUNDS[name]
    return Field(default=None, ge=low, le=high)


def _biases(value: Any) -> Any:
    """Pairs of an id or a text and its bias, as llama.cpp has them, or OpenAI's object, whose keys are texts of ids."""
    if not isinstance(value, dict):
        return value
    return [[int(key) if INTEGER.fullmatch(key) else key, bias] for key, bias in value.items()]


def _pair(value: Any) -> Any:
    """Of a list of two, in which `false` means never."""
    return tuple(None if one is False else one for one in value) if isinstance(value, list) else value


Bias = Annotated[tuple[int | str, Annotated[float | None, Field(ge=-100, le=100)]], BeforeValidator(_pair)]
Whole = Annotated[int, BeforeValidator(_whole)]
Length = Annotated[int | None, Field(ge=0, le=MOST_TOKENS), BeforeValidator(_whole), _unless(-1)]
Seed = Annotated[int | None, Field(ge=-MOST_SEED, le=MOST_SEED), BeforeValidator(_whole), _unless(-1, 2**32 - 1)]
Choices = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=MOST_CHOICES)]
Top = Annotated[Whole | None, Field(ge=0, le=MOST_TOP), BeforeValidator(_count)]
FEW = BeforeValidator(_few)
Texts = Annotated[list[str], FEW, BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
Stops = Annotated[Texts, Field(max_length=MOST_STOPS)]
Schema = Annotated[dict[str, Any], BeforeValidator(_schema)]
Tools = Annotated[list["Tool"], FailFast(), FEW]
Arguments = Annotated[Any, BeforeValidator(_text_or_object)]


class Tool(Body):
    """A tool: a `function`, one whose fields are its own (Responses, Anthropic), or a namespace of further `tools`."""

    type: str = ""
    function: Tool | None = None
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool = False
    tools: Tools = []


class ToolChoice(Body):
    """Whether and what to call; a bare word is its `word`."""

    word: str = ""
    type: str | None = None
    name: str | None = None
    function: Tool | None = None
    disable_parallel_tool_use: bool = False


Choice = Annotated[
    ToolChoice | None, BeforeValidator(lambda value: {"word": value} if isinstance(value, str) else value)
]


class Format(Body):
    """The shape that is asked for, flat in /v1/responses."""

    type: str | None = None
    json_schema: Format | None = None
    shape: dict[str, Any] | None = Field(default=None, alias="schema")


class Reasoning(Body):
    effort: str | None = None
    enabled: bool | None = None


class TextBlock(Body):
    text: str


class Prediction(Body):
    """A text that the answer will resemble."""

    type: Literal["", "content"] = ""
    content: Annotated[list[TextBlock], FailFast(), FEW, wrapped("text")] = []


class ModelBody(Body):
    model: str | None = None


class Asked(ModelBody):
    """What every dialect has in common."""

    REFUSED = REFUSED
    stream: bool = False
    specdec: bool = False
    prompt_cache_key: str | None = None
    max_completion_tokens: Length = None
    max_output_tokens: Length = None
    max_tokens: Length = None
    n_predict: Length = None
    seed: Seed = None
    stop: Stops = []
    stop_sequences: Stops = []
    temperature: float | None = _bound("temperature")
    top_k: Annotated[int | None, BeforeValidator(lambda value: 0 if value == -1 else _whole(value))] = _bound("top_k")
    top_p: float | None = _bound("top_p")
    min_p: float | None = _bound("min_p")
    repetition_penalty: float | None = _bound("repetition_penalty")
    repeat_penalty: float | None = _bound("repetition_penalty")
    presence_penalty: float | None = _bound("presence_penalty")
    frequency_penalty: float | None = _bound("frequency_penalty")
    logit_bias: Annotated[list[Bias], BeforeValidator(_biases), FEW] = []
    stop_token_ids: Annotated[list[Whole], FEW] = []
    ignore_eos: bool = False
    min_tokens: Length = None
    min_new_tokens: Length = None
    bad_words: Stops = []
    truncate_prompt_tokens: Annotated[Whole | None, Field(ge=-1, le=MOST_TOKENS)] = None
    prediction: Prediction | None = None
    tools: Tools = []
    tool_choice: Choice = None
    parallel_tool_calls: bool = True
    chat_template_kwargs: Annotated[dict[str, Any], FEW] = {}
