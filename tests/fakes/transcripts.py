"""Conversations of many turns, and how little of each should be read."""

from fakes.chat import BYTES
from fakes.serving import ids, job


def turns_of(ask, number, turns, system, ends_of_turns=True, below=BYTES, **more):
    """A conversation of so many turns, one at a time: yields each prompt and what `ask` made of its job.

    All ids are `below` that.
    """
    prompt = [*system]
    for turn in range(turns):
        prompt += [token % below for token in ids(30 + 7 * turn % 50, number + turn)]
        ends = (len(system), len(prompt)) if ends_of_turns else ()
        client = ask(job(prompt, 8, ends, **more))
        yield prompt[:], client
        # Of some answers later prompts leave a part out, as templates do with thinking.
        said = list(client.end.tokens)
        prompt += said[5:] if turn % 3 == 2 else said


def unread(before, prompt):
    """Tokens of `prompt` behind the first that differs from all that was said before."""
    shared = 0
    for earlier in before:
        here = next((i for i, (a, b) in enumerate(zip(earlier, prompt, strict=False)) if a != b), len(earlier))
        shared = max(shared, min(here, len(prompt)))
    return len(prompt) - shared


def allowed_tokens(kind):
    """The distance to the nearest snapshot, taken one token before an end; and the last token is always fed."""
    return {"plain": 1, "window": 2, "recurrent": 2}[kind]
