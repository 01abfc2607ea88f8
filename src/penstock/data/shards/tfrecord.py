"""TFRecord files: records of bytes after their length, both with a checksum. Pure.

Format: TensorFlow, "TFRecord and tf.train.Example". A record is its length (8 bytes), a masked CRC-32C of these, the
payload, and a masked CRC-32C of the payload. The payload is handed out as it is: usually a ``tf.train.Example``.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.data.shards.format import Ask, Extents, ShardFormat
from penstock.errors import ChecksumMismatch, Damaged, Unsupported, require_extras

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.data.shards.format import Walk

_HEADER = Struct("<QI")  # length of the payload, and its masked CRC-32C
_SUM_BYTES = 4
_FRAME = _HEADER.size + _SUM_BYTES
_FIRST_BYTES, _MOST_BYTES = 64 << 10, 8 << 20  # of one Ask while reading on
# Payloads at least this large are skipped: a request for the next header costs less than their bytes.
_SKIP_BYTES = 256 << 10
_MASK, _WORD = 0xA282EAD8, 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class TFRecordFormat(ShardFormat):
    """TFRecord files: each record is a sample, the bytes of its payload, which are compared with their checksum.

    Needs ``penstock[tfrecord]``.
    """

    name: ClassVar[str] = "tfrecord"
    suffixes: ClassVar[tuple[str, ...]] = (".tfrecord", ".tfrecords")

    def walk(self, size: int) -> Walk:
        checksum = _library()
        stops = array("q")
        at = known = 0  # the next header is at `at`; `view` has the bytes up to `known`
        view, step = memoryview(b""), 0
        while at < size:
            near = at - (known - len(view))
            if near + _HEADER.size > len(view):
                if at + _HEADER.size > size:
                    raise Damaged(f"the TFRecord file ends within the header at byte {at}")
                hop = at >= known + _SKIP_BYTES
                start = at if hop else known
                step = _HEADER.size if hop else min(_MOST_BYTES, max(_FIRST_BYTES, 2 * step))
                more = yield Ask(start, min(size, max(start + step, at + _HEADER.size)))
                view = memoryview(bytes(view[near:]) + more) if at < known else more
                known = start + len(more)
                continue
            length, given = _HEADER.unpack_from(view, near)
            crc = checksum(view[near : near + 8])
            if ((crc >> 15 | crc << 17) + _MASK) & _WORD != given:
                raise _explain_header(bytes(view[near : near + 2]), at)
            at += length + _FRAME
            if at > size:
                raise Damaged(f"the TFRecord file ends within the record that reaches to byte {at}")
            stops.append(at)
        ends = np.array(stops, dtype=np.int64)
        offsets = np.concatenate((np.zeros(1, np.int64), ends[:-1]))[: len(ends)]
        return Extents(offsets, ends - offsets)

    def sample(self, data: memoryview) -> memoryview:
        stop = len(data) - _SUM_BYTES
        if stop < _HEADER.size or int.from_bytes(data[:8], "little") != stop - _HEADER.size:
            raise Damaged("the bytes of a sample are not those of one TFRecord")
        payload = data[_HEADER.size : stop]
        crc = _library()(payload)
        if ((crc >> 15 | crc << 17) + _MASK) & _WORD != int.from_bytes(data[stop:], "little"):
            raise ChecksumMismatch(f"the CRC-32C of the record does not match its {len(payload)} bytes")
        return payload


def _explain_header(data: bytes, at: int) -> Unsupported | Damaged:
    """Return the error for a header at byte ``at`` that begins with ``data`` and has a wrong checksum."""
    if not at:
        # TensorFlow's options GZIP and ZLIB compress the whole file.
        kind = (
            "gzip"
            if data == b"\x1f\x8b"
            else "zlib"
            if data[:1] == b"x" and not int.from_bytes(data, "big") % 31
            else ""
        )
        if kind:
            advice = 'pass format="tfrecord.gz" with its URL, or a glob' if kind == "gzip" else "write it without"
            return Unsupported(
                f"the TFRecord file is compressed with {kind}, so that no record can be read by its place: {advice}"
            )
    return Damaged(f"no TFRecord header is at byte {at}: the file is damaged, or not a TFRecord file")


@cache
def _library() -> Callable[[memoryview], int]:
    """Return the function for CRC-32C: 60 GB/s on one core (100 KiB), without the GIL; in Python it would be 5 MB/s.

    Raises:
        MissingExtra: fastcrc is not installed.
    """
    with require_extras("TFRecord files need fastcrc for their checksums", fastcrc="tfrecord"):
        from fastcrc.crc32 import iscsi

    compute: Callable[[memoryview], int] = iscsi
    return compute
