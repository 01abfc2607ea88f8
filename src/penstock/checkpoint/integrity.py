"""Integrity of checkpoints: block checksums, the manifest that stores them, JSON documents with a digest."""

from __future__ import annotations

import base64
import io
import json
import re
import zlib
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import xxhash

from penstock.engine.blocks import BlockReader
from penstock.engine.buffer import Buffer, flat
from penstock.errors import CheckpointError, ChecksumMismatch, Truncated, Unusable
from penstock.progress import current
from penstock.values import ObjectMeta, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from penstock.source import Reader, Writer

MANIFEST = "checkpoint.json"
METADATA = ".metadata"  # torch's own layout has this file instead
MOST_BYTES = 256 << 20  # of a manifest, or of torch's metadata: digests of 24 TB
MOST_MANIFEST_VALUES = 1 << 24  # a million chunks of tensors
_VERSION = 1
_STEP = re.compile(r"[0-9]{1,18}")
# Listings are in byte order: leading zeros make that the order of steps.
_STEP_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Manifest:
    """Document that commits a set of objects as a checkpoint: written last, in one request, and read first."""

    save: str  # id of the save, 32 hex digits; object names contain it, so two saves never collide
    kind: str  # selects its reader: ``state``, ``dcp``, …
    objects: dict[str, BlockChecksums]  # by name below the checkpoint's URL
    content: dict[str, Any] = field(default_factory=dict)  # JSON specific to ``kind``
    indexed: dict[str, int] = field(default_factory=dict)  # sizes of further objects, whose digests are in an index

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each object, by name."""
        return {**{name: checksums.size for name, checksums in self.objects.items()}, **self.indexed}

    def encode(self) -> bytes:
        """Return the manifest as sorted JSON without spaces; the last key is a digest of all bytes before it."""
        body = json.dumps(
            {
                "penstock_checkpoint": _VERSION,
                "save": self.save,
                "kind": self.kind,
                "block_bytes": BLOCK_BYTES,
                "digest": "xxh3_64",
                "objects": {
                    name: {"size": checksums.size, "digests": base64.b64encode(checksums.digests).decode()}
                    for name, checksums in self.objects.items()
                },
                "indexed": self.indexed,
                "content": self.content,
            },
            sort_keys=True,
            separators=(",", ":"),
        ).encode()
        try:
            _check_document_size(body)
        except ValueError as error:
            raise Unusable(f"cannot encode the manifest: {error}") from None
        return body[:-1] + _ending(body[:-1])

    @classmethod
    def decode(cls, data: bytes, url: str) -> Manifest:
        """Return the manifest that a document holds; another program may have written the document."""
        try:
            _check_document_size(data)
            document = json.loads(data)
            version = document["penstock_checkpoint"]
            if not data.endswith(_ending(data[: -len(_ending(b""))])):
                raise CheckpointError("the manifest is damaged: its digest does not match its contents", url=url)
            if type(version) is int and version > _VERSION:
                raise CheckpointError(f"written by a newer Penstock (format {version}): update to read it", url=url)
            objects = {name: _block_checksums(name, each) for name, each in document["objects"].items()}
            indexed = {name: _checked_size(name, size) for name, size in document["indexed"].items()}
            save, kind = _require_str(document["save"]), _require_str(document["kind"])
            manifest = cls(save, kind, objects, dict(document["content"]), indexed)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            # The error's repr would quote the whole document if it is not UTF-8.
            shown = f"{type(error).__name__}: {error}"
            raise CheckpointError(f"cannot read the manifest of the checkpoint: {shown:.200}", url=url) from None
        if manifest.encode() != data:
            raise CheckpointError("the manifest differs from what Penstock would write", url=url)
        return manifest


def span(meta: ObjectMeta) -> Span:
    """Return the span to read of a manifest: the whole object, or one byte more than ``decode`` accepts."""
    return Span(meta.key, 0, min(meta.size, MOST_BYTES + 1), meta.etag, whole=meta.size <= MOST_BYTES)


def _check_document_size(data: bytes) -> None:
    if len(data) > MOST_BYTES:
        raise ValueError(f"the document has more than {MOST_BYTES:,} bytes")
    check_value_count(data, MOST_MANIFEST_VALUES)


def _ending(body: bytes) -> bytes:
    return b',"seal":"%s"}' % xxhash.xxh3_64_hexdigest(body).encode()


def _block_checksums(name: str, described: dict[str, Any]) -> BlockChecksums:
    size, digests = _checked_size(name, described["size"]), base64.b64decode(described["digests"], validate=True)
    if len(digests) != count_blocks(size) * DIGEST_BYTES:
        message = f"object {name!r} of {size!r} bytes with {len(digests)} bytes of digests"
        raise ValueError(message)
    return BlockChecksums(size, digests)


def _checked_size(name: str, size: object) -> int:
    if not fits(name) or type(size) is not int or not 0 <= size < 1 << 63:
        raise ValueError(f"object {name!r} of {size!r} bytes")
    return size


def _require_str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def elements(shape: Sequence[int]) -> int | None:
    """Return the number of elements of a shape; None if the product of nonzero dimensions needs more than 63 bits."""
    count = 1
    # Not math.prod: a file may hold a million numbers, whose product takes hours.
    for each in filter(None, shape):
        count *= each
        if count >> 63:
            return None
    return count if all(shape) else 0


def fits(name: str) -> bool:
    """Say whether a name is a relative path in UTF-8 without NUL, ``.``, ``..`` or empty parts."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in name and not {"", ".", ".."} & set(name.split("/"))


def step_name(step: int) -> str:
    return f"{step:0{_STEP_DIGITS}d}"


def step_of(folder: str) -> int | None:
    return int(folder) if _STEP.fullmatch(folder) and step_name(int(folder)) == folder else None


BLANK = "0" * 16
# Of a header or an index: 400,000 tensors, parsed in 0.4 GB of memory.
MOST_VALUES = 1 << 22
_BEFORE_VALUES = (b"{", b"[", b",")


def with_digest(raw: bytes, key: str) -> tuple[bytes, str]:
    """Replace the ``BLANK`` under ``key`` by the XXH3 of ``raw``; return the result and the digest."""
    digest = xxhash.xxh3_64_hexdigest(raw)
    return _insert_digest(raw, key, digest), digest


def stored_digest(raw: bytes, key: str, beside: bytes) -> str:
    """Return the digest stored in ``raw`` under ``key``; empty if ``raw`` contains neither a digest nor ``beside``.

    Penstock writes both, so a single flipped bit cannot make its text look like one that never had a digest. Raises
    ``ValueError`` if ``raw`` is not a result of ``with_digest``.
    """
    found = _pattern(key).findall(raw)
    if not found and beside not in raw:
        return ""
    if len(found) != 1 or with_digest(_insert_digest(raw, key, BLANK), key)[0] != raw:
        raise ValueError(
            "the digest does not match the contents (or another program copied the metadata to another file)"
        )
    return str(found[0][1].decode())


def document(raw: bytes) -> Any:  # noqa: ANN401  any JSON
    """Parse JSON in UTF-8; raise ``ValueError`` for a repeated name, or more than ``MOST_VALUES`` values."""
    check_value_count(raw, MOST_VALUES)
    return json.loads(raw.decode(), object_pairs_hook=_unique)


def check_value_count(raw: bytes, most: int) -> None:
    """Raise ``ValueError`` if JSON may hold more than ``most`` values; each takes 60 bytes of memory or more."""
    if sum(map(raw.count, _BEFORE_VALUES)) > most:
        raise ValueError(f"the document has more than {most:,} values")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r:.80} occurs twice")
        found[name] = value
    return found


def _insert_digest(raw: bytes, key: str, digest: str) -> bytes:
    return _pattern(key).sub(rb"\g<1>%b\3" % digest.encode(), raw)


def _pattern(key: str) -> re.Pattern[bytes]:
    return re.compile(rb'("%b": ?")([0-9a-f]{16})(")' % re.escape(key).encode())


# Bytes per digest. Costs 8 bytes of digest per MiB; a partial read verifies up to 1 MiB more at each end.
BLOCK_BYTES = 1 << 20
DIGEST_BYTES = 8  # of an XXH3 digest


def count_blocks(size: int) -> int:
    return -(-size // BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class BlockChecksums:
    """Size and block checksums of one data object: XXH3 (64 bits, big-endian, seed 0) of each ``BLOCK_BYTES``."""

    size: int
    digests: bytes

    def holds(self, block: int, data: bytes | memoryview) -> bool:
        return xxhash.xxh3_64_digest(data) == self.digests[block * DIGEST_BYTES : (block + 1) * DIGEST_BYTES]


# Most bytes per library call: a library may hold lengths in 32 bits.
_DIGEST_BYTES = 64 << 20


@cache
def fast() -> Callable[[Any, int], int] | None:
    """Return isal's CRC-32 (15 GB/s; zlib: 2.3 GB/s, measured), or None if isal is not installed."""
    try:
        from isal import isal_zlib
    except ImportError:
        return None
    found: Callable[[Any, int], int] = isal_zlib.crc32
    return found


def crc32(data: memoryview, crc: int = 0) -> int:
    """Return the CRC-32 of ``data`` appended to the bytes whose CRC-32 is ``crc``; other threads can run meanwhile."""
    compute = fast() or zlib.crc32
    for at in range(0, len(data), _DIGEST_BYTES):
        crc = compute(data[at : at + _DIGEST_BYTES], crc)
    return crc


# Pieces are written and then digested while they are still in the processor's cache.
_PIECE_BYTES = BLOCK_BYTES // 4
_KEPT = 4  # verified blocks kept for small reads


class Checksummer:
    """Incremental block checksums of an object, computed from its bytes in order."""

    def __init__(self) -> None:
        self.size = 0
        self._digests: list[bytes] = []
        self._open = xxhash.xxh3_64()

    def update(self, data: memoryview) -> None:
        at = 0
        while at < len(data):
            piece = data[at : at + BLOCK_BYTES - self.size % BLOCK_BYTES]
            self._open.update(piece)
            at += len(piece)
            self.size += len(piece)
            if self.size % BLOCK_BYTES == 0:
                self._digests.append(self._open.digest())
                self._open.reset()

    def checksums(self) -> BlockChecksums:
        last = [self._open.digest()] if self.size % BLOCK_BYTES else []
        return BlockChecksums(self.size, b"".join(self._digests + last))


class ChecksummedWriter(io.BufferedIOBase):
    """Write-only file over a ``Writer`` that computes block checksums; ``checksums`` has them after it is closed."""

    mode = "wb"

    def __init__(self, writer: Writer) -> None:
        super().__init__()
        self._writer = writer
        self._checksummer = Checksummer()
        self._count = current()

    @property
    def name(self) -> str:
        return self._writer.name

    def writable(self) -> bool:
        return self._writer.writable()

    def tell(self) -> int:
        return self._writer.tell()

    @property
    def closed(self) -> bool:
        return self._writer.closed

    def write(self, data: object, /) -> int:
        view, at = flat(data), 0
        # Raise for a closed file even if data is empty.
        self.tell()
        while at < len(view):
            piece = view[at : at + _PIECE_BYTES - self._checksummer.size % _PIECE_BYTES]
            self._writer.write(piece)
            self._checksummer.update(piece)
            self._count(0, len(piece))
            at += len(piece)
        return at

    def checksums(self) -> BlockChecksums:
        return self._checksummer.checksums()

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Publish the object, unless the ``with`` block raised."""
        self._writer.__exit__(kind, error, trace)

    def close(self) -> None:
        self._writer.close()

    def __del__(self) -> None:
        """Publish nothing: the underlying writer cleans up."""


class ChecksummedReader(BlockReader):
    """Read-only, seekable file over a ``Reader`` that verifies every byte before returning it.

    Whole blocks are read in parallel ranges directly into the caller's memory and verified there. For a partial block
    the whole block is read.
    """

    def __init__(self, reader: Reader, checksums: BlockChecksums, url: str) -> None:
        super().__init__(checksums.size, BLOCK_BYTES)
        self.name = url
        self._reader = reader
        self._checksums = checksums
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        if reader.size != checksums.size:
            raise Truncated(f"the object has {reader.size} bytes, {checksums.size} were written", url=url)

    def close(self) -> None:
        self._reader.close()
        self._kept.clear()
        super().close()

    def _straight(self, start: int, target: Buffer) -> None:
        view, at, stop = target.view(), start, start + target.size
        while at < stop:
            number, offset = divmod(at, BLOCK_BYTES)
            whole = 0 if offset else (stop - at) // BLOCK_BYTES * BLOCK_BYTES
            if whole:
                self._whole(number, view[at - start : at - start + whole])
                at += whole
            else:
                piece = memoryview(self._block(number))[offset : offset + stop - at]
                view[at - start : at - start + len(piece)] = piece
                at += len(piece)

    def _whole(self, first: int, view: memoryview) -> None:
        self._reader.seek(first * BLOCK_BYTES)
        self._reader.readinto(view)
        for number, at in enumerate(range(0, len(view), BLOCK_BYTES), first):
            self._verify(number, view[at : at + BLOCK_BYTES])

    def _read_around(self, at: int, count: int) -> tuple[int, bytes]:  # noqa: ARG002  blocks have one size
        number = at // BLOCK_BYTES
        return number * BLOCK_BYTES, self._block(number)

    def _block(self, number: int) -> bytes:
        if number not in self._kept:
            self._reader.seek(number * BLOCK_BYTES)
            data = self._reader.read(min(BLOCK_BYTES, self._checksums.size - number * BLOCK_BYTES))
            self._verify(number, data)
            self._kept[number] = data
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return self._kept[number]

    def _verify(self, number: int, data: bytes | memoryview) -> None:
        if not self._checksums.holds(number, data):
            start = number * BLOCK_BYTES
            raise ChecksumMismatch(f"bytes {start} to {start + len(data)} do not match the written data", url=self.name)
