"""Engine of one store: sends many operations at once, and waits for them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import chain, filterfalse
from math import inf
from operator import attrgetter, methodcaller
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from penstock.engine.buffer import Buffer, flat
from penstock.engine.contracts.driver import Limits, Metered, Payload
from penstock.engine.contracts.exchange import Gated, Watchable
from penstock.engine.node.member import member
from penstock.engine.node.rate import Turns
from penstock.engine.node.table import GroupCounts
from penstock.engine.operations.operation import VerbOperation, head_of, head_with_sums
from penstock.engine.operations.policy import RetryPolicy
from penstock.engine.read.hedging import Hedging
from penstock.engine.read.openread import OpenRead, SuffixRead, resolve_suffix
from penstock.engine.read.spanread import RangeProbe, SpanRead, SplitRead
from penstock.engine.read.unranged import WholeObjects
from penstock.engine.support import supports
from penstock.engine.waiting import Inbox, may_wait
from penstock.errors import (
    Changed,
    ChecksumMismatch,
    PenstockError,
    Throttled,
    TimedOut,
    Unreachable,
    Unusable,
    printable,
)
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.engine.budget import Budget
    from penstock.engine.contracts.credentials import Identity
    from penstock.engine.contracts.driver import Attributes, Digest, Driver
    from penstock.engine.contracts.exchange import Exchange, Operation, Transport
    from penstock.engine.contracts.fetching import Owner, ReadOperation
    from penstock.events import Timings
    from penstock.options import NodeOptions, ReadOptions, RetryOptions

T = TypeVar("T")

_GRACE = 1 / 24  # of the patience; 5 s with the usual options
# For the answer to a change that was called off (Ctrl-C ends every verb within two seconds), and between two looks.
_SETTLE_S, _LOOK_S = 1.0, 0.001
# From a server that ignores Range, little more than this is read.
_PROBE_BYTES = 4 << 10


class Fetcher:
    """Operations on one store, including reads (``Fetching``): many at once, each retried within a shared budget."""

    def __init__(
        self, driver: Driver, transport: Transport, retry: RetryOptions, read: ReadOptions, limits: Limits | None = None
    ) -> None:
        self.driver = driver
        driver.abilities = replace(driver.abilities, untold_bytes=read.unknown_bytes)
        self.limits = limits or Limits()
        self.options = read
        self.patience_s = retry.patience_s
        self._node: NodeOptions | None = None  # None unless it takes part
        self._transport = transport
        self._policy = RetryPolicy(driver, retry, read.ahead_bytes)
        self._wholes = WholeObjects(transport, read.ahead_bytes)
        self._policy.unranged = self._wholes.add
        if read.hedge and isinstance(transport, Watchable):
            transport.watch(Hedging(self._policy.hedges, self._policy.tokens, self._policy.timings))

    def share(self, store: str, options: NodeOptions) -> Self:
        """Limit the request rate, together with the node's other processes, if the store refuses requests for it.

        Returns self. ``store`` identifies the store among all others, in all processes. A store without a network needs
        no such limit.
        """
        if options.share and isinstance(self._transport, Gated):
            self._node = options
            metered = cast("Metered", self.driver) if supports(self.driver, Metered) else None
            pace = Pace(store, self.driver.url, self._policy.timings, metered)
            self._transport.guard(pace)
            member.enter(pace, options)
        return self

    def grace_s(self, error: BaseException | None, most_s: float) -> float:
        """Return the seconds to wait for a cleanup request after ``error``: fewer if the store did not respond."""
        return min(most_s, self.patience_s * _GRACE) if isinstance(error, (TimedOut, Unreachable)) else most_s

    def left_s(self, began: float) -> float:
        """Return the seconds left to check the outcome of a failed write that began at ``began``.

        The write has taken up to ``patience_s`` and one stall. The total stays below 1.25 times ``patience_s``.
        """
        return max(self.patience_s * _GRACE, (1 + _GRACE) * self.patience_s - (monotonic() - began))

    def hold(self, budget: Budget) -> Budget:
        """Return ``budget``, limited from now on to this process's share if its store takes part in the node."""
        return budget if self._node is None else member.hold(budget, self._node)

    def close(self) -> None:
        self._transport.close()

    def usable(self) -> bool:
        return self._transport.usable()

    def check_metadata(self, key: str, attributes: Attributes) -> None:
        """Raise ``Unusable``, before anything is sent, if the user metadata exceeds the store's limit."""
        size, most = sum(len(f"{name}{value}".encode()) for name, value in attributes.metadata.items()), self.limits
        if size > most.metadata_bytes:
            message = f"metadata of {size} bytes; this store's limit is {most.metadata_bytes}"
            raise Unusable(message, url=self.driver.url(key))

    def payload(self, data: bytes | bytearray | memoryview) -> Payload:
        abilities = self.driver.abilities
        return digest_payload(flat(data), abilities.put_digest or abilities.digest)

    def body_of_put(self, key: str, data: bytes | bytearray | memoryview, attributes: Attributes) -> Payload:
        """Return the body of one PUT; ``Unusable`` if it exceeds the store's limit for one request."""
        self.check_metadata(key, attributes)
        body, most = self.payload(data), self.limits.put_bytes
        if len(body.data) > most:
            message = f"{len(body.data)} bytes in one request, the limit is {most}: write more with open(url, 'wb')"
            raise Unusable(message, url=self.driver.url(key))
        return body

    def run(self, make: partial[Exchange[T]], limit_s: float = inf) -> T:
        """Carry out one verb, within ``limit_s``, and return its result; Ctrl-C cancels it permanently."""
        operation = self.operation(make, Inbox())
        try:
            self.send((operation,))
            operation.wait(limit_s)
            if not operation.complete:
                raise TimedOut(f"no response within {limit_s:.1f} s", url=self.driver.url(operation.key))
            return operation.result()
        except BaseException as error:
            if self.call_off((operation,)):
                url = self.driver.url(operation.key)
                error.add_note(f"the store did not answer the last request, and may still carry it out: {url}")
            raise

    def operation(self, make: partial[Exchange[T]], inbox: Inbox) -> VerbOperation[T]:
        return VerbOperation(self._policy, make, inbox)

    def send(self, operations: Sequence[VerbOperation[T]]) -> None:
        """Start operations. Store them first if they may have to be cancelled: Ctrl-C may come meanwhile."""
        self.driver.prepare()
        self._transport.submit(operations)

    def call_off(self, operations: Iterable[VerbOperation[T]]) -> list[VerbOperation[T]]:
        """End operations with ``Cancelled``, before any operation that starts later.

        The answers to requests that change an object, and that the store has, are awaited for up to 1 s: after that,
        none of the others takes effect. Returns the requests without an answer, if a server has them.
        """
        running = [each for each in operations if not each.complete]
        changing = [each for each in running if each.changes]
        if others := [each for each in running if not each.changes]:
            self._transport.cancel(others)
        if not changing:
            return []
        for each in changing:
            each.called_off = True
        self._transport.cancel(changing, sent=False)
        until = monotonic() + min(_SETTLE_S, self.patience_s * _GRACE)
        # Transports of blocking calls wait themselves.
        if not isinstance(self._transport, Gated) or not may_wait():
            return []
        while (left := [each for each in changing if not each.complete]) and monotonic() < until:
            sleep(_LOOK_S)
        self._transport.cancel(left)
        return left

    def concurrency(self) -> int:
        return self._transport.concurrency()

    def waits(self, spans: Iterable[Span]) -> bool:
        """Return whether starting reads of these spans, or any verb, may block first. Sends no request.

        Perhaps credentials are due, or a look whether the store supports ``Range``, or a HEAD for the version of a long
        span.
        """
        identity: Identity[Any] | None = getattr(self.driver, "identity", None)  # of drivers that sign
        if identity is not None and identity.due():
            return True
        spans, most_bytes = [*spans], self.options.split_bytes
        return (self.driver.abilities.ranges is None and self._ranged(spans) is not None) or any(
            -span.start > most_bytes if span.stop is None else span.stop - span.start > most_bytes and not span.etag
            for span in spans
        )

    def prepare_reads(self, wanted: Iterable[tuple[Span, Buffer | None]], owner: Owner) -> list[ReadOperation]:
        """Return reads to send: one request each, or several beyond ``split_bytes`` (see ``contracts.fetching``)."""
        self.driver.prepare()
        wanted, most_bytes = [*wanted], self.options.split_bytes
        if self.driver.abilities.ranges is None and (
            ranged := [span for span, _ in wanted if not span.whole or (span.stop or 0) > most_bytes]
        ):
            self._learn_ranges(ranged)
        read, policy = self._read, self._policy
        reads = [
            SpanRead(policy, span, owner)  # nearly all
            if buffer is None and (stop := span.stop) is not None and stop - span.start <= most_bytes
            else read(span, buffer, owner)
            for span, buffer in wanted
        ]
        # With several reads, the others of the object would need all of it anyway.
        if len(wanted) == 1 and wanted[0][1] is not None:
            reads[0].front = wanted[0][0].start == 0
        return cast("list[ReadOperation]", reads)

    def send_reads(self, reads: Iterable[ReadOperation]) -> None:
        self._transport.submit(_operations(reads))

    def cancel_reads(self, reads: Iterable[ReadOperation]) -> None:
        """Cancel reads in flight; their memory stays alive until libcurl has released it."""
        self._cancel(_operations(reads))

    def stop_reads(self, reads: Iterable[ReadOperation]) -> None:
        """Cancel reads and wait until none of them can write into its buffer again.

        Reads that an interrupt kept from being sent never complete, so only those that have begun are waited for; on
        the transport's thread, where the garbage collector may run this, none.
        """
        operations, inbox = _operations(reads), Inbox()
        for operation in operations:
            operation.tell(inbox)
        self._cancel(operations)
        for operation in operations if may_wait() else ():
            if operation.attempts:
                inbox.wait(operation)

    def _cancel(self, operations: Sequence[SpanRead]) -> None:
        for operation in operations:
            # First: an operation that the transport does not know yet may come late.
            operation.called_off = True
        self._transport.cancel(operations)
        self._wholes.call_off(operations)

    def _read(self, span: Span, buffer: Buffer | None, owner: Owner) -> SpanRead:
        size_bytes = None if span.stop is None else span.stop - span.start
        if buffer is not None and buffer.size != size_bytes:
            message = f"cannot read {size_bytes} bytes into a buffer of {buffer.size}"
            raise Unusable(message, url=self.driver.url(span.key))
        if size_bytes is not None and size_bytes > self.options.split_bytes:
            return self._split(span, size_bytes, buffer, owner)
        if size_bytes is None:
            if span.start < 0:
                return self._end(span, owner)
            if span.start:
                message = f"a span from byte {span.start} on needs a stop: look up the object's size (head) first"
                raise Unusable(message, url=self.driver.url(span.key))
            return OpenRead(self._policy, span, owner)
        return SpanRead(self._policy, span, owner, buffer)

    def _end(self, span: Span, owner: Owner) -> SpanRead:
        """Return a read of an object's last bytes: in one request, or in parts after a HEAD that finds the size."""
        if -span.start <= self.options.split_bytes:
            return SuffixRead(self._policy, span, owner)
        try:
            known = resolve_suffix(span, self.run(head_of(self.driver, span.key, span.etag)), self.driver.url(span.key))
        except PenstockError as error:
            return self._failed(span, owner, error)
        return self._read(known, None, owner)

    def _failed(self, span: Span, owner: Owner, error: PenstockError) -> SpanRead:
        failed = SpanRead(self._policy, span, owner)
        failed.error, failed.complete = error, True
        return failed

    def _split(
        self,
        span: Span,
        size_bytes: int,
        buffer: Buffer | None,
        owner: Owner,
        repeats: int = ChecksumMismatch.retries,
    ) -> SpanRead:
        """Return a read in parts, which is read again ``repeats`` times if the bytes do not match the checksum.

        Without a version to pin, it is one that has failed and raises its error in its turn.
        """
        try:
            pinned = self._pinned(span)
        except PenstockError as error:
            return self._failed(span, owner, error)
        most_bytes = self.options.split_bytes
        # Without a version to pin, two answers might hold bytes of two versions; without ranges, the object comes from
        # front to back, straight into place.
        if not pinned.etag or (self.driver.abilities.ranges is False and span.start == 0):
            most_bytes = size_bytes
        repeats = min(repeats, self._policy.attempts - 1)
        again = partial(self._again, repeats - 1) if repeats > 0 else None
        read = SplitRead(self._policy, pinned, owner, buffer or Buffer.allocate(size_bytes), most_bytes, again)
        read.span = span
        return read

    def _again(self, repeats: int, span: Span, buffer: Buffer) -> SpanRead:
        self.driver.prepare()
        inbox = Inbox()
        read = self._split(span, buffer.size, buffer, inbox, repeats)
        reads = [cast("ReadOperation", read)]
        try:
            self.send_reads(reads)
            inbox.wait(read)
        except BaseException:
            self.stop_reads(reads)
            raise
        return read

    def _learn_ranges(self, spans: Sequence[Span]) -> None:
        """Test with a small request, once per store, if it supports ``Range``, before large reads rely on it.

        If it does not, each read would return the whole object. Errors of this request are left for the reads to raise.
        """
        first = self._ranged(spans)
        if first is None:
            return
        span, size = first
        # From byte 0 on, a response could be right by chance.
        start = span.start + 1
        inbox, stop = Inbox(), min(size, 1 + _PROBE_BYTES) + span.start
        probe = RangeProbe(self._policy, Span(span.key, start, stop, span.etag), inbox)
        try:
            self._transport.submit((probe,))
            inbox.wait(probe)
        finally:
            self.cancel_reads((probe,))

    def _ranged(self, spans: Sequence[Span]) -> tuple[Span, int] | None:
        """Return the first range among the spans, and its size; None if the ranges have few bytes together."""
        most_bytes = self.options.split_bytes
        ranged = [
            (span, span.stop - span.start)
            for span in spans
            if span.stop is not None and span.stop > (most_bytes if span.whole else span.start + 1)
        ]
        return ranged[0] if sum(size for _, size in ranged) > most_bytes else None

    def _pinned(self, span: Span) -> Span:
        """Return a span for several requests with the version to pin them to; costs one HEAD if none is known."""
        if span.etag or span.stop is None:
            return span
        found = self.run(head_with_sums(self.driver, span.key) if span.whole else partial(self.driver.head, span.key))
        if span.whole and found.size != span.stop:
            message = f"the object has {found.size} bytes, but was listed with {span.stop}"
            raise Changed(message, url=self.driver.url(span.key))
        return span._replace(etag=found.etag, checksum=found.checksum)


def digest_payload(data: bytes | bytearray | memoryview, begin: Callable[[], Digest] | None) -> Payload:
    if begin is None:
        return Payload(data)
    digest = begin()
    digest.update(data)
    return Payload(data, digest.hexdigest())


_complete: Callable[[object], bool] = attrgetter("complete")
_each: Callable[[object], Iterable[SpanRead]] = methodcaller("operations")


def _operations(reads: Iterable[ReadOperation]) -> list[SpanRead]:
    return [*chain.from_iterable(map(_each, filterfalse(_complete, reads)))]  # a loop takes three times as long


# S3 counts them apart from writes.
_READS: Final = frozenset({"get", "head", "head_version", "list", "list_versions", "read", "uploads", "versioning"})
# Prefixes of one store that have their own rate; all others share one.
_PREFIXES: Final = 8
_NAMES: Final = 4096
_LEARN_S: Final = 3.0
_HASTE: Final = 10
# Refused share of the recent requests: beyond it no rate helps, and each request backs off.
_REFUSED: Final = 0.9


class Pace:
    """Request rates of one store, by prefix and kind. A ``Gate`` on the transport's thread, ``closed`` after refusals.

    A prefix is a key's first part, up to ``/``. Stores limit the rates of finer or coarser parts and do not say which.
    A rate is learned from the requests that they accept, so it fits the keys that are requested together.
    A store that counts requests in quotas (``Metered``) has a rate for each quota instead, and states it.
    """

    def __init__(self, store: str, url: Callable[[str], str], timings: Timings, metered: Metered | None = None) -> None:
        self.closed = False
        self.store = _hash_text(store)
        self._name = store
        self._url = url
        self._metered = metered
        self._timings = timings
        self._turns: dict[int, Turns] = {}
        self._counted: dict[int, GroupCounts] = {}
        self._outages: set[int] = set()
        self._groups: dict[tuple[str, str], int] = {}  # identifiers of the groups seen so far

    def wait(self, operation: Operation) -> float:
        """Return 0.0 if an operation may be sent now, and count it; else the seconds until it must ask again."""
        group = self._group(operation)
        turns = self._turns.get(group)
        if turns is None:
            return 0.0
        wait_s = turns.ask(operation, monotonic()) * RetryPolicy.pace
        if wait_s:
            self._timings.paced(wait_s)
        else:
            self._count(group).sent += 1
        return wait_s

    def failed(self, operation: Operation, delay_s: float) -> float:
        """Record an operation that will be repeated after ``delay_s``; return the delay to use instead, in seconds.

        Backoff spreads operations over ten seconds because nothing better is known. Once the rate is known, the turns
        spread them. While the rate is being learned, there must be requests to learn from.
        """
        error = getattr(operation, "error", None)
        if not isinstance(error, Throttled):
            return delay_s
        kind, prefix = self._classify(operation)
        group = self._group(operation)
        if group not in self._turns and len(self._turns) >= _PREFIXES:
            prefix, group = "", self._id(kind, "")
        now = monotonic()
        turns = self._turns.setdefault(group, Turns(inf, now))
        counted = self._count(group)
        counted.refused += 1
        counted.label = counted.label or f"{kind}s of {printable(self._url(prefix + '/' if prefix else ''))}"
        self.closed = True
        paced = now - turns.began < _LEARN_S or (turns.rate < inf and group not in self._outages)
        if not paced or delay_s <= 1:
            return delay_s
        sooner_s = max(error.retry_after_s or 0.0, delay_s / _HASTE)
        self._timings.sooner(delay_s - sooner_s)
        return sooner_s

    def counted(self) -> dict[int, GroupCounts]:
        if self._metered is not None:
            for quota, per_s in list(self._metered.rates.items()):
                counted = self._count(self._id("read", quota))
                counted.stated, counted.label = per_s, f"requests of {self._url('')}, quota {quota!r}"
            self._metered.rates.clear()
        for group, turns in self._turns.items():
            if gone := [operation for operation in turns.waiting() if getattr(operation, "complete", False)]:
                turns.leave(gone)
            counted = self._count(group)
            counted.waits = len(turns) > 0
            if counted.refused and counted.refused >= _REFUSED * counted.sent:
                self._outages.add(group)
            elif counted.sent > counted.refused:
                self._outages.discard(group)
        found, self._counted = self._counted, {}
        return found

    def bound(self, rates: dict[int, float]) -> None:
        """Limit the requests of these groups to these rates per second; send all others without a limit."""
        now = monotonic()
        for group in self._turns.keys() - rates.keys() - self._counted.keys():
            del self._turns[group]
        for group, rate in rates.items():
            self._turns.setdefault(group, Turns(rate, now)).rate = rate
        self.closed = bool(self._turns)

    def _count(self, group: int) -> GroupCounts:
        return self._counted.setdefault(group, GroupCounts(self.store, ""))

    def _group(self, operation: Operation) -> int:
        """Return the group of an operation: that of its prefix, or the shared group of all other prefixes."""
        kind, prefix = self._classify(operation)
        group = self._id(kind, prefix)
        return group if group in self._turns else self._id(kind, "") if len(self._turns) >= _PREFIXES else group

    def _classify(self, operation: Operation) -> tuple[str, str]:
        kind, verb, key = _classify_operation(operation)
        if self._metered is not None:
            return kind, self._metered.quota(verb, key)
        return kind, key.partition("/")[0] if "/" in key else ""

    def _id(self, kind: str, prefix: str) -> int:
        found = self._groups.get((kind, prefix))
        if found is None:
            if len(self._groups) >= _NAMES:
                self._groups.clear()
            found = self._groups[kind, prefix] = _hash_text(f"{self._name}\0{kind}\0{prefix}")
        return found


def _classify_operation(operation: Operation) -> tuple[str, str, str]:
    """Return whether an operation reads or writes, its verb and its key."""
    if isinstance(operation, SpanRead):
        return "read", "read", operation.span.key
    if isinstance(operation, VerbOperation):
        return "read" if operation.verb in _READS else "write", operation.verb, operation.key
    return "read", "", ""


def _hash_text(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little") or 1
