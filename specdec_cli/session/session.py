"""A loaded pair, and a conversation with it: template, text and stop strings around the engine's rounds.

Yields events, prints nothing; closing the generator cancels.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, cast

from specdec_cli.core.errors import DoesNotFit, UsageError
from specdec_cli.core.events import Event, Finish, FinishReason, Prefill, Reading, Round, Start
from specdec_cli.core.kinds import Drafting, drafting, effective_rule
from specdec_cli.core.request import Request, effective, request_of, require_lookups, require_valid, token_ids
from specdec_cli.core.speedup import Meter
from specdec_cli.core.stats import Stats
from specdec_cli.core.template import NO_VALUES, TemplateValues
from specdec_cli.engine import device
from specdec_cli.engine.baseline import PlainStep, plain_steps, target_scores
from specdec_cli.engine.batch import Ask, Member, Prompt
from specdec_cli.engine.cache.rollback import common_prefix
from specdec_cli.engine.decode import decode
from specdec_cli.engine.device import clear_cache
from specdec_cli.engine.drafters.base import read_together
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.failure import recovering
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.pipeline import Clock
from specdec_cli.engine.planning.policy import Planner, plan
from specdec_cli.engine.sampling.acceptance import AcceptanceRule, make_rule
from specdec_cli.engine.sampling.noise import Noise, attempt_seed
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.models.grammar import Bans, Matcher, Vocabulary, require_uncut, unenforced
from specdec_cli.models.text import StopStrings
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.models.tool_calls import ToolCall
from specdec_cli.models.turns import Message
from specdec_cli.pairs.fit import Fit
from specdec_cli.pairs.limits import ContextLimit, too_long
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.cost_file import CostStore, Values
from specdec_cli.session.disk_cache import LEAST_TOKENS, DiskCache
from specdec_cli.session.drafting import DraftController
from specdec_cli.session.meter import GainMeter
from specdec_cli.session.slot import Slot
from specdec_cli.session.text import Writer, conversation_tokens, predicted_tokens

Cancelled = Callable[[], bool]


def read_prompt(
    target: CachedModel,
    drafters: Drafters,
    context: Sequence[int],
    clock: Clock,
    cancelled: Cancelled,
    member: Member | None = None,
    from_disk: tuple[int, float] = (0, 0.0),
) -> Generator[Reading | Prefill | Prompt, None, tuple[bool, int, float]]:
    """`target` reads all but the last token of `context`, a chunk a step.

    Of a `member` of a batch a short one may be read together with others' before. `from_disk`: tokens that came from
    there, and their seconds.
    Returns (whether cancelled, tokens read alone, their seconds).
    """
    began = clock()
    target.reuse(context)
    # A head that lacks states which the target would not compute again lets it read more.
    target.commit(context, min(target.length, drafters.keeps(context)))
    cached, halted = target.length, False
    prompt = Prompt(target, context)
    if member is not None and prompt.is_shareable:
        yield prompt
    together = target.length
    for _ in read_together(target, drafters.drafter, context):
        if target.length < len(context) - 1:
            yield Reading("target", target.length, len(context))
        if halted := cancelled():
            break
    seconds = clock() - began
    yield Prefill(len(context), cached, seconds + from_disk[1], min(from_disk[0], cached))
    return halted, target.length - together, seconds


# Logits are float32: a bias below this is minus infinity.
LEAST_FLOAT32 = -3.4e38


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """Weights, tokenizer and learned costs of a pair, shared by all its conversations; see `load`.

    `names` are the target's and the draft's; `fit` says what it can take on; `costs` keeps what rounds cost, by
    `identity` and length of context. What was read is kept in `disk`, if anywhere, under the `fingerprint` of all that
    its numbers depend on.
    """

    pair: Pair
    names: tuple[str, str | None]
    tokenizer: Tokenizer
    first: Slot
    fit: Fit
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    costs: CostStore = field(default_factory=dict[str, Values])
    identity: str = ""
    reload_seconds: float = 0.0
    fingerprint: Callable[[], str] = str
    disk: DiskCache | None = None
    _vocabularies: list[Vocabulary] = field(default_factory=list, repr=False)

    @property
    def draft_kind(self) -> str | None:
        """The kind of drafter that the pair's draft is: `model`, or a head's; None where it has none."""
        return self.first.draft.kind if self.first.draft else None

    @property
    def dtype(self) -> str:
        """The type the target computes in, such as `bfloat16`."""
        return self.first.target.dtype

    @property
    def context(self) -> ContextLimit:
        """What target and draft were made for."""
        return self.fit.context

    def slot(self) -> Slot:
        """Empty caches of another conversation, over the same weights."""
        return self.first.fresh()

    def session(self, slot: Slot | None = None, clock: Clock = time.perf_counter) -> Session:
        """A conversation, in a slot of its own unless one is given."""
        return Session(self, slot or self.slot(), clock)

    def reply(self, slot: Slot, prompt: Sequence[int], request: Request, raw: bool = False) -> Reply:
        """What is said to `prompt` by the models in `slot`. Raises: as `Reply`."""
        return Reply(self, slot, prompt, request, raw)

    def drafting(self, request: Request) -> Drafting:
        """Who drafts with this pair, and how long."""
        return drafting(request.drafter, request.k, self.draft_kind)

    def effective(self, request: Request) -> dict[str, float]:
        """Every sampling value by name: the request's, else the target's defaults, else off."""
        return effective(self.generation_config, request.sampling)

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

    def chat_tokens(self, prompt: str, system: str | None = None, values: TemplateValues = NO_VALUES) -> list[int]:
        """Ids of a one-message conversation under the chat template; plain text for a model without one."""
        messages: list[Message] = [{"role": "user", "content": prompt}]
        messages = [{"role": "system", "content": system}, *messages] if system else messages
        return self.message_tokens(messages, values)

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

    def tool_calls(
        self, text: str, tools: Sequence[Mapping[str, Any]] = (), cut: bool = False
    ) -> tuple[str, list[ToolCall]]:
        """(the answer without its calls, the calls) by the model's own parser; `cut`: the model did not end the answer.

        Raises: UsageError if it has none.
        """
        return self.tokenizer.tool_calls(text, tools, cut)


def sampling_of(generation_config: Mapping[str, Any], request: Request) -> Sampling:
    """Every sampling value of `request` that takes effect, with a model's own defaults. Raises: UsageError."""
    values = effective(generation_config, request.sampling)
    top_k = int(values.pop("top_k"))
    return Sampling(**values, top_k=top_k, logit_bias=request.logit_bias)


class Session:
    """One conversation: `pair` is shared, `slot` holds the caches, kept from reply to reply."""

    def __init__(self, pair: LoadedPair, slot: Slot, clock: Clock = time.perf_counter) -> None:
        self.pair, self.slot, self.clock = pair, slot, clock
        # What of this conversation is on disk.
        self._kept: Sequence[int] = ()
        self._disk = pair.disk
        self._controller = DraftController(slot.target, slot.draft, pair.costs, pair.identity, pair.reload_seconds)

    def reply(
        self,
        prompt: str | Sequence[int],
        request: Request | None = None,
        cancelled: Cancelled = lambda: False,
        raw: bool = False,
        measures_last: bool = False,
        **options: Any,
    ) -> Iterator[Event]:
        """Start, Prefill, a RoundDone per target pass, Finish; a Reading between two chunks of a long prompt.

        A `prompt` of text becomes one message of the user, or with `raw` is continued as it is; ids are taken as they
        are, and with `raw` the answer continues their text. `options` are fields of Request and sampling values by
        name, in place of a `request`: `k=4, max_tokens=64, temperature=0.8`.
        `measures_last`: a few plain steps are timed before Finish, so that a short answer, too, has an estimated gain:
        for a person who reads the answer, not for a program that waits for its end.
        Raises: UsageError for an empty prompt, unknown options and values out of bounds, DoesNotFit for a prompt that
        fills the context; DoesNotFit or SpecdecError if the device fails. The next reply is as a fresh session's.
        """
        if request is not None and options:
            raise UsageError(f"a request and {', '.join(options)} were given", "give one of the two")
        request = require_valid(request or request_of(options))
        if isinstance(prompt, str):
            prompt = self.pair.text_tokens(prompt) if raw else self.pair.chat_tokens(prompt)
        else:
            prompt = token_ids("prompt", prompt)
        reply = self.steps(prompt, request, cancelled, raw, measures_last=measures_last)
        return cast(Iterator[Event], reply)  # who is no member of a batch asks for nothing

    def steps(
        self,
        prompt: Sequence[int],
        request: Request,
        cancelled: Cancelled,
        raw: bool,
        member: Member | None = None,
        measures_last: bool = False,
    ) -> Generator[Event | Ask]:
        """The same for ids and a valid request; a `member` of a batch may share passes."""
        with recovering(self.slot.target, self.slot.draft):
            reply = self.pair.reply(self.slot, prompt, request, raw)
            reply.restore = self._restore
            yield from reply.events(self._controller, self.clock, cancelled, member, measures_last)

    def keep(self, owner: str = "", ends: bool = False) -> None:
        """Have what was read kept on disk, for the chat `owner`, if it doubled since it last was, or if this `ends`."""
        new, ids = self.unkept_tokens, self.slot.tokens
        if self._disk is None or new < LEAST_TOKENS or (2 * new < len(ids) and not ends):
            return
        if self._disk.write(self.pair.fingerprint(), self.slot, owner, waits=ends):
            self._kept = tuple(ids)

    @property
    def unkept_tokens(self) -> int:
        """Tokens that were read and are not on disk, where anything is kept there."""
        ids = self.slot.tokens
        return len(ids) - common_prefix(self._kept, ids) if self._disk else 0

    def _restore(self, prompt: Sequence[int]) -> int:
        """Take from disk what spares reading `prompt`; so many of its tokens."""
        disk = self._disk
        if disk is None or len(prompt) <= LEAST_TOKENS or not disk.is_used:
            return 0
        restored = disk.restore(self.pair.fingerprint(), self.slot, prompt)
        if restored:
            self._kept = tuple(self.slot.tokens)
        return restored

    def plain(self, prompt: Sequence[int], request: Request) -> Iterator[PlainStep]:
        """The same request by mlx-lm's own plain decoding, with caches of its own; the drafter plays no part."""
        return self.pair.reply(self.slot, prompt, request).plain()


class Reply:
    """One reply to `prompt`: what may be said, by which rule, and how that becomes text.

    Raises: UsageError for what cannot be enforced, DoesNotFit for a prompt that fills the context.
    """

    def __init__(
        self, pair: LoadedPair, slot: Slot, prompt: Sequence[int], request: Request, raw: bool = False
    ) -> None:
        self.pair, self.slot, self.prompt, self.request, self.raw = pair, slot, prompt, request, raw
        # It grows by what is said.
        self.context = list(prompt)
        self.meant = pair.drafting(request)
        self.context_limit = pair.context.tokens(request)
        self.max_tokens = self._max_tokens()
        own = () if request.ignore_eos else pair.tokenizer.stop_tokens
        self.ends = frozenset(request.stop_tokens).union(own)
        self.matcher = self._matcher()
        self.sampling = self._sampling()
        self.stats = Stats()
        # Has the slot hold what is on disk of a prompt; so many tokens.
        self.restore: Callable[[Sequence[int]], int] = lambda prompt: 0
        # What a clock or a person decides; whoever else computes the same reply decides alike.
        self.planner: Planner = plan
        self.agrees: Callable[[bool], bool] = bool

    def events(
        self,
        controller: DraftController,
        clock: Clock,
        cancelled: Cancelled,
        member: Member | None = None,
        measures_last: bool = False,
    ) -> Iterator[Event | Ask]:
        """As `Session.steps`; once."""
        target, request, stats, context = self.slot.target, self.request, self.stats, self.context
        rule = self.rule()
        yield self._start(rule.name)
        device.reset_peak_memory()
        began = clock()
        restored = self.restore(context)
        from_disk = (restored, clock() - began) if restored else (0, 0.0)
        drafters = controller.begin(
            self.meant.kind, self.meant.k, rule, context, self.max_tokens, self._predicted(), self.matcher
        )
        drafters.planner = self.planner
        halted, read, seconds = yield from read_prompt(target, drafters, context, clock, cancelled, member, from_disk)
        controller.prompt_was_read(read, seconds)
        writer = self._writer()
        meter = GainMeter(target, rule, context, Meter(controller.known_costs()), clock, self.max_tokens, self.agrees)
        rounds = decode(
            target, drafters, rule, context, self.max_tokens, self.ends, meter.clock,
            lambda: halted or cancelled(), request.logprobs, member,
        )  # fmt: skip
        first = last = meter.clock()
        with closing(rounds):  # whatever happens here, the caches hold what was emitted
            for round in rounds:
                if not isinstance(round, Round):
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
        stats.decode_seconds = last - first - stats.draft_prefill_seconds
        stats.total_seconds = clock() - began
        yield self._finish(writer, meter, controller, measures_last)

    def plain(self) -> Iterator[PlainStep]:
        """By mlx-lm's own plain decoding.

        Above temperature 0 it draws as `coupled` does, with the noise of the request's seed (0 without one).
        """
        noise = Noise(attempt_seed(self.request.seed or 0, self.request.attempt))
        scores = target_scores(self.sampling, noise, self.prompt, self.matcher)
        network = self.slot.target.network
        how = self.prompt, self.max_tokens, self.ends, scores
        return plain_steps(network.module, *how, network.agreed, network.kv)

    def rule(self) -> AcceptanceRule:
        """The effective rule, with the noise of the request's seed, or of one of its own."""
        request, sampling = self.request, self.sampling
        seed = self._new_seed() if request.seed is None else attempt_seed(request.seed, request.attempt)
        sampler = Sampler(sampling, seed, self.prompt, self.slot.target.vocab_size, self.matcher)
        return make_rule(effective_rule(request.rule, request.seed, sampling.temperature).name, sampler)

    def _new_seed(self) -> int:
        """That of a request without one."""
        return secrets.randbits(63)

    def _start(self, rule: str) -> Start:
        """The values in effect."""
        request, values, kind = self.request, self.pair.effective(self.request), self.meant.kind
        draft = self.slot.draft if kind.by_network else None
        models = {"target": self.slot.target} | ({"draft": draft} if draft else {})
        return Start(
            target=self.pair.names[0],
            draft=self.pair.names[1] if draft else None,
            drafter=kind.name,
            rule=rule,
            k=self.meant.k,
            temperature=values.pop("temperature"),
            seed=request.seed,
            attempt=request.attempt,
            prompt_tokens=len(self.prompt),
            max_tokens=self.max_tokens,
            context_limit=self.context_limit,
            dtype=self.pair.dtype,
            device=device.backend(),
            caches={role: model.cache_kinds for role, model in models.items()},
            sampling=values | {"logit_bias": request.logit_bias},
            constraint=request.constraint.kind if request.constraint else None,
            unenforced=unenforced(request.constraint),
            draft_context=draft.recent if draft else None,
        )

    def _finish(self, writer: Writer, meter: GainMeter, controller: DraftController, measures_last: bool) -> Finish:
        """The reply's end; what it taught of costs is kept."""
        stats = self.stats
        reason: FinishReason = writer.stopped or "length"
        if not writer.stopped and stats.emitted_tokens < self.max_tokens:
            reason = "interrupted"
        stats.peak_memory_bytes = device.peak_memory_bytes()
        stats.measuring_seconds = meter.seconds
        stats.gain = meter.finish(reason != "interrupted" and measures_last)
        controller.remember(meter.learn())
        clear_cache()
        # A repetition cuts its round, and the matcher has consumed all of it: its `complete` would be wrong.
        complete = None if self.matcher is None else self.matcher.complete
        return writer.finish(reason, stats, complete and reason != "repetition")

    def _writer(self) -> Writer:
        tokenizer, request = self.pair.tokenizer, self.request
        stream = tokenizer.stream(self.prompt if self.raw else ())
        stop = StopStrings(request.stop)
        return Writer(stream, stop, tokenizer, request.stop_repetition, self.ends, request.min_tokens)

    def _predicted(self) -> Sequence[int]:
        """Ids of the text that the answer will probably resemble.

        Raises: UsageError if nobody would look it up, DoesNotFit for one that is far too long.
        """
        predicted = self.request.predict
        require_lookups(predicted, self.request.drafter, self.request.k)
        if not predicted:
            return ()
        if isinstance(predicted, str):
            predicted = predicted_tokens(self.pair.tokenizer, predicted, self.context_limit)
        return [token for token in predicted if token < self.slot.target.vocab_size]  # no others can be said

    def _matcher(self) -> Matcher | Bans | None:
        """The request's constraint, with what it bans, at the beginning of the answer; None without either.

        A model that thinks may do so first: the constraint is of what comes behind.
        Raises: UsageError for one that cannot be enforced, and for stop strings that could cut its answer.
        """
        request, constraint, matcher = self.request, self.request.constraint, None
        if constraint is not None:
            if request.ignore_eos:
                raise UsageError(f"ignore_eos goes on where the {constraint.noun} ends", "leave one of them out")
            thinking = None if constraint.whole else self.pair.tokenizer.thinking(self.prompt)
            require_uncut(constraint, request.stop, thinks=thinking is not None)
            matcher = self.pair.vocabulary().matcher(constraint, thinking)
        if not (request.bad_words or request.min_tokens):
            return matcher
        words = [word.encode(errors="surrogatepass") for word in request.bad_words]
        tokens = self.pair.tokenizer.table().tokens
        return Bans(tokens, self.slot.target.vocab_size, words, self.ends, request.min_tokens, matcher)

    def _sampling(self) -> Sampling:
        """Every sampling value that takes effect. Raises: UsageError."""
        vocab_size, request = self.slot.target.vocab_size, self.request
        foreign = [token for token, _ in request.logit_bias if token >= vocab_size]
        if foreign:
            raise UsageError(
                f"logit_bias names token {foreign[0]}, and the target has {vocab_size}", "use a smaller id"
            )
        never = [token for token, value in request.logit_bias if value < LEAST_FLOAT32]
        if never and (shape := request.constraint) is not None:
            raise UsageError(
                f"logit_bias {never[0]}=-inf beside a {shape.noun} may rule out all that it allows",
                f"make it finite: {never[0]}=-100",
            )
        return sampling_of(self.pair.generation_config, request)

    def _max_tokens(self) -> int:
        """Tokens that may be generated. Raises: UsageError, DoesNotFit.

        mlx checks no index: an id without a row would be read, and counted by a penalty, out of bounds.
        """
        prompt, limit = self.prompt, self.context_limit
        if not prompt:
            raise UsageError("the prompt is empty: 0 tokens", "give some text: specdec run 'def read_lines(path):'")
        rows = self.slot.target.vocab_size
        if (foreign := max(prompt)) >= rows or (foreign := min(prompt)) < 0:
            token = f"the token {self.pair.tokenizer.piece(foreign)!r} with the id {foreign}"
            raise UsageError(f"the prompt holds {token}, and the target has {rows} rows", "leave that token out")
        if limit is None:
            return self.request.max_tokens
        if len(prompt) >= limit:
            hint = "shorten the prompt, or use a pair with a longer context"
            if self.pair.context.positions is None:
                longer = len(prompt) + self.request.max_tokens
                hint = f"shorten the prompt, or let it be longer: --max-context {longer}"
            raise DoesNotFit(too_long(len(prompt), limit), hint)
        return min(self.request.max_tokens, limit - len(prompt))
