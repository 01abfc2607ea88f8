"""Batches of small puts, for stores that take several at once: a batch holds the puts that wait when it is sent."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from penstock.engine.contracts.driver import Put
from penstock.engine.fetch.policy import again, bug
from penstock.engine.support import require
from penstock.engine.waiting import Inbox
from penstock.errors import Bug, Cancelled, PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.engine.contracts.driver import Attributes, Payload, PutMany
    from penstock.engine.contracts.exchange import Exchange
    from penstock.engine.fetch.fetcher import Fetcher
    from penstock.engine.fetch.operation import Operation
    from penstock.engine.waiting import Item

__all__ = ["BatchedPut", "PutBatches"]

_MOST = 16  # puts of a batch; with files, as many are open
_MOST_BYTES = 8 << 20


class BatchedPut:
    """A put that is sent in a batch with others.

    Attributes:
        key: Key of the object.
        complete: Whether it has ended; set by the transport's thread.
        called_off: Whether it must not be retried.

    """

    __slots__ = ("_result", "attributes", "body", "called_off", "complete", "key")

    def __init__(self, key: str, body: Payload, attributes: Attributes) -> None:
        """Prepare the put."""
        self.key, self.body, self.attributes = key, body, attributes
        self.complete = self.called_off = False
        self._result: str | PenstockError = ""

    def look(self) -> None:
        """Do nothing: no attempt of it fails before it ends."""

    def end(self, result: str | PenstockError) -> None:
        """Store the ETag, or the error, of the put."""
        self._result, self.complete = result, True

    def result(self) -> str:
        """Return the ETag, or raise the error; only once complete."""
        if isinstance(self._result, PenstockError):
            raise again(self._result)
        return self._result


class PutBatches(Inbox):
    """Puts to one store, sent in batches, as many at once as the transport carries; other puts wait for later batches.

    One thread adds, sends and cancels. A batch that ends sends the next one from the transport's thread. Before that,
    it retries each of its puts that failed and may be retried: alone, like a put that was sent alone.

    Attributes:
        fetcher: The store's engine.

    """

    __slots__ = ("_driver", "_inbox", "_running", "_waiting", "fetcher")

    def __init__(self, fetcher: Fetcher, driver: PutMany, inbox: Inbox) -> None:
        """Start empty; ``inbox`` is notified of each put that ends."""
        super().__init__()
        self.fetcher, self._driver, self._inbox = fetcher, driver, inbox
        self._waiting: deque[BatchedPut] = deque()
        self._running: dict[Operation[Any], list[BatchedPut]] = {}

    def add(self, put: BatchedPut) -> None:
        """Let a put wait for ``send``."""
        self._waiting.append(put)

    def send(self) -> None:
        """Send the waiting puts as far as the transport has room; the rest follows automatically."""
        while self._waiting and len(self._running) < self.fetcher.concurrency():
            if batch := self._batch():
                self._send(batch)

    def _send(self, batch: list[BatchedPut]) -> None:
        puts = [(put.key, put.body, put.attributes) for put in batch]
        self._start(partial(self._driver.put_many, batch[0].key, puts), batch)

    def _start(self, make: partial[Exchange[Any]], batch: list[BatchedPut]) -> Operation[Any]:
        operation = self.fetcher.operation(make, self)
        self._running[operation] = batch
        try:
            self.fetcher.send((operation,))
        except Exception as error:  # noqa: BLE001  the waiting threads get the error, whichever thread this is
            failed = error if isinstance(error, PenstockError) else bug(error)
            self._end(self._running.pop(operation), [failed] * len(batch))
        return operation

    def finished(self, item: Item) -> None:
        """Take note, on the transport's thread, that a batch has ended, and notify the waiter of each put."""
        operation = cast("Operation[Any]", item)
        batch = self._running.pop(operation)
        try:
            found = operation.result()
        except PenstockError as error:
            self._end(batch, [error] * len(batch))
        else:
            self._end(*((batch, [found]) if isinstance(found, str) else self._settled(batch, found)))
        self.send()

    def _settled(
        self, batch: list[BatchedPut], results: Sequence[str | PenstockError]
    ) -> tuple[list[BatchedPut], Sequence[str | PenstockError]]:
        """Retry, each alone, the failed puts that may be retried; return the other puts, with their results."""
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

    def _again(self, put: BatchedPut, error: PenstockError) -> None:
        verb = _after(error, require(self.fetcher.driver, Put, put.key).put)
        alone = self._start(partial(verb, put.key, put.body, put.attributes), [put])
        if put.called_off:
            # It was called off meanwhile, while it was part of neither operation.
            self.fetcher.call_off((alone,))

    def _end(self, batch: Iterable[BatchedPut], results: Iterable[str | PenstockError]) -> None:
        for put, result in zip(batch, results, strict=True):
            put.end(result)
            self._inbox.finished(put)

    def call_off(self, puts: Iterable[BatchedPut]) -> None:
        """End with ``Cancelled`` the puts that wait, or whose whole batch is called off and has not begun."""
        named = {*puts}
        for put in named:
            put.called_off = True
        for put in named.intersection([*self._waiting]):
            try:
                self._waiting.remove(put)
            except ValueError:  # sent meanwhile
                continue
            put.end(Cancelled("called off"))
            self._inbox.finished(put)
        begun = [operation for operation, batch in self._running.copy().items() if named.issuperset(batch)]
        self.fetcher.call_off(begun)

    def _batch(self) -> list[BatchedPut]:
        batch: list[BatchedPut] = []
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
