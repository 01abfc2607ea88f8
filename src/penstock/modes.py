"""The modes that ``open`` takes, read as Python's own does, and text over the binary files that it returns."""

from __future__ import annotations

import codecs
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Mode", "TextReader", "TextWriter", "read_mode"]

_ENCODING = "utf-8"  # of every machine: what one writes, another reads
_INSTEAD = {
    "a": "objects are replaced, not appended to: read this one, and write all of it with 'wb'; or write the addition "
    "as an object of its own, with 'xb'",
    "+": "objects are replaced, not changed in place: read with 'rb', and write all of it with 'wb'",
    "U": "for text with any line ends open it 'r'",
}


@dataclass(frozen=True, slots=True)
class Mode:
    """What a file is opened for.

    Attributes:
        text: As it was asked for.
        action: ``r`` reads, ``w`` replaces, ``x`` creates.
        binary: Whether bytes are read or written; text otherwise.
        encoding: Of text; UTF-8 by default.
        errors: How text is treated that the encoding lacks, as ``codecs`` names it.
        newline: As the built-in ``open`` takes it.

    """

    text: str
    action: str
    binary: bool
    encoding: str = _ENCODING
    errors: str | None = None
    newline: str | None = None


class _Abortable(Protocol):
    def abort(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def read_mode(text: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> Mode:
    """Read a mode: ``r``, ``w`` or ``x``, and ``b`` for bytes or ``t`` (or nothing) for text, in any order.

    Raises:
        ConfigError: Another mode; an unknown encoding, handler of errors or line end; one of these for bytes.

    """
    letters = f"{text}"  # also None's, of which no letters are a mode's
    for letter, instead in _INSTEAD.items():
        if letter in letters:
            message = f"mode {text!r}: {instead}"
            raise ConfigError(message)
    action = "".join(each for each in letters if each in "rwx")
    kind = "".join(each for each in letters if each not in "rwx")
    if len(action) != 1 or kind not in ("", "b", "t"):
        message = f"mode {text!r}: one of 'r', 'w' or 'x', and 'b' for bytes or 't' for text"
        raise ConfigError(message)
    if kind == "b":
        _check_plain(text, encoding=encoding, errors=errors, newline=newline)
        return Mode(text, action, binary=True)
    _check_text(encoding or _ENCODING, errors or "strict", newline)
    return Mode(text, action, binary=False, encoding=encoding or _ENCODING, errors=errors, newline=newline)


class TextReader(io.TextIOWrapper):
    """Text of an object: what Python's own text files do, over a ``Reader``."""

    def __init__(self, file: io.BufferedIOBase, mode: Mode) -> None:
        """Decode ``file``."""
        super().__init__(file, mode.encoding, mode.errors, mode.newline)  # type: ignore[arg-type]  # wider than io's
        self._mode = mode.text

    @property
    def mode(self) -> str:
        """As it was opened."""
        return self._mode


class TextWriter(TextReader):
    """Text that becomes an object when it is closed well, and nothing at all otherwise: see ``Writer``."""

    def __init__(self, file: io.BufferedIOBase, mode: Mode) -> None:
        """Encode into ``file``."""
        # io leaves out the byte order mark of UTF-16 and UTF-32 where it cannot tell that this is the file's beginning.
        vars(file)["seekable"] = lambda: True
        try:
            super().__init__(file, mode)
        finally:
            del vars(file)["seekable"]

    def abort(self) -> None:
        """Publish nothing; harmless at any time."""
        self._writer().abort()

    def close(self) -> None:
        """Publish the object, with all that was written. Raises as ``Writer.close``."""
        if self.closed:
            self.buffer.close()  # which tells, once, why nothing was published
        else:
            self._finish()
            super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Publish, unless the block failed. Raises as ``close``."""
        if kind is None and not self.closed:
            self._finish()
        self._writer().__exit__(kind, error, trace)

    def __del__(self) -> None:
        """Publish nothing, where ``io`` would close the file: the writer is dropped, too, and ends by itself."""

    def _finish(self) -> None:
        """Hand on what is still held here."""
        try:
            self.flush()
        except BaseException:
            self.abort()
            raise

    def _writer(self) -> _Abortable:
        return self.buffer  # type: ignore[return-value]  # which this was made with


def _check_plain(text: str, **given: str | None) -> None:
    for name, value in given.items():
        if value is not None:
            message = f"mode {text!r}: bytes have no {name}=: leave it out, or open text, {text.replace('b', '')!r}"
            raise ConfigError(message)


def _check_text(encoding: str, errors: str, newline: str | None) -> None:
    try:
        io.TextIOWrapper(io.BytesIO(), encoding, errors, newline)
        codecs.lookup_error(errors)  # which io looks up when it is needed
    except (LookupError, TypeError, ValueError) as error:
        message = (
            f"{error}: encoding= is a codec's name ('utf-8'), errors= a handler's ('replace'), newline= a line end"
        )
        raise ConfigError(message) from error
