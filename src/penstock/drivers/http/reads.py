"""What dialects do alike with the answers to reads: verify them, and learn whether the store heeds ``Range``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from penstock.drivers.direct import too_large
from penstock.drivers.http.verify import heeds_ranges
from penstock.errors import PenstockError
from penstock.protocols.driver import RANGE_IGNORED, UNKNOWN_BYTES, Beginning
from penstock.protocols.exchange import Exchange
from penstock.values import Span

if TYPE_CHECKING:
    from penstock.buffer import Buffer
    from penstock.drivers.http.answers import Answers
    from penstock.drivers.http.verify import Verification
    from penstock.protocols.driver import Abilities
    from penstock.protocols.exchange import Request, Response

__all__ = ["Ranged", "Reads"]


class Ranged:
    """A driver whose store may answer a range with the whole object."""

    abilities: Abilities

    def _learn_ranges(self, honoured: bool | None) -> None:  # noqa: FBT001  what ``heeds_ranges`` returns
        """Keep what an answer shows; None shows nothing."""
        if honoured is not None and self.abilities.ranges is not honoured:
            self.abilities = replace(self.abilities, ranges=honoured)


class Reads(Ranged, ABC):
    """The verb ``Read`` of a dialect whose refusals its ``Answers`` read; the dialect makes the requests."""

    _answers: Answers
    _verify: Verification
    _sized: tuple[str, ...]  # ``_verify.sized_headers``, made once

    @abstractmethod
    def url(self, key: str) -> str:
        """Return the address of an object as a user writes it."""

    @abstractmethod
    def read(self, span: Span, target: Buffer) -> Exchange[int]:
        """Read one span; the answer goes to ``_verified``."""

    @abstractmethod
    def _whole(self, key: str, etag: str) -> Request:
        """Return the request of a whole object, of this version unless it is empty."""

    def get(
        self, key: str, etag: str, most_bytes: int = UNKNOWN_BYTES, buffer: Buffer | None = None
    ) -> Exchange[bytes | Beginning]:
        """Read a whole object whose size is not known."""
        if buffer is not None:
            exchange = self.read(Span(key, 0, buffer.size, etag, whole=True), buffer)
            request = cast("Request", exchange.request)
            request.wants, request.shorter = self._sized, True
            return Exchange(request, partial(self._opened, key, etag, most_bytes, buffer))

        def parse(response: Response) -> bytes | Beginning:
            if response.overflow:
                raise too_large(most_bytes, self.url(key))
            self._answers.headers(response, "read", key)
            with self._answers.locating(key):
                return self._verify.whole(response, etag)

        request = self._whole(key, etag)
        request.most_bytes = most_bytes
        return Exchange(request, parse)

    def _verified(self, span: Span, target: Buffer, response: Response) -> int:
        """Verify the answer to ``read``; returns how many bytes of the target are the span's."""
        try:
            if response.status not in (200, 206):
                raise self._answers.error(response, "read", span.key)
            received = self._verify.span(response, span, target)
        except PenstockError as error:
            error.url = error.url or self.url(span.key)
            if error.code == RANGE_IGNORED:
                self._learn_ranges(honoured=False)
            raise
        if not span.whole and target.size:
            self._learn_ranges(heeds_ranges(response))
        return received

    def _opened(self, key: str, etag: str, most_bytes: int, buffer: Buffer, response: Response) -> bytes | Beginning:
        """Verify the answer to ``get``, in its buffer."""
        try:
            if response.status != 200:  # noqa: PLR2004  OK
                raise self._answers.error(response, "read", key)
            got = self._verify.opened(response, etag, buffer)
        except PenstockError as error:
            error.url = error.url or self.url(key)
            raise
        if isinstance(got, Beginning) and got.size > most_bytes:
            raise too_large(most_bytes, self.url(key))
        return got
