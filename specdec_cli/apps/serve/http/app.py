"""Every address of the server, and what answers there."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import PurePosixPath
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from specdec_cli.apps.serve.http import anthropic, completions, llama, ollama, responses
from specdec_cli.apps.serve.http.access import Guard
from specdec_cli.apps.serve.http.errors import ANTHROPIC, FAILED, OLLAMA, HttpError, dialect_path
from specdec_cli.apps.serve.http.reply import Record, error_response, json_response
from specdec_cli.apps.serve.http.schema import ModelBody, parse
from specdec_cli.apps.serve.http.service import Body, Read, Service, Write
from specdec_cli.apps.serve.model import Model
from specdec_cli.core.errors import reason
from specdec_cli.terminal.html import Markup, element, fill, joined, packaged
from specdec_cli.terminal.panel.answer import MEANINGS

# Each answers the addresses with and without /v1: clients differ in what they take for the base of a server.
ANSWERS: dict[str, tuple[Read, Write]] = {
    "/chat/completions": (completions.read_chat, completions.ChatDialect),
    "/completions": (completions.read_text, completions.TextDialect),
    "/responses": (responses.read, responses.ResponseDialect),
    "/messages": (anthropic.read, anthropic.BlockDialect),
    "/infill": (llama.read_infill, llama.InfillDialect),
    ollama.CHAT: (ollama.read_chat, ollama.LineDialect),
    ollama.GENERATE: (ollama.read_generate, ollama.LineDialect),
}
SMALL: dict[str, Callable[[Body, Model], dict[str, Any]]] = {
    "/tokenize": llama.tokenize,
    "/detokenize": llama.detokenize,
    "/apply-template": llama.apply_template,
    "/api/show": ollama.show,
}
# What is known without a question, but for which model; a reader's thread looks it up.
FACTS: dict[str, Callable[[Service, str | None], dict[str, Any]]] = {
    "/props": lambda service, name: llama.props(service.find(name), service.scheduler.status()),
    "/api/tags": lambda service, _: ollama.tags(service.model, service.switch),
    "/api/ps": lambda service, _: ollama.loaded(service.find, service.scheduler.status()),
    "/api/version": lambda service, _: ollama.VERSION,
}
PAGE, SCRIPTS = "serve", (
    "main.js", "answer.js", "code.js", "element.js", "fences.js", "figures.js", "markdown.js", "stream.js",
)  # fmt: skip
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


@cache
def page_files() -> dict[str, bytes]:
    """The chat that a browser sees: address -> content, `/` and what it loads."""
    named = {name: packaged(f"{PAGE}/{name}") for name in (*SCRIPTS, "icon.svg")}
    sheet = packaged("palette.css") + packaged(f"{PAGE}/chat.css")
    files = {"/": fill(f"{PAGE}/chat", {"legend": legend()}), "/page/chat.css": sheet}
    return {path: text.encode() for path, text in {**files, **{f"/page/{name}": named[name] for name in named}}.items()}


def legend() -> Markup:
    """What the looks of a token say, as in the other displays; the page takes the tokens' own titles from it, too."""
    return joined([element("li", kind, class_=kind, title=meaning) for kind, meaning in MEANINGS.items()], "\n")


def make_app(service: Service) -> ASGIApp:
    """The server behind its policy. Pages that may use it get their headers also with a refusal of their rights."""
    answers = ((prefix + path, how) for path, how in ANSWERS.items() for prefix in ("/v1", ""))
    posts = {path: partial(_answer, service, *how) for path, how in answers}
    posts |= {path: partial(_small, service, work) for path, work in SMALL.items()}
    posts["/v1/messages/count_tokens"] = partial(_count, service)
    gets = dict.fromkeys(("/health", "/v1/health"), partial(_health, service))
    gets |= dict.fromkeys(("/v1/models", "/models"), partial(_models, service))
    gets |= {"/v1/models/{name:path}": partial(_model, service), "/metrics": partial(_metrics, service)}
    gets |= {path: partial(_facts, service, look) for path, look in FACTS.items()}
    gets |= {path: partial(_file, content) for path, content in page_files().items()}
    routes = [
        Route(path, do, methods=[how]) for how, do_at in (("POST", posts), ("GET", gets)) for path, do in do_at.items()
    ]
    policy, tell = service.policy, service.tell
    cors: dict[str, Any] = {"allow_methods": ("GET", "POST"), "allow_headers": ("*",), "allow_private_network": True}
    cors["allow_origin_regex"] = "|".join(re.escape(one).replace(r"\*", ".*") for one in policy.origins)
    stack = [
        Middleware(Guard, policy.require_place, tell),
        *([Middleware(CORSMiddleware, policy.origins, **cors)] if policy.origins else []),
        Middleware(Guard, policy.require_rights, tell),
    ]
    handlers: dict[Any, Any] = {
        HttpError: partial(_refused, service),
        HTTPException: partial(_unknown, service),
        Exception: partial(_broken, service),
    }
    app = Starlette(routes=routes, middleware=stack, exception_handlers=handlers)
    app.router.redirect_slashes = False  # a redirection would name http, also behind TLS
    return app


async def _answer(service: Service, read: Read, write: Write, request: Request) -> Response:
    return await service.answer(request, read, write)


async def _small(service: Service, work: Callable[[Body, Model], dict[str, Any]], request: Request) -> Response:
    body = await service.body(request)
    name = parse(ModelBody, {"model": body.get("name"), **body}).model  # an older word of Ollama's
    return json_response(await service.aside(lambda: work(body, service.find(name))))


async def _count(service: Service, request: Request) -> Response:
    """The tokens that a message would have."""
    body = await service.body(request)

    def count(left: Callable[[], bool]) -> dict[str, Any]:
        ask = service.ask(body, partial(anthropic.read, count_only=True))
        return {"input_tokens": len(service.prompt(ask, left)[0])}

    return json_response(await service.while_there(request, count))


async def _facts(service: Service, look: Callable[[Service, str | None], Body], request: Request) -> Response:
    return json_response(await service.aside(partial(look, service, request.query_params.get("model"))))


async def _model(service: Service, request: Request) -> Response:
    name = request.path_params["name"]
    if not name.strip("/"):
        raise HTTPException(404)
    found = await service.aside(lambda: llama.one_model(service.find(name)))
    return json_response(anthropic.model_info(found) if _speaks_anthropic(request) else found)


async def _models(service: Service, request: Request) -> Response:
    found = await service.aside(lambda: llama.models(service.model, service.switch))
    return json_response(anthropic.models(found["data"]) if _speaks_anthropic(request) else found)


def _speaks_anthropic(request: Request) -> bool:
    return dialect_path(request.url.path, request.headers) == ANTHROPIC


async def _health(service: Service, request: Request) -> Response:
    return json_response(llama.health(service.model, service.scheduler.status()))


async def _metrics(service: Service, request: Request) -> Response:
    return Response(llama.metrics(service.scheduler.status()), media_type=llama.METRICS)


async def _file(content: bytes, request: Request) -> Response:
    kind = TYPES[PurePosixPath(request.url.path).suffix]
    return Response(content, headers=PAGE_HEADERS, media_type=f"{kind}; charset=utf-8")


async def _refused(service: Service, request: Request, error: HttpError) -> Response:
    service.tell(Record.of_refusal(request.url.path, error))
    return error_response(dialect_path(request.url.path, request.headers), error)


async def _unknown(service: Service, request: Request, error: HTTPException) -> Response:
    """No such address, or not with this method."""
    path, way_on = request.url.path, ""
    if path.startswith(OLLAMA):
        way_on = "; " + ollama.ELSEWHERE.get(path.removeprefix(f"{OLLAMA}/").partition("/")[0], ollama.HERE)
    elif any(isinstance(one, Route) and one.path == path.rstrip("/") for one in request.app.routes):
        way_on = f"; there is at {path.rstrip('/')}"
    said = {404: f"there is nothing at {path}{way_on}", 405: f"{request.method} is not what this address takes"}
    message, headers = said.get(error.status_code, str(error.detail)), dict(error.headers or {})
    return await _refused(service, request, HttpError(error.status_code, message, headers=headers))


async def _broken(service: Service, request: Request, error: Exception) -> Response:
    service.tell(Record(request.url.path, 500, 0.0, broken=reason(error)))
    return error_response(request.url.path, HttpError(500, FAILED))
