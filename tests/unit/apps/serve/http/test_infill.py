"""Filling in between two texts: llama.cpp's /infill, and `suffix` of OpenAI's completions."""

import json

import pytest

import specdec_cli
from fakes.desk import ScriptedDesk
from fakes.fill_model import fill_folder
from fakes.server import local
from fakes.serving import model_of
from specdec_cli.apps.serve.scheduler import Scheduler, SchedulerOptions
from specdec_cli.models.fill import Fill

BEFORE, AFTER = "def read_lines(path):\n    ", "\n    return lines\n"

pytestmark = pytest.mark.slow  # a model's own answers
RECORDS = []
ASKED = {"input_prefix": BEFORE, "input_suffix": AFTER, "n_predict": 24, "temperature": 0}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("fill")
    return {"target": str(fill_folder(root / "target")), "draft": str(fill_folder(root / "draft", noise=0.01))}


@pytest.fixture(scope="module")
def filler(folders):
    """The pair in this thread."""
    return specdec_cli.load(**folders)


@pytest.fixture(scope="module")
def editor(filler, folders):
    """A client of a server that can fill; its desk loads the pair in its own thread."""
    desk = Scheduler(lambda: specdec_cli.load(**folders), SchedulerOptions(idle_seconds=None))
    model = model_of(filler, specdec_cli.Request(k=4), 1)
    with local(model, desk, RECORDS) as client:
        yield client
    desk.close()


def told(editor, path="/infill", **body):
    reply = editor.post(path, json={**(ASKED if path == "/infill" else {}), **body})
    assert reply.status_code == 200, (reply.text, RECORDS[-1].failure)
    return reply


def events_of(reply):
    assert reply.headers["content-type"].startswith("text/event-stream")
    return [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: ")]


def own(filler, prompt, **options):
    """What the session says to these ids."""
    fill = Fill.of(filler.tokenizer)
    request = specdec_cli.Request(max_tokens=24, stop_tokens=fill.stop_tokens, **options)
    return list(filler.session().reply(prompt, request, raw=True))[-1]


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.8, "seed": 7}])
def test_what_is_filled_in_is_run_s_answer_to_the_same_ids(editor, filler, sampling):
    """As `specdec run --raw` on the text with its marks: the same ids, so the same answer; and it is drafted for."""
    text = f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{AFTER}<|fim_middle|>"
    prompt = filler.text_tokens(text)
    seed, values = sampling.get("seed"), {"temperature": sampling["temperature"]}
    finish = own(filler, prompt, k=4, seed=seed, sampling=values)
    plain = own(filler, prompt, k=0, seed=seed, rule="coupled" if seed else "auto", sampling=values)
    answer = told(editor, **sampling).json()
    assert answer["content"] == finish.text == plain.text and answer["tokens_predicted"] > 4
    assert answer["tokens_evaluated"] == len(prompt) and answer["timings"]["draft_n_accepted"] > 0
    other = told(editor, "/v1/completions", prompt=BEFORE, suffix=AFTER, max_tokens=24, **sampling).json()
    assert other["choices"][0]["text"] == finish.text


def test_a_stream_says_the_same_and_ends_with_its_last_chunk(editor):
    whole = told(editor).json()
    *parts, last = events_of(told(editor, stream=True))
    assert "".join(part["content"] for part in parts) == whole["content"]
    assert not any(part["stop"] for part in parts) and last["stop"] and last["content"] == ""
    same = ("stop_type", "tokens_predicted", "tokens_evaluated", "model", "has_new_line")
    assert {name: last[name] for name in same} == {name: whole[name] for name in same}


def test_typing_on_reads_only_what_is_new(editor):
    files = [{"filename": "a.py", "text": "import os\n" * 20}]
    told(editor, input_extra=files, n_predict=0)
    first = told(editor, input_extra=files, prompt="li").json()["timings"]
    assert first["cache_n"] > 200
    begun = told(editor, input_extra=files, prompt="lin").json()["timings"]
    assert begun["prompt_n"] <= 2 and begun["cache_n"] > first["cache_n"]
    line = told(editor, input_extra=files, input_prefix=BEFORE + "lines = []\n    ").json()["timings"]
    assert line["prompt_n"] <= len("lines = []\n    ") + len(AFTER) + 4


def test_the_fields_that_are_asked_for_come_under_their_whole_paths(editor):
    fields = ["content", "timings/prompt_n", "timings/none", "tokens_cached"]
    assert list(told(editor, response_fields=fields).json()) == ["content", "timings/prompt_n", "tokens_cached"]


def test_stop_strings_and_lines_end_an_answer_and_are_named(editor):
    whole = told(editor, n_predict=64).json()["content"]
    word = whole[3:5]
    stopped = told(editor, n_predict=64, stop=[word]).json()
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", word)
    assert stopped["content"] == whole[: whole.index(word)]
    limited = told(editor, n_predict=2).json()
    assert (limited["stop_type"], limited["stopping_word"], limited["tokens_predicted"]) == ("limit", "", 2)


def test_a_mark_of_the_family_ends_an_answer(editor, filler):
    """A model that goes over to the next file says so with such a token."""
    mark = filler.tokenizer.token_of("<|file_sep|>")
    answer = told(editor, logit_bias={str(mark): 100}).json()
    assert (answer["content"], answer["stop_type"], answer["tokens_predicted"]) == ("", "eos", 1)


def test_less_indented_lines_and_their_time_end_an_answer(filler):
    desk = ScriptedDesk(["a\n    b\nc\n", "a\nb\n"], steps=list)
    with local(model_of(filler, specdec_cli.Request(), 1), desk) as client:
        whole = client.post("/infill", json={**ASKED, "n_indent": 4}).json()
        assert (whole["content"], whole["stop_type"], whole["has_new_line"]) == ("a\n    b\n", "limit", True)
        whole = client.post("/infill", json={**ASKED, "t_max_predict_ms": 0.001}).json()
        assert (whole["content"], whole["stop_type"]) == ("a", "limit")
    assert [job.cancelled for job in desk.jobs] == [True, True]
    desk.close()


@pytest.mark.parametrize(
    "field, value",
    [
        ("input_prefix", 1),
        ("input_suffix", None),
        ("input_extra", [{"filename": "a"}]),
        ("input_extra", ["a"]),
        ("prompt", [1]),
        ("n_indent", -1),
        ("n_cmpl", 2),
        ("grammar", "root ::= x"),
        ("response_fields", 3),
        ("n_predict", "all"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(editor, field, value):
    refused = editor.post("/infill", json={**ASKED, field: value})
    assert refused.status_code == 400 and refused.json()["error"]["message"].startswith(field)


def test_suffix_goes_with_a_text(editor):
    refused = editor.post("/v1/completions", json={"prompt": [5, 6], "suffix": "b"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "suffix")
    assert editor.post("/v1/completions", json={"prompt": [5, 6], "suffix": "", "max_tokens": 1}).status_code == 200
