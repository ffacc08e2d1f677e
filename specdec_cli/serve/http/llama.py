"""The small endpoints, most of them llama.cpp's (pure): what the server is and has done, and text to ids and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec_cli.serve.http.completions import token_ids
from specdec_cli.serve.http.errors import HttpError, bad_field
from specdec_cli.serve.http.messages import openai_messages
from specdec_cli.serve.http.sampling import thinks
from specdec_cli.serve.http.schema import ChatBody, TokenizeBody, parse, required
from specdec_cli.serve.http.tools import describe, openai_offer
from specdec_cli.serve.model import Model, Switch, public_name
from specdec_cli.serve.status import Health, SchedulerStatus
from specdec_cli.stats import ratio

METRICS = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "llamacpp:"


def health(model: Model, state: Health) -> dict[str, Any]:
    """Well, which pair is loaded or was last, and how busy; a waiting job's place is its position in the queue."""
    waiting = [{"position": place + 1, "noun": noun} for place, noun in enumerate(state.jobs[state.running :])]
    busy = {"running": state.running, "waiting": state.waiting, "queue": waiting}
    return {"status": "ok", "server": "specdec", "model": state.pair or model.name, "loaded": state.loaded, **busy}


def props(model: Model, state: Health) -> dict[str, Any]:
    """What clients look up before they ask."""
    settings = {"n_ctx": model.context_limit, "params": {"n_predict": -1, "seed": model.base.seed}}
    return {
        "default_generation_settings": settings,
        "total_slots": state.slots,
        "model_alias": model.name,
        "model_path": model.name,
        "chat_template": model.tokenizer.template,
        "modalities": {"vision": False, "audio": False},
        "build_info": "specdec",
        "is_sleeping": not state.loaded,
    }


def tokenize(values: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """Ids of `content`; with `with_pieces` each with its text. `add_special` puts what begins a text before it."""
    body = parse(TokenizeBody, values)
    ids = model.tokenizer.encode(required(body.content, "content"))
    begin = model.tokenizer.encode("")
    if not body.add_special and begin and ids[: len(begin)] == begin:
        ids = ids[len(begin) :]
    if body.with_pieces:
        return {"tokens": [{"id": one, "piece": model.tokenizer.piece(one)} for one in ids]}
    return {"tokens": ids}


def detokenize(values: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """The text of `tokens`."""
    return {"content": model.text(token_ids("tokens", parse(TokenizeBody, values).tokens, model))}


def apply_template(values: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """The prompt that `messages` become."""
    if not model.tokenizer.has_template:
        raise HttpError(400, "this model has no chat template")
    body = parse(ChatBody, values)
    tools = describe(openai_offer(body, nested=True).functions)
    if tools and model.tokenizer.call_marks is None:
        raise bad_field("tools", "this model's template knows none")
    prompt = model.prompt(openai_messages(body), thinks(body.chat_template_kwargs, body.reasoning_effort), tools)
    return {"prompt": model.text(prompt)}


def models(model: Model, switch: Switch | None = None) -> dict[str, Any]:
    """OpenAI's list of models: the server's own pair, then those that can take its place."""
    others = switch.here().values() if switch else ()
    listed = [
        {
            **_head(pair.name, model.since),
            "target": public_name(pair.target),
            "draft": pair.draft and public_name(pair.draft),
        }
        for pair in others
    ]
    return {"object": "list", "data": [one_model(model), *listed]}


def one_model(model: Model) -> dict[str, Any]:
    """One entry of it."""
    meta = {"n_ctx_train": model.context_limit, "n_vocab": model.vocab_size}
    return {**_head(model.name, model.since), "target": model.target, "draft": model.draft, "meta": meta}


def _head(name: str, since: int) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": since, "owned_by": "specdec"}


def metrics(status: SchedulerStatus) -> str:
    """The totals in Prometheus' text format, in the words that llama.cpp's users already chart."""
    totals = status.totals
    found: list[str] = []
    counters = {
        "prompt_tokens_total": ("Prompt tokens read", totals.read_tokens),
        "prompt_tokens_cached_total": ("Prompt tokens that a cache held", totals.cached_tokens),
        "prompt_seconds_total": ("Seconds spent reading prompts", totals.prompt_seconds),
        "tokens_predicted_total": ("Tokens generated", totals.generated_tokens),
        "tokens_predicted_seconds_total": ("Seconds spent generating", totals.timed_seconds),
        "n_decode_total": ("Target passes", totals.passes),
        "spec_decode_num_drafts_total": ("Rounds that drafted", totals.drafts),
        "spec_decode_num_draft_tokens_total": ("Tokens drafted", totals.draft_tokens),
        "spec_decode_num_accepted_tokens_total": ("Drafted tokens accepted", totals.accepted_tokens),
    }
    for name, (about, value) in counters.items():
        found += [*_metric_head(name, about, "counter"), f"{PREFIX}{name} {value:.10g}"]
    name = "spec_decode_num_accepted_tokens_per_pos_total"
    found += _metric_head(name, "Drafted tokens accepted, by position in the draft", "counter")
    found += [f'{PREFIX}{name}{{position="{at}"}} {count}' for at, count in enumerate(totals.accepted_per_position)]
    gauges = {
        "prompt_tokens_seconds": ("Prompt tokens a second", ratio(totals.read_tokens, totals.prompt_seconds)),
        "predicted_tokens_seconds": ("Tokens a second", ratio(totals.timed_tokens, totals.timed_seconds)),
        "requests_processing": ("Requests that run", len(status.running)),
        "requests_deferred": ("Requests that wait", len(status.waiting)),
    }
    for name, (about, gauge) in gauges.items():
        found += [*_metric_head(name, about, "gauge"), f"{PREFIX}{name} {gauge or 0:.10g}"]
    return "\n".join(found) + "\n"


def _metric_head(name: str, about: str, kind: str) -> list[str]:
    return [f"# HELP {PREFIX}{name} {about}.", f"# TYPE {PREFIX}{name} {kind}"]
