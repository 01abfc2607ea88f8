"""Verbs for many objects, prepared one by one and sent together; an inbox is told of each that ends."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from penstock.events import Scope, listening
from penstock.fetch.operation import Operation
from penstock.fetch.writing.batches import BatchedPut, PutBatches
from penstock.fetch.writing.publish import single
from penstock.protocols.driver import Copy, Delete, Put, PutMany
from penstock.support import require, supports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.fetch.fetcher import Fetcher
    from penstock.protocols.driver import Attributes
    from penstock.protocols.exchange import Exchange
    from penstock.protocols.fetching import Fetching, PendingRead
    from penstock.values import ObjectMeta, Span
    from penstock.waiting import Inbox, Item

__all__ = ["Calls"]


class Calls:
    """Verbs on one store, many in flight: each costs one request, and is retried as any other.

    A method prepares a verb and returns it; ``send`` starts all that were prepared since. The result of one that is
    ``complete`` is its ``result()``, of a read ``take()``. One thread uses it. Requests belong to the operation
    ``scope``, which is the caller's to end, or else to the one that the thread is in.
    """

    def __init__(
        self, fetcher: Callable[[], Fetcher], fetching: Callable[[], Fetching], inbox: Inbox, scope: Scope | None = None
    ) -> None:
        """Prepare nothing yet. The functions return the engine of this process, and what its reads ask."""
        self._fetcher = fetcher
        self._fetching = fetching
        self._inbox = inbox
        self._scope = scope or Scope()
        self._verbs: list[Operation[Any]] = []
        self._reads: list[PendingRead] = []
        self._batches: PutBatches | None = None

    def head(self, key: str) -> Operation[ObjectMeta]:
        """Describe an object."""
        return self._kept(partial(self._fetcher().driver.head, key))

    def delete(self, key: str) -> Operation[None]:
        """Delete an object; a missing one is no error."""
        return self._kept(partial(require(self._fetcher().driver, Delete, key).delete, key))

    def copy(self, meta: ObjectMeta, to: str) -> Operation[str]:
        """Copy the version that ``meta`` describes within the bucket, server side: in one request, whatever its size.

        A store may refuse that to large objects, or to all (``Unsupported``): ``Source.copy`` knows other ways.
        """
        return self._kept(partial(require(self._fetcher().driver, Copy, to).copy, meta.key, to, meta.etag))

    def put(self, key: str, data: bytes, attributes: Attributes) -> Operation[str] | BatchedPut:
        """Write an object in one request, or together with others where the store can; its result is the ETag.

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
        """Read a span, verified; one that is in a cache is complete at once, and the inbox hears nothing of it."""
        (read,) = self._scope.run(self._fetching().prepare_reads, ((span, None),), self._inbox)
        if not read.complete:
            self._reads.append(read)
        return read

    def send(self) -> None:
        """Start what was prepared; may block for credentials, and raises where there are none."""
        verbs, self._verbs = self._verbs, []
        reads, self._reads = self._reads, []
        if verbs:
            self._fetcher().send(verbs)
        if reads:
            self._fetching().send_reads(reads)
        if self._batches is not None:
            self._batches.send()

    def call_off(self, calls: Iterable[Item]) -> None:
        """End those that are not complete with ``Cancelled``, soon; returns at once. They are of this store."""
        running = [each for each in calls if not each.complete]
        puts = [each for each in running if isinstance(each, BatchedPut)]
        verbs = [each for each in running if isinstance(each, Operation)]
        reads = [each for each in running if not isinstance(each, (BatchedPut, Operation))]
        if self._batches is not None:
            self._batches.call_off(puts)
        self._fetcher().call_off(verbs)
        self._fetching().cancel_reads(cast("list[PendingRead]", reads))

    def _together(self, fetcher: Fetcher, attributes: Attributes) -> PutBatches | None:
        """Return what sends a put with others; None where one by one is right, as for listeners, who hear of each."""
        if attributes.create_only or attributes.replaces or listening():
            return None
        if self._batches is not None and self._batches.fetcher is fetcher:
            return self._batches
        if not supports(fetcher.driver, PutMany):
            return None
        if self._batches is not None:
            self._batches.send()  # they end as what was sent to that engine does
        self._batches = PutBatches(fetcher, require(fetcher.driver, PutMany), self._inbox)
        return self._batches

    def _kept(self, make: partial[Exchange[Any]]) -> Operation[Any]:
        operation = self._scope.run(self._fetcher().operation, make, self._inbox)
        self._verbs.append(operation)
        return operation
