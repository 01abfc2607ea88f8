"""Operations on many objects, prepared one by one and sent together; an inbox is notified of each that ends."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from penstock.engine.contracts.driver import Copy, Delete, Put, PutMany
from penstock.engine.fetch.operation import Operation, summed
from penstock.engine.support import require, supports
from penstock.engine.waiting import Inbox
from penstock.engine.write.batches import BatchedPut, PutBatches
from penstock.engine.write.publish import single
from penstock.errors import NotFound
from penstock.events import Scope, listening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.engine.contracts.driver import Attributes
    from penstock.engine.contracts.exchange import Exchange
    from penstock.engine.contracts.fetching import Fetching, PendingRead
    from penstock.engine.fetch.fetcher import Fetcher
    from penstock.engine.waiting import Item
    from penstock.values import ObjectMeta, Span

__all__ = ["Calls", "each_key", "unless_missing"]


class Calls:
    """Many operations in flight on one store; each costs one request and is retried like any other.

    A method prepares an operation and returns it; ``send`` starts all that were prepared since the last ``send``. Once
    ``complete``, an operation has its result in ``result()``, a read in ``take()``. Only one thread uses an instance.
    The requests belong to the operation ``scope``, which the caller must end, or by default to the operation that the
    thread is in.
    """

    def __init__(
        self, fetcher: Callable[[], Fetcher], fetching: Callable[[], Fetching], inbox: Inbox, scope: Scope | None = None
    ) -> None:
        """Prepare nothing yet. ``fetcher`` returns the engine of this process, ``fetching`` its source of reads."""
        self._fetcher = fetcher
        self._fetching = fetching
        self._inbox = inbox
        self._scope = scope or Scope()
        self._verbs: list[Operation[Any]] = []
        self._reads: list[PendingRead] = []
        self._batches: PutBatches | None = None

    def head(self, key: str) -> Operation[ObjectMeta]:
        """Prepare a look-up of an object's metadata."""
        return self._kept(partial(self._fetcher().driver.head, key))

    def delete(self, key: str) -> Operation[None]:
        """Prepare the deletion of an object; a missing object is not an error."""
        return self._kept(partial(require(self._fetcher().driver, Delete, key).delete, key))

    def copy(self, meta: ObjectMeta, to: str) -> Operation[str]:
        """Prepare a server-side copy, within the bucket, of the version in ``meta``: one request, whatever its size.

        A store may refuse to copy large objects, or any (``Unsupported``): ``Source.copy`` has other ways.
        """
        return self._kept(partial(require(self._fetcher().driver, Copy, to).copy, meta.key, to, meta.etag))

    def head_summed(self, key: str) -> Operation[ObjectMeta]:
        """Prepare a look-up of an object's metadata, with its checksum if the store provides one."""
        return self._kept(summed(self._fetcher().driver, key))

    def put(self, key: str, data: bytes, attributes: Attributes) -> Operation[str] | BatchedPut:
        """Prepare a write in one request, or in a batch with others if the store can; the result is the ETag.

        Raises:
            Unusable: More metadata, or more bytes, than the store takes in one request.

        """
        fetcher = self._fetcher()
        body = single(fetcher, key, data, attributes)
        if batches := self._together(fetcher, attributes):
            put = BatchedPut(key, body, attributes)
            batches.add(put)
            return put
        return self._kept(partial(require(fetcher.driver, Put, key).put, key, body, attributes))

    def read(self, span: Span) -> PendingRead:
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

    def call_off(self, calls: Iterable[Item]) -> None:
        """End the calls that are not complete with ``Cancelled``, soon; return at once. All must be of this store."""
        running = [each for each in calls if not each.complete]
        puts = [each for each in running if isinstance(each, BatchedPut)]
        verbs = [each for each in running if isinstance(each, Operation)]
        reads = [each for each in running if not isinstance(each, (BatchedPut, Operation))]
        if self._batches is not None:
            self._batches.call_off(puts)
        self._fetcher().call_off(verbs)
        self._fetching().cancel_reads(cast("list[PendingRead]", reads))

    def _together(self, fetcher: Fetcher, attributes: Attributes) -> PutBatches | None:
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
        self._batches = PutBatches(fetcher, require(fetcher.driver, PutMany), self._inbox)
        return self._batches

    def _kept(self, make: partial[Exchange[Any]]) -> Operation[Any]:
        operation = self._scope.run(self._fetcher().operation, make, self._inbox)
        self._verbs.append(operation)
        return operation


T = TypeVar("T")

_AT_ONCE = 256  # look-ups or deletions in flight


def each_key(fetcher: Fetcher, keys: Sequence[str], verb: Callable[[str], Exchange[T]]) -> Iterator[Operation[T]]:
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


def unless_missing(looking: Operation[T]) -> T | None:
    """Return the result of an operation, or None if the object does not exist; raise any other error."""
    return None if isinstance(looking.error, NotFound) else looking.result()
