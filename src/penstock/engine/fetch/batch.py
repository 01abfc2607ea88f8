"""Operations on many objects, prepared one by one and sent together; an inbox is notified of each that ends.

``Batch`` prepares and sends. ``JoinedPuts`` joins small puts for stores that take several at once: a batch holds the
puts that wait when it is sent.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from penstock.engine.contracts.driver import Copy, Delete, Put, PutMany
from penstock.engine.operations.operation import VerbOperation, head_of, head_with_sums
from penstock.engine.operations.policy import again, bug
from penstock.engine.support import require, supports
from penstock.engine.waiting import Inbox
from penstock.errors import Bug, Cancelled, NotFound, PenstockError
from penstock.events import Scope, listening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.engine.contracts.driver import Attributes, Payload
    from penstock.engine.contracts.exchange import Exchange
    from penstock.engine.contracts.fetching import Fetching, ReadOperation
    from penstock.engine.fetch.fetcher import Fetcher
    from penstock.engine.waiting import Awaited
    from penstock.values import ObjectMeta, Span

_MOST = 16  # puts of a batch; with files, as many are open
_MOST_BYTES = 8 << 20


class JoinedPut:
    """A put that is sent in a batch with others."""

    __slots__ = ("_result", "attributes", "body", "called_off", "complete", "key")

    def __init__(self, key: str, body: Payload, attributes: Attributes) -> None:
        self.key, self.body, self.attributes = key, body, attributes
        self.complete = self.called_off = False
        self._result: str | PenstockError = ""

    def look(self) -> None:
        """Do nothing: none of its attempts fails before the end."""

    def end(self, result: str | PenstockError) -> None:
        self._result, self.complete = result, True

    def result(self) -> str:
        if isinstance(self._result, PenstockError):
            raise again(self._result)
        return self._result


class JoinedPuts(Inbox):
    """Puts to one store, sent in batches, as many at once as the transport carries; other puts wait for later batches.

    One thread adds, sends and cancels. A batch that ends sends the next one from the transport's thread. Before that,
    it retries each of its puts that failed and may be retried: alone, like a put that was sent alone.
    """

    __slots__ = ("_driver", "_inbox", "_running", "_waiting", "fetcher")

    def __init__(self, fetcher: Fetcher, driver: PutMany, inbox: Inbox) -> None:
        super().__init__()
        self.fetcher, self._driver, self._inbox = fetcher, driver, inbox
        self._waiting: deque[JoinedPut] = deque()
        self._running: dict[VerbOperation[Any], list[JoinedPut]] = {}

    def add(self, put: JoinedPut) -> None:
        self._waiting.append(put)

    def send(self) -> None:
        """Send as many waiting puts as the transport accepts; the rest follows automatically."""
        while self._waiting and len(self._running) < self.fetcher.concurrency():
            if batch := self._batch():
                puts = [(put.key, put.body, put.attributes) for put in batch]
                self._start(partial(self._driver.put_many, batch[0].key, puts), batch)

    def _start(self, make: partial[Exchange[Any]], batch: list[JoinedPut]) -> VerbOperation[Any]:
        operation = self.fetcher.operation(make, self)
        self._running[operation] = batch
        try:
            self.fetcher.send((operation,))
        except Exception as error:  # noqa: BLE001  the waiting threads get the error, whichever thread this is
            failed = error if isinstance(error, PenstockError) else bug(error)
            self._end(self._running.pop(operation), [failed] * len(batch))
        return operation

    def finished(self, item: Awaited) -> None:
        """Record, on the transport's thread, that a batch has ended, and notify the waiter of each put."""
        operation = cast("VerbOperation[Any]", item)
        batch = self._running.pop(operation)
        try:
            found = operation.result()
        except PenstockError as error:
            self._end(batch, [error] * len(batch))
        else:
            self._end(*((batch, [found]) if isinstance(found, str) else self._settled(batch, found)))
        self.send()

    def _settled(
        self, batch: list[JoinedPut], results: Sequence[str | PenstockError]
    ) -> tuple[list[JoinedPut], Sequence[str | PenstockError]]:
        """Retry separately the failed puts that may be retried; return the other puts, with their results."""
        if len(results) != len(batch):
            what = f"a driver told of {len(results)} puts where {len(batch)} were to be made"
            return batch, [Bug(what)] * len(batch)
        ended = []
        for put, result in zip(batch, results, strict=True):
            if isinstance(result, PenstockError) and result.retries and not put.called_off:
                self._again(put, result)
            else:
                ended.append((put, result))
        return [put for put, _ in ended], [result for _, result in ended]

    def _again(self, put: JoinedPut, error: PenstockError) -> None:
        verb = _after(error, require(self.fetcher.driver, Put, put.key).put)
        alone = self._start(partial(verb, put.key, put.body, put.attributes), [put])
        if put.called_off:
            # It was called off meanwhile, while it was part of neither operation.
            self.fetcher.call_off((alone,))

    def _end(self, batch: Iterable[JoinedPut], results: Iterable[str | PenstockError]) -> None:
        for put, result in zip(batch, results, strict=True):
            put.end(result)
            self._inbox.finished(put)

    def call_off(self, puts: Iterable[JoinedPut]) -> None:
        """End with ``Cancelled`` the puts that wait, or whose whole batch is cancelled before it takes effect."""
        named = {*puts}
        for put in named:
            put.called_off = True
        for put in named.intersection([*self._waiting]):
            try:
                self._waiting.remove(put)
            except ValueError:  # sent meanwhile
                continue
            put.end(Cancelled("cancelled"))
            self._inbox.finished(put)
        begun = [operation for operation, batch in self._running.copy().items() if named.issuperset(batch)]
        self.fetcher.call_off(begun)

    def _batch(self) -> list[JoinedPut]:
        batch: list[JoinedPut] = []
        size_bytes = 0
        while len(batch) < _MOST and size_bytes < _MOST_BYTES:
            try:
                put = self._waiting.popleft()
            except IndexError:  # another thread took it
                break
            batch.append(put)
            size_bytes += len(put.body.data)
        return batch


def _after(
    error: PenstockError, verb: Callable[[str, Payload, Attributes], Exchange[str]]
) -> Callable[[str, Payload, Attributes], Exchange[str]]:
    """Return ``verb`` for an operation whose first attempt failed with ``error`` in a batch: its policy decides."""
    errors = [error]

    def put(key: str, body: Payload, attributes: Attributes) -> Exchange[str]:
        if errors:
            raise errors.pop()
        return verb(key, body, attributes)

    return put


class Batch:
    """Many operations in flight on one store; each costs one request and is retried like any other.

    A method prepares an operation and returns it; ``send`` starts all that were prepared since the last ``send``. Once
    ``complete``, an operation has its result in ``result()``, a read in ``take()``. Only one thread uses an instance.
    The requests belong to the operation ``scope``, which the caller must end, or by default to the operation that the
    thread is in.
    """

    def __init__(
        self, fetcher: Callable[[], Fetcher], fetching: Callable[[], Fetching], inbox: Inbox, scope: Scope | None = None
    ) -> None:
        self._fetcher = fetcher
        self._fetching = fetching
        self._inbox = inbox
        self._scope = scope or Scope()
        self._verbs: list[VerbOperation[Any]] = []
        self._reads: list[ReadOperation] = []
        self._batches: JoinedPuts | None = None

    def head(self, key: str, etag: str = "") -> VerbOperation[ObjectMeta]:
        return self._kept(head_of(self._fetcher().driver, key, etag))

    def delete(self, key: str) -> VerbOperation[None]:
        return self._kept(partial(require(self._fetcher().driver, Delete, key).delete, key))

    def copy(self, meta: ObjectMeta, to: str) -> VerbOperation[str]:
        """Prepare a server-side copy, within the bucket, of the version in ``meta``: one request, whatever its size.

        A store may refuse to copy large objects, or any (``Unsupported``): ``Source.copy`` has other ways.
        """
        return self._kept(partial(require(self._fetcher().driver, Copy, to).copy, meta.key, to, meta.etag))

    def head_summed(self, key: str) -> VerbOperation[ObjectMeta]:
        return self._kept(head_with_sums(self._fetcher().driver, key))

    def put(self, key: str, data: bytes, attributes: Attributes) -> VerbOperation[str] | JoinedPut:
        """Prepare a write in one request, or in a batch with others if the store can; the result is the ETag.

        Raises ``Unusable`` for more bytes or metadata than the store takes in one request.
        """
        fetcher = self._fetcher()
        body = fetcher.body_of_put(key, data, attributes)
        if batches := self._together(fetcher, attributes):
            put = JoinedPut(key, body, attributes)
            batches.add(put)
            return put
        return self._kept(partial(require(fetcher.driver, Put, key).put, key, body, attributes))

    def read(self, span: Span) -> ReadOperation:
        """Prepare a verified read of a span; a cached span is complete at once, and the inbox is not notified of it."""
        (read,) = self._scope.run(self._fetching().prepare_reads, ((span, None),), self._inbox)
        if not read.complete:
            self._reads.append(read)
        return read

    def send(self) -> None:
        """Start everything that was prepared; may block for credentials, and raises if there are none."""
        verbs, self._verbs = self._verbs, []
        reads, self._reads = self._reads, []
        if verbs:
            self._fetcher().send(verbs)
        if reads:
            self._fetching().send_reads(reads)
        if self._batches is not None:
            self._batches.send()

    def call_off(self, calls: Iterable[Awaited]) -> None:
        """End the calls that are not complete with ``Cancelled``, soon; return at once. All must be of this store."""
        running = [each for each in calls if not each.complete]
        puts = [each for each in running if isinstance(each, JoinedPut)]
        verbs = [each for each in running if isinstance(each, VerbOperation)]
        reads = [each for each in running if not isinstance(each, (JoinedPut, VerbOperation))]
        if self._batches is not None:
            self._batches.call_off(puts)
        self._fetcher().call_off(verbs)
        self._fetching().cancel_reads(cast("list[ReadOperation]", reads))

    def _together(self, fetcher: Fetcher, attributes: Attributes) -> JoinedPuts | None:
        """Return the batches for a put; None if it must be sent alone, for example because listeners want each put."""
        if attributes.create_only or attributes.replaces or listening():
            return None
        if self._batches is not None and self._batches.fetcher is fetcher:
            return self._batches
        if not supports(fetcher.driver, PutMany):
            return None
        if self._batches is not None:
            # These puts end as everything else that was sent to that engine.
            self._batches.send()
        self._batches = JoinedPuts(fetcher, require(fetcher.driver, PutMany), self._inbox)
        return self._batches

    def _kept(self, make: partial[Exchange[Any]]) -> VerbOperation[Any]:
        operation = self._scope.run(self._fetcher().operation, make, self._inbox)
        self._verbs.append(operation)
        return operation


T = TypeVar("T")

_AT_ONCE = 256  # look-ups or deletions in flight


def each_key(fetcher: Fetcher, keys: Sequence[str], verb: Callable[[str], Exchange[T]]) -> Iterator[VerbOperation[T]]:
    """Run a verb of the fetcher's driver for each key, up to 256 in flight; yield the complete operations in order.

    Leaving the generator, by an error or Ctrl-C, cancels the operations in flight.
    """
    inbox = Inbox()
    for at in range(0, len(keys), _AT_ONCE):
        operations = [fetcher.operation(partial(verb, key), inbox) for key in keys[at : at + _AT_ONCE]]
        try:
            fetcher.send(operations)
            for operation in operations:
                inbox.wait(operation)
                yield operation
        finally:
            fetcher.call_off(operations)


def unless_missing(looking: VerbOperation[T]) -> T | None:
    """Return the result of an operation, or None if the object does not exist; raise any other error."""
    return None if isinstance(looking.error, NotFound) else looking.result()
