"""What an answer may say of files: their names, never where they are."""

import pytest

from specdec_cli.errors import DoesNotFit, NotAvailable, Refused
from specdec_cli.events import Failure
from specdec_cli.serve.http.errors import as_http_error, of_failure, says_where


@pytest.mark.parametrize(
    "text",
    [
        "no folder /Users/Jane Doe/models/qwen for it",
        "/models/a needs 3 GB",
        "remove ~/models/a, then the same again",
        "~jane/a is gone",
        "it is in ./models",
        "look at ('../models')",
        "config.json of the model:/models/a",
        "file:///models/a is none",
        "/Users/jane/.config/specdec/models.toml:3: unknown key",
        "tests/serve is a folder here",
    ],
)
def test_a_path_is_seen(text, request, monkeypatch):
    monkeypatch.chdir(request.config.rootpath)
    assert says_where(text)


@pytest.mark.parametrize(
    "text",
    [
        "mlx-community/Qwen3-8B-4bit is not here",
        "specdec pull --target Qwen/Qwen3-8B",
        "accept its terms at https://huggingface.co/meta/llama, then pull",
        "model.safetensors of a/b is damaged (12 bytes)",
        "3/4 of it, and/or 20 tokens / s",
        "a/" + "b" * 5000,
    ],
)
def test_names_and_addresses_are_none(text):
    assert not says_where(text)


@pytest.mark.parametrize("kind", [NotAvailable, Refused, DoesNotFit])
def test_an_error_says_what_it_can_and_the_operator_reads_all(kind):
    for message, hint in [("a/b is gone", "specdec pull a/b"), ("a/b is gone", "see /x/y"), ("/x/y is gone", "see /x")]:
        error = as_http_error(kind(message, hint))
        later = of_failure(Failure(message, hint, kind.exit_code))
        assert (error.status, error.message, error.cause) == (later.status, later.message, later.cause)
        assert message in error.cause and "/x" not in error.message and error.status in (413, 503)
        assert ("a/b is gone" in error.message) == (message == "a/b is gone")
        assert error.message == message or "; " in error.message
