"""Virtual arrays: references of kerchunk and manifests of VirtualiZarr, with the location of each chunk in other files.

A document of references is untrusted, like a catalog (design/0014). References of a document in a store must not name
a file or a profile of this machine, and every range is checked.

kerchunk's references in Parquet: each file holds a fixed number of references, and is read on first use.

The layout is that of fsspec's ``LazyReferenceMapper``. ``.zmetadata`` contains all metadata documents and
``record_size``. ``ARRAY/refs.N.parq`` contains the references of ``record_size`` chunks from chunk N · record_size on,
in row-major order of the array's chunks.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from math import prod
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from penstock.data.parquet import coded_columns
from penstock.data.zarr.format.metadata import Arrays, add_consolidated, check_name, parse_document
from penstock.errors import Damaged, DatasetChanged, InvalidURL, NotFound, PenstockError, UnknownScheme, Unsupported
from penstock.stores.urls import is_divided, parse
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.data.zarr.format.layout import Layout
    from penstock.source import Source
    from penstock.stores.urls import Location
    from penstock.values import ObjectMeta

    Entries: TypeAlias = "Mapping[str, Any] | Records"

V = TypeVar("V")

# Forms of RFC 8089 that parse() does not take.
_FILE = re.compile(r"file:(//localhost)?/(?!/)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# Prefixes whose meaning depends on the machine, like a path: among them schemes of fsspec, which may be local.
_HERE = ("file:", "memory:", "obspec:", "fsspec+", "penstock:", "msc:")
_TEMPLATE = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_MOST = 1 << 62  # limit of a byte's offset in an object
MOST_ROOTS = 1000  # buckets that references may lead to
_DOCUMENTS = {".zarray", ".zattrs", ".zmetadata", "zarr.json"}
_BASE64 = b"base64:"
_RANGE = 3  # items of a reference to a part of an object


class ChunkLocation(NamedTuple):
    """Location of a chunk: bytes ``[start, stop)`` of the object at ``url``; the whole object if ``stop`` is None."""

    url: str
    start: int = 0
    stop: int | None = None

    @property
    def location(self) -> Location:
        return parse(self.url)


class References:
    """References of arrays whose chunks are in other objects. Immutable and picklable.

    ``layout.key`` of the arrays is a name within the document, not a key in a store.
    """

    def __init__(self, arrays: Arrays, entries: Entries, url: str, templates: Mapping[str, str]) -> None:
        self.arrays, self.url = arrays, url
        self._entries, self._templates = entries, templates
        self._local = not url or not _SCHEME.match(url) or parse(url).local
        self._roots: dict[str, None] = {}  # beginnings of URLs that passed the check

    def at(self, key: str) -> ChunkLocation | bytes | None:
        """Return the location of an array's object, or its bytes; None without a reference: it has the fill value."""
        try:
            entry = self._entries[key]
        except KeyError:
            return None
        return self._meant(entry, key)

    def known(self, key: str) -> ChunkLocation | bytes | None:
        """Return the result of ``at`` if it needs no request; else None."""
        if not isinstance(self._entries, Records):
            return self.at(key)
        entry = self._entries.known(key)
        return None if entry is None else self._meant(entry, key)

    @property
    def records(self) -> Records | None:
        """References that are read from files on demand; None if all references are in memory."""
        return self._entries if isinstance(self._entries, Records) else None

    def _meant(self, entry: object, key: str) -> ChunkLocation | bytes:
        if isinstance(entry, bytes):  # from Parquet
            return entry
        if isinstance(entry, str):
            return _inline_data(entry, f"the reference {key!r} has data that is not Base64", self.url)
        if not isinstance(entry, list | tuple) or len(entry) not in {1, _RANGE} or not isinstance(entry[0], str):
            raise Damaged(f"the reference {key!r} should be text, [URL] or [URL, offset, length]", url=self.url)
        url = self._url(entry[0], key)
        if len(entry) == 1:
            return ChunkLocation(url)
        if not all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each < _MOST for each in entry[1:]):
            raise Damaged(f"the reference {key!r} has an invalid range: {str(entry[1:])[:80]}", url=self.url)
        return ChunkLocation(url, entry[1], entry[1] + entry[2])

    @cached_property
    def digest(self) -> str:
        """Digest of the locations of all chunks; "" for a document, which its URL identifies."""
        if self.url or isinstance(self._entries, Records):
            return ""
        return hashlib.sha256(repr(self._entries).encode()).hexdigest()[:32]

    def roots(self) -> dict[str, str]:
        """Return the buckets that references lead to, ``scheme://bucket/``, each with the URL of an object in it.

        Empty for references that are read on demand. Invalid references are left out; ``at`` raises their errors.
        """
        found: dict[str, str] = {}
        seen: set[str] = set()
        divided: dict[str, bool] = {}
        for key, entry in () if isinstance(self._entries, Records) else self._entries.items():
            if not isinstance(entry, list | tuple) or not entry or not isinstance(entry[0], str):
                continue
            beginning = _root_of(entry[0])
            if beginning not in divided:
                divided[beginning] = bool(beginning) and is_divided(beginning)
            if divided[beginning]:  # a mapped prefix ends in "/"
                beginning = entry[0][: entry[0].rfind("/") + 1]
            if beginning in seen and "{{" not in beginning:
                continue
            try:
                url = self._url(entry[0], key)
            except (Damaged, Unsupported):
                continue
            if beginning:
                seen.add(beginning)
            found.setdefault(parse(url).root, url)
            if len(found) > MOST_ROOTS:
                raise Unsupported(f"these references lead to more than {MOST_ROOTS:,} buckets", url=self.url)
        return found

    def _url(self, text: str, key: str) -> str:
        url = _TEMPLATE.sub(lambda found: self._templates.get(found[1], found[0]), text)
        url = _FILE.sub("file:///", url, count=1) if url.startswith("file:") else url
        if "{{" in url:
            message = f"the reference {key!r} needs the expression {url[:80]!r}: only names of templates are supported"
            raise Unsupported(message, url=self.url)
        root = _root_of(url)
        if not root or root not in self._roots:
            self._check(url, key)
            if root:
                self._roots[root] = None
        return url

    def _check(self, url: str, key: str) -> None:
        scheme = _SCHEME.match(url)
        if not self._local and (scheme is None or scheme[0].lower().startswith(_HERE)):
            reason = "names a file or profile of this machine, but the document is stored elsewhere"
            raise Unsupported(f"the reference {key!r} {reason}: {url[:80]!r}", url=self.url)
        try:
            parse(url)
        except (InvalidURL, UnknownScheme) as error:
            raise Damaged(f"the reference {key!r} has no URL: {error.message}", url=self.url) from error

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the document and the layouts."""
        return References, (self.arrays, self._entries, self.url, self._templates)


def references_of(data: bytes | Mapping[str, Any], url: str) -> References:
    """Return the references in kerchunk's JSON (version 0 or 1), as bytes or parsed; ``url`` is its location."""
    document = parse_document(data, url) if isinstance(data, bytes) else data
    entries = document.get("refs", document)
    templates = document.get("templates", {}) if "refs" in document else {}
    if "refs" in document and document.get("gen"):
        raise Unsupported("references that expressions generate (gen) are not supported: write them in full", url=url)
    if not isinstance(entries, Mapping) or not isinstance(templates, Mapping):
        raise Damaged("cannot read the references: 'refs' and 'templates' should be objects", url=url)
    if not all(isinstance(each, str) and "{" not in each for each in templates.values()):
        raise Unsupported("templates that are expressions are not supported: write the URLs in full", url=url)
    named = ((name, value) for name, value in entries.items() if name.rpartition("/")[2] in _DOCUMENTS)
    documents = {name: _document(value, url) for name, value in named}
    arrays = Arrays(url)
    if ".zmetadata" in documents and not any(name.endswith(".zarray") for name in documents):
        add_consolidated(documents[".zmetadata"], "", arrays, url)
    if arrays.record_size is not None:
        raise Unsupported("the references of this document are in Parquet: pass the URL of their folder", url=url)
    nodes = {name.removesuffix("zarr.json").rstrip("/"): value for name, value in documents.items()}
    add_consolidated({"metadata": nodes}, "", arrays, url)
    return References(arrays, entries, url, templates)


def references_of_manifests(
    manifests: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]],
) -> References:
    """Return the references of VirtualiZarr's arrays: name → (``metadata.to_dict()``, ``manifest.dict()``).

    A manifest's keys are coordinates of chunks (``0.0.1``), its values ``{"path", "offset", "length"}``. They belong to
    this program, and may name files of this machine.
    """
    arrays, entries = Arrays(), dict[str, Any]()
    for name, (document, manifest) in manifests.items():
        check_name(name, "")
        arrays.put(name, f"{name}/" if name else "", document, document.get("attributes") or {}, "")
        layout = arrays.get(name)
        if layout is None:
            continue
        for place, entry in manifest.items():
            chunk = _coordinates(place, layout)
            if chunk is None or not isinstance(entry, Mapping):
                raise Damaged(f"the manifest of {name!r} has {place!r}, which is not a chunk")
            entries[layout.object_key(chunk)] = [entry.get("path"), entry.get("offset"), entry.get("length")]
    return References(arrays, entries, "", {})


def references_of_records(arrays: Arrays, source: Source, prefix: str) -> References:
    """Return the references with metadata ``arrays`` and files below ``prefix``."""
    return References(arrays, Records(source, prefix, arrays, arrays.record_size), source.url(prefix + METADATA), {})


def _coordinates(place: str, layout: Layout) -> tuple[int, ...] | None:
    """Return the chunk coordinates of a manifest's key; None if the key does not fit the array."""
    shape = layout.shards or layout.chunks
    if not shape:
        return () if place in {"", "0"} else None
    parts = place.split(".")
    if len(parts) != len(shape) or not all(part.isdecimal() and len(part) < 20 for part in parts):  # noqa: PLR2004  digits
        return None
    # For a shard, the coordinates of its first inner chunk: both name the same object.
    return tuple(int(part) * ratio for part, ratio in zip(parts, layout.ratios, strict=True))


def _root_of(url: str) -> str:
    """Return a URL up to the slash after its bucket; "" without one."""
    return url[: url.find("/", url.find("://") + 3) + 1] if "://" in url else ""


def _document(value: object, url: str) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, str):
        raise Damaged("a metadata document among references should be text or an object", url=url)
    return parse_document(_inline_data(value, "a metadata document among references is not Base64", url), url)


def _inline_data(value: str | bytes, damage: str, url: str) -> bytes:
    """Return data stored instead of a reference, as text or Base64; raise ``damage`` for invalid Base64."""
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    if not data.startswith(_BASE64):
        return data
    try:
        return base64.b64decode(data[len(_BASE64) :], validate=True)
    except ValueError:
        raise Damaged(damage, url=url) from None


METADATA = ".zmetadata"
# A hundred times a file of 100,000 references, the default of kerchunk.
_MOST_FILE_BYTES = 256 << 20
# About twelve million references, of a hundred arrays with 100,000 in a file.
_MOST_HELD_BYTES = 256 << 20
# Memory that each file takes besides, and that of an absent file: a hostile document may name many small ones.
_RECORD_BYTES, _ABSENT_BYTES = 1200, 400
_lock = Lock()  # for all caches: held only briefly
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class RecentValues(Generic[V]):
    """Cache of the values used last, of up to ``most_bytes``, or of one that is larger. Thread-safe; pickled empty."""

    def __init__(self, most_bytes: int, size_of: Callable[[V], int]) -> None:
        self._most_bytes, self._size_of = most_bytes, size_of
        self._held: OrderedDict[Hashable, V] = OrderedDict()
        self.held_bytes = 0

    def __reduce__(self) -> tuple[object, ...]:
        return RecentValues, (self._most_bytes, self._size_of)

    def get(self, key: Hashable) -> V | None:
        with _lock:
            if key in self._held:
                self._held.move_to_end(key)
            return self._held.get(key)

    def put(self, key: Hashable, value: V | None) -> None:
        """Replace the value of a key; None removes it."""
        with _lock:
            if (old := self._held.pop(key, None)) is not None:
                self.held_bytes -= self._size_of(old)
            if value is None:
                return
            self._held[key] = value
            self.held_bytes += self._size_of(value)
            while self.held_bytes > self._most_bytes and len(self._held) > 1:
                self.held_bytes -= self._size_of(self._held.popitem(last=False)[1])


class _FileReferences(NamedTuple):
    """References of one file: indices of texts, and byte ranges.

    ``paths`` and ``raws`` hold, for each row, the index of its value in ``urls`` and ``data``; -1: no value.
    """

    paths: NDArray[np.int32]
    urls: list[str]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    raws: NDArray[np.int32]
    data: list[bytes]
    size_bytes: int

    @classmethod
    def of(cls, data: bytes, url: str) -> _FileReferences:
        """Parse the references of a file; raise ``Damaged`` if it is not a file of references."""
        texts, numbers, rows = coded_columns(data, url, ("path", "raw"), ("offset", "size"))
        none, zeros = np.full(rows, -1, dtype=np.int32), np.zeros(rows, dtype=np.int64)
        paths, urls = texts.get("path", (none, []))
        raws, values = texts.get("raw", (none, []))
        if not all(isinstance(each, str) for each in urls):
            raise Damaged("the column 'path' of these references has no text", url=url)
        inline = [each.encode() if isinstance(each, str) else each for each in values]
        offsets, sizes = numbers.get("offset", zeros), numbers.get("size", zeros)
        size = _RECORD_BYTES + 24 * rows + sum(map(len, urls)) + sum(map(len, inline)) + 64 * (len(urls) + len(inline))
        return cls(paths, urls, offsets, sizes, raws, inline, size)

    def at(self, row: int) -> bytes | list[Any]:
        """Return a reference as in kerchunk's JSON, with data as bytes; raise KeyError for a missing one."""
        if row >= len(self.paths):
            raise KeyError(row)
        if self.raws[row] >= 0:
            return self.data[int(self.raws[row])]
        path = self.urls[self.paths[row]] if self.paths[row] >= 0 else ""
        offset, size = int(self.offsets[row]), int(self.sizes[row])
        if not path and not size:
            raise KeyError(row)
        return [path] if offset == size == 0 else [path, offset, size]


_CODES, _NUMBERS = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
_EMPTY = _FileReferences(_CODES, [], _NUMBERS, _NUMBERS, _CODES, [], _ABSENT_BYTES)


class Records:
    """References by key, like the mapping ``refs`` of a JSON document; ``KeyError`` for a missing reference.

    Files that were read are cached: up to 256 MiB of references in each process; the oldest are evicted. Thread-safe.
    """

    def __init__(self, source: Source, prefix: str, arrays: Arrays, size: object) -> None:
        """Set up without reading; ``size`` is the document's ``record_size``."""
        self.source, self._prefix = source, prefix
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise Damaged(f"record_size should be a number from 1, not {str(size)[:40]!r}", url=source.url(prefix))
        self._size = size
        self._layouts = {layout.key: layout for layout in arrays.values()}
        self.files: RecentValues[_FileReferences] = RecentValues(_MOST_HELD_BYTES, attrgetter("size_bytes"))

    def __getitem__(self, key: str) -> bytes | list[Any]:
        """Return the reference of an array's object ``key``; sends a HEAD and a GET if its file is not cached."""
        file, row = self._place(key)
        record = self.files.get(file)
        if record is None:
            [record] = self._read([file], self.source.stat_existing([file]))
        return self._entry(record, row, key)

    def known(self, key: str) -> bytes | list[Any] | None:
        """Return a reference if its file is cached; else None."""
        try:
            file, row = self._place(key)
            record = self.files.get(file)
            return None if record is None else self._entry(record, row, key)
        except (KeyError, Damaged):
            return None

    def prepare(self, keys: Iterable[str]) -> None:
        """Read the uncached files of some references, all at once; errors are raised later, for each key."""
        files: dict[str, None] = {}
        for key in keys:
            with suppress(KeyError):
                files[self._place(key)[0]] = None
        if some := [file for file in files if self.files.get(file) is None]:
            # Requested again, one by one.
            with suppress(PenstockError):
                for _ in self._read(some, self.source.stat_existing(some)):
                    pass

    def _place(self, key: str) -> tuple[str, int]:
        """Return the file with the reference of a key, and its row in the file."""
        name = key
        while name:
            name = name.rstrip("/").rpartition("/")[0]
            name += "/" * bool(name)
            if (layout := self._layouts.get(name)) is not None:
                number = _find_chunk_number(layout, key[len(name) :])
                if number is None:
                    break
                return f"{self._prefix}{name}refs.{number // self._size}.parq", number % self._size
        raise KeyError(key)

    def _read(self, files: Sequence[str], found: Sequence[ObjectMeta | None]) -> Iterator[_FileReferences]:
        spans: list[Span | None] = []
        for file, meta in zip(files, found, strict=True):
            if meta is not None and meta.size > _MOST_FILE_BYTES:
                message = f"a file of references has {meta.size:,} bytes: Penstock reads up to 256 MiB"
                raise Damaged(message, url=self.source.url(file))
            spans.append(None if meta is None else Span(file, 0, meta.size, meta.etag))
        if None in spans:
            self._verify()
        with self.source.lookahead(iter([span for span in spans if span is not None])) as reads:
            for file, span in zip(files, spans, strict=True):
                record = _EMPTY if span is None else _FileReferences.of(reads.advance().take(), self.source.url(file))
                self.files.put(file, record)
                yield record

    def _verify(self) -> None:
        """Check that the metadata still exists: then an absent file has no references, as in fsspec."""
        try:
            self.source.head(self._prefix + METADATA)
        except NotFound as error:
            raise DatasetChanged("the references were deleted while they were read", url=error.url) from error

    def _entry(self, record: _FileReferences, row: int, key: str) -> bytes | list[Any]:
        found = record.at(row)
        if isinstance(found, bytes):  # in Base64 or not, as in fsspec
            damage = f"the reference {key!r} has data that is not Base64"
            return _inline_data(found, damage, self.source.url(self._prefix))
        return found


def _find_chunk_number(layout: Layout, chunk: str) -> int | None:
    """Return the row-major number of an array's object by its key below the array, ``chunk``; None if not an object."""
    grid = tuple(
        -(-size // (count * ratio))
        for size, count, ratio in zip(layout.shape, layout.chunks, layout.ratios, strict=True)
    )
    parts = chunk.split(layout.separator)[bool(layout.lead) :]
    if not grid and parts in ([], ["0"]):
        return 0
    if len(parts) != len(grid) or not all(part.isdecimal() and len(part) < 20 for part in parts):  # noqa: PLR2004  digits
        return None
    number = 0
    for part, count in zip(map(int, parts), grid, strict=True):
        if part >= count:
            return None
        number = number * count + part
    return number if prod(grid) else None
