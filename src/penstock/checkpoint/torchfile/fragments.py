"""A file of which only fragments are held: for readers that jump about in a large object and want little of it."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.blocks import moved
from penstock.buffer import flat
from penstock.checkpoint.transfer.gather import Want, gather
from penstock.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.checkpoint.transfer.plan import Object
    from penstock.source import Source

__all__ = ["HEAD_BYTES", "Fragments", "fetched"]

_AHEAD_BYTES = 4 << 10  # small records lie near each other
_DAMAGED = "PytorchStreamReader failed"
HEAD_BYTES = 64 << 10  # fetched and held at least, wherever something is not held yet


def fetched(source: Source, of: Object, spans: list[tuple[int, int]]) -> list[bytearray]:
    """Return spans of an object, read in parallel."""
    wants = [Want(of, start, stop, bytearray(stop - start)) for start, stop in spans]
    return [want.memory for want in gather(source, wants)]


class Fragments(io.RawIOBase):
    """A seekable file over the ranges that are held; others are fetched, or come from ``fill_storage``.

    Attributes:
        known: What is read at some positions, without a request.
        fill_storage: Fills a view with the bytes from a position on, where it can, and returns how many.

    """

    def __init__(self, source: Source, of: Object) -> None:
        super().__init__()
        self.known: dict[int, bytes] = {}
        self.fill_storage: Callable[[int, memoryview], int] = lambda _at, _view: 0
        self._source = source
        self._of = of
        self._at = 0
        self._held: list[tuple[int, memoryview]] = []
        self._failure: BaseException | None = None

    def hold(self, ranges: Iterable[tuple[int, memoryview]]) -> None:
        """Keep data that begin at given positions."""
        self._held += ranges

    def held(self, start: int, stop: int) -> memoryview:
        """Return ``[start, stop)``, and hold it: a request where it is not held yet."""
        for at, data in self._held:
            if at <= start and stop <= at + len(data):
                return data[start - at : stop - at]
        ahead = min(self._of.size, stop + _AHEAD_BYTES)
        self.hold([(start, memoryview(fetched(self._source, self._of, [(start, ahead)])[0]))])
        return self._held[-1][1][: stop - start]

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move; costs nothing."""
        self._at = moved(offset, whence, self._at, self._of.size)
        return self._at

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401  any writable buffer
        """Fill a writable buffer; returns the bytes read, fewer only at the end."""
        if self._failure is not None:
            raise self._failure
        try:
            return self._read(buffer)
        except BaseException as error:
            self._failure = error
            raise

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Raise what a read has failed with (torch forgets it, Ctrl-C too, and fails at something else).

        And ``CheckpointError`` where torch says that the file is damaged.
        """
        try:
            yield
        except BaseException as error:
            if self._failure is not None and self._failure is not error:
                raise self._failure from None
            if isinstance(error, RuntimeError) and _DAMAGED in str(error):
                message = f"it is damaged: {str(error).partition('. ')[0]}"
                raise CheckpointError(message, url=self._of.url) from None
            raise

    def _read(self, buffer: Any) -> int:  # noqa: ANN401  see readinto
        view = flat(buffer)
        view = view[: max(0, self._of.size - self._at)]
        done = 0
        while done < len(view):
            done += self._some(self._at + done, view[done:])
        self._at += done
        return done

    def _some(self, start: int, view: memoryview) -> int:
        if filled := self.fill_storage(start, view):
            return filled
        known = self.known.get(start, b"")
        if len(view) == len(known):
            view[:] = known
            return len(known)
        at, data = next((each for each in self._held if each[0] <= start < each[0] + len(each[1])), (start, None))
        if data is None:
            data = self.held(start, min(self._of.size, start + max(len(view), HEAD_BYTES)))
        piece = data[start - at : start - at + len(view)]
        view[: len(piece)] = piece
        return len(piece)
