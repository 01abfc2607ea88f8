"""Files of cache entries: verified reading, writing and listing."""

from __future__ import annotations

import os
from contextlib import suppress
from time import time
from typing import TYPE_CHECKING, NamedTuple

from penstock.engine.cache.entry import PAGE_BYTES, Footer, about, begins, intact, parse
from penstock.engine.cache.evict import Candidate, rank
from penstock.engine.cache.ledger import charge
from penstock.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.engine.cache.ledger import Folder

SHARDS = tuple(f"{number:02x}" for number in range(256))
# Instead of a stop: the whole object, if the entry has it.
WHOLE = -1
# Instead of a stop: all that the entry has.
EVERY = -2
# Read at once: holds the footer, except for long blocks and long URLs.
_END_BYTES = 1024
_TOUCH_S = 30.0  # resolution of the time of last use
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
# File mode bit of an entry that was hit; ``stat`` returns it together with the size.
_PROVEN = 0o100


class Hit(NamedTuple):
    """The result of reading an entry: its data, None if in the caller's memory or not complete (``filled``).

    ``waited_s``: seconds since its previous use, if more than 30; else 0. ``text``: its whole footer, see
    ``entry.about``.
    """

    data: bytes | None
    found: Footer
    filled: bool
    waited_s: float = 0.0
    text: bytes = b""

    @property
    def version(self) -> str:
        return about(self.text, self.found).etag


def path_of(name: bytes) -> str:
    text = name.hex()
    return f"{text[:2]}/{text[2:]}"


def read_entry(folder: Folder, name: bytes, low: int, high: int, into: memoryview | None = None) -> Hit:
    """Return bytes ``[low, high)`` of an entry, verified by checksums, or write them to ``into``: five system calls.

    ``high`` may be ``WHOLE`` or ``EVERY``. Raises ``FileNotFoundError``, and ``Damaged`` for another file than was
    written.
    """
    descriptor = os.open(path_of(name), _READ, dir_fd=folder.descriptor)
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
        return Hit(data, found, filled=True, waited_s=_mark_used(descriptor, disk), text=text)
    finally:
        os.close(descriptor)


def read_all(folder: Folder, path: str, name: bytes) -> bytes:
    descriptor = os.open(path, _READ, dir_fd=folder.descriptor)
    try:
        text, found, _ = _footer(descriptor, name)
        return _bytes(descriptor, text, (0, found.size_bytes, found.size_bytes), None) or b""
    finally:
        os.close(descriptor)


def _mark_used(descriptor: int, disk: os.stat_result) -> float:
    """Mark an entry as used, at most once in 30 s; return the seconds since its previous use, or 0."""
    waited_s = time() - disk.st_mtime
    with suppress(OSError):  # read-only disk
        if not disk.st_mode & _PROVEN:
            os.fchmod(descriptor, 0o600 | _PROVEN)
        if abs(waited_s) > _TOUCH_S:
            os.utime(descriptor)
            return max(0.0, waited_s)
    return 0.0


def footer_of(folder: Folder, path: str, name: bytes) -> tuple[bytes, Footer, os.stat_result]:
    """Return an entry's footer, as text and parsed, and its file's ``stat`` result; raises as ``read_entry`` does."""
    descriptor = os.open(path, _READ, dir_fd=folder.descriptor)
    try:
        return _footer(descriptor, name)
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


def write(folder: Folder, path: str, pieces: Sequence[bytes | memoryview]) -> os.stat_result:
    """Write a new file without syncing: checksums reveal what a power failure destroys. Raises ``OSError``."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600, dir_fd=folder.descriptor)
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


def candidates(folder: Folder, shard: str) -> Iterator[Candidate]:
    for name, disk in _scan_shard(folder, shard):
        try:
            order = rank(name)
        except ValueError:  # not an entry
            order = 1.0
        yield Candidate(disk.st_mtime, bool(disk.st_mode & _PROVEN), order, charge(disk), f"{shard}/{name}")


def _scan_shard(folder: Folder, shard: str) -> Iterator[tuple[str, os.stat_result]]:
    with suppress(FileNotFoundError):
        descriptor = os.open(shard, _READ | os.O_DIRECTORY, dir_fd=folder.descriptor)
        try:
            with os.scandir(descriptor) as found:
                for each in found:
                    with suppress(FileNotFoundError):
                        yield each.name, each.stat(follow_symlinks=False)
        finally:
            os.close(descriptor)


def folder_bytes(folder: Folder, shard: str) -> int:
    """Return the disk space of a shard's directory itself; 0 if it does not exist."""
    try:
        return os.stat(shard, dir_fd=folder.descriptor, follow_symlinks=False).st_blocks * 512
    except FileNotFoundError:
        return 0


def paths(folder: Folder) -> Iterator[tuple[str, bytes]]:
    """Yield path and name of each entry; the name is empty for files that are not entries."""
    for shard in SHARDS:
        for each in [name for name, _ in _scan_shard(folder, shard)]:
            try:
                name = bytes.fromhex(shard + each)
            except ValueError:
                name = b""
            yield f"{shard}/{each}", name
