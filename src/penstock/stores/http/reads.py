"""Shared handling of answers to reads: verify them, and learn whether the store honours ``Range``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from penstock.engine.contracts.driver import RANGE_IGNORED, UNKNOWN_BYTES, Beginning
from penstock.engine.contracts.exchange import Exchange
from penstock.errors import PenstockError
from penstock.stores.direct import too_large, untold
from penstock.stores.http.headers import is_strong, parse_size, unquoted
from penstock.stores.http.verify import heeds_ranges
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.driver import Abilities
    from penstock.engine.contracts.exchange import Request, Response
    from penstock.stores.http.answers import Answers
    from penstock.stores.http.verify import Verification
    from penstock.values import Checksum

__all__ = ["Ranged", "Reads", "beginning"]


def beginning(verify: Verification, response: Response, bound: int, most_bytes: int, url: str) -> Beginning:
    """Return a beginning without bytes for an object longer than ``bound`` whose size the answer states.

    Raises:
        Damaged: The answer does not state the size.
        Unusable: The object has more than ``most_bytes``.

    """
    headers = response.headers
    size = 0 if "chunked" in headers.get("transfer-encoding", "") else parse_size(headers.get(verify.size, "")) or 0
    if size > most_bytes or bound == most_bytes:
        raise too_large(most_bytes, url)
    if not size:
        raise untold(bound, url)
    version = unquoted(headers.get(verify.version, ""))
    return Beginning(b"", size, version if is_strong(version) else "")


class Ranged:
    """A driver whose store may answer a range with the whole object."""

    abilities: Abilities

    def _learn_ranges(self, honoured: bool | None) -> None:  # noqa: FBT001  the result of ``heeds_ranges``
        """Record whether the store honours ranges; None changes nothing."""
        if honoured is not None and self.abilities.ranges is not honoured:
            self.abilities = replace(self.abilities, ranges=honoured)


class Reads(Ranged, ABC):
    """Verb ``Read`` for dialects whose refusals ``Answers`` reads; the dialect builds the requests."""

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
        """Return the request for a whole object; in version ``etag``, unless that is empty."""

    def get(
        self, key: str, etag: str, most_bytes: int = UNKNOWN_BYTES, buffer: Buffer | None = None
    ) -> Exchange[bytes | Beginning]:
        """Read a whole object whose size is not known."""
        if buffer is not None:
            exchange = self.read(Span(key, 0, buffer.size, etag, whole=True), buffer)
            request = cast("Request", exchange.request)
            request.wants, request.shorter = self._sized, True
            return Exchange(request, partial(self._opened, key, etag, most_bytes, buffer))

        bound = min(most_bytes, self.abilities.untold_bytes)

        def parse(response: Response) -> bytes | Beginning:
            if response.overflow:
                return beginning(self._verify, response, bound, most_bytes, self.url(key))
            self._answers.headers(response, "read", key)
            with self._answers.locating(key):
                return self._verify.whole(response, etag)

        request = self._whole(key, etag)
        request.most_bytes = bound
        return Exchange(request, parse)

    def checksum(self, headers: Mapping[str, str]) -> Checksum | None:
        """Return the checksum of the whole object from an answer's headers; None without one."""
        return self._verify.checksum(headers)

    def _verified(self, span: Span, target: Buffer, response: Response) -> int:
        """Verify the answer to ``read``; return how many bytes of the target belong to the span."""
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
        """Verify the answer to ``get``, which is in ``buffer``."""
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
