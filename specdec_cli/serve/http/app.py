"""Every address of the server, and what answers there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from specdec_cli.errors import reason
from specdec_cli.serve.http import anthropic, chat, completions, infill, llama, responses
from specdec_cli.serve.http.errors import FAILED, HttpError
from specdec_cli.serve.http.fields import Fields
from specdec_cli.serve.http.guard import Guard
from specdec_cli.serve.http.metrics import CONTENT_TYPE, metrics
from specdec_cli.serve.http.page import file_response
from specdec_cli.serve.http.record import Record
from specdec_cli.serve.http.reply import error_response, json_response
from specdec_cli.serve.http.response_voice import ResponseVoice
from specdec_cli.serve.http.service import Read, Service, Speak
from specdec_cli.serve.model import Model

# Each answers the addresses with and without /v1: clients differ in what they take for the base of a server.
ANSWERS: dict[str, tuple[Read, Speak]] = {
    "/chat/completions": (chat.read, chat.ChatVoice),
    "/completions": (completions.read, completions.TextVoice),
    "/responses": (responses.read, ResponseVoice),
    "/messages": (anthropic.read, anthropic.BlockVoice),
    "/infill": (infill.read, infill.InfillVoice),
}
SMALL: dict[str, Callable[[Fields, Model], dict[str, Any]]] = {
    "/tokenize": llama.tokenize,
    "/detokenize": llama.detokenize,
    "/apply-template": llama.apply_template,
}


def make_app(service: Service) -> ASGIApp:
    """The server behind its door."""
    routes = [
        Route(prefix + path, partial(_answer, service, *how), methods=["POST"])
        for path, how in ANSWERS.items()
        for prefix in ("/v1", "")
    ]
    routes += [Route(path, partial(_small, service, work), methods=["POST"]) for path, work in SMALL.items()]
    routes.append(Route("/v1/messages/count_tokens", partial(_count, service), methods=["POST"]))
    for path, show in {
        "/v1/models": _models,
        "/models": _models,
        "/v1/models/{name:path}": _model,
        "/health": _health,
        "/v1/health": _health,
        "/props": _props,
        "/metrics": _metrics,
    }.items():
        routes.append(Route(path, partial(show, service), methods=["GET"]))
    routes += [Route(path, partial(_file, content), methods=["GET"]) for path, content in service.page.items()]
    broken = partial(_broken, service)
    refused, unknown = partial(_refused, service), partial(_unknown, service)
    handlers: dict[Any, Any] = {HttpError: refused, HTTPException: unknown, Exception: broken}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), service.door, service.tell)


async def _answer(service: Service, read: Read, speak: Speak, request: Request) -> Response:
    return await service.answer(request, read, speak)


async def _small(service: Service, work: Callable[[Fields, Model], dict[str, Any]], request: Request) -> Response:
    body = await service.body(request)
    return json_response(await service.aside(lambda: work(body, service.found(body.text("model")))))


async def _count(service: Service, request: Request) -> Response:
    """The tokens that a message would have."""
    body = await service.body(request)

    def count(left: Callable[[], bool]) -> dict[str, Any]:
        ask = service.ask(body, partial(anthropic.read, count_only=True))
        return {"input_tokens": len(service.prompt(ask, left)[0])}

    return json_response(await service.while_there(request, count))


async def _models(service: Service, request: Request) -> Response:
    return json_response(await service.aside(lambda: llama.models(service.model, service.switch)))


async def _model(service: Service, request: Request) -> Response:
    name = request.path_params["name"]
    return json_response(await service.aside(lambda: llama.one_model(service.found(name))))


async def _health(service: Service, request: Request) -> Response:
    return json_response(llama.health(service.model, service.desk.health()))


async def _props(service: Service, request: Request) -> Response:
    return json_response(llama.props(service.model, service.desk.health()))


async def _metrics(service: Service, request: Request) -> Response:
    return Response(metrics(service.desk.status()), media_type=CONTENT_TYPE)


async def _file(content: bytes, request: Request) -> Response:
    return file_response(request.url.path, content)


async def _refused(service: Service, request: Request, error: HttpError) -> Response:
    service.tell(Record.of_refusal(request.url.path, error))
    return error_response(request.url.path, error)


async def _unknown(service: Service, request: Request, error: HTTPException) -> Response:
    """No such address, or not with this method."""
    said = {404: f"there is nothing at {request.url.path}", 405: f"{request.method} is not what this address takes"}
    message = said.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    return await _refused(service, request, HttpError(error.status_code, message, headers=headers))


async def _broken(service: Service, request: Request, error: Exception) -> Response:
    service.tell(Record(request.url.path, 500, 0.0, broken=reason(error)))
    return error_response(request.url.path, HttpError(500, FAILED))
