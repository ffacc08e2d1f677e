"""llama.cpp's endpoints: filling in between two texts (`suffix` of OpenAI's completions, too), lines, metrics."""

import json
import re

import pytest

import specdec_cli
from fakes.models import FILLS, tiny_folder
from fakes.server import local
from fakes.serving import ids, job, model_of
from specdec_cli.apps.serve.http.answer import LineCutter, LineLimits
from specdec_cli.apps.serve.http.llama import health
from specdec_cli.apps.serve.job import JobHandle, SchedulerStatus
from specdec_cli.apps.serve.model import Model
from specdec_cli.apps.serve.scheduler import Scheduler, SchedulerOptions
from specdec_cli.core.events import Prefill, Reading
from specdec_cli.core.request import Request
from specdec_cli.models.fill import Fill

slow = pytest.mark.slow  # a model's own answers
BEFORE, AFTER = "def read_lines(path):\n    ", "\n    return lines\n"
INFILL = {"input_prefix": BEFORE, "input_suffix": AFTER, "n_predict": 24, "temperature": 0}
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "Return the lines of a file."}]
ASKED = {"/infill": INFILL, CHAT: {"messages": USER, "max_tokens": 24, "temperature": 0}}


@pytest.fixture(scope="module")
def filler(tmp_path_factory):
    root = tmp_path_factory.mktemp("fill")
    target, draft = tiny_folder(root / "target", **FILLS), tiny_folder(root / "draft", **FILLS, noise=0.01)
    return specdec_cli.load(target=str(target), draft=str(draft))


@pytest.fixture(scope="module")
def editor(filler):
    """A client of a server that can fill."""
    desk = Scheduler(lambda name: filler, SchedulerOptions(idle_seconds=None))
    with local(model_of(filler, Request(k=4), 1), desk) as client:
        yield client
    desk.close()


def told(client, path="/infill", **body):
    reply = client.post(path, json={**ASKED.get(path, {}), **body})
    assert reply.status_code == 200, reply.text
    return reply


def events_of(reply):
    assert reply.headers["content-type"].startswith("text/event-stream")
    return [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]


@slow
@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.8, "seed": 7}])
def test_what_is_filled_in_is_run_s_answer_to_the_same_ids(editor, filler, sampling):
    """As `specdec run --raw` on the text with its marks: the same ids, so the same answer; and it is drafted for."""
    text = f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{AFTER}<|fim_middle|>"
    prompt = filler.text_tokens(text)
    seed, values = sampling.get("seed"), {"temperature": sampling["temperature"]}
    asked = {"max_tokens": 24, "stop_tokens": Fill.of(filler.tokenizer).stop_tokens, "seed": seed, "sampling": values}
    plain = Request(k=0, rule="coupled" if seed else "auto", **asked)
    finish, plain = (list(filler.session().reply(prompt, one, raw=True))[-1] for one in (Request(k=4, **asked), plain))
    answer = told(editor, **sampling).json()
    assert answer["content"] == finish.text == plain.text and answer["tokens_predicted"] > 4
    assert answer["tokens_evaluated"] == len(prompt) and answer["timings"]["draft_n_accepted"] > 0
    other = told(editor, "/v1/completions", prompt=BEFORE, suffix=AFTER, max_tokens=24, **sampling).json()
    assert other["choices"][0]["text"] == finish.text


@slow
def test_a_stream_says_the_same_and_ends_with_its_last_chunk(editor):
    whole = told(editor).json()
    *parts, last = events_of(told(editor, stream=True))
    assert "".join(part["content"] for part in parts) == whole["content"]
    assert not any(part["stop"] for part in parts) and last["stop"] and last["content"] == ""
    same = ("stop_type", "tokens_predicted", "tokens_evaluated", "model", "has_new_line")
    assert {name: last[name] for name in same} == {name: whole[name] for name in same}


@slow
def test_typing_on_reads_only_what_is_new(editor):
    files = [{"filename": "a.py", "text": "import os\n" * 20}]
    told(editor, input_extra=files, n_predict=0)
    first = told(editor, input_extra=files, prompt="li").json()["timings"]
    assert first["cache_n"] > 200
    begun = told(editor, input_extra=files, prompt="lin").json()["timings"]
    assert begun["prompt_n"] <= 2 and begun["cache_n"] > first["cache_n"]
    line = told(editor, input_extra=files, input_prefix=BEFORE + "lines = []\n    ").json()["timings"]
    assert line["prompt_n"] <= len("lines = []\n    ") + len(AFTER) + 4


@slow
def test_the_fields_that_are_asked_for_come_under_their_whole_paths(editor):
    fields = ["content", "timings/prompt_n", "timings/none", "tokens_cached"]
    assert list(told(editor, response_fields=fields).json()) == ["content", "timings/prompt_n", "tokens_cached"]


@slow
def test_stop_strings_and_lines_end_an_answer_and_are_named(editor):
    whole = told(editor, n_predict=64).json()["content"]
    word = whole[3:5]
    stopped = told(editor, n_predict=64, stop=[word]).json()
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", word)
    assert stopped["content"] == whole[: whole.index(word)]
    limited = told(editor, n_predict=2).json()
    assert (limited["stop_type"], limited["stopping_word"], limited["tokens_predicted"]) == ("limit", "", 2)


@slow
def test_a_mark_of_the_family_ends_an_answer(editor, filler):
    """A model that goes over to the next file says so with such a token."""
    mark = filler.tokenizer.token_of("<|file_sep|>")
    answer = told(editor, logit_bias={str(mark): 100}).json()
    assert (answer["content"], answer["stop_type"], answer["tokens_predicted"]) == ("", "eos", 1)


def test_less_indented_lines_and_their_time_end_an_answer(filler, scripted):
    client, desk = scripted("a\n    b\nc\n", "a\nb\n", steps=list, model=model_of(filler, Request(), 1))
    whole = told(client, n_indent=4).json()
    assert (whole["content"], whole["stop_type"], whole["has_new_line"]) == ("a\n    b\n", "limit", True)
    whole = told(client, t_max_predict_ms=0.001).json()
    assert (whole["content"], whole["stop_type"]) == ("a", "limit")
    assert [job.cancelled for job in desk.jobs] == [True, True]


SPLITS = (list, lambda text: [text], lambda text: re.findall("(?s).{1,3}", text))


def said(deltas):
    return "".join(delta[1] for delta in deltas)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("x = 1\n    y = 2\nz", "x = 1\n    y = 2\n"),
        ("x\n\n    y\n  z", "x\n\n    y\n"),
        ("x\n    y\n    ", "x\n    y\n    "),
        ("no line", "no line"),
        ("\n\ty", "\n"),
    ],
)
def test_a_line_that_is_indented_less_ends_the_answer_and_is_not_shown(text, shown):
    for split in SPLITS:
        lines = LineCutter(LineLimits(indent=4))
        assert "".join(said(lines.feed(piece)) for piece in split(text)) + said(lines.finish()) == shown
        assert lines.over == (shown != text)


def test_without_limits_nothing_is_held_back():
    lines = LineCutter(LineLimits())
    assert [said(lines.feed(piece)) for piece in ("a\n", "  ", "b")] == ["a\n", "  ", "b"] and not lines.over


def test_after_its_time_the_answer_ends_with_its_line():
    now = iter([0.0, 0.0, 0.5, 2.0, 3.0])
    lines = LineCutter(LineLimits(seconds=1.0), lambda: next(now))
    assert [said(lines.feed(piece)) for piece in ("a\nb", "c\n", "d", "e\nf")] == ["a\nb", "c\n", "d", "e"]
    assert lines.over and said(lines.feed("g")) == ""


@slow
def test_timings_are_those_of_the_stats(client, pair):
    asked = {"max_tokens": 32}
    timings = told(client, CHAT, **asked).json()["timings"]
    request = Request(k=4, max_tokens=32, sampling={"temperature": 0})
    stats = list(pair.session().reply(pair.message_tokens(USER), request))[-1].stats
    assert timings["cache_n"] + timings["prompt_n"] == 18 and timings["predicted_n"] == stats["emitted_tokens"]
    assert timings["draft_n"] > timings["draft_n_accepted"] > 0
    assert timings["prompt_ms"] > 0 and timings["predicted_per_second"] > 0
    streamed = events_of(told(client, CHAT, **asked, stream=True, stream_options={"include_usage": True}))
    assert streamed[-1]["choices"] == [] and streamed[-1]["usage"]["completion_tokens"] == stats["emitted_tokens"]
    assert streamed[-2]["timings"] == streamed[-1]["timings"] and streamed[-1]["timings"]["cache_n"] > 0
    assert streamed[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == streamed[-1]["timings"]["cache_n"]


@slow
def test_the_metrics_count_under_llama_cpp_s_names(client, desk):
    before = desk.status().totals
    timings = told(client, CHAT, max_tokens=32).json()["timings"]
    totals, rounds = desk.status().totals, desk.status().totals.rounds
    read = totals.prompt_tokens - totals.cached_tokens - before.prompt_tokens + before.cached_tokens
    assert read == timings["prompt_n"]
    assert rounds.emitted_tokens - before.rounds.emitted_tokens == timings["predicted_n"]
    assert rounds.draft_n - before.rounds.draft_n == timings["draft_n"]
    assert rounds.draft_n_accepted - before.rounds.draft_n_accepted == timings["draft_n_accepted"]
    assert 1e3 * (totals.prefill_seconds - before.prefill_seconds) == pytest.approx(timings["prompt_ms"], abs=1e-3)
    text = client.get("/metrics").text
    values = dict(re.findall(r"^(llamacpp:\S+) (\S+)$", text, re.M))
    assert float(values["llamacpp:spec_decode_num_draft_tokens_total"]) == rounds.draft_n
    assert float(values["llamacpp:spec_decode_num_accepted_tokens_total"]) == rounds.draft_n_accepted
    accepted = "llamacpp:spec_decode_num_accepted_tokens_per"
    by_position = [float(value) for name, value in values.items() if name.startswith(accepted)]
    assert sum(by_position) == rounds.draft_n_accepted and by_position == sorted(by_position, reverse=True)
    assert float(values["llamacpp:requests_processing"]) == 0


def test_health_tells_how_far_a_prompt_is_read():
    handle = JobHandle(job(ids(900)), lambda event: None, 0.0)
    handle.notify(Reading("target", 512, 900))
    model = Model("demo", "t", None, None, 128, None)
    (told,) = health(model, SchedulerStatus(running=(handle,)))["jobs"]
    assert told == {"endpoint": "test", "prompt_tokens": 900, "read_tokens": 512}
    assert "jobs" not in health(model, SchedulerStatus())


def test_of_a_prompt_that_was_read_all_is_read_whatever_a_cache_held_of_it():
    """The bug: 850 of 900, and then 100, for what was in a cache was no longer counted."""
    handle = JobHandle(job(ids(900)), lambda event: None, 0.0)
    for event, read, done in ((Reading("target", 850, 900), 850, False), (Prefill(900, 800, 0.1), 900, True)):
        handle.notify(event)
        assert (handle.read_tokens, handle.is_read) == (read, done)
