"""Writing steps: small objects, one large object in parts, and the deletion of all of them."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from dataclasses import dataclass, field
from threading import Event
from time import sleep
from typing import TYPE_CHECKING

from penstock.bench.result import step
from penstock.bulk.tasks import steps
from penstock.bulk.tasks.pool import run_jobs
from penstock.errors import PenstockError, Unsupported
from penstock.protocols.driver import Delete, Multipart, Put
from penstock.values import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.bench.result import Result
    from penstock.source import Source

__all__ = ["Written"]

_SMALL_BYTES = 100 << 10
_MOST_SMALL = 2000  # so that at most 200 MB lie in the bucket
_PIECE_BYTES = 16 << 20
_MOST_PIECES = 16
_LOOKS, _SETTLE_S = 4, 0.5


@dataclass(slots=True)
class Written:
    """Objects of the benchmark's own, below names that no other program has.

    Attributes:
        source: Where they lie.
        stem: What their keys begin with.
        metas: Those that were written, and not deleted.

    """

    source: Source
    stem: str
    metas: list[ObjectMeta] = field(default_factory=list)
    _begun: list[str] = field(default_factory=list)  # keys that may be there, also of a write that was interrupted
    _under_way: bool = False  # a write was begun, and nothing has told its end

    def small(self, seconds: float) -> Result:
        """Write objects of 100 KiB, many at once, for ``seconds`` or until there are 2,000."""
        body = os.urandom(_SMALL_BYTES)
        with step("write small") as watch:
            self.source.require(Put, self.stem)
            result, stop = watch.result, Event()

            def keys() -> Iterator[str]:
                for number in range(_MOST_SMALL):
                    if number and watch.elapsed_s > seconds:
                        return
                    self._begun.append(f"{self.stem}small-{number:06}")
                    yield self._begun[-1]

            async def write(key: str) -> str:
                return await steps.put(self.source, key, body, metadata={}, content_type="")

            self._under_way = True
            with closing(run_jobs(keys(), write, lambda _: _SMALL_BYTES, stop)) as ended:
                for key, etag in ended:
                    if isinstance(etag, PenstockError):
                        raise etag
                    self.metas.append(ObjectMeta(key, _SMALL_BYTES, etag))
                    result.objects += 1
                    result.size_bytes += _SMALL_BYTES
            watch.stop()
            self._under_way = False
            result.detail = f"100 KiB each [{self.source.url(self.stem)}…]"
        return watch.result

    def large(self, seconds: float) -> Result:
        """Write one object in parts, for ``seconds`` or until it has 256 MiB; two pieces of 16 MiB at least."""
        piece, key = os.urandom(_PIECE_BYTES), f"{self.stem}large"
        with step("write large") as watch:
            self.source.require(Multipart, key)
            self._begun.append(key)
            size, self._under_way = 0, True
            with self.source.open_write(key) as file:
                while size < 2 * _PIECE_BYTES or (watch.elapsed_s < seconds and size < _MOST_PIECES * _PIECE_BYTES):
                    size += file.write(piece)
            watch.stop()
            self._under_way = False
            self.metas.append(self.source.head(key))
            watch.result.objects, watch.result.size_bytes = 1, size
            watch.result.detail = f"one object of {size >> 20} MiB in parts, until it was visible"
        return watch.result

    def deleting(self) -> Result:
        """Delete all of them."""
        with step("delete") as watch:
            count = len(self._begun)
            self.clear()
            watch.stop()
            watch.result.objects = count
            watch.result.detail = "nothing is left behind"
        result = watch.result
        if result.outcome == "failed":
            result.detail += f"; what is left begins with {self.source.url(self.stem)}"
        return result

    def clear(self) -> None:
        """Delete whatever this has written or begun to write, and look for more; missing ones are fine.

        Raises:
            PenstockError: What the store refuses.

        """
        source = self.source
        if not self._begun or not source.supports(Delete):
            return
        if source.supports(Multipart):
            with suppress(Unsupported):  # some stores do not list uploads
                for upload in source.unfinished(self.stem):
                    source.abort(upload)
        source.delete(self._begun)
        for look in range(_LOOKS if self._under_way else 1):
            if look:  # a request that was called off when it was sent already may be carried out after the deletion
                sleep(_SETTLE_S)
            source.delete([entry.key for page in source.pages(self.stem) for entry in page.entries])
        self._begun, self.metas, self._under_way = [], [], False
