"""A ``torch.save`` file as what it is: a zip of records, whose directory is read first and each compared with its CRC.

The file is not trusted: nothing of it runs here, and every number in it is checked before it is used.
"""

from __future__ import annotations

import pickle
import re
import struct
import sys
import zipfile
from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from penstock.checkpoint.integrity.crc import crc32
from penstock.checkpoint.torchfile.fragments import HEAD_BYTES, Fragments, fetched
from penstock.checkpoint.torchfile.scanner import Call, Name, PickleScan
from penstock.errors import CheckpointError, ChecksumMismatch

if TYPE_CHECKING:
    from penstock.checkpoint.transfer.plan import Object
    from penstock.source import Source

__all__ = ["ENDING", "ENDING_BYTES", "MAGIC", "Archive", "Record", "Use", "archive", "compare"]

_TAIL_BYTES = 256 << 10  # where the directory lies, 80 bytes for each tensor; data.pkl comes first
_LOCAL = struct.Struct("<4s22xHH")  # a record's own header: magic, …, the lengths of name and of what follows it
MAGIC = b"PK\3\4"
ENDING, ENDING_BYTES = b"PK\5\6", 22  # the last structure of a zip without a comment
_PICKLED = b"\x80"  # how what torch wrote before 1.6 begins
_ALIGNED = 64  # where torch lets data begin; what follows the name fills up to there, with 28 bytes for long files
_FOLLOWING = range(4, 4 + 28 + _ALIGNED)
_DESCRIBED = 8  # the flag for a descriptor after the data, of 16 bytes or, for long files, 24
_ENCRYPTED = 1  # another flag
_STORED = 0  # the way of compressing that torch writes
_FOLDER = 0x10  # among the attributes: torch would read nothing of it
_MOST = (1 << 16) - 1  # of a length in a header

# What torch reads besides storages, as it lies; anything else that a file may hold is ignored.
_READ = ("data.pkl", ".format_version", ".storage_alignment", "byteorder", "version", ".data/serialization_id")
# What makes the objects of most files, and neither looks at another file nor at where torch means to put a storage.
_KNOWN = re.compile(
    r"torch\._utils _rebuild_(tensor|tensor_v2|tensor_v3|parameter|parameter_with_state|qtensor|sparse_tensor)"
    r"|torch \w+|torch\.storage UntypedStorage|torch\.serialization _get_layout|collections (OrderedDict|defaultdict)"
    r"|_codecs encode|numpy(\.\w+)* \w+|(__builtin__|builtins) (set|frozenset|bytearray|complex|slice|range)"
)
# What torch calls with weights only, too, and neither torch nor Python writes with a number.
_FILLING = re.compile(r"(__builtin__|builtins) bytearray|torch(\.\w+)? \w*(Storage|Tensor)")


class Record(NamedTuple):
    """Bytes ``[start, stop)`` of the file, behind their header at ``header``, by their name in the archive.

    ``crc`` is 0 where none was computed.
    """

    name: str
    header: int
    start: int
    stop: int
    crc: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.stop - self.start


class Use(NamedTuple):
    """A storage that is asked for while the objects are made: its record, and where it lay (``cpu``, ``cuda:0``, …)."""

    record: Record
    location: str


class Archive:
    """The records of one file.

    Attributes:
        of: The file.
        records: By name: ``data.pkl``, ``byteorder``, ``data/0``, …
        uses: The storages in the order in which they are asked for, as often as they are; None: not known.
        names: What ``data.pkl`` calls for, ``module name``.
        file: The file for torch to read from, once ``fill_storage`` says where the storages' bytes come from.

    """

    def __init__(self, of: Object, file: Fragments) -> None:
        """Read what ``file`` holds besides the storages; see ``archive``."""
        self.of, self.file = of, file
        self.records = {record.name: record for record in _records(of, file)}
        for name in _READ:
            if name in self.records:
                self.read(self.records[name])
        self._data = [record for record in self.records.values() if record.name.startswith("data/") and record.size]
        self._starts = [record.start for record in self._data]
        # torch reads each record's own header, and of that only where the data begin: so that costs no request.
        file.known.update((record.header, _header(record)) for record in self.records.values())
        self.uses, self.names = self._foretold()

    def read(self, record: Record) -> memoryview:
        """Return a record's bytes, compared with its CRC: ``ChecksumMismatch``."""
        data = self.file.held(record.start, record.stop)
        compare(self.of, record, crc32(data))
        return data

    @property
    def plain(self) -> bool:
        """Whether torch would give out the storages' bytes as they are, and what makes the objects is known."""
        order = self.records.get("byteorder")
        little = order is not None and bytes(self.read(order)) == b"little" and sys.byteorder == "little"
        return little and self.uses is not None and all(map(_KNOWN.fullmatch, self.names))

    def storage(self, at: int) -> Record | None:
        """Return the storage's record that a byte of the file is in."""
        number = bisect_right(self._starts, at) - 1
        return self._data[number] if number >= 0 and at < self._data[number].stop else None

    def _foretold(self) -> tuple[list[Use] | None, set[str]]:
        if lacking := {"data.pkl", "version"} - self.records.keys():
            raise CheckpointError(f"it is no file of torch.save: it holds no {min(lacking)}", url=self.of.url)
        try:
            scan = PickleScan(self.read(self.records["data.pkl"]))
        except pickle.UnpicklingError:
            return None, set()
        if any(map(_fills, scan.calls)):
            raise CheckpointError("it makes a tensor or a byte array of nothing but its size", url=self.of.url)
        try:
            asked = [_storage(each) for each in scan.asked]
        except pickle.UnpicklingError:
            return None, scan.names
        if unknown := [key for key, _ in asked if f"data/{key}" not in self.records]:
            raise CheckpointError(f"it holds no record 'data/{unknown[0]}'", url=self.of.url)
        return [Use(self.records[f"data/{key}"], location) for key, location in asked], scan.names


def _storage(asked: object) -> tuple[str, str]:
    """Return the key and the location of a storage that a pickle asks for."""
    match asked:
        case ("storage", _, str() as key, str() as location, _):
            return key, location
    raise pickle.UnpicklingError("it asks for what is no storage")


def _fills(made: Call) -> bool:
    """Say whether a few bytes of a pickle make torch fill memory of any size."""
    sized = isinstance(made.args, tuple) and any(type(each) is int for each in made.args)
    return sized and isinstance(made.by, Name) and _FILLING.fullmatch(" ".join(made.by)) is not None


def compare(of: Object, record: Record, crc: int) -> None:
    """Raise ``ChecksumMismatch`` where a record's bytes have another CRC than they were written with."""
    if record.crc not in (0, crc):
        shown = f"record {record.name!r} (bytes {record.start} to {record.stop})"
        raise ChecksumMismatch(f"{shown} is not what was written: its CRC-32 is {crc:08x}", url=of.url)


def archive(source: Source, of: Object) -> Archive | None:
    """Open a file: its two ends at once, and what of ``data.pkl`` and the directory does not lie there.

    None: it is no zip of plain records that ``torch.load`` would read as such (the format before torch 1.6,
    TorchScript, compressed).

    Raises:
        CheckpointError: The directory is damaged, or there is none: the file was cut.
        ChecksumMismatch: A record other than a storage is not what was written.

    """
    ends = [(0, min(HEAD_BYTES, of.size)), (max(HEAD_BYTES, of.size - _TAIL_BYTES), of.size)]
    spans = [span for span in ends if span[0] < span[1]]
    data = fetched(source, of, spans)
    if not data or (of.size < len(MAGIC) and MAGIC.startswith(data[0])):
        raise CheckpointError(f"the file was cut: it has {of.size} bytes", url=of.url)
    if data[0][: len(MAGIC)] != MAGIC:
        if data[0][:1] != _PICKLED and data[-1][-ENDING_BYTES:].startswith(ENDING):
            raise CheckpointError("its first bytes are damaged", url=of.url)
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
    """A zip that is not for us."""


def _records(of: Object, file: Fragments) -> list[Record]:
    """Return the records in the order in which they lie; ``CheckpointError`` where they cannot lie so."""
    try:
        with zipfile.ZipFile(file) as directory:
            infos = sorted(directory.infolist(), key=lambda info: info.header_offset)
            bounds = [*(info.header_offset for info in infos), directory.start_dir]
        root = infos[0].filename.partition("/")[0] + "/" if infos else ""
        records = [_record(info, until, file, root) for info, until in zip(infos, bounds[1:], strict=True)]
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, struct.error) as error:
        raise CheckpointError(f"it is cut, or its directory damaged: {error}", url=of.url) from None
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
        raise CheckpointError("its directory is damaged: records lie over each other, or elsewhere", url=of.url)
    return records


def _record(info: zipfile.ZipInfo, until: int, file: Fragments, root: str) -> Record:
    """Place a record: its data end where the next begins, but for a descriptor. That saves reading its own header."""
    name_ends = info.header_offset + _LOCAL.size + len(info.orig_filename.encode())
    described = info.flag_bits & _DESCRIBED
    starts = [until - info.file_size - after for after in ((16, 24) if described else (0,))]
    good = [start for start in starts if start % _ALIGNED == 0 and start - name_ends in _FOLLOWING]
    start = good[0] if len(good) == 1 else _begins(info, file)
    name = info.filename.removeprefix(root)
    return Record(name, info.header_offset, start, start + info.file_size, info.CRC)


def _header(record: Record) -> bytes:
    until = record.start - record.header - _LOCAL.size
    return _LOCAL.pack(MAGIC, min(until, _MOST), until - min(until, _MOST))


def _begins(info: zipfile.ZipInfo, file: Fragments) -> int:
    file.seek(info.header_offset)
    magic, name_bytes, following_bytes = _LOCAL.unpack(file.read(_LOCAL.size).ljust(_LOCAL.size, b"\0"))
    if magic != MAGIC:
        raise zipfile.BadZipFile(f"the header of record {info.filename!r} is damaged")
    return int(info.header_offset + _LOCAL.size + name_bytes + following_bytes)
