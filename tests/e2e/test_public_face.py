"""`import specdec_cli as specdec`: what is promised is there, and light to import; what it refuses is in `golden`."""

import json
import subprocess
import sys

import mlx.core as mx
import numpy as np
import pytest

import specdec_cli as specdec


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


@pytest.mark.parametrize("array", [np.array, mx.array, tuple, lambda ids: [np.int64(token) for token in ids]])
def test_arrays_of_ids_and_numbers_of_numpy_are_as_good_as_lists(pair, array):
    """A prompt of numpy raised ValueError."""
    ids, options = [20, 30, 40, 50], {"max_tokens": 8, "temperature": 0.8, "seed": 7}
    expected = list(pair.session().reply(ids, stop_tokens=(60,), predict=(30, 40), drafter="ngram", **options))[-1]
    more = {"stop_tokens": array([60]), "predict": array([30, 40]), "drafter": "ngram"}
    found = list(pair.session().reply(array(ids), **options | more | {"seed": np.int64(7)}))[-1]
    assert found.tokens == expected.tokens
