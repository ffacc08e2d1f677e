"""A loaded pair, and a conversation with it: template, text and stop strings around the engine's rounds.

Yields events, prints nothing; closing the generator cancels.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specdec_cli.core.errors import DoesNotFit, UsageError
from specdec_cli.core.events import Event, Finish, FinishReason, Prefill, Reading, Start
from specdec_cli.core.kinds import DrafterKind, Drafting, drafting, effective_rule
from specdec_cli.core.request import Request, effective, request_of, require_lookups, require_valid, token_ids
from specdec_cli.core.speedup import Meter
from specdec_cli.core.stats import Stats
from specdec_cli.engine import device
from specdec_cli.engine.baseline import PlainStep, plain_steps, target_scores
from specdec_cli.engine.decode import decode
from specdec_cli.engine.device import clear_cache
from specdec_cli.engine.drafters.base import read_together
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.failure import recovering
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.pipeline import Clock
from specdec_cli.engine.sampling.acceptance import AcceptanceRule, make_rule
from specdec_cli.engine.sampling.noise import Noise, attempt_seed
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.models.bans import Bans
from specdec_cli.models.grammar import Matcher, Vocabulary, require_uncut, unenforced
from specdec_cli.models.template import NO_VALUES, TemplateValues
from specdec_cli.models.text import StopStrings, Thinking
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.models.tool_calls import ToolCall
from specdec_cli.models.turns import Message
from specdec_cli.pairs.limits import ContextLimit, too_long
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.cost_file import CostStore, Values
from specdec_cli.session.drafting import DraftController
from specdec_cli.session.meter import GainMeter
from specdec_cli.session.slot import Slot
from specdec_cli.session.text import Writer, conversation_tokens, predicted_tokens

Cancelled = Callable[[], bool]


def read_prompt(
    target: CachedModel, drafters: Drafters, context: Sequence[int], clock: Clock, cancelled: Cancelled
) -> Generator[Reading | Prefill, None, tuple[bool, int, float]]:
    """`target` reads all but the last token of `context`, a chunk a step.

    Returns (whether cancelled, tokens read, their seconds).
    """
    began = clock()
    target.reuse(context)
    # A head that lacks states which the target would not compute again lets it read more.
    target.commit(context, min(target.length, drafters.keeps(context)))
    cached, halted = target.length, False
    for _ in read_together(target, drafters.drafter, context):
        if target.length < len(context) - 1:
            yield Reading("target", target.length, len(context))
        if halted := cancelled():
            break
    seconds = clock() - began
    yield Prefill(prompt_tokens=len(context), cached_tokens=cached, seconds=seconds)
    return halted, target.length - cached, seconds


# Logits are float32: a bias below this is minus infinity.
LEAST_FLOAT32 = -3.4e38


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """Weights, tokenizer and learned costs of a pair, shared by all its conversations; see `load`.

    `names` are the target's and the draft's; `costs` keeps what rounds cost, by `identity` and length of context.
    Caches of another `fingerprint` are another pair's; empty is unknown.
    """

    pair: Pair
    names: tuple[str, str | None]
    tokenizer: Tokenizer
    first: Slot
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    costs: CostStore = field(default_factory=dict[str, Values])
    identity: str = ""
    reload_seconds: float = 0.0
    fingerprint: str = ""
    _vocabularies: list[Vocabulary] = field(default_factory=list, repr=False)

    @property
    def draft_kind(self) -> str | None:
        """The kind of drafter that the pair's draft is: `model`, or a head's; None where it has none."""
        return self.first.draft.kind if self.first.draft else None

    @property
    def context(self) -> ContextLimit:
        """What target and draft were made for."""
        target, draft = self.first.target, self.first.draft
        return ContextLimit(target.context_limit, draft.context_limit if draft else None, target.network.positions)

    def slot(self) -> Slot:
        """Empty caches of another conversation, over the same weights."""
        return self.first.fresh()

    def session(self, slot: Slot | None = None, clock: Clock = time.perf_counter) -> Session:
        """A conversation, in a slot of its own unless one is given."""
        return Session(self, slot or self.slot(), clock)

    def vocabulary(self) -> Vocabulary:
        """The tokenizer as grammars need it, made at its first use.

        Raises: UsageError for a tokenizer of another kind.
        """
        if not self._vocabularies:
            text, rows = self.tokenizer.to_json(), self.first.target.vocab_size
            self._vocabularies.append(Vocabulary.of_model(text, rows, self.tokenizer.stop_tokens))
        return self._vocabularies[0]

    def text_tokens(self, text: str) -> list[int]:
        """Ids of the text itself, to be continued."""
        return self.tokenizer.encode(text)

    def message_tokens(
        self,
        messages: Sequence[Message],
        values: TemplateValues = NO_VALUES,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> list[int]:
        """Ids of a conversation, ready for the assistant's turn; plain text for a model without a chat template.

        `values` are what the template is asked beside them. `tools` are JSON schemas of functions, as it expects them.
        Raises: UsageError if the template refuses these messages, or if there are tools and no template.
        """
        return conversation_tokens(self.tokenizer, self.names[0], messages, values, tools)

    def tool_calls(self, text: str, tools: Sequence[Mapping[str, Any]] = ()) -> tuple[str, list[ToolCall]]:
        """(the answer without its calls, the calls) by the model's own parser. Raises: UsageError if it has none."""
        return self.tokenizer.tool_calls(text, tools)


def sampling_of(generation_config: Mapping[str, Any], request: Request) -> Sampling:
    """Every sampling value of `request` that takes effect, with a model's own defaults. Raises: UsageError."""
    values = effective(generation_config, request.sampling)
    top_k = int(values.pop("top_k"))
    return Sampling(**values, top_k=top_k, logit_bias=request.logit_bias)


class Session:
    """One conversation: `pair` is shared, `slot` holds the caches, kept from reply to reply."""

    def __init__(self, pair: LoadedPair, slot: Slot, clock: Clock = time.perf_counter) -> None:
        self.pair, self.slot, self.clock = pair, slot, clock
        self._controller = DraftController(slot.target, slot.draft, pair.costs, pair.identity, pair.reload_seconds)

    @property
    def names(self) -> tuple[str, str | None]:
        """Target and draft."""
        return self.pair.names

    def chat_tokens(self, prompt: str, system: str | None = None, values: TemplateValues = NO_VALUES) -> list[int]:
        """Ids of a one-message conversation under the chat template; plain text for a model without one."""
        messages: list[Message] = [{"role": "user", "content": prompt}]
        messages = [{"role": "system", "content": system}, *messages] if system else messages
        return self.pair.message_tokens(messages, values)

    def conversation_tokens(self, messages: Sequence[Message], values: TemplateValues = NO_VALUES) -> list[int]:
        """As `LoadedPair.message_tokens`."""
        return self.pair.message_tokens(messages, values)

    def thinking(self, prompt: Sequence[int]) -> Thinking | None:
        """The tags around the model's thinking, and whether `prompt` has already opened them; None if it has none."""
        return self.pair.tokenizer.thinking(prompt)

    def effective(self, request: Request) -> dict[str, float]:
        """Every sampling value by name: the request's, else the target's defaults, else off."""
        return effective(self.pair.generation_config, request.sampling)

    def raw_tokens(self, text: str) -> list[int]:
        """Ids of the text itself, to be continued."""
        return self.pair.text_tokens(text)

    @property
    def dtype(self) -> str:
        """The type the target computes in, such as `bfloat16`."""
        return self.slot.target.dtype

    def piece(self, token: int) -> str:
        """One token as text, unfiltered."""
        return self.pair.tokenizer.piece(token)

    def drafter(self, request: Request) -> DrafterKind:
        """The drafter in effect."""
        return self.drafting(request).kind

    def drafting(self, request: Request) -> Drafting:
        """Who drafts with this pair, and how long."""
        return drafting(request.drafter, request.k, self.pair.draft_kind)

    def plain(self, prompt: Sequence[int], request: Request) -> Iterator[PlainStep]:
        """The same request by mlx-lm's own plain decoding, with caches of its own; the drafter plays no part.

        Above temperature 0 it draws as `coupled` does, with the noise of the request's seed (0 without one).
        """
        noise = Noise(attempt_seed(request.seed or 0, request.attempt))
        scores = target_scores(self.sampling(request), noise, prompt, self.matcher(prompt, request))
        tokens, stops = self.allowed_tokens(prompt, request), self.stop_tokens(request)
        network = self.slot.target.network
        return plain_steps(network.module, prompt, tokens, stops, scores, network.kv)

    def stop_tokens(self, request: Request) -> frozenset[int]:
        """The tokens that end an answer: the target's own, and the request's."""
        own = () if request.ignore_eos else self.pair.tokenizer.stop_tokens
        return frozenset(request.stop_tokens).union(own)

    def context_limit(self, request: Request) -> int | None:
        """Tokens that prompt and answer may have together: the tightest of both models and --max-context."""
        return self.pair.context.tokens(request)

    def reply(
        self,
        prompt: str | Sequence[int],
        request: Request | None = None,
        cancelled: Cancelled = lambda: False,
        raw: bool = False,
        **options: Any,
    ) -> Iterator[Event]:
        """Start, Prefill, a RoundDone per target pass, Finish; a Reading between two chunks of a long prompt.

        A `prompt` of text becomes one message of the user, or with `raw` is continued as it is; ids are taken as they
        are, and with `raw` the answer continues their text. `options` are fields of Request and sampling values by
        name, in place of a `request`: `k=4, max_tokens=64, temperature=0.8`.
        Raises: UsageError for an empty prompt, unknown options and values out of bounds, DoesNotFit for a prompt that
        fills the context; DoesNotFit or SpecdecError if the device fails. The next reply is as a fresh session's.
        """
        if request is not None and options:
            raise UsageError(f"a request and {', '.join(options)} were given", "give one of the two")
        request = require_valid(request or request_of(options))
        if isinstance(prompt, str):
            prompt = self.raw_tokens(prompt) if raw else self.chat_tokens(prompt)
        else:
            prompt = token_ids("prompt", prompt)
        return self._reply(prompt, request, cancelled, raw)

    def _reply(self, prompt: Sequence[int], request: Request, cancelled: Cancelled, raw: bool) -> Iterator[Event]:
        with recovering(self.slot.target, self.slot.draft):
            yield from self._events(prompt, request, cancelled, raw)

    def _events(self, prompt: Sequence[int], request: Request, cancelled: Cancelled, raw: bool) -> Iterator[Event]:
        max_tokens, matcher = self.allowed_tokens(prompt, request), self.matcher(prompt, request)
        rule = self.rule(prompt, request, matcher)
        clock, stats, context = self.clock, Stats(), list(prompt)
        yield self._start(prompt, request, max_tokens, rule.name)
        device.reset_peak_memory()
        began = clock()
        meant, predicted = self.drafting(request), self.predicted(request)
        drafters = self._controller.begin(meant.kind, meant.k, rule, context, max_tokens, predicted, matcher)
        halted, read, seconds = yield from read_prompt(self.slot.target, drafters, context, clock, cancelled)
        self._controller.prompt_was_read(read, seconds)
        tokenizer, stop_strings = self.pair.tokenizer, StopStrings(request.stop)
        stream, ends = tokenizer.stream(prompt if raw else ()), self.stop_tokens(request)
        writer = Writer(stream, stop_strings, tokenizer, request.stop_repetition, ends, request.min_tokens)
        memo = self._controller.known_costs()
        meter = GainMeter(self.slot.target, rule, context, Meter(memo), clock, max_tokens)
        rounds = decode(
            self.slot.target, drafters, rule, context, max_tokens, ends, meter.clock,
            lambda: halted or cancelled(), request.logprobs,
        )  # fmt: skip
        first = last = meter.clock()
        for round in rounds:
            if isinstance(round, Reading):
                yield round
                continue
            done = writer.write(round)
            stats.fold(done.round)
            gain = meter.fold(done.round)
            last = meter.clock()
            if round.index == 0:
                first, stats.ttft_seconds = last, last - began
            yield replace(done, gain=gain) if gain else done
            if writer.stopped:
                break
            meter.measure()
        rounds.close()
        stats.decode_seconds = last - first - stats.draft_prefill_seconds
        stats.total_seconds = clock() - began
        yield self._finish(writer, stats, meter, matcher, max_tokens)

    def _start(self, prompt: Sequence[int], request: Request, max_tokens: int, rule: str) -> Start:
        """The values in effect in the reply to `prompt`, which may have `max_tokens`."""
        values, meant = self.effective(request), self.drafting(request)
        draft = self.slot.draft if meant.kind.by_network else None
        models = {"target": self.slot.target} | ({"draft": draft} if draft else {})
        return Start(
            target=self.names[0],
            draft=self.names[1] if draft else None,
            drafter=meant.kind.name,
            rule=rule,
            k=meant.k,
            temperature=values.pop("temperature"),
            seed=request.seed,
            attempt=request.attempt,
            prompt_tokens=len(prompt),
            max_tokens=max_tokens,
            context_limit=self.context_limit(request),
            dtype=self.dtype,
            device=device.backend(),
            caches={role: model.cache_kinds for role, model in models.items()},
            sampling=values | {"logit_bias": request.logit_bias},
            constraint=request.constraint.kind if request.constraint else None,
            unenforced=unenforced(request.constraint),
            draft_context=draft.recent if draft else None,
        )

    def _finish(
        self, writer: Writer, stats: Stats, meter: GainMeter, matcher: Matcher | Bans | None, max_tokens: int
    ) -> Finish:
        """The reply's end; what it taught of costs is kept."""
        reason: FinishReason = writer.stopped or "length"
        if not writer.stopped and stats.emitted_tokens < max_tokens:
            reason = "interrupted"
        stats.peak_memory_bytes = device.peak_memory_bytes()
        stats.measuring_seconds = meter.seconds
        stats.gain = meter.finish(complete=reason != "interrupted")
        self._controller.learn_costs(meter.learn())
        self._controller.remember()
        clear_cache()
        # A repetition cuts its round, and the matcher has consumed all of it: its `complete` would be wrong.
        complete = None if matcher is None else matcher.complete
        complete = complete and reason != "repetition"
        return writer.finish(reason, stats, complete)

    def predicted(self, request: Request) -> Sequence[int]:
        """Ids of the text that the answer will probably resemble.

        Raises: UsageError if nobody would look it up, DoesNotFit for one that is far too long.
        """
        require_lookups(request.predict, request.drafter, request.k)
        predicted = request.predict
        if not predicted:
            return ()
        if isinstance(predicted, str):
            predicted = predicted_tokens(self.pair.tokenizer, predicted, self.context_limit(request))
        return [token for token in predicted if token < self.slot.target.vocab_size]  # no others can be said

    def matcher(self, prompt: Sequence[int], request: Request) -> Matcher | Bans | None:
        """The request's constraint, with what it bans, at the beginning of the answer; None without either.

        A model that thinks may do so first: the constraint is of what comes behind.
        Raises: UsageError for one that cannot be enforced, and for stop strings that could cut its answer.
        """
        constraint, matcher = request.constraint, None
        if constraint is not None:
            if request.ignore_eos:
                raise UsageError(f"ignore_eos goes on where {constraint.flag} ends", "leave one of them out")
            thinking = None if constraint.whole else self.thinking(prompt)
            require_uncut(constraint, request.stop, thinks=thinking is not None)
            matcher = self.pair.vocabulary().matcher(constraint, thinking)
        if not (request.bad_words or request.min_tokens):
            return matcher
        words, ends = [word.encode() for word in request.bad_words], self.stop_tokens(request)
        tokens, rows = self.pair.tokenizer.table().tokens, self.slot.target.vocab_size
        return Bans(tokens, rows, words, ends, request.min_tokens, matcher)

    def rule(self, prompt: Sequence[int], request: Request, matcher: Matcher | Bans | None = None) -> AcceptanceRule:
        """The effective rule, with the noise of the request's seed, or of one of its own."""
        sampling = self.sampling(request)
        seed = secrets.randbits(63) if request.seed is None else attempt_seed(request.seed, request.attempt)
        sampler = Sampler(sampling, seed, prompt, self.slot.target.vocab_size, matcher)
        return make_rule(effective_rule(request.rule, request.seed, sampling.temperature).name, sampler)

    def sampling(self, request: Request) -> Sampling:
        """Every sampling value that takes effect. Raises: UsageError."""
        vocab_size = self.slot.target.vocab_size
        foreign = [token for token, _ in request.logit_bias if token >= vocab_size]
        if foreign:
            raise UsageError(
                f"--logit-bias names token {foreign[0]}, and the target has {vocab_size}", "use a smaller id"
            )
        never = [token for token, value in request.logit_bias if value < LEAST_FLOAT32]
        if never and (shape := request.constraint) is not None:
            raise UsageError(
                f"--logit-bias {never[0]}=-inf beside {shape.flag} may rule out all that the {shape.noun} allows",
                f"make it finite: --logit-bias {never[0]}=-100",
            )
        return sampling_of(self.pair.generation_config, request)

    def allowed_tokens(self, prompt: Sequence[int], request: Request) -> int:
        """Tokens that may be generated. Raises: UsageError, DoesNotFit.

        mlx checks no index: an id without a row would be read, and counted by a penalty, out of bounds.
        """
        if not prompt:
            raise UsageError("the prompt is empty: 0 tokens", "give some text: specdec run 'def read_lines(path):'")
        rows = self.slot.target.vocab_size
        if (foreign := max(prompt)) >= rows or (foreign := min(prompt)) < 0:
            token = f"the token {self.piece(foreign)!r} with the id {foreign}"
            raise UsageError(f"the prompt holds {token}, and the target has {rows} rows", "leave that token out")
        limit = self.context_limit(request)
        if limit is None:
            return request.max_tokens
        if len(prompt) >= limit:
            hint = "shorten the prompt, or use a pair with a longer context"
            if self.pair.context.positions is None:
                hint = f"shorten the prompt, or let it be longer: --max-context {len(prompt) + request.max_tokens}"
            raise DoesNotFit(too_long(len(prompt), limit), hint)
        return min(request.max_tokens, limit - len(prompt))
