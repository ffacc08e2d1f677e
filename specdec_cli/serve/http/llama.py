"""llama.cpp's small endpoints (pure): what the server is, and text to ids and back."""

from __future__ import annotations

from typing import Any

from specdec_cli.serve.http.chat import thinks
from specdec_cli.serve.http.completions import token_ids
from specdec_cli.serve.http.errors import HttpError, bad_field
from specdec_cli.serve.http.fields import Fields
from specdec_cli.serve.http.functions import described, openai_offer
from specdec_cli.serve.http.messages import openai_messages
from specdec_cli.serve.job import Health
from specdec_cli.serve.model import Model, shown
from specdec_cli.serve.switch import Switch


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


def tokenize(body: Fields, model: Model) -> dict[str, Any]:
    """Ids of `content`; with `with_pieces` each with its text. `add_special` puts what begins a text before it."""
    ids = model.tokenizer.encode(body.needed("content"))
    begin = model.tokenizer.encode("")
    if not body.flag("add_special") and begin and ids[: len(begin)] == begin:
        ids = ids[len(begin) :]
    if body.flag("with_pieces"):
        return {"tokens": [{"id": one, "piece": model.tokenizer.piece(one)} for one in ids]}
    return {"tokens": ids}


def detokenize(body: Fields, model: Model) -> dict[str, Any]:
    """The text of `tokens`."""
    return {"content": model.text(token_ids("tokens", body.raw("tokens"), model))}


def apply_template(body: Fields, model: Model) -> dict[str, Any]:
    """The prompt that `messages` become."""
    if not model.tokenizer.has_template:
        raise HttpError(400, "this model has no chat template")
    tools = described(openai_offer(body, nested=True).functions)
    if tools and model.tokenizer.call_marks is None:
        raise bad_field("tools", "this model's template knows none")
    prompt = model.prompt(openai_messages(body), thinks(body, body.text("reasoning_effort")), tools)
    return {"prompt": model.text(prompt)}


def models(model: Model, switch: Switch | None = None) -> dict[str, Any]:
    """OpenAI's list of models: the server's own pair, then those that can take its place."""
    others = switch.here().values() if switch else ()
    listed = [
        {**_head(pair.name, model.since), "target": shown(pair.target), "draft": pair.draft and shown(pair.draft)}
        for pair in others
    ]
    return {"object": "list", "data": [one_model(model), *listed]}


def one_model(model: Model) -> dict[str, Any]:
    """One entry of it."""
    meta = {"n_ctx_train": model.context_limit, "n_vocab": model.vocab_size}
    return {**_head(model.name, model.since), "target": model.target, "draft": model.draft, "meta": meta}


def _head(name: str, since: int) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": since, "owned_by": "specdec"}
