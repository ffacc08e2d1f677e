"""The ranks of one run: several processes, each with a share of the target, which compute every pass together.

Law: rank 0 decides for all. What a clock or a person decides comes in a message: one a round, and one more where a
plain step may be measured. What is chosen by a network's values, draft tokens and verdicts, stays on the device, as a
sum to which the other ranks add zeros: unlike chips round unlike, so that each would choose for itself. Every message,
and the last one of a reply, proves that the contexts are equal still. All messages of a reply have one shape: a rank
that ends alone meets the next one at once, and waits for nobody. Letters: N ranks.
"""

from __future__ import annotations

import json
import os
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from math import gcd
from time import perf_counter, sleep
from typing import Any, Self, TypeVar
from zlib import crc32

import mlx.core as mx
import mlx.nn as nn

from specdec_cli.core.errors import Refused, SpecdecError, reason, untrusted
from specdec_cli.core.kinds import DRAFTERS, FORCED, PREDICTED
from specdec_cli.engine import device
from specdec_cli.engine.planning.policy import Plan, Situation, plan
from specdec_cli.models.checkpoint import Checkpoint
from specdec_cli.system.link import TOLD_SECONDS, Link, link
from specdec_cli.version import __version__

T = TypeVar("T")
# What layers of mlx-lm call their numbers of heads, of which each rank takes its share.
HEADS = frozenset({"n_heads", "num_attention_heads", "num_heads", "num_k_heads", "num_v_heads"})
HEADS |= {"n_kv_heads", "num_key_value_heads", "num_kv_heads"}
ELSEWHERE = "use one machine, or another target: specdec help several-machines"
# A sum over all ranks of these stays below 2^31.
DIGESTS = 1 << 20
# What every rank adds to a choice, to see that all of them meant the same one.
MARK = 0x5EEDED


def shard(network: nn.Module, checkpoint: Checkpoint) -> nn.Module:
    """`network`; in a group only the share of this rank is left of it, by mlx-lm's own `shard`. Lazy.

    Raises: Refused for an adapter, for an architecture without `shard`, and for heads that do not divide, which mlx-lm
    does not check.
    """
    if checkpoint.group is None:
        return network
    ranks, name = checkpoint.group.ranks, checkpoint.name
    size = ranks.size()
    if checkpoint.adapter:
        hint = "fuse it: uvx --from mlx-lm mlx_lm.fuse"
        raise Refused(f"adapter {checkpoint.adapter} and {size} machines were asked for", hint)
    if not hasattr(network, "shard"):
        raise Refused(f"{name}: mlx-lm has no tensor parallelism for it, and {size} machines were named", ELSEWHERE)
    layers = [vars(module) for _, module in network.named_modules()]
    heads = {heads for layer in layers for key in HEADS if isinstance(heads := layer.get(key), int) and heads}
    if any(number % size for number in heads):
        most = gcd(*heads)
        fitting = " or ".join(str(n) for n in range(2, most + 1) if most % n == 0)
        hint = f"it can be shared by {fitting}" if fitting else ELSEWHERE
        counts = " and ".join(map(str, sorted(heads)))
        raise Refused(f"{name} has {counts} heads a layer, which {size} machines cannot share", hint)
    with untrusted(lambda why: Refused(f"{name} cannot be shared by {size} machines: {why}", ELSEWHERE)):
        network.shard(ranks)
    if isinstance(ranks, Share):  # mlx builds a sum, which nobody evaluates, over its own groups alone
        for _, module in network.named_modules():
            vars(module).update({key: mx.distributed.init() for key, value in vars(module).items() if value is ranks})
    return network


class NotWanted(SpecdecError):
    """Rank 0 could not do what it asked all for, and goes on."""


class Share:
    """Stands for a group, and for its ranks, where only shapes are asked for: rank 0 of `size`."""

    def __init__(self, size: int) -> None:
        self._size = size

    @property
    def ranks(self) -> Self:
        return self

    def size(self) -> int:
        return self._size

    def rank(self) -> int:
        return 0


class Group:
    """All ranks. Every rank calls the same methods in the same order; what rank 0 gives is what all of them get."""

    def __init__(self, ranks: mx.distributed.Group, link: Link | None = None) -> None:
        """Over `link`, before a job, rank 0 wakes the others, and they wait for that: an all-reduce waits busily."""
        self.ranks, self.rank, self.size = ranks, ranks.rank(), ranks.size()
        self._link, self._leads, self._broken = link, False, False

    def agreed(self, values: mx.array) -> mx.array:
        """Rank 0's whole numbers [n], on every rank; on their way, and read by nobody.

        The others' are computed too: passes that nobody evaluates would owe rank 0 their sums. Ranks that are out of
        step add up what does not belong together, which the mark shows: then each keeps its own, as the sum may be
        outside of the vocabulary, where mlx reads out of bounds. The next message finds the words different.
        """
        own = values.astype(mx.int32)
        total = self._total(mx.concatenate([own * (self.rank == 0), mx.array([MARK], mx.int32)]))
        return mx.where(total[-1] == MARK * self.size, total[:-1], own)

    def sum(self, values: Sequence[int]) -> mx.array:
        """The sum over all ranks [n], queued."""
        return self._total(mx.array(list(values), mx.int32))

    def _total(self, values: mx.array) -> mx.array:
        total = mx.distributed.all_sum(values, group=self.ranks)
        device.queue(total)
        if self._link:
            self._link.met()
        return total

    def agree(self, values: Sequence[int]) -> list[int]:
        """Rank 0's `values`, on every rank."""
        return device.to_list(self.sum([value * (self.rank == 0) for value in values]))

    def share(self, text: str = "") -> str:
        """Rank 0's `text`, on every rank."""
        data = text.encode()
        (length,) = self.agree([len(data)])
        return bytes(self.agree(list(data) if self.rank == 0 else [0] * length)).decode()

    def gather(self, number: int) -> tuple[int, ...]:
        """Every rank's `number`, below 2^50, by rank."""
        parts = [part * (at == self.rank) for at in range(self.size) for part in divmod(number, 1 << 20)]
        sums = device.to_list(self.sum(parts))
        return tuple((high << 20) + low for high, low in zip(sums[::2], sums[1::2], strict=True))

    def require_same(self, own: dict[str, str], hint: str) -> None:
        """Raises: SpecdecError on a rank where something is not what it is on rank 0, with its name and both values."""
        theirs: dict[str, str] = json.loads(self.share(json.dumps(own)))
        for name in theirs | own:
            here, there = own.get(name, "missing"), theirs.get(name, "missing")
            if here != there:
                raise SpecdecError(f"{name} is {here} on rank {self.rank}, and {there} on rank 0", hint)

    def job(self) -> Any:
        """What rank 0 does next, which every other rank does too."""
        if self._link:
            self._link.wake()
        return json.loads(self.share())

    def rest(self) -> None:
        """It may take any time until all meet again."""
        if self._link:
            self._link.met(rests=True)

    def all(self, make: Callable[[], T]) -> T:
        """What `make` gives, once no rank has failed at it.

        Raises: SpecdecError on the rank that failed, and on rank 0; NotWanted on all others where rank 0 failed.
        """
        failure: SpecdecError | None = None
        self.rest()
        try:
            made = make()
        except SpecdecError as error:
            failure = error
        leader, failed = device.to_list(self.sum([failure is not None and self.rank == 0, failure is not None]))
        if self.rank and leader:
            raise NotWanted("rank 0 failed", "it says why")
        if failure:
            raise failure
        if failed and self.rank == 0:
            sleep(TOLD_SECONDS)  # whoever started the ranks ends this one, and says what the other said
            raise SpecdecError("another machine cannot load the pair", "specdec check there says why")
        return made

    @contextmanager
    def doing(self, job: Any) -> Iterator[None]:
        """Rank 0 does `job`, a dataclass, inside, and the others the same; what is done within it is a part of it.

        Raises: SpecdecError once the device failed in one, or a person broke it off.
        """
        if self.rank or self._leads:
            yield
            return
        if self._broken:
            raise SpecdecError("the machines are out of step after an interruption", "end this, and start again")
        if self._link:
            self._link.wake()
        self.share(json.dumps(asdict(job)))
        self._leads = self._broken = True
        try:
            yield
            self._broken = False
        except (GeneratorExit, SpecdecError):  # all ranks came to this point
            self._broken = False
            raise
        finally:
            self._leads = False
            self.rest()

    def along(self, job: Any, steps: Iterator[T], leave: Callable[[], None] = lambda: None) -> Iterator[T]:
        """`steps` as a job. They go on to their end where they are closed before, and `leave` has them end soon."""
        with self.doing(job):
            try:
                for step in steps:  # noqa: UP028  # `yield from` would close them
                    yield step
            except GeneratorExit:  # the other ranks go on until they are told
                leave()
                deque(steps, maxlen=0)
                raise

    def seconds(self, numbers: int, times: int = 20) -> list[float]:
        """Of each of `times` all-reduces of so many float32 numbers, less the first, which connects."""
        values, taken = mx.zeros((numbers,)), []
        for _ in range(times + 1):
            mx.eval(values)
            began = perf_counter()
            mx.eval(mx.distributed.all_sum(values, group=self.ranks))
            taken.append(perf_counter() - began)
        return taken[1:]


def backend() -> str:
    """What carries the sums: `ring`, over TCP, or `jaccl`, over Thunderbolt."""
    return "jaccl" if "MLX_JACCL_COORDINATOR" in os.environ else "ring"


@cache
def joined() -> Group | None:
    """The group that the environment names, as `mlx.launch` and `--hosts` set it; None without one.

    Waits for the other ranks, for ever. Raises: SpecdecError where there is none to be had, or of other versions.
    """
    if "MLX_RANK" not in os.environ:
        return None
    line = link()
    if line:
        line.wake()
        line.meeting()
    try:
        group = Group(mx.distributed.init(strict=True, backend=backend()), line)
    except (RuntimeError, ValueError) as error:
        raise SpecdecError(f"the machines did not meet: {reason(error)}", "specdec help several-machines") from error
    own = {"specdec": __version__, **device.versions(), "computes on": device.backend()}
    group.require_same(own, "install the same on both")
    return group


class Ranks:
    """What a clock or a person decides in a reply: as rank 0 does, on every rank.

    With each message goes whether all have the same `context`, which grows in place.
    """

    def __init__(self, group: Group, context: Sequence[int], cancelled: Callable[[], bool]) -> None:
        """`cancelled` is what a person asked for on this rank."""
        self._group, self._context, self._cancelled = group, context, cancelled
        self._left = False
        self._stops: bool | None = None
        self._before: tuple[mx.array, Plan] | None = None
        self._compared = self._digest = 0

    def leave(self) -> None:
        """Nobody hears the reply any more."""
        self._left = True

    def cancelled(self) -> bool:
        """Whether the reply is to end, as of the last plan; before the first one, by a message of its own."""
        return self.agrees(self._asked()) if self._stops is None else self._stops

    def _asked(self) -> bool:
        return self._left or self._cancelled()

    def agrees(self, value: bool) -> bool:
        """Rank 0's `value`, in a message of its own; the last message of a reply is one."""
        return bool(self._agree(self._message([value, 0, 0, 0]))[0])

    def plan(self, situation: Situation) -> Plan:
        """The plan of the next round.

        While a pass is in flight it lags one round, except after a break: the sum of this one waits for that pass. With
        a fixed K no clock has a part in it.
        """
        own = plan(situation)
        sent = self._send(own), own
        if not situation.in_flight:
            self._before = None
            return self._read(*sent)
        before, self._before = self._before, sent
        if situation.k is None:
            return self._read(*(before or sent))
        if before:
            self._read(*before)
        return own

    def _send(self, plan: Plan) -> mx.array:
        return self._message([self._asked(), names().index(plan.drafter), plan.k, plan.release], plans=True)

    def _read(self, message: mx.array, own: Plan) -> Plan:
        stops, drafter, k, release = self._agree(message)
        self._stops = bool(stops)
        return own if self._group.rank == 0 else Plan(names()[drafter], k, release=bool(release))

    def _message(self, values: Sequence[int], plans: bool = False) -> mx.array:
        """`values` [4] of rank 0, and a digest of all tokens so far and of whether it `plans` a round; queued."""
        new, self._compared = self._context[self._compared :], len(self._context)
        self._digest = crc32(array("q", new).tobytes(), self._digest)
        digest = (self._digest + plans) % DIGESTS
        leads = self._group.rank == 0
        return self._group.sum([*(value * leads for value in [*values, digest]), digest])

    def _agree(self, message: mx.array) -> list[int]:
        """Raises: SpecdecError where a rank has other tokens than rank 0, or is elsewhere in the reply."""
        *values, digest, digests = device.to_list(message)
        if digests != digest * self._group.size:
            after = f"after {len(self._context)} tokens of prompt and answer"
            raise SpecdecError(f"the {self._group.size} machines wrote different tokens {after}", "run it again")
        return values


def names() -> list[str]:
    """All drafters that a plan may name, in an order that is every rank's."""
    return [*DRAFTERS, FORCED.name, PREDICTED.name]
