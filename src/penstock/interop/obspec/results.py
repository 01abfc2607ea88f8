"""What ``get`` returns: a description at once, and the bytes when they are asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.errors import Unusable
from penstock.interop.awaiting import read
from penstock.interop.obspec.errors import NotModifiedError, NotSupportedError, PreconditionError, renamed
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from obspec import ObjectMeta as Described

    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["Result", "bounds", "check_conditions", "described"]

_CHUNK_BYTES = 8 << 20


class Result:
    """An object, or a range of it, of the version that was there when it was asked for."""

    def __init__(self, source: Source, meta: ObjectMeta, path: str, span: tuple[int, int]) -> None:
        """Hold on to a description; ``span`` is ``[start, stop)``."""
        self._source = source
        self._meta = meta
        self._span = span
        self.meta: Described = described(meta, path)
        self.attributes: dict[str, str] = {"Content-Type": meta.content_type} if meta.content_type else {}
        self.attributes |= meta.metadata

    @property
    def range(self) -> tuple[int, int]:
        """The first byte, and the one behind the last."""
        return self._span

    def buffer(self) -> bytes:
        """Return all bytes: one GET, or one for every 16 MiB in parallel."""
        start, stop = self._span
        with renamed():
            return self._source.read(self._part(start, stop)) if start < stop else b""

    async def buffer_async(self) -> bytes:
        """Return all bytes as ``buffer``."""
        start, stop = self._span
        with renamed():
            return await read(self._source, self._part(start, stop)) if start < stop else b""

    def __iter__(self) -> Iterator[bytes]:
        """Yield the bytes in pieces of 8 MiB, read ahead."""
        with renamed(), self._source.lookahead(self._parts()) as pieces:
            yield from pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the bytes in pieces of 8 MiB, one request each, one after another."""
        for part in self._parts():
            with renamed():
                yield await read(self._source, part)

    def _parts(self) -> Iterator[Span]:
        start, stop = self._span
        return (self._part(at, min(at + _CHUNK_BYTES, stop)) for at in range(start, stop, _CHUNK_BYTES))

    def _part(self, start: int, stop: int) -> Span:
        return Span(self._meta.key, start, stop, self._meta.etag, whole=not start and stop == self._meta.size)


def described(meta: ObjectMeta, path: str) -> Described:
    """Return a description as obspec has it; the epoch's beginning where the store does not say when it was written."""
    written = datetime.fromtimestamp(meta.modified or 0.0, UTC)
    return {"path": path, "last_modified": written, "size": meta.size, "e_tag": meta.etag or None, "version": None}


def bounds(wanted: Any, size: int) -> tuple[int, int]:  # noqa: ANN401  one of obspec's three kinds of range
    """Return ``[start, stop)`` of a range in ``size`` bytes.

    Raises:
        Unusable: It is empty, begins behind the end, or is no range.

    """
    match wanted:
        case None:
            return 0, size
        case {"offset": int(start)}:
            stop = size
        case {"suffix": int(count)}:
            start, stop = max(0, size - count), size
        case (int(start), int(stop)):
            stop = min(stop, size)
        case _:
            raise Unusable(f"no range: {wanted!r}: (start, stop), {{'offset': n}} or {{'suffix': n}}")
    if not 0 <= start < stop:
        raise Unusable(f"the range {wanted!r} holds no byte of {size}")
    return start, stop


def check_conditions(options: Mapping[str, Any], meta: ObjectMeta, url: str) -> None:
    """Raise what obspec's options ask for: ``PreconditionError``, ``NotModifiedError``, ``NotSupportedError``."""
    if options.get("version") is not None:
        raise NotSupportedError("versions of an object cannot be named", url=url)
    if not _fits(options.get("if_match"), meta.etag, default=True):
        raise PreconditionError("it has another ETag than if_match", url=url)
    if _fits(options.get("if_none_match"), meta.etag, default=False):
        raise NotModifiedError("it has the ETag of if_none_match", url=url)
    since, until = options.get("if_modified_since"), options.get("if_unmodified_since")
    if until is not None and meta.modified is not None and meta.modified > until.timestamp():
        raise PreconditionError("it was written after if_unmodified_since", url=url)
    if since is not None and meta.modified is not None and meta.modified <= since.timestamp():
        raise NotModifiedError("it was not written after if_modified_since", url=url)


def _fits(condition: str | None, etag: str, *, default: bool) -> bool:
    if condition is None:
        return default
    return condition.strip() == "*" or etag in [each.strip().strip('"') for each in condition.split(",")]
