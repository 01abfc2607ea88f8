"""A ``torch.save`` file as a zip of records: the directory is read first, and records are verified by their CRC.

The file is not trusted: none of its code runs here, and every number in it is checked before use.

Checkpoints as file objects: for ``torch.save``, ``torch.load`` and any other function that takes a file.
"""

from __future__ import annotations

import pickle
import re
import struct
import sys
import zipfile
from bisect import bisect_right
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.checkpoint.gather import Object, Want, gather
from penstock.checkpoint.integrity import crc32
from penstock.checkpoint.torchfile.scanner import Call, Name, PickleScan
from penstock.engine.blocks import SizedFile
from penstock.engine.buffer import flat
from penstock.errors import CheckpointError, ChecksumMismatch, Unsupported
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    from penstock.options import StoreOptions
    from penstock.source import Reader, Source, Writer


# Covers the directory, 80 bytes per tensor. data.pkl comes first in the file.
_TAIL_BYTES = 256 << 10
# A record's own header: magic, …, the length of the name and of the extra field.
_LOCAL = struct.Struct("<4s22xHH")
MAGIC = b"PK\3\4"
ENDING, ENDING_BYTES = b"PK\5\6", 22  # the last structure of a zip without a comment
_PICKLED = b"\x80"  # first byte of a file of torch before 1.6
# Alignment of data in torch's files. The extra field pads up to it, with 28 more bytes for long files.
_ALIGNED = 64
_FOLLOWING = range(4, 4 + 28 + _ALIGNED)
# The flag for a descriptor after the data, of 16 bytes or, for long files, 24.
_DESCRIBED = 8
_ENCRYPTED = 1  # another flag
_STORED = 0  # the compression method that torch writes
# A file attribute: torch would read no data of such a record.
_FOLDER = 0x10
_MOST = (1 << 16) - 1  # largest length in a header

# Records that torch reads as they are, besides storages; any other record is ignored.
_READ = ("data.pkl", ".format_version", ".storage_alignment", "byteorder", "version", ".data/serialization_id")
# The callables of most files. They look neither at another file nor at the location that torch restores a storage to.
_KNOWN = re.compile(
    r"torch\._utils _rebuild_(tensor|tensor_v2|tensor_v3|parameter|parameter_with_state|qtensor|sparse_tensor)"
    r"|torch \w+|torch\.storage UntypedStorage|torch\.serialization _get_layout|collections (OrderedDict|defaultdict)"
    r"|_codecs encode|numpy(\.\w+)* \w+|(__builtin__|builtins) (set|frozenset|bytearray|complex|slice|range)"
)
# Callables that torch also allows with weights only; neither torch nor Python writes them with a number.
_FILLING = re.compile(r"(__builtin__|builtins) bytearray|torch(\.\w+)? \w*(Storage|Tensor)")


class ArchiveRecord(NamedTuple):
    """Bytes ``[start, stop)`` of the file after their header at ``header``, with their name in the archive."""

    name: str
    header: int
    start: int
    stop: int
    crc: int  # 0 if none was computed

    @property
    def size(self) -> int:
        return self.stop - self.start


class Use(NamedTuple):
    """Use of a storage while objects are made: its record, and the location saved for it (``cpu``, ``cuda:0``, …)."""

    record: ArchiveRecord
    location: str


class Archive:
    """Records of one file by name, such as ``data.pkl``, ``byteorder`` and ``data/0``."""

    def __init__(self, of: Object, file: Fragments) -> None:
        self.of, self.file = of, file
        self.records = {record.name: record for record in _records(of, file)}
        for name in _READ:
            if name in self.records:
                self.read(self.records[name])
        self._data = [record for record in self.records.values() if record.name.startswith("data/") and record.size]
        self._starts = [record.start for record in self._data]
        # torch reads each record's own header only to find its data: known headers make that cost no request.
        file.known.update((record.header, _header(record)) for record in self.records.values())
        # Storages in their order of use, repeated if used again (None if unknown), and callables as ``module name``.
        self.uses, self.names = self._foretold()

    def read(self, record: ArchiveRecord) -> memoryview:
        data = self.file.held(record.start, record.stop)
        compare(self.of, record, crc32(data))
        return data

    @property
    def plain(self) -> bool:
        """Whether torch would use the storages' bytes unchanged, and all callables are known ones."""
        order = self.records.get("byteorder")
        little = order is not None and bytes(self.read(order)) == b"little" and sys.byteorder == "little"
        return little and self.uses is not None and all(map(_KNOWN.fullmatch, self.names))

    def storage(self, at: int) -> ArchiveRecord | None:
        """Return the storage record that contains a byte of the file."""
        number = bisect_right(self._starts, at) - 1
        return self._data[number] if number >= 0 and at < self._data[number].stop else None

    def _foretold(self) -> tuple[list[Use] | None, set[str]]:
        if lacking := {"data.pkl", "version"} - self.records.keys():
            raise CheckpointError(f"not a file of torch.save: it holds no {min(lacking)}", url=self.of.url)
        try:
            scan = PickleScan(self.read(self.records["data.pkl"]))
        except pickle.UnpicklingError:
            return None, set()
        if any(map(_fills, scan.calls)):
            raise CheckpointError(
                "the pickle creates a tensor or a byte array from nothing but its size", url=self.of.url
            )
        try:
            asked = [_storage(each) for each in scan.asked]
        except pickle.UnpicklingError:
            return None, scan.names
        if unknown := [key for key, _ in asked if f"data/{key}" not in self.records]:
            raise CheckpointError(f"the file holds no record 'data/{unknown[0]}'", url=self.of.url)
        return [Use(self.records[f"data/{key}"], location) for key, location in asked], scan.names


def _storage(asked: object) -> tuple[str, str]:
    match asked:
        case ("storage", _, str() as key, str() as location, _):
            return key, location
    raise pickle.UnpicklingError("the pickle refers to an object that is not a storage")


def _fills(made: Call) -> bool:
    """Return whether a call makes torch fill memory of any size from a few bytes of pickle."""
    sized = isinstance(made.args, tuple) and any(type(each) is int for each in made.args)
    return sized and isinstance(made.by, Name) and _FILLING.fullmatch(" ".join(made.by)) is not None


def compare(of: Object, record: ArchiveRecord, crc: int) -> None:
    if record.crc not in (0, crc):
        shown = f"record {record.name!r} (bytes {record.start} to {record.stop})"
        raise ChecksumMismatch(f"{shown} is not what was written: its CRC-32 is {crc:08x}", url=of.url)


def archive(source: Source, of: Object) -> Archive | None:
    """Return an open archive: reads both ends of the file at once, then missing parts of ``data.pkl`` and directory.

    Return None if the file is not a zip of plain records that ``torch.load`` would read as such: the format before
    torch 1.6, TorchScript, a compressed file.
    """
    ends = [(0, min(HEAD_BYTES, of.size)), (max(HEAD_BYTES, of.size - _TAIL_BYTES), of.size)]
    spans = [span for span in ends if span[0] < span[1]]
    data = fetch_ranges(source, of, spans)
    if not data or (of.size < len(MAGIC) and MAGIC.startswith(data[0])):
        raise CheckpointError(f"the file was cut: it has {of.size} bytes", url=of.url)
    if data[0][: len(MAGIC)] != MAGIC:
        if data[0][:1] != _PICKLED and data[-1][-ENDING_BYTES:].startswith(ENDING):
            raise CheckpointError("the first bytes of the file are damaged", url=of.url)
        return None
    file = Fragments(source, of)
    file.hold(zip((start for start, _ in spans), (memoryview(each) for each in data), strict=True))
    try:
        opened = Archive(of, file)
    except _OtherFormatError:
        return None
    file.seek(0)
    return None if "constants.pkl" in opened.records else opened


class _OtherFormatError(Exception):
    """Zip that Penstock does not read itself."""


def _records(of: Object, file: Fragments) -> list[ArchiveRecord]:
    """Return the records in file order; raise ``CheckpointError`` if their positions are impossible."""
    try:
        with zipfile.ZipFile(file) as directory:
            infos = sorted(directory.infolist(), key=lambda info: info.header_offset)
            bounds = [*(info.header_offset for info in infos), directory.start_dir]
        root = infos[0].filename.partition("/")[0] + "/" if infos else ""
        records = [_record(info, until, file, root) for info, until in zip(infos, bounds[1:], strict=True)]
    except Unsupported:
        # The store raised it; the file is not damaged.
        raise
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, struct.error) as error:
        raise CheckpointError(f"the file is truncated, or its directory is damaged: {error}", url=of.url) from None
    if any(info.compress_type != _STORED or info.flag_bits & _ENCRYPTED for info in infos):
        raise _OtherFormatError
    apart = all(
        info.header_offset + _LOCAL.size <= record.start <= record.stop <= until
        for info, record, until in zip(infos, records, bounds[1:], strict=True)
    )
    ascending = all(one <= other for one, other in pairwise(bounds)) and bounds[-1] <= of.size
    odd = [
        info
        for info in infos
        if not info.filename.startswith(root) or (info.external_attr & _FOLDER and info.file_size)
    ]
    if not apart or not ascending or odd or len({record.name for record in records}) != len(records):
        raise CheckpointError(
            "the directory of the file is damaged: records overlap, or are outside the file", url=of.url
        )
    return records


def _record(info: zipfile.ZipInfo, until: int, file: Fragments, root: str) -> ArchiveRecord:
    """Return a record with its position, without reading its own header where possible."""
    name_ends = info.header_offset + _LOCAL.size + len(info.orig_filename.encode())
    described = info.flag_bits & _DESCRIBED
    starts = [until - info.file_size - after for after in ((16, 24) if described else (0,))]
    good = [start for start in starts if start % _ALIGNED == 0 and start - name_ends in _FOLLOWING]
    start = good[0] if len(good) == 1 else _begins(info, file)
    name = info.filename.removeprefix(root)
    return ArchiveRecord(name, info.header_offset, start, start + info.file_size, info.CRC)


def _header(record: ArchiveRecord) -> bytes:
    until = record.start - record.header - _LOCAL.size
    return _LOCAL.pack(MAGIC, min(until, _MOST), until - min(until, _MOST))


def _begins(info: zipfile.ZipInfo, file: Fragments) -> int:
    file.seek(info.header_offset)
    magic, name_bytes, following_bytes = _LOCAL.unpack(file.read(_LOCAL.size).ljust(_LOCAL.size, b"\0"))
    if magic != MAGIC:
        raise zipfile.BadZipFile(f"the header of record {info.filename!r} is damaged")
    return int(info.header_offset + _LOCAL.size + name_bytes + following_bytes)


_AHEAD_BYTES = 4 << 10  # small records lie near each other
_DAMAGED = "PytorchStreamReader failed"
# Fetched and held at least, for any read of bytes that are not held yet.
HEAD_BYTES = 64 << 10


def fetch_ranges(source: Source, of: Object, spans: list[tuple[int, int]]) -> list[bytearray]:
    wants = [Want(of, start, stop, bytearray(stop - start)) for start, stop in spans]
    return [want.memory for want in gather(source, wants)]


class Fragments(SizedFile):
    """Seekable file over ranges held in memory; other ranges are fetched, or come from ``fill_storage``."""

    def __init__(self, source: Source, of: Object) -> None:
        super().__init__(of.size)
        self.known: dict[int, bytes] = {}  # served without a request, by position
        # fills a view with the bytes from a position on, if it can, and returns their number
        self.fill_storage: Callable[[int, memoryview], int] = lambda _at, _view: 0
        self._source = source
        self._of = of
        self._held: list[tuple[int, memoryview]] = []
        self._failure: BaseException | None = None

    def hold(self, ranges: Iterable[tuple[int, memoryview]]) -> None:
        self._held += ranges

    def held(self, start: int, stop: int) -> memoryview:
        """Return bytes ``[start, stop)`` and keep them; costs a request if they are not held yet."""
        for at, data in self._held:
            if at <= start and stop <= at + len(data):
                return data[start - at : stop - at]
        ahead = min(self._of.size, stop + _AHEAD_BYTES)
        self.hold([(start, memoryview(fetch_ranges(self._source, self._of, [(start, ahead)])[0]))])
        return self._held[-1][1][: stop - start]

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401  any writable buffer
        if self._failure is not None:
            raise self._failure
        try:
            return self._read(buffer)
        except BaseException as error:
            self._failure = error
            raise

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Raise the error of a failed read, Ctrl-C too, which torch discards; translate damage that torch finds."""
        try:
            yield
        except BaseException as error:
            if self._failure is not None and self._failure is not error:
                raise self._failure from None
            if isinstance(error, RuntimeError) and _DAMAGED in str(error):
                message = f"the file is damaged: {str(error).partition('. ')[0]}"
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


class Checkpoint:
    """Access to checkpoints of one store by URL, as file objects.

    Args:
        store: Options for every URL, or the name of a profile; default: environment and profile.

    Example:
        >>> checkpoint = ps.Checkpoint()
        >>> with checkpoint.writer("s3://bucket/weights.pt") as file:
        ...     torch.save(torch.arange(3), file)
        >>> torch.load(checkpoint.reader("s3://bucket/weights.pt"))
        tensor([0, 1, 2])
    """

    def __init__(self, store: StoreOptions | str | None = None) -> None:
        self._store = store

    def writer(self, url: str | os.PathLike[str]) -> Writer:
        """Open a new object to write; it is published, complete, only if the ``with`` block ends without an error.

        Args:
            url: The object.

        Returns:
            A binary file; its requests are those of ``ps.open``.
        """
        return open_object(url, "wb", store=self._store)

    def reader(self, url: str | os.PathLike[str]) -> Reader:
        """Open the current version of an object to read, seekable: one HEAD.

        Args:
            url: The object.

        Returns:
            A binary file.

        Raises:
            NotFound: The object does not exist.
        """
        return open_object(url, "rb", store=self._store)
