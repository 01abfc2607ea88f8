"""Parts of the source of a map, which are known without reading it, and the samples of a part.

Files of lines, in text or JSON: a part is some ranges of bytes, and a line belongs to the range that it begins in. A
compressed file is one range. Everything else, such as rows of Parquet, has a catalog, which is kept with the records;
a part is a range of its samples, which cuts no row group.
"""

from __future__ import annotations

import io
import re
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, pairwise
from json import loads
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from penstock.data.catalog.catalog import Catalog, make_catalog
from penstock.data.catalog.discovery.shards import find_shards, read_shard_indexes
from penstock.data.order.orders import CatalogOrder
from penstock.data.shards.format import ShardFormat
from penstock.data.shards.jsonl import MARK, JsonlFormat, check_first_bytes, parse_values
from penstock.data.unpacking import UnpackedFile, check_unpacked
from penstock.errors import Bug, NotFound, Unusable
from penstock.schema import COUNT
from penstock.source import open_source
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from penstock.data.catalog.discovery.shards import Shard, Shards
    from penstock.data.shards.format import Walk
    from penstock.options import StoreOptions
    from penstock.source import Source

    FileRange = tuple[str, int, str, int, int]

_PACKED = (".gz", ".zst")
_TEXT = tuple(f".{name}{end}" for name in ("txt", "text") for end in ("", *_PACKED))
_WILD = re.compile(r"[*?\[{]")
_PIECE_BYTES = 8 << 20
_CUT_BYTES = 256 << 10  # split at a time, so that copies of lines stay in the processor's cache
_TAIL_BYTES = 64 << 10  # after a range, for the end of its last line; then twice as many, and so on
# Of a part: ranges of small files; samples of a catalog.
_MOST_RANGES, _MOST_SAMPLES = 1 << 12, 1 << 17
_AT_ONCE = 64  # samples in one list
# Of a part in the plan: key, size, ETag, first byte and end of each range; or version and base of the catalog, and the
# range of its samples.
PIECE = ([[str, COUNT, str, COUNT, COUNT]], [str, str, COUNT, COUNT])


class SourceSample(NamedTuple):
    """Sample of a part: ``load`` makes the value that the function gets, ``locate`` its description and its URL."""

    load: Callable[[], Any]
    size: int
    locate: Callable[[], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class TextFiles(ShardFormat):
    """Files of text, which are found as shards are."""

    name: ClassVar[str] = "text"
    suffixes: ClassVar[tuple[str, ...]] = _TEXT

    def walk(self, size: int) -> Walk:
        raise Bug(f"lines of text have no index: {size} bytes")

    def sample(self, data: memoryview) -> memoryview:
        return data


def source_folder(key: str) -> str:
    """Return the part of a key before its first wildcard or brace, as a folder; other keys as they are."""
    wild = _WILD.search(key)
    return key if wild is None else key[: key.rfind("/", 0, wild.start()) + 1]


def find_source(
    url: str, fields: tuple[str, ...], store: StoreOptions | str
) -> tuple[Source, list[Shard], Catalog | None]:
    """Return the store of a source with its files of lines, or with the catalog of its samples."""
    if url.lower().endswith(_TEXT):
        _refuse_fields(fields, "lines of text")
        found = find_shards(url, TextFiles(), {}, store)
        return found.source, found.found, None
    try:
        found = find_shards(url, None, {"fields": fields or None}, store)
    except NotFound:
        source, key = open_source(url, store)
        if _WILD.search(key):
            raise
        _refuse_fields(fields, "objects")
        return source, [], Catalog.scan(url, share=False, store=store)
    if found.format.name.partition(".")[0] == JsonlFormat.name:
        return found.source, found.found, None
    return found.source, [], _make_catalog(found)


def _refuse_fields(fields: tuple[str, ...], samples: str) -> None:
    if fields:
        raise Unusable(f"fields= chooses among the fields of samples, and {samples} have none: leave it out")


def _make_catalog(shards: Shards) -> Catalog:
    return make_catalog(shards.source.root, shards.base, read_shard_indexes(shards, None, progress=None))


def cut_files(files: Iterable[Shard], part_bytes: int) -> Iterator[list[FileRange]]:
    """Yield the ranges of each part: a large file is cut into equal ranges, small neighbours are one part. Pure."""
    ranges, held = list[tuple[str, int, str, int, int]](), 0
    for key, size, etag in files:
        count = 1 if key.lower().endswith(_PACKED) else -(-size // part_bytes)
        for start, stop in pairwise(size * number // count for number in range(count + 1)) if count else ():
            if ranges and (held + stop - start > part_bytes or len(ranges) == _MOST_RANGES):
                yield ranges
                ranges, held = [], 0
            ranges.append((key, size, etag, start, stop))
            held += stop - start
    if ranges:
        yield ranges


def cut_catalog(catalog: Catalog, part_bytes: int) -> list[tuple[int, int]]:
    """Return the first sample of each part, and the one after its last: no unit is cut."""
    sizes = catalog.sizes.clip(0)
    begins = (np.cumsum(sizes) - sizes) // part_bytes
    changes = np.flatnonzero(np.diff(begins)) + 1
    borders = np.union1d(changes, np.arange(0, len(catalog), _MOST_SAMPLES))
    if (units := catalog.units) is not None:
        firsts = np.flatnonzero(np.diff(units.of(np.arange(len(catalog))), prepend=-1))
        borders = np.unique(firsts[np.searchsorted(firsts, borders, "right") - 1])
    return [*pairwise([*borders.tolist(), len(catalog)])]


def read_lines(source: Source, ranges: Iterable[FileRange], fields: tuple[str, ...]) -> Generator[SourceSample]:
    """Yield the lines that begin in ranges of files; those of white space only are left out."""
    for key, size, etag, start, stop in ranges:
        url, load = source.url(key), _decode if key.lower().endswith(_TEXT) else partial(_parse_json, fields=fields)
        if key.lower().endswith(_PACKED):
            file = io.BufferedReader(UnpackedFile(memoryview(source.read(Span(key, 0, size, etag)))), 1 << 20)
            lines, stop = _split_lines(iter(partial(file.read, 1 << 20), b"")), 1 << 63  # noqa: PLW2901
        else:
            # From the byte before, which tells whether a line begins with the range.
            lines = _split_lines(_blocks(source, Span(key, max(start - 1, 0), size, etag), stop), max(start - 1, 0))
        with closing(lines):
            if start:
                next(lines, None)
            for number, (at, line) in enumerate(lines):
                if at >= stop:
                    break
                if not at:
                    check_first_bytes(memoryview(line))
                    line = line.removeprefix(MARK)  # noqa: PLW2901
                if line and not line.isspace():
                    locate = partial(_locate_line, url, 0 if start else number + 1, at, len(line))
                    yield SourceSample(partial(load, line), len(line), locate)


def _blocks(source: Source, span: Span, stop: int) -> Generator[bytes]:
    """Yield the bytes of a range up to ``stop``, and then what follows it, while it is asked for."""
    starts = range(span.start, stop, _PIECE_BYTES)
    with source.lookahead(span._replace(start=at, stop=min(at + _PIECE_BYTES, stop)) for at in starts) as bodies:
        yield from bodies
    size = _TAIL_BYTES
    while stop < (span.stop or 0):
        end = min(stop + size, span.stop or 0)
        yield source.read(span._replace(start=stop, stop=end))
        stop, size = end, 2 * size


def _split_lines(blocks: Iterator[bytes], at: int = 0) -> Generator[tuple[int, bytes]]:
    """Yield each line with the place of its first byte; ``at`` is that of the first block."""
    held, held_bytes = list[bytes](), 0
    starts = ((memoryview(block), start) for block in blocks for start in range(0, len(block), _CUT_BYTES))
    cuts = (block[start : start + _CUT_BYTES] for block, start in starts)
    for cut in cuts:
        *lines, rest = bytes(cut).split(b"\n")
        for line in lines:
            if held:
                line, held, held_bytes = b"".join((*held, line)), [], 0  # noqa: PLW2901
            yield at, line
            at += len(line) + 1
        held.append(rest)
        check_unpacked(held_bytes := held_bytes + len(rest), "a line")
    if held and (last := b"".join(held)):
        yield at, last


def _decode(line: bytes) -> str:
    return str(line, "utf-8").removesuffix("\r")


def _parse_json(line: bytes, fields: tuple[str, ...]) -> Any:  # noqa: ANN401  any JSON value
    return parse_values(memoryview(line), fields) if fields else loads(line)


def _locate_line(url: str, number: int, at: int, size: int) -> tuple[str, str]:
    return f"line {number}" if number else f"the line at byte {at}", f"{url}#bytes={at}-{at + size - 1}"


def read_samples(catalog: Catalog, first: int, stop: int, store: StoreOptions | str) -> Generator[SourceSample]:
    """Yield samples of a catalog, as datasets make them."""
    # Imported late: a map of lines needs no datasets.
    from penstock.data.datasets.dataset import CatalogDataset

    dataset: Any = CatalogDataset(catalog[first:stop], store=store).ordered(CatalogOrder())
    starts = range(0, stop - first, _AT_ONCE)
    lists, _ = dataset.lists(([*range(at, min(stop - first, at + _AT_ONCE))] for at in starts), 1)
    with closing(lists):
        for number, sample in enumerate(chain.from_iterable(lists)):
            yield SourceSample(partial(_same, sample), sample.size, partial(_locate_sample, dataset, first, number))


def _same(sample: Any) -> Any:  # noqa: ANN401  any sample
    return sample


def _locate_sample(dataset: Any, first: int, number: int) -> tuple[str, str]:  # noqa: ANN401  a CatalogDataset
    return f"sample {first + number}", dataset.url_of(number)


@lru_cache(maxsize=1)
def open_kept(url: str, root: str, store: StoreOptions | str) -> Catalog:
    """Open the catalog of a map, once in each process."""
    return Catalog.open(url, root=root, store=store)
