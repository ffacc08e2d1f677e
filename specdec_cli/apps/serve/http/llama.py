"""llama.cpp's endpoints (pure): a gap filled, what the server is and has done, text to ids and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import FailFast, Field

from specdec_cli.apps.serve.http import reading
from specdec_cli.apps.serve.http.answer import ChatRequest, Delta, LineLimits, ServedAnswer, TextDelta
from specdec_cli.apps.serve.http.completions import ChatBody, fill_in, messages_of, token_ids
from specdec_cli.apps.serve.http.dialect import Dialect, event, timings
from specdec_cli.apps.serve.http.errors import HttpError
from specdec_cli.apps.serve.http.schema import FEW, Asked, Body, Texts, Whole, parse, required
from specdec_cli.apps.serve.http.tools import describe, openai_offer
from specdec_cli.apps.serve.job import SchedulerStatus
from specdec_cli.apps.serve.model import Model, Switch, public_name
from specdec_cli.core.stats import ratio
from specdec_cli.models.fill import Gap

METRICS = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "llamacpp:"


class Extra(Body):
    """A file beside the one with the gap."""

    text: str
    filename: str = ""


class InfillBody(Asked):
    REFUSED = {
        **Asked.REFUSED,
        **dict.fromkeys(("grammar", "json_schema"), "what is filled in is not constrained"),
        "n_probs": "/v1/completions gives logprobs",
    }
    n_cmpl: Annotated[Whole, Field(ge=1, le=1)] = 1
    input_prefix: str
    input_suffix: str
    input_extra: Annotated[list[Extra], FailFast(), FEW] = []
    prompt: str = ""
    n_indent: Annotated[Whole, Field(ge=0, le=1000)] = 0
    t_max_predict_ms: Annotated[float, Field(ge=-1, le=10_000_000)] = 0
    response_fields: Texts = []


class TokenizeBody(Body):
    """Of /tokenize and /detokenize."""

    content: str | None = None
    tokens: Any = None
    add_special: bool = False


def health(model: Model, state: SchedulerStatus) -> dict[str, Any]:
    """Well, which pair is loaded or was last, and how busy; a waiting job's place is its position in the queue.

    Of each job that runs, how much of its prompt was read.
    `sharing` of those that run share passes; `turns` says why none does, where none can. `warning`: memory is scarce.
    """
    jobs = [
        {"endpoint": one.job.endpoint, "prompt_tokens": len(one.job.prompt), "read_tokens": one.read_tokens}
        for one in state.running
    ]
    queue = [{"position": place, "endpoint": handle.job.endpoint} for place, handle in enumerate(state.waiting, 1)]
    busy = {"running": len(state.running), "sharing": state.sharing, "waiting": len(queue), "queue": queue}
    busy |= {"jobs": jobs} if jobs else {}
    busy |= {"turns": state.turns} if state.turns else {}
    busy |= {"warning": state.warning} if state.warning else {}
    busy |= {"disk_tokens": state.totals.disk_tokens} if state.totals.disk_tokens else {}
    return {"status": "ok", "server": "specdec", "model": state.pair or model.name, "loaded": state.loaded, **busy}


def props(model: Model, state: SchedulerStatus) -> dict[str, Any]:
    """What clients look up before they ask."""
    settings = {"n_ctx": model.context_limit, "params": {"n_predict": -1, "seed": model.base.seed}}
    return {
        "default_generation_settings": settings,
        "total_slots": state.most_conversations,
        "model_alias": model.name,
        "model_path": model.name,
        "chat_template": model.tokenizer.template,
        "modalities": {"vision": False, "audio": False},
        "build_info": "specdec",
        "is_sleeping": not state.loaded or state.pair != model.pair,
    }


def tokenize(values: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """Ids of `content`; `add_special` puts what begins a text before it."""
    body = parse(TokenizeBody, values)
    ids = model.tokenizer.encode(required(body.content, "content"))
    begin = model.tokenizer.encode("")
    if not body.add_special and begin and ids[: len(begin)] == begin:
        ids = ids[len(begin) :]
    return {"tokens": ids}


def detokenize(values: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """The text of `tokens`."""
    return {"content": model.text(token_ids("tokens", parse(TokenizeBody, values).tokens, model))}


def apply_template(values: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """The prompt that `messages` become."""
    if not model.tokenizer.has_template:
        raise HttpError(400, "this model has no chat template")
    body = parse(ChatBody, values)
    tools = describe(openai_offer(body, nested=True).functions, model)
    prompt = model.prompt(messages_of(body), body.template, tools)
    return {"prompt": model.text(prompt)}


def models(model: Model, switch: Switch | None = None) -> dict[str, Any]:
    """OpenAI's list of models: the server's own pair, then those that can take its place."""
    names = [
        (spec.pair.name, public_name(spec.pair.target), spec.pair.draft and public_name(spec.pair.draft))
        for spec in (switch.here().values() if switch else ())
    ]
    listed = [{**_head(name, model.since), "target": target, "draft": draft} for name, target, draft in names]
    return {"object": "list", "data": [one_model(model), *listed]}


def one_model(model: Model) -> dict[str, Any]:
    """One entry of it."""
    meta = {"n_ctx_train": model.context_limit, "n_vocab": model.vocab_size}
    return {**_head(model.name, model.since), "target": model.target, "draft": model.draft, "meta": meta}


def _head(name: str, since: int) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": since, "owned_by": "specdec"}


def metrics(status: SchedulerStatus) -> str:
    """The totals in Prometheus' text format, in the words that llama.cpp's users already chart."""
    totals, rounds = status.totals, status.totals.rounds
    read = totals.prompt_tokens - totals.cached_tokens
    accepted = "spec_decode_num_accepted_tokens_per_pos_total"
    figures = [
        ("prompt_tokens_total", "Prompt tokens read", read),
        ("prompt_tokens_cached_total", "Prompt tokens that a cache held", totals.cached_tokens),
        ("prompt_tokens_from_disk_total", "Those of them that came from disk", totals.disk_tokens),
        ("prompt_seconds_total", "Seconds spent reading prompts", totals.prefill_seconds),
        ("tokens_predicted_total", "Tokens generated", rounds.emitted_tokens),
        ("tokens_predicted_seconds_total", "Seconds spent generating", rounds.decode_seconds),
        ("n_decode_total", "Target passes", rounds.target_passes),
        ("spec_decode_num_drafts_total", "Rounds that drafted", sum(rounds.accepted_histogram)),
        ("spec_decode_num_draft_tokens_total", "Tokens drafted", rounds.draft_n),
        ("spec_decode_num_accepted_tokens_total", "Drafted tokens accepted", rounds.draft_n_accepted),
        (accepted, "Drafted tokens accepted, by position in the draft", None),
        ("prompt_tokens_seconds", "Prompt tokens a second", ratio(read, totals.prefill_seconds)),
        ("predicted_tokens_seconds", "Tokens a second", totals.tokens_per_second),
        ("requests_processing", "Requests that run", len(status.running)),
        ("requests_deferred", "Requests that wait", len(status.waiting)),
    ]
    lines: list[str] = []
    for name, about, value in figures:
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP {PREFIX}{name} {about}.", f"# TYPE {PREFIX}{name} {kind}"]
        if name == accepted:
            lines += [f'{PREFIX}{name}{{position="{at}"}} {count}' for at, count in enumerate(rounds.accepted_at)]
        else:
            lines.append(f"{PREFIX}{name} {value or 0:.10g}")
    return "\n".join(lines) + "\n"


def read_infill(values: Mapping[str, Any], model: Model) -> ChatRequest:
    """What the body asks for. Raises: HttpError."""
    body = parse(InfillBody, values)
    files = tuple((one.filename, one.text) for one in body.input_extra)
    filling, stops = fill_in("input_suffix", Gap(body.input_prefix, body.input_suffix, body.prompt, files), model)
    return reading.chat_request(
        body,
        model,
        "infill",
        {"stop_tokens": stops},
        text=filling.tokens,
        source="input_prefix",
        reusable_prefixes=filling.ends,
        lines=LineLimits(body.n_indent, max(body.t_max_predict_ms, 0) / 1e3),
        extra={"fields": body.response_fields},
    )


@dataclass(slots=True)
class InfillDialect(Dialect):
    """An answer in the shape of llama.cpp's own completions; a stream ends with its last chunk."""

    path = "/infill"

    def say(self, choice: int, delta: Delta, answer: ServedAnswer) -> bytes:
        assert isinstance(delta, TextDelta)
        read = {"tokens_evaluated": len(answer.prompt)}
        return event({"index": choice, "content": delta.text, "stop": False, **read})

    def close(self, choice: int, answer: ServedAnswer) -> bytes:
        """All that is known of it; the text was said."""
        return event(self._shown(self._all(answer) | {"index": choice, "content": ""}))

    def whole(self, answers: Sequence[ServedAnswer]) -> dict[str, Any]:
        return self._shown(self._all(answers[0]))

    def _all(self, answer: ServedAnswer) -> dict[str, Any]:
        finish = answer.finish
        request, word = answer.ask.request, answer.stop_string
        sampling = {name: value for name, value in request.sampling.items() if value is not None}
        settings = {"n_ctx": answer.model.context_limit, "n_predict": request.max_tokens, "seed": request.seed}
        own = finish is not None and finish.reason == "stop" and not answer.full
        return {
            "index": 0,
            "content": answer.text,
            "tokens": [],
            "stop": True,
            "model": self.ask.model,
            "tokens_predicted": answer.emitted,
            "tokens_evaluated": len(answer.prompt),
            "tokens_cached": answer.cached,
            "generation_settings": {**settings, "stop": request.stop, **sampling},
            "has_new_line": "\n" in answer.text,
            "truncated": False,
            "stop_type": ("eos" if word is None else "word") if own else "limit",
            "stopping_word": word or "",
            "timings": timings([answer]),
        }

    def _shown(self, values: dict[str, Any]) -> dict[str, Any]:
        """The fields that were asked for, each under its whole path; without any, all."""
        found: dict[str, Any] = {}
        for path in self.ask.extra.get("fields", ()):
            value: Any = values
            for key in path.split("/"):
                value = value.get(key) if isinstance(value, dict) else None
            if value is not None:
                found[path] = value
        return found if self.ask.extra.get("fields") else values
