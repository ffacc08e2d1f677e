"""What went wrong, in the shape of the dialect that asked (pure): plain words, the field's name, no internals.

No answer says where this machine's files are; whoever runs the server reads that in the log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from specdec_cli.apps.serve.job import Busy, TooLong
from specdec_cli.core.errors import DoesNotFit, NotAvailable, Refused, SpecdecError, UsageError
from specdec_cli.core.events import Failure

# OpenAI's and Anthropic's names of a status.
KINDS = {
    400: ("invalid_request_error", "invalid_request_error"),
    401: ("authentication_error", "authentication_error"),
    403: ("permission_error", "permission_error"),
    404: ("not_found_error", "not_found_error"),
    413: ("request_too_large", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_error"),
    500: ("server_error", "api_error"),
    503: ("server_error", "overloaded_error"),
}
FAILED = "the answer failed on the server; its log says why"
NOT_LOADED = "the model cannot be loaded; the server's log says why"
NO_MEMORY = "the model does not fit in memory; the server's log has both figures"
# What JSON lets through as it is and `str.splitlines`, with which clients read streams, takes for the end of a line.
LINE_ENDS = {end: f"\\u{end:04x}" for end in (0x85, 0x2028, 0x2029)}
ANTHROPIC, OLLAMA = "/messages", "/api"
LLAMA = ("/props", "/tokenize", "/detokenize", "/apply-template", "/health", "/metrics", "/slots", "/infill")


class HttpError(Exception):
    """An answer that is an error; `param` names the field, `code` is a name for programs, `details` are Anthropic's.

    `cause` is what the operator reads of it, who may know where files are.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        cause: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.cause = status, message, param, code, cause
        self.headers, self.details = headers or {}, details


def bad_field(name: str, reason: str, details: Mapping[str, Any] | None = None) -> HttpError:
    """A field that cannot be honoured."""
    return HttpError(400, f"{name}: {reason}", param=name, details=details)


def error_body(path: str, error: HttpError) -> dict[str, Any]:
    """The body of `error` for a request of `path`, which may begin with /v1 or not."""
    path = path.removeprefix("/v1")
    openai, anthropic = KINDS.get(error.status, KINDS[400] if error.status < 500 else KINDS[500])
    if path.startswith(ANTHROPIC):
        details = {"details": error.details} if error.details else {}
        return {"type": "error", "error": {"type": anthropic, "message": error.message, **details}}
    if path.startswith(OLLAMA):
        return {"error": error.message}
    if path.startswith(LLAMA):
        return {"error": {"code": error.status, "message": error.message, "type": openai}}
    return {"error": {"message": error.message, "type": openai, "param": error.param, "code": error.code}}


def dialect_path(path: str, headers: Mapping[str, str]) -> str:
    """`path`, or one of Anthropic's where its clients ask for models: these addresses are OpenAI's too."""
    asks = path.removeprefix("/v1").startswith("/models") and "anthropic-version" in headers
    return ANTHROPIC if asks else path


def to_json(values: Any) -> bytes:
    """JSON in one line of UTF-8; half a character, which no UTF-8 can hold, becomes `?`."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return text.translate(LINE_ENDS).encode("utf-8", "replace")


def as_http_error(error: SpecdecError, param: str | None = None) -> HttpError:
    """What a client is told of a refusal; `param` is the field that the prompt is in."""
    whole = f"{error.message}; {error.hint}"
    match error:
        case Busy():
            return HttpError(429, error.message, code="busy", headers={"Retry-After": str(error.retry_seconds)})
        case TooLong():
            return HttpError(400, error.message, param, "context_length_exceeded")
        case UsageError():
            return HttpError(400, error.message, param)
        case DoesNotFit():
            return HttpError(413, _without_place(error.message, NO_MEMORY), code="does_not_fit", cause=whole)
        case NotAvailable() | Refused():
            return HttpError(503, _without_place(whole, NOT_LOADED), "model", "model_not_loaded", cause=whole)
    return HttpError(500, FAILED)


def _without_place(text: str, instead: str) -> str:
    """`text`, unless there may be a path in it."""
    return instead if "/" in text or "~" in text else text


def of_failure(failure: Failure) -> HttpError:
    """The same of a job that failed in its first steps, or later."""
    kinds = (NotAvailable, Refused, DoesNotFit, UsageError)
    kind = next((kind for kind in kinds if kind.exit_code == failure.exit_code), SpecdecError)
    return as_http_error(kind(failure.message, failure.hint))
