"""A chat template is a program from elsewhere: it ends in time and in memory, in every thread."""

import threading
import time

import jinja2
import pytest

from specdec_cli.models.template import BoundedEnvironment, limited

ENDLESS = "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}"
DOUBLING = (
    "{% set n = namespace(s='x' * 1000) %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s|length }}"
)


def rendered(text, seconds=0.3, limit_bytes=1 << 40):
    template = BoundedEnvironment().from_string(text)
    with limited(seconds, limit_bytes):
        return template.render()


def in_a_thread(call):
    found = []

    def run():
        try:
            found.append(call())
        except TimeoutError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    return found[0]


def test_a_template_without_end_is_stopped_in_the_main_thread_and_in_others():
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"did not end within 0\.3 s"):
        rendered(ENDLESS)
    assert isinstance(in_a_thread(lambda: rendered(ENDLESS)), TimeoutError)
    assert time.monotonic() - began < 15


def test_a_text_that_doubles_is_stopped_by_its_memory():
    with pytest.raises(TimeoutError, match=r"took more than 0\.2 GB"):
        rendered(DOUBLING, seconds=60, limit_bytes=200_000_000)


@pytest.mark.parametrize(
    "text", ["{{ 'a' * 10 ** 9 }}", "{{ 10 ** (10 ** 8) }}", "{{ [0] * 99999999 }}", "{{ 9 ** (9 ** 9) }}"]
)
def test_one_step_that_takes_hours_or_all_memory_is_refused_before_it_computes(text):
    began = time.monotonic()
    with pytest.raises(OverflowError, match="too l"):
        rendered(text)
    assert time.monotonic() - began < 5


def test_usual_products_and_powers_stay():
    assert rendered("{{ 'ab' * 3 }} {{ 3 * 4 }} {{ 2 ** 10 }} {{ 2.5 * 2 }} {{ 2 ** -1 }}") == "ababab 12 1024 5.0 0.5"


def test_what_ends_in_time_is_left_alone_and_errors_pass():
    assert rendered("{{ 1 + 1 }}") == "2"
    with pytest.raises(jinja2.TemplateError):
        rendered("{{ missing.at.all }}")
    time.sleep(0.5)  # the watchdog's time: it is gone
