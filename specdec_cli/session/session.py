"""A loaded pair that answers: template, text and stop strings around the engine's rounds.

Law: yields events, prints nothing; closing the generator cancels.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from specdec_cli.engine import device
from specdec_cli.engine.baseline import PlainStep, plain_steps, target_scores
from specdec_cli.engine.decode import Clock, decode
from specdec_cli.engine.draft_length.fixed import DraftLength
from specdec_cli.engine.drafters.base import Drafter
from specdec_cli.engine.drafters.registry import AUTO, NAMES
from specdec_cli.engine.footprint import require_fit
from specdec_cli.engine.load import load, require_runnable, require_verifiable
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import AcceptanceRule, make_rule
from specdec_cli.engine.sampling.noise import Noise, attempt_seed
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.engine.timing import plain_step_seconds
from specdec_cli.errors import DoesNotFit, UsageError
from specdec_cli.events import Event, FinishReason, Prefill, Round, Start
from specdec_cli.hub import locate
from specdec_cli.machine import power_source
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.text import StopStrings, Thinking
from specdec_cli.models.tokenizer import Message, Tokenizer
from specdec_cli.models.vocab import require_same_ids
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Request, effective, effective_rule
from specdec_cli.session.cost_file import CostMemory
from specdec_cli.session.drafting import Drafting
from specdec_cli.session.writer import Writer
from specdec_cli.stats import Stats

__all__ = ["Request", "Session", "open_session"]

Cancelled = Callable[[], bool]
USES_MODEL = ("model", AUTO)


class Session:
    """Two models and a tokenizer, kept warm between replies."""

    def __init__(
        self,
        names: tuple[str, str | None],
        target: CachedModel,
        draft: CachedModel | None,
        tokenizer: Tokenizer,
        generation_config: Mapping[str, Any],
        clock: Clock = time.perf_counter,
        drafting: Drafting | None = None,
    ) -> None:
        self.names = names
        self._generation_config = generation_config
        self._target, self._draft, self._tokenizer, self._clock = target, draft, tokenizer, clock
        self._drafting = drafting or Drafting(target, draft)

    def chat_tokens(self, prompt: str, system: str | None = None) -> list[int]:
        """Ids of a one-message conversation under the chat template; plain text for a model without one."""
        messages: list[Message] = [{"role": "user", "content": prompt}]
        return self.conversation_tokens([{"role": "system", "content": system}, *messages] if system else messages)

    def conversation_tokens(self, messages: Sequence[Message], thinks: bool = True) -> list[int]:
        """Ids of a conversation, ready for the assistant's turn; plain text for a model without a chat template.

        `thinks` false asks the template to leave thinking out, where it knows how.

        Raises: UsageError if the template refuses these messages.
        """
        if not self._tokenizer.has_template:
            return self._tokenizer.encode("\n\n".join(message["content"] for message in messages))
        return self._tokenizer.render(messages, thinks)

    def thinking(self, prompt: Sequence[int]) -> Thinking | None:
        """The tags around the model's thinking, and whether `prompt` has already opened them; None if it has none."""
        return self._tokenizer.thinking(prompt)

    def effective(self, request: Request) -> dict[str, float]:
        """Every sampling value by name: the request's, else the target's defaults, else off."""
        return effective(self._generation_config, request.sampling)

    def raw_tokens(self, text: str) -> list[int]:
        """Ids of the text itself, to be continued."""
        return self._tokenizer.encode(text)

    @property
    def dtype(self) -> str:
        """The type the target computes in, such as `bfloat16`."""
        return self._target.dtype

    def piece(self, token: int) -> str:
        """One token as text, unfiltered."""
        return self._tokenizer.piece(token)

    def plain(self, prompt: Sequence[int], request: Request) -> Iterator[PlainStep]:
        """The same request by mlx-lm's own plain decoding, with caches of its own; the drafter plays no part.

        Above temperature 0 it draws as `coupled` does, with the noise of the request's seed (0 without one).
        """
        scores = target_scores(self._sampling(request), Noise(attempt_seed(request.seed or 0, request.attempt)), prompt)
        room, stops = self._room(prompt, request), self._tokenizer.stop_tokens
        return plain_steps(self._target.network, prompt, room, stops, scores, self._target.kv)

    def context_limit(self, request: Request) -> int | None:
        """Tokens that prompt and answer may have together: the tightest of both models and --max-context."""
        limits = [self._target.context_limit, request.max_context]
        if self._draft is not None and self.drafter(request) in USES_MODEL:
            limits.append(self._draft.context_limit)
        return min((limit for limit in limits if limit is not None), default=None)

    def reply(
        self, prompt: Sequence[int], request: Request, cancelled: Cancelled = lambda: False, raw: bool = False
    ) -> Iterator[Event]:
        """Start, Prefill, a RoundDone per target pass, Finish. `raw`: the answer continues the prompt's own text.

        Raises: UsageError for an empty prompt and for sampling values out of bounds, DoesNotFit for a prompt that fills
        the context.
        """
        max_tokens = self._room(prompt, request)
        rule = self._rule(prompt, request)
        clock, stats, context = self._clock, Stats(), list(prompt)
        yield self._start(prompt, request, max_tokens, rule.name)
        device.reset_peak_memory()
        began = clock()
        cached = self._target.reuse(context)
        halted = any(cancelled() for _ in self._target.prefill(context))
        prefill_seconds = clock() - began
        yield Prefill(prompt_tokens=len(prompt), cached_tokens=cached, seconds=prefill_seconds)
        writer = Writer(self._tokenizer.stream(prompt if raw else ()), StopStrings(request.stop), self._tokenizer)
        name = self.drafter(request)
        drafter, length = self._drafting.begin(name, request.k, rule, context, max_tokens, prefill_seconds)
        rounds = self._rounds(context, drafter, rule, length, max_tokens, lambda: halted or cancelled())
        first = last = clock()
        for round in rounds:
            done = writer.write(round)
            stats.fold(done.round)
            last = clock()
            if round.index == 0:
                first, stats.ttft_seconds = last, last - began
            yield done
            if writer.stopped:
                break
        rounds.close()
        self._drafting.remember()
        stats.decode_seconds = last - first - stats.draft_prefill_seconds
        stats.total_seconds = clock() - began
        stats.peak_memory_bytes = device.peak_memory_bytes()
        reason: FinishReason = "stop" if writer.stopped else "length"
        if not writer.stopped and stats.emitted_tokens < max_tokens:
            reason = "interrupted"
        if stats.draft_n and reason != "interrupted":
            steps = 4 if stats.rounds >= 16 else 1
            stats.plain_step_seconds = plain_step_seconds(self._target, context, steps, clock)
        yield writer.finish(reason, stats)

    def _rounds(
        self,
        context: list[int],
        drafter: Drafter,
        rule: AcceptanceRule,
        length: DraftLength,
        max_tokens: int,
        cancelled: Cancelled,
    ) -> Generator[Round]:
        stops = self._tokenizer.stop_tokens
        return decode(self._target, drafter, rule, length, context, max_tokens, stops, self._clock, cancelled)

    def _rule(self, prompt: Sequence[int], request: Request) -> AcceptanceRule:
        """The rule in force, with the noise of the request's seed, or of one of its own."""
        sampling = self._sampling(request)
        seed = secrets.randbits(63) if request.seed is None else attempt_seed(request.seed, request.attempt)
        sampler = Sampler(sampling, seed, prompt, self._target.width)
        return make_rule(effective_rule(request.rule, request.seed, sampling.temperature), sampler)

    def _sampling(self, request: Request) -> Sampling:
        """Every sampling value in force."""
        foreign = [token for token, _ in request.logit_bias if token >= self._target.width]
        if foreign:
            raise UsageError(
                f"--logit-bias names token {foreign[0]}, and the target has {self._target.width}", "use a smaller id"
            )
        values = self.effective(request)
        top_k = int(values.pop("top_k"))
        return Sampling(**values, top_k=top_k, logit_bias=request.logit_bias)

    def drafter(self, request: Request) -> str:
        """Who really drafts: nobody without a K, and not the model where there is none."""
        if request.k == 0 or (request.drafter == "model" and self._draft is None):
            return "none"
        return "ngram" if request.drafter == AUTO and self._draft is None else request.drafter

    def _room(self, prompt: Sequence[int], request: Request) -> int:
        """Tokens that may be generated."""
        if not prompt:
            raise UsageError("the prompt is empty: 0 tokens", "give some text: specdec run 'def read_lines(path):'")
        limit = self.context_limit(request)
        if limit is None:
            return request.max_tokens
        if len(prompt) >= limit:
            raise DoesNotFit(
                f"the prompt has {len(prompt)} tokens and the context holds {limit}, the answer included",
                "shorten the prompt, or take a pair with a longer context",
            )
        return min(request.max_tokens, limit - len(prompt))

    def _start(self, prompt: Sequence[int], request: Request, max_tokens: int, rule: str) -> Start:
        values = self.effective(request)
        drafter = self.drafter(request)
        draft = self._draft if drafter in USES_MODEL else None
        caches = {"target": self._target.cache_kinds}
        return Start(
            target=self.names[0],
            draft=self.names[1] if draft else None,
            drafter=drafter,
            rule=rule,
            k=0 if drafter == "none" else request.k,
            temperature=values.pop("temperature"),
            seed=request.seed,
            attempt=request.attempt,
            prompt_tokens=len(prompt),
            max_tokens=max_tokens,
            context_limit=self.context_limit(request),
            dtype=self._target.dtype,
            device=device.backend(),
            caches={**caches, "draft": draft.cache_kinds} if draft else caches,
            sampling=values | {"logit_bias": request.logit_bias},
        )


def open_session(
    pair: Pair,
    drafter: str = "model",
    room_tokens: int | None = None,
    kv_bits: int | None = None,
    clock: Clock = time.perf_counter,
    costs: CostMemory | None = None,
) -> Session:
    """Load `pair`, its draft only where `drafter` needs one; `kv_bits` quantizes the KV caches of both.

    Both configurations and tokenizers come first, so that every refusal comes before any weight is read.

    `costs` remembers from run to run what rounds cost. With `room_tokens` it is refused, before the weights are read,
    if it cannot fit with caches that long.

    Raises: NotAvailable, Refused, DoesNotFit, UsageError for an unknown drafter.
    """
    if drafter not in NAMES:
        raise UsageError(f"--drafter {drafter} is unknown", f"known drafters: {', '.join(NAMES)}")
    target = read_checkpoint(locate(pair.target, pair.target_revision), pair.target)
    draft = None
    if pair.draft and drafter in USES_MODEL:
        draft = read_checkpoint(locate(pair.draft, pair.draft_revision), pair.draft)
    require_runnable(target, kv_bits)
    if drafter != "none":
        require_verifiable(target)
    tokenizer = Tokenizer.load(target.folder, target.name, target.config)
    if draft:
        require_runnable(draft, kv_bits)
        require_verifiable(draft)
        other = Tokenizer.load(draft.folder, draft.name, draft.config)
        require_same_ids(tokenizer.table(), other.table(), target.name, draft.name)
    if room_tokens is not None:
        require_fit([target, draft] if draft else [target], room_tokens, kv_bits)
    device.use_recommended_memory()
    loaded = load(target, kv_bits)
    began = clock()
    small = load(draft, kv_bits) if draft else None
    identity = _identity(pair, kv_bits)
    drafting = Drafting(loaded, small, costs, identity, clock() - began if small else 0.0)
    names = target.name, draft.name if draft else None
    return Session(names, loaded, small, tokenizer, target.generation_config, clock, drafting)


def _identity(pair: Pair, kv_bits: int | None) -> str:
    """What the cost of a round depends on besides the length of the context."""
    models = " + ".join(f"{name}@{revision or 'latest'}" for name, revision in pair.models)
    where = f"{device.device_name()} {device.backend()}, mlx {device.versions()['mlx']}, {power_source()}"
    return f"{models} · kv {kv_bits or 'full'} · {where}"
