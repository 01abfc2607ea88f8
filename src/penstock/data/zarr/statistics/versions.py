"""Versions of the objects that chunks lie in: saved statistics are of the values that are there, or gathered anew."""

from __future__ import annotations

from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from penstock.data.zarr.arrays.foreign import ForeignObjects
from penstock.engine.contracts.driver import List
from penstock.errors import DatasetChanged, Denied, Unsupported
from penstock.values import common_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.data.zarr.chunks.contents import ZarrContents
    from penstock.engine.contracts.fetching import ReadOperation
    from penstock.source import Source
    from penstock.values import ObjectMeta, Span

_AT_ONCE = 4096  # chunks whose references, or whose objects, are looked up together
# Up to so many objects are looked up one by one, as are more of which a listing has one among so many keys.
_FEW, _MOST_LISTED = 16, 64


class _UnversionedError(Exception):
    """A store reports no version of an object."""


def versions_of(contents: ZarrContents, chunks: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return a digest for each chunk, of the place and version of its object; None if a store reports no versions.

    The objects' folder is listed; they are looked up by a HEAD each where a store does not list, and where the folder
    has few of them or few others. Memory of 40 bytes for each chunk.
    """
    foreign = [part.objects for part in contents.chunks.parts if isinstance(part.objects, ForeignObjects)]
    if not all(objects.snapshot for objects in foreign):
        return None
    found, names = np.zeros(len(chunks), np.int64), np.zeros(len(chunks), np.int64)
    homes = np.full(len(chunks), -1)
    prefixes: dict[int, str] = {}
    for at, (home, place, span) in enumerate(_places(contents, chunks)):
        found[at] = _hash_version(place)
        if span is not None and not foreign:
            homes[at], names[at] = home, hash(str(span.key))
            prefixes[home] = common_folder(prefixes.get(home, span.key), span.key)
    try:
        for home, prefix in prefixes.items():
            here = np.flatnonzero(homes == home)
            wanted, which = np.unique(names[here], return_inverse=True)
            keys = (span.key for _, _, span in _places(contents, chunks[here]) if span is not None)
            found[here] ^= _looked_up(contents.sources[home], prefix, wanted, keys)[which]
    except (_UnversionedError, Denied):
        return None
    return found


def check_versions(contents: ZarrContents, chunks: NDArray[np.int64], versions: NDArray[np.int64]) -> None:
    """Raise ``DatasetChanged`` if chunks do not have these versions any more."""
    now = versions_of(contents, chunks)
    if now is None or not np.array_equal(versions, now):
        message = "values were written anew while their statistics were gathered: gather them again"
        raise DatasetChanged(message, url=contents.arrays[0].url)


def check_cached(contents: ZarrContents, chunk: int, read: ReadOperation, known: int) -> None:
    """Raise ``DatasetChanged`` if a cache (mode ``ttl``) has served a chunk in another version than ``known``."""
    if read.attempts or not read.version:
        return
    [(home, place, _)] = _places(contents, np.array([chunk]))
    # A listing may name other versions than an answer does.
    if _hash_version(place) ^ _hash_version(read.version.encode()) != known:
        source = contents.sources[home]
        if source.head(read.span.key).etag != read.version:
            message = "the cache has values of before: pass CacheOptions(mode='revalidate'), or clear it"
            raise DatasetChanged(message, url=source.url(read.span.key))


def _places(contents: ZarrContents, chunks: NDArray[np.int64]) -> Iterator[tuple[int, bytes, Span | None]]:
    """Yield, for each chunk, the number of the store of its object, its place there or value, and its span."""
    for start in range(0, len(chunks), _AT_ONCE):
        some = chunks[start : start + _AT_ONCE].tolist()
        contents.chunks.prepare(some)
        for chunk in some:
            url, span = contents.chunks.object_of(chunk)
            if span is None or isinstance(span, bytes):
                yield 0, span or b"", None
            else:
                yield getattr(span.key, "home", 0), f"{url} {span.start} {span.stop}".encode(), span


def _looked_up(source: Source, prefix: str, wanted: NDArray[np.int64], keys: Iterator[str]) -> NDArray[np.int64]:
    """Return the version of each object as a number, in the order of ``wanted``, the hashes of their keys.

    0 for missing objects.
    """
    if len(wanted) > _FEW and source.supports(List):
        listed = _listed(source, prefix, wanted)
        if listed is not None:
            return listed
    versions = np.zeros(len(wanted), np.int64)
    while some := [*dict.fromkeys(islice(keys, _AT_ONCE))]:
        for key, meta in zip(some, source.stat_existing(some), strict=True):
            if meta is not None:
                versions[np.searchsorted(wanted, hash(str(key)))] = _version(meta)
    return versions


def _listed(source: Source, prefix: str, wanted: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return the versions that a listing reports; None if it reports none, is refused or has too many others."""
    versions, count = np.zeros(len(wanted), np.int64), 0
    try:
        for page in source.pages(prefix):
            count += len(page.entries)
            if count > _MOST_LISTED * len(wanted):
                return None
            for meta in page.entries:
                name = hash(meta.key)
                at = int(np.searchsorted(wanted, name))
                if at < len(wanted) and wanted[at] == name:
                    versions[at] = _version(meta)
    except (_UnversionedError, Denied, Unsupported):
        return None
    return versions


def _version(meta: ObjectMeta) -> int:
    if not meta.etag and meta.modified is None:
        raise _UnversionedError
    return _hash_version((meta.etag or f"{meta.size} {meta.modified}").encode())


def _hash_version(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little", signed=True)
