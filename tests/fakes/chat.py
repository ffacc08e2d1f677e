"""A chat in memory: tiny networks under a byte-level tokenizer, a screen of strings, and what was asked of them."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace

from conformance.architectures import architectures, tiny_network
from fakes.models import TINY, byte_tokenizer, write_tokenizer
from specdec_cli.apps.chat.chat import Chat, Loaded
from specdec_cli.apps.chat.screen import ChatScreen
from specdec_cli.apps.chat.settings import ChatSettings
from specdec_cli.apps.chat.talk import run_chat
from specdec_cli.command.process import as_user_error
from specdec_cli.core.errors import NotAvailable
from specdec_cli.core.events import Finish, Prefill
from specdec_cli.core.request import Request
from specdec_cli.engine import device
from specdec_cli.engine.cache.cache_kinds import KEPT_SNAPSHOTS
from specdec_cli.engine.model import CachedModel
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.pairs.fit import Fit, Footprint
from specdec_cli.pairs.limits import ContextLimit
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session.session import LoadedPair, Session
from specdec_cli.session.signals import Presses
from specdec_cli.session.slot import Slot

BYTES = 259
NEVER_STOP = tuple((token, -1e9) for token in (0, 1, 2))
PAIR = Pair("tiny", "specdec:demo/target", "specdec:demo/draft", 4)


def tokenizer_in(folder, **extra):
    """The byte-level tokenizer, loaded as a model's is."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, byte_tokenizer(), **extra)
    return Tokenizer.load(folder, "tiny", TINY)


def networks(architecture, **more):
    """(target, draft) of one architecture, with `more` in its configuration, over bytes; the draft agrees at times."""
    found = architectures()[architecture]
    config = found.config | more
    if "text_config" in config:
        config["text_config"] = config["text_config"] | {"vocab_size": BYTES}
    else:
        config["vocab_size"] = BYTES
    found = replace(found, config=config)
    return tiny_network(found, 1), tiny_network(found, 1, found.noise)


def fit_of(slot, usable_bytes=None):
    """What the models of `slot` take as they are, but for the activations of a prompt. It keeps no weights."""
    models = [one for one in (slot.target, slot.draft) if isinstance(one, CachedModel)]
    names = "name", "weight_bytes", "dtype", "recent", "_cache_sizes"
    numbers = [SimpleNamespace(**{name: getattr(model, name) for name in names}) for model in models]

    def part(of, tokens):
        width = 4 if of.dtype == "float32" else 2
        held, more = (CachedModel.cache_bytes(of, tokens, width, KEPT_SNAPSHOTS + extra) for extra in (0, 1))
        return Footprint(of.name, of.weight_bytes, held, 0, more - held)

    limits = [*(model.context_limit for model in models), None]
    return Fit(
        None,
        lambda tokens: tuple(part(of, tokens) for of in numbers),
        device.usable_bytes() if usable_bytes is None else usable_bytes,
        context=ContextLimit(*limits[:2], slot.target.network.positions),
    )


def loaded(slot, tokenizer, **more):
    """A pair in memory, whose first conversation `slot` is."""
    names = "t", None if slot.draft is None else "d"
    return LoadedPair(Pair("tiny", *names), names, tokenizer, slot, fit_of(slot), **more)


class Recorded(Session):
    """A session that remembers every prompt, request, prefill and finish, and whether it measured behind the last."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.replies, self.measured_last = [], []

    def reply(self, prompt, request, cancelled=lambda: False, raw=False, measures_last=False):
        prefill = None
        self.measured_last.append(measures_last)
        for event in super().reply(prompt, request, cancelled, raw, measures_last):
            prefill = event if isinstance(event, Prefill) else prefill
            if isinstance(event, Finish):
                self.replies.append((list(prompt), request, prefill, event))
            yield event


def recorded(nets, tokenizer, context_limit=None, draft_limit=None):
    limits = context_limit, draft_limit or context_limit
    slot = Slot(*(CachedModel(net, "m", limit) for net, limit in zip(nets, limits, strict=True)))
    return Recorded(LoadedPair(PAIR, ("target", "draft"), tokenizer, slot, fit_of(slot)), slot)


class Refusing:
    """An `open_pair` that knows no other pair."""

    def __call__(self, spec):
        raise NotAvailable(f"{spec.pair.name} is not here", "pull it")


def only_ascii(tokenizer):
    """A bias under which random networks write printable ASCII and never stop, so that text becomes the same ids."""
    pieces = ((token, tokenizer.piece(token)) for token in range(BYTES))
    return tuple((token, -1e9) for token, piece in pieces if not (len(piece) == 1 and " " <= piece <= "~"))


def chat_with(session, open_pair=None, **settings):
    """(chat, out, err); `settings` replace those of a chat with K = 4 and short answers."""
    out, err = io.StringIO(), io.StringIO()
    loaded = Loaded(PairSpec(PAIR, "model"), session)
    own = {name: settings.pop(name) for name in ("overflow",) if name in settings}
    chosen = ChatSettings(Request(**{"max_tokens": 24, "k": PAIR.k} | settings), panel=False, **own)
    return Chat(loaded, open_pair or Refusing(), ChatScreen(out, err), chosen), out, err


def ran(opened, *lines, lenient=False, presses=None):
    """(exit code, stdout, stderr) of a chat that reads these lines; a KeyboardInterrupt in them is pressed."""
    chat, out, err = opened
    chat.presses = presses or Presses(iter(range(0, 1000, 10)).__next__)

    class Script:
        def __init__(self):
            self.lines, self.given, self.refusals = list(lines), [], []

        def read(self, text, refusal=""):
            self.given.append(text)
            self.refusals.append(refusal)
            if not self.lines:
                raise EOFError
            line = self.lines.pop(0)
            if line is KeyboardInterrupt:
                raise KeyboardInterrupt
            return line

    reader = Script()
    code = run_chat(chat, reader, lenient, as_user_error)
    chat.given, chat.refusals = reader.given, reader.refusals
    return code, out.getvalue(), err.getvalue()
