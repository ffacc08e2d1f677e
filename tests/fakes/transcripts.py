"""Conversations of many turns, and how little of each should be read."""


def allowed_tokens(kind):
    """The distance to the nearest snapshot, taken one token before an end; and the last token is always fed."""
    return {"plain": 1, "window": 2, "recurrent": 2}[kind]
