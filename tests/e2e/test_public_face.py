"""`import specdec_cli as specdec`: what is promised is there, light to import, and says what is wrong in two lines."""

import json
import subprocess
import sys

import mlx.core as mx
import numpy as np
import pytest

import specdec_cli as specdec
from specdec_cli.core import kinds


@pytest.fixture(scope="module")
def pair(tiny_pair):
    target, draft = map(str, tiny_pair)
    return specdec.load(target=target, draft=draft)


def test_every_promised_name_is_there_and_no_other():
    assert sorted(specdec.__all__) == dir(specdec)
    for name in specdec.__all__:
        assert getattr(specdec, name) is not None
    public = "load LoadedPair Slot Session Pair Request Constraint Start Prefill Round RoundDone Finish Failure Stats"
    errors = "SpecdecError UsageError NotAvailable Refused DoesNotFit"
    assert {*public.split(), *errors.split(), "__version__"} <= set(specdec.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = specdec.nonsense


@pytest.mark.slow
def test_importing_it_and_its_errors_imports_nothing_heavy():
    code = "import json, sys, specdec_cli as s; s.UsageError; s.Request; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"mlx", "mlx_lm", "rich", "typer", "huggingface_hub", "transformers"} & set(json.loads(done.stdout))


def test_a_text_is_answered_with_keyword_options(pair):
    events = list(pair.session().reply("hello", k=3, max_tokens=12, temperature=0.8, seed=4, rule="coupled"))
    start, finish = events[0], events[-1]
    assert isinstance(start, specdec.Start) and isinstance(finish, specdec.Finish)
    assert (start.k, start.temperature, start.seed, start.rule, start.max_tokens) == (3, 0.8, 4, "coupled", 12)
    rounds = [event for event in events if isinstance(event, specdec.RoundDone)]
    assert "".join(event.text for event in rounds) + finish.text_tail == finish.text


def test_a_text_is_one_message_of_the_user_and_raw_text_is_continued(pair):
    session = pair.session()
    asked = next(iter(session.reply("hello", max_tokens=4)))
    assert asked.prompt_tokens == len(session.pair.chat_tokens("hello")) > len("hello")
    assert next(iter(session.reply("hello", max_tokens=4, raw=True))).prompt_tokens == len("hello")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"temprature": 1.0}, "temprature is not an option of a reply\nthe nearest: temperature"),
        ({"temperature": -1.0}, "--temp -1.0 is outside 0 to 100\noff is --temp 0"),
        ({"k": 99}, "k 99 is outside 0 to 16\nthe nearest that works: k 16"),
        ({"drafter": "modle"}, f"drafter modle is none of {', '.join(kinds.DRAFTERS)}\nthe nearest: drafter model"),
        ({"rule": "blok"}, "rule blok is none of auto, token, block, coupled, match\nthe nearest: rule block"),
        ({"max_tokens": 0}, "max_tokens 0 is below 1\nthe nearest that works: max_tokens 1"),
        ({"k": -3}, "k -3 is outside 0 to 16"),
        ({"k": "4"}, "k '4' is not a whole number"),
        ({"max_context": 0}, "max_context 0 is below 1"),
        ({"logprobs": -1}, "logprobs -1 is below 0"),
        ({"logit_bias": ((-3, 1.0),)}, "logit_bias (-3, 1.0) is not possible"),
        ({"logit_bias": (3, 4)}, "logit_bias (3, 4) are not pairs"),
        ({"stop": ("",)}, "stop ('',) holds an empty text, or something other than text"),
        ({"sampling": {"temprature": 1.0}}, "sampling temprature is none of temperature, top_k, top_p, min_p, "),
        ({"sampling": {"temperature": "hot"}}, "--temp hot is outside 0 to 100"),
        (
            {"constraint": specdec.Constraint("evil", "x")},
            "Constraint(kind='evil', text='x', whole=False) is not a constraint",
        ),
        ({"constraint": "[a-z]+"}, "'[a-z]+' is not a constraint"),
        ({"seed": "x"}, "seed 'x' is not a whole number"),
        ({"seed": 1.0}, "seed 1.0 is not a whole number"),
        ({"seed": True}, "seed True is not a whole number"),
        ({"stop": 5}, "stop (5,) holds an empty text, or something other than text"),
        ({"stop": b"END"}, "stop (b'END',) holds an empty text, or something other than text"),
        ({"stop_tokens": ("x",)}, "an id of stop_tokens 'x' is not a whole number"),
        ({"stop_tokens": b"ab"}, "stop_tokens is a bytes, not a sequence of ids"),
        ({"stop_tokens": "ab"}, "stop_tokens is a str, not a sequence of ids"),
        ({"stop_tokens": 5}, "stop_tokens is a int, not a sequence of ids"),
        ({"stop_tokens": (3.0,)}, "an id of stop_tokens 3.0 is not a whole number"),
        ({"stop_tokens": (-1,)}, "an id of stop_tokens -1 is below 0"),
        ({"predict": (4, -1)}, "an id of predict -1 is below 0"),
        ({"predict": b"ab"}, "predict is a bytes, not a sequence of ids"),
        ({"sampling": [0.8]}, "sampling [0.8] names no values"),
    ],
)
def test_a_request_is_checked_as_options_are(pair, options, told):
    """Some were taken in silence, others raised TypeError or KeyError."""
    # A request of no tokens has its prompt read.
    asked = options.keys() <= specdec.Request.__dataclass_fields__.keys() - {"max_tokens"}
    for ask in (lambda: {"request": specdec.Request(**options)}, lambda: options)[not asked :]:
        with pytest.raises(specdec.UsageError) as error:
            pair.session().reply("hello", **ask())
        assert f"{error.value.message}\n{error.value.hint}".startswith(told) and error.value.hint


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (b"ab", "prompt is a bytes, not a sequence of ids"),
        (None, "prompt is a NoneType, not a sequence of ids"),
        (5, "prompt is a int, not a sequence of ids"),
        (np.array(5), "prompt is a ndarray, not a sequence of ids"),
        (["a", 5], "an id of prompt 'a' is not a whole number"),
        ([5, True], "an id of prompt True is not a whole number"),
        (np.array([5.0]), "an id of prompt 5.0 is not a whole number"),
        (np.array([[5, 6]]), "an id of prompt [5, 6] is not a whole number"),
    ],
)
def test_a_prompt_is_text_or_ids(pair, prompt, message):
    with pytest.raises(specdec.UsageError) as error:
        pair.session().reply(prompt, max_tokens=4)
    assert error.value.message == message and error.value.hint


@pytest.mark.parametrize("array", [np.array, mx.array, tuple, lambda ids: [np.int64(token) for token in ids]])
def test_arrays_of_ids_and_numbers_of_numpy_are_as_good_as_lists(pair, array):
    """A prompt of numpy raised ValueError."""
    ids, options = [20, 30, 40, 50], {"max_tokens": 8, "temperature": 0.8, "seed": 7}
    expected = list(pair.session().reply(ids, stop_tokens=(60,), predict=(30, 40), drafter="ngram", **options))[-1]
    more = {"stop_tokens": array([60]), "predict": array([30, 40]), "drafter": "ngram"}
    found = list(pair.session().reply(array(ids), **options | more | {"seed": np.int64(7)}))[-1]
    assert found.tokens == expected.tokens


LOADING = [
    *(({"draft_context": value}, "draft_context") for value in (-1, 0, 7, True, 8.0, "1024", "whole", [8])),
    *(({"kv_bits": value}, "kv_bits") for value in (0, 3, True, 8.0, "8")),
    *(({"reserve_tokens": value}, "reserve_tokens") for value in (-1, True, 8.0, "8")),
    *(({"drafter": value}, "--drafter") for value in (5, ["model"], "")),
    *(({"request": specdec.Request(**asked)}, name) for name, asked in (("k", {"k": 99}), ("seed", {"seed": "x"}))),
]
PAIRS = [
    *LOADING[:8],
    *(({"k": value}, "k ") for value in (-1, 17, True, 3.0, "3", None)),
    *(({"stop_repetition": value}, "stop_repetition") for value in (-1, True, "8", None)),
    *(({"drafter": value}, "drafter") for value in ("magic", 5)),
    *(({name: value}, f"{name} ") for name in ("target", "draft", "draft_revision") for value in (5, b"x")),
]


@pytest.mark.parametrize(("options", "name"), LOADING)
def test_loading_checks_what_the_command_line_checks(tiny_pair, options, name):
    """Some were taken in silence, and -1 tokens of context were all of it."""
    with pytest.raises(specdec.UsageError) as error:
        specdec.load(target=str(tiny_pair[0]), draft=str(tiny_pair[1]), **options)
    assert error.value.message.startswith(name) and error.value.hint


@pytest.mark.parametrize(("values", "name"), PAIRS)
def test_a_pair_of_ones_own_is_checked_as_one_of_models_toml(tiny_pair, values, name):
    with pytest.raises(specdec.UsageError) as error:
        specdec.load(specdec.Pair(**{"name": "own", "target": str(tiny_pair[0]), "draft": None} | values))
    assert error.value.message.startswith(name) and error.value.hint


@pytest.mark.parametrize("options", [{"pair": 5}, {"target": 5}, {"target": "x", "draft": b"y"}])
def test_names_are_texts(options):
    with pytest.raises(specdec.UsageError, match="is not text"):
        specdec.load(**options)


@pytest.mark.parametrize("kind", ["regex", "schema"])
def test_half_a_character_in_a_shape_is_a_usage_error(pair, kind):
    request = specdec.Request(constraint=specdec.Constraint(kind, "a\udc80"))
    with pytest.raises(specdec.UsageError, match=r"the text is not UTF-8: byte 0x80 at 1 of 2|schema cannot be read"):
        list(pair.session().reply("hello", request))
