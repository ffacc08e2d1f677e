"""Every address of the server, and what answers there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from specdec_cli.errors import reason
from specdec_cli.serve.http import anthropic, chat, completions, llama, responses
from specdec_cli.serve.http.access import AccessMiddleware
from specdec_cli.serve.http.errors import FAILED, HttpError
from specdec_cli.serve.http.reply import Record, error_response, json_response
from specdec_cli.serve.http.schema import ModelBody, parse
from specdec_cli.serve.http.service import Body, Read, Service, Write
from specdec_cli.serve.model import Model

# Each answers the addresses with and without /v1: clients differ in what they take for the base of a server.
ANSWERS: dict[str, tuple[Read, Write]] = {
    "/chat/completions": (chat.read, chat.ChatDialect),
    "/completions": (completions.read, completions.TextDialect),
    "/responses": (responses.read, responses.ResponseDialect),
    "/messages": (anthropic.read, anthropic.BlockDialect),
    "/infill": (completions.read_infill, completions.InfillDialect),
}
SMALL: dict[str, Callable[[Body, Model], dict[str, Any]]] = {
    "/tokenize": llama.tokenize,
    "/detokenize": llama.detokenize,
    "/apply-template": llama.apply_template,
}
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", "": "text/html"}
# A browser lets the page do nothing but ask this server; the last two: text of a model can never become markup.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def make_app(service: Service) -> ASGIApp:
    """The server behind its policy."""
    post, get = ["POST"], ["GET"]
    answers = ((prefix + path, how) for path, how in ANSWERS.items() for prefix in ("/v1", ""))
    routes = [Route(path, partial(_answer, service, *how), methods=post) for path, how in answers]
    routes += [Route(path, partial(_small, service, work), methods=post) for path, work in SMALL.items()]
    routes.append(Route("/v1/messages/count_tokens", partial(_count, service), methods=post))
    shows: dict[str, Callable[[Service, Request], Awaitable[Response]]] = {
        **dict.fromkeys(("/v1/models", "/models"), _models),
        "/v1/models/{name:path}": _model,
        **dict.fromkeys(("/health", "/v1/health"), _health),
        "/props": _props,
        "/metrics": _metrics,
    }
    routes += [Route(path, partial(show, service), methods=get) for path, show in shows.items()]
    routes += [Route(path, partial(_file, content), methods=get) for path, content in service.page.items()]
    handlers: dict[Any, Any] = {
        HttpError: partial(_refused, service),
        HTTPException: partial(_unknown, service),
        Exception: partial(_broken, service),
    }
    return AccessMiddleware(Starlette(routes=routes, exception_handlers=handlers), service.policy, service.tell)


async def _answer(service: Service, read: Read, write: Write, request: Request) -> Response:
    return await service.answer(request, read, write)


async def _small(service: Service, work: Callable[[Body, Model], dict[str, Any]], request: Request) -> Response:
    body = await service.body(request)
    return json_response(await service.aside(lambda: work(body, service.find(parse(ModelBody, body).model))))


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
    return json_response(await service.aside(lambda: llama.one_model(service.find(name))))


async def _health(service: Service, request: Request) -> Response:
    return json_response(llama.health(service.model, service.scheduler.health()))


async def _props(service: Service, request: Request) -> Response:
    return json_response(llama.props(service.model, service.scheduler.health()))


async def _metrics(service: Service, request: Request) -> Response:
    return Response(llama.metrics(service.scheduler.status()), media_type=llama.METRICS)


async def _file(content: bytes, request: Request) -> Response:
    kind = TYPES[PurePosixPath(request.url.path).suffix]
    return Response(content, headers=PAGE_HEADERS, media_type=f"{kind}; charset=utf-8")


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
