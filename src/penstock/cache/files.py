"""Files of entries: read and compared, written aside, and found again."""

from __future__ import annotations

import os
from contextlib import suppress
from time import time
from typing import TYPE_CHECKING, NamedTuple

from penstock.cache.entry import PAGE_BYTES, Footer, begins, intact, parse
from penstock.cache.evict import Candidate, rank
from penstock.cache.ledger import charge
from penstock.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "EVERY",
    "SHARDS",
    "WHOLE",
    "Hit",
    "candidates",
    "folder_bytes",
    "footer_of",
    "path_of",
    "paths",
    "read",
    "read_all",
    "write",
]

SHARDS = tuple(f"{number:02x}" for number in range(256))
WHOLE = -1  # instead of a stop: all of the object, if the entry has it
EVERY = -2  # instead of a stop: all that the entry has
_END_BYTES = 1024  # read at once: the footer of all but long blocks and long URLs
_TOUCH_S = 30.0  # how exactly it is known when an entry was used last
_PROVEN = 0o100  # of an entry that was hit: a bit of its mode, which its directory tells with its size


class Hit(NamedTuple):
    """What an entry had.

    Attributes:
        data: The bytes; None where they are in the caller's memory, or the entry does not have all of them.
        found: What the entry says of itself.
        filled: Whether it had them.
        waited_s: How long the entry has waited for this use, if for more than half a minute; else 0.

    """

    data: bytes | None
    found: Footer
    filled: bool
    waited_s: float = 0.0


def path_of(root: str, name: bytes) -> str:
    """Return an entry's path."""
    text = name.hex()
    return f"{root}/{text[:2]}/{text[2:]}"


def read(path: str, name: bytes, low: int, high: int, into: memoryview | None = None) -> Hit:
    """Return bytes ``[low, high)`` of an entry, compared with their checksums, or put them into ``into``.

    ``high`` may be ``WHOLE`` or ``EVERY``. Five system calls.

    Raises:
        FileNotFoundError: There is none.
        Damaged: Its file is not what was written.

    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        text, found, disk = _footer(descriptor, name)
        if high == WHOLE:
            if not found.whole:
                return Hit(None, found, filled=False)
            high = found.size_bytes
        if high == EVERY:
            high = found.size_bytes
        if high > found.size_bytes:
            return Hit(None, found, filled=False)
        data = _bytes(descriptor, text, (low, high, found.size_bytes), into)
        return Hit(data, found, filled=True, waited_s=_used(descriptor, disk))
    finally:
        os.close(descriptor)


def read_all(path: str, name: bytes) -> bytes:
    """Return all bytes of an entry, compared with their checksums; raises as ``read`` does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        text, found, _ = _footer(descriptor, name)
        return _bytes(descriptor, text, (0, found.size_bytes, found.size_bytes), None) or b""
    finally:
        os.close(descriptor)


def _used(descriptor: int, disk: os.stat_result) -> float:
    """Mark an entry as used, once in half a minute; return how long it was not."""
    waited_s = time() - disk.st_mtime
    with suppress(OSError):  # a disk that is read only
        if not disk.st_mode & _PROVEN:
            os.fchmod(descriptor, 0o600 | _PROVEN)
        if abs(waited_s) > _TOUCH_S:
            os.utime(descriptor)
            return max(0.0, waited_s)
    return 0.0


def footer_of(path: str, name: bytes) -> tuple[bytes, Footer]:
    """Return an entry's footer, as text and read; raises as ``read`` does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return _footer(descriptor, name)[:2]
    finally:
        os.close(descriptor)


def _footer(descriptor: int, name: bytes) -> tuple[bytes, Footer, os.stat_result]:
    disk = os.fstat(descriptor)
    size = disk.st_size
    text = os.pread(descriptor, _END_BYTES, max(0, size - _END_BYTES))
    start = begins(text, size)
    if start >= 0:
        rest = size - start
        text = text[-rest:] if rest <= len(text) else os.pread(descriptor, rest, start)
    found = parse(text) if start >= 0 else None
    if found is None or found.name != name:
        raise Damaged("an entry of the cache is damaged")
    return text, found, disk


def _bytes(descriptor: int, text: bytes, where: tuple[int, int, int], into: memoryview | None) -> bytes | None:
    low, high, size = where
    page = low // PAGE_BYTES
    start, stop = page * PAGE_BYTES, min(-(-high // PAGE_BYTES) * PAGE_BYTES, size)
    if into is not None and (start, stop) == (low, high):
        filled = high == low or os.preadv(descriptor, [into], low) == high - low
        if not (filled and intact(text, page, into)):
            raise Damaged("an entry of the cache is damaged")
        return None
    data = os.pread(descriptor, stop - start, start) if stop > start else b""
    if len(data) != max(0, stop - start) or not intact(text, page, data):
        raise Damaged("an entry of the cache is damaged")
    if (start, stop) != (low, high):
        data = data[low - start : high - start]
    if into is None:
        return data
    into[:] = data
    return None


def write(path: str, pieces: Sequence[bytes | memoryview]) -> os.stat_result:
    """Write a new file; not synced: what a power failure takes is found by its checksums. Raises ``OSError``."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        views = [memoryview(each) for each in pieces if len(each)]
        while views:
            done = os.writev(descriptor, views)
            while views and done >= len(views[0]):
                done -= len(views.pop(0))
            if done:
                views[0] = views[0][done:]
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def candidates(root: str, shard: str) -> Iterator[Candidate]:
    """Yield the entries of a shard as what may be given up."""
    with suppress(FileNotFoundError), os.scandir(f"{root}/{shard}") as found:
        for each in found:
            with suppress(FileNotFoundError):
                disk = each.stat(follow_symlinks=False)
                try:
                    order = rank(each.name)
                except ValueError:  # no entry
                    order = 1.0
                yield Candidate(disk.st_mtime, bool(disk.st_mode & _PROVEN), order, charge(disk), each.path)


def folder_bytes(folder: str) -> int:
    """Return what a directory itself takes of the disk; 0 where there is none."""
    try:
        return os.stat(folder).st_blocks * 512
    except FileNotFoundError:
        return 0


def paths(root: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and name of each entry; of what is no entry an empty name."""
    for shard in SHARDS:
        try:
            names = os.listdir(f"{root}/{shard}")
        except FileNotFoundError:
            continue
        for each in names:
            try:
                name = bytes.fromhex(shard + each)
            except ValueError:
                name = b""
            yield f"{root}/{shard}/{each}", name
