"""Journals of listings and of walks through shards: results so far, in a local file, to resume from."""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from bisect import bisect_right
from contextlib import contextmanager
from errno import ENOSPC
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from penstock.data.catalog.columns.column import decode, encode
from penstock.errors import Unusable
from penstock.schema import COUNT, check_json

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence
    from pathlib import Path

_FORMAT, _SHARDS_FORMAT = "penstock listing 1", "penstock shards 1"
_BEGIN = b'{"format":"penstock '
_HEX = b"0123456789abcdef"
_SUM = 8  # hexadecimal digits of a line's CRC-32; a space follows


class Stretch(NamedTuple):
    """The entries kept from the keys in ``(after, until]``; ``until`` None is the end of the listing.

    ``first`` is the first key seen in the stretch, kept or not. ``beyond`` is the first key after ``until`` that its
    page has shown. They tell whether the next stretch begins where it should (``scan``). Both are empty without such a
    key.
    """

    after: bytes
    until: bytes | None
    keys: Sequence[bytes] = ()
    sizes: Sequence[int] = ()
    etags: Sequence[str] = ()
    first: bytes = b""
    beyond: bytes = b""


class Beyond:
    """Stand-in for a listing up to a key: only the keys after it are listed, and nothing is recorded."""

    def __init__(self, key: bytes) -> None:
        self.known = [Stretch(b"", key)]

    def add(self, stretch: Stretch) -> None:
        """Ignore the stretch."""

    def forget(self) -> None:
        """Do nothing: the caller has chosen where to begin."""


class _LineFile:
    """File of lines, each appended by one write, with a checksum; torn writes are ignored."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path = file, path

    def _append(self, value: object) -> None:
        line = _line(value)
        with _translate_os_errors(self._path):
            if self._file.write(line) < len(line):
                raise OSError(ENOSPC, os.strerror(ENOSPC))

    def remove(self) -> None:
        """Remove the file."""
        with _translate_os_errors(self._path):
            self._path.unlink(missing_ok=True)


class Journal(_LineFile):
    """Stretches of one listing; ``known`` are those of an earlier process, in order and without overlap."""

    def __init__(self, file: BinaryIO, path: Path, known: list[Stretch]) -> None:
        super().__init__(file, path)
        self.known = known

    def add(self, stretch: Stretch) -> None:
        after, until, keys, sizes, etags, *seen = stretch
        if after == until:  # an empty page
            return
        bounds = [decode(after), None if until is None else decode(until)]
        value = [*bounds, [*map(decode, keys)], list(sizes), list(etags), *map(decode, seen)]
        self._append(value)

    def forget(self) -> None:
        """Discard all known stretches: the server has left keys out."""
        self.known = []
        with _translate_os_errors(self._path):
            self._file.seek(0)
            self._file.truncate(len(self._file.readline()))


@contextmanager
def journal(path: Path, about: Mapping[str, object], *, restart: bool = False) -> Generator[Journal]:
    """Open and lock the journal at ``path`` of the listing that ``about`` describes (JSON).

    The stretches of an earlier process are reused if it was the same listing and ``restart`` is not set. A kill loses
    the stretches that were not yet written, and at most the last write. A power failure may lose more, but never
    corrupts the data read.
    """
    header = {"format": _FORMAT, "columns": len(Stretch._fields), **about}
    with _open_journal(path, header, _STRETCH, restart=restart) as (file, values):
        yield Journal(file, path, _stretches(values))


class Walked(NamedTuple):
    """The samples that a walk has found in one version of a shard."""

    size: int
    etag: str
    offsets: list[int]
    sizes: list[int]
    keys: list[str]
    schema: Any
    units: list[list[int]] | None


_TEXTS = [str]
_STRETCH = [str, (str, None), _TEXTS, [int], _TEXTS, str, str]
# Of ``Walked`` as JSON.
WALKED = [COUNT, str, [COUNT], [COUNT], _TEXTS, object, (None, [[int]])]


class ShardJournal(_LineFile):
    """Shards that were walked; ``known`` is the last walk of each, by key."""

    def __init__(self, file: BinaryIO, path: Path, known: dict[str, Walked]) -> None:
        super().__init__(file, path)
        self.known = known

    def add(self, key: str, walked: Walked) -> None:
        self._append([key, *walked])


@contextmanager
def shard_journal(path: Path, about: Mapping[str, object], *, restart: bool = False) -> Generator[ShardJournal]:
    """Open and lock the journal at ``path`` of an index of shards that ``about`` describes (JSON): see ``journal``."""
    header = {"format": _SHARDS_FORMAT, "columns": len(Walked._fields), **about}
    with _open_journal(path, header, [str, *WALKED], restart=restart) as (file, values):
        yield ShardJournal(file, path, {key: Walked(*walked) for key, *walked in values})


@contextmanager
def _open_journal(
    path: Path, header: Mapping[str, object], form: object, *, restart: bool
) -> Generator[tuple[BinaryIO, list[list[Any]]]]:
    """Open and lock a file of lines; yield it with the values of the lines after the header, if that is ``header``."""
    with _translate_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: each line is one write. Links are not followed: anyone can guess the name beside the output.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0)
    with file:
        with _translate_os_errors(path):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Unusable(f"another process is listing into {path}: wait for it, or name another output") from None
            values, stop = _read_journal(file, header, path)
            if restart or not stop:
                values, stop = [], 0
            file.truncate(stop)
            if not stop:
                file.write(_line(header))
        check_json(values, [form], "what was listed so far", str(path))
        yield file, values


def gaps(known: Sequence[Stretch]) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield ``(after, until)`` of the gaps between stretches that are in order."""
    at: bytes | None = b""
    for each in known:
        if at is not None and each.after > at:
            yield at, each.after
        at = each.until
    if at is not None:
        yield at, None


def overlap_stretches(known: Sequence[Stretch]) -> list[Stretch]:
    """Return the stretches, without their last key where a gap follows, so that the gap's listing begins with that key.

    This detects a server that leaves keys out where a listing begins. A stretch with a single key, or with ``beyond``,
    stays as it is. Stretches are in order.
    """
    shorter = []
    for each, after in zip(known, [*(other.after for other in known[1:]), b""], strict=False):
        short = each.until not in (None, after) and not each.beyond and len(each.keys) > 1
        shorter.append(_cut_stretch(each, each.keys[-2]) if short else each)
    return shorter


def _cut_stretch(stretch: Stretch, until: bytes) -> Stretch:
    """Return the stretch up to ``until``, a key within it."""
    count = bisect_right(stretch.keys, until)
    columns = stretch.keys[:count], stretch.sizes[:count], stretch.etags[:count]
    return Stretch(stretch.after, until, *columns, stretch.first, b"".join(stretch.keys[count : count + 1]))


def _line(value: object) -> bytes:
    text = json.dumps(value, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _read_journal(file: BinaryIO, header: Mapping[str, object], path: Path) -> tuple[list[list[Any]], int]:
    """Return the values of a file, and the end of the last complete line; 0 for a different header or an empty file."""
    file.seek(0)
    with os.fdopen(os.dup(file.fileno()), "rb") as reader:
        first = reader.readline()
        found = _value(first)
        text = first[_SUM + 1 :]
        if not (text.startswith(_BEGIN) or _BEGIN.startswith(text)) or first[:_SUM].strip(_HEX):
            raise Unusable(f"{path} exists, but was not left by an interrupted listing: remove it")
        # As JSON, which knows no tuples. Or the header itself was torn.
        if found != json.loads(json.dumps(header)):
            return [], 0
        stop, values = len(first), []
        for line in reader:
            value = _value(line)
            if not isinstance(value, list):
                break
            values.append(value)
            stop += len(line)
    return values, stop


def _stretches(values: list[list[Any]]) -> list[Stretch]:
    """Return the stretches that lines hold, in order and without overlap."""
    known = []
    for after, until, keys, sizes, etags, *seen in values:
        end = None if until is None else encode(until)
        known.append(Stretch(encode(after), end, [*map(encode, keys)], sizes, etags, *map(encode, seen)))
    known.sort(key=attrgetter("after"))
    # A resumed listing may have listed the end of the stretch before it again: see overlapping.
    for at, (one, other) in enumerate(pairwise(known)):
        if one.until is None or one.until > other.after:
            known[at] = _cut_stretch(one, other.after)
    return known


def _value(line: bytes) -> object:
    """Return the value in a line; None if the line is torn, or has changed."""
    text = line[_SUM + 1 : -1]
    return json.loads(text) if line.endswith(b"\n") and line[:_SUM] == b"%08x" % zlib.crc32(text) else None


@contextmanager
def _translate_os_errors(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise Unusable(f"cannot keep the partial listing in {path}: {error.strerror or error}") from error
