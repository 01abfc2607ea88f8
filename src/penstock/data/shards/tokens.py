"""Files of tokens: raw arrays with or without a header, and Megatron's index of sequences and documents.

- Headerless arrays of integers: nanoGPT, OLMo (``.npy`` by name only), datatrove.
- llm.c: a header of 256 int32 (magic, version, number of tokens), then uint16 or uint32.
- NumPy's ``.npy`` with its header.
- datatrove: ``.ds`` is an array without a header; ``.ds.index`` has the end of each document in tokens, uint64.
- Megatron: ``.bin`` is an array without a header; ``.idx`` has its type, and where sequences and documents begin.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from penstock.data.shards.format import Ask, Extents, ShardFormat
from penstock.errors import Damaged, Unsupported, Unusable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.data.shards.format import Walk

Units = Literal["tokens", "sequences", "documents"]

KINDS = ("megatron", "raw", "llmc", "npy")  # for format=
_DTYPES = ("|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<i8")

_NPY = b"\x93NUMPY"
_HEAD_BYTES = 1024  # of a file, read to recognise it; all of llm.c's header
# Type and version by the magic number of llm.c: GPT-2's tokens, Llama 3's tokens.
_LLMC = {20240520: ("<u2", 1), 20240801: ("<u4", 7)}

_MAGIC, _OLD_MAGIC = b"MMIDIDX\0\0", b"TNTIDX\0\0"
_HEADER = struct.Struct("<9sQBQQ")
_CODES = {1: "|u1", 2: "|i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}
# First bytes of other files that end in .bin.
_FOREIGN = {
    b"LITPKDS": "a packed file of LitGPT",
    _MAGIC: "an index of Megatron",
    _OLD_MAGIC: "an older index of Megatron",
    b"\x1f\x8b\x08": "a file that gzip has compressed",
    b"\x28\xb5\x2f\xfd": "a file that zstd has compressed",
    b"PK\3\4": "a zip file, such as .npz or a checkpoint of PyTorch",
    b"PAR1": "a Parquet file",
    b"ARROW1\0\0": "an Arrow file",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
}
_AT_ONCE = 256 << 10  # an index up to this size is read in one request
_PIECE = 1 << 20  # sequences whose lengths and places are compared at once: 12 MiB
_MOST_BYTES = 1 << 62  # of the tokens of a file: arithmetic with them fits 64 bits


def token_dtype(given: object) -> np.dtype[np.integer]:
    try:
        dtype: np.dtype[Any] = np.dtype(given)  # type: ignore[call-overload]  # checked here
    except TypeError:
        dtype = np.dtype(object)
    if dtype.str not in _DTYPES:
        raise Unusable(
            f"dtype must be one of uint8, int8, uint16, int16, uint32, int32 and int64, little-endian, got {given!r}"
        )
    return dtype


@dataclass(frozen=True, slots=True)
class _Tokens(ShardFormat):
    """A format whose samples are the bytes of their tokens."""

    def sample(self, data: memoryview) -> memoryview:
        return data


@dataclass(frozen=True, slots=True)
class TokenFile(_Tokens):
    """Files with an array of tokens: one sample each; its schema is the type of the tokens.

    Attributes:
        dtype: Type of the tokens as ``numpy.dtype.str``; empty: a header has it.
        kind: ``"raw"``, ``"llmc"`` or ``"npy"``; empty: by the first bytes, or else raw.
    """

    name: ClassVar[str] = "tokens"
    suffixes: ClassVar[tuple[str, ...]] = (".bin", ".npy", ".ds", ".idx")

    dtype: str = ""
    kind: str = ""

    def walk(self, size: int) -> Walk:
        """Read the header; a raw file of a given type takes no request."""
        head = b""
        if size and not (self.kind == "raw" and self.dtype):
            head = bytes((yield Ask(0, min(size, _HEAD_BYTES))))
        kind = self.kind or _kind_of(head)
        start, dtype = 0, self.dtype
        if kind == "npy":
            start, dtype = _npy(head, size)
        elif kind == "llmc":
            start, dtype = _llmc(head, size)
        elif not dtype:
            raise Unusable(
                "the file has no header that names the type of its tokens: pass dtype='uint16' (nanoGPT, vocabularies "
                "of up to 65,536 tokens) or dtype='uint32'"
            )
        if self.dtype and dtype != self.dtype:
            raise Unusable(f"the file holds {np.dtype(dtype)} tokens, not {np.dtype(self.dtype)}: leave dtype= out")
        if (size - start) % np.dtype(dtype).itemsize:
            raise Damaged(f"{size - start} bytes are not a whole number of {np.dtype(dtype)} tokens")
        return Extents(np.array([start]), np.array([size - start]), (), dtype)


def _kind_of(head: bytes) -> str:
    if head.startswith(_NPY):
        return "npy"
    if foreign := next((kind for magic, kind in _FOREIGN.items() if head.startswith(magic)), ""):
        raise Unsupported(f"the file begins like {foreign}, not with tokens: pass format='raw' if these are tokens")
    known = {(magic, version) for magic, (_, version) in _LLMC.items()}
    return "llmc" if len(head) >= 8 and struct.unpack_from("<2i", head) in known else "raw"  # noqa: PLR2004


# The literal of a dict in the header of an .npy file, which Python's own parser would read in any time and way.
_SHAPE = re.compile(r"""["']shape["']\s*:\s*\(([\d\s,L]*)\)""")
_LENGTH = re.compile(r"\s*(\d{1,18})L?\s*")
_DESCR = re.compile(r"""["']descr["']\s*:\s*["']([<>|=]?[biufc]\d{1,2})["']""")


def _npy(head: bytes, size: int) -> tuple[int, str]:
    """Return where the array of an .npy file begins, and its type."""
    if not head.startswith(_NPY):
        raise Damaged("the file is not a .npy file: for a file without header pass format='raw' and dtype=")
    start = 10 if head[6:7] == b"\1" else 12  # magic, version, and a length of two bytes or four
    stop = start + int.from_bytes(head[8:start], "little")
    text = head[start:stop].decode("latin-1")
    shape, descr = _SHAPE.search(text), _DESCR.search(text)
    found = [_LENGTH.fullmatch(each) for each in shape[1].split(",") if each.strip()] if shape else [None]
    lengths = [int(each[1]) for each in found if each]
    if stop > len(head) or len(lengths) < len(found):
        raise Damaged("cannot read the header of the .npy file: it has no shape, or is longer than those of tokens")
    try:
        dtype = np.dtype(descr[1]) if descr else None
    except TypeError:
        dtype = None
    if dtype is None or len(lengths) != 1 or dtype.str not in _DTYPES:
        raise Unsupported(
            f"the .npy file holds {dtype or 'other values'} of shape {(*lengths,)}: tokens are one dimension of "
            "little-endian integers"
        )
    if size != stop + lengths[0] * dtype.itemsize:
        raise Damaged(f"the .npy file has {size} bytes, but its header declares {lengths[0]} tokens of type {dtype}")
    return stop, dtype.str


def _llmc(head: bytes, size: int) -> tuple[int, str]:
    """Return where the tokens of a file of llm.c begin, and their type."""
    magic, version, count = struct.unpack_from("<3i", head) if len(head) == _HEAD_BYTES else (0, 0, 0)
    dtype, known = _LLMC.get(magic, ("", 0))
    if not dtype:
        raise Damaged("the file has no header of llm.c: for a file without header pass format='raw' and dtype=")
    if version != known:
        raise Unsupported(f"unsupported version {version} of llm.c's token files (magic {magic}); known is {known}")
    if size != _HEAD_BYTES + count * np.dtype(dtype).itemsize:
        raise Damaged(f"the file of llm.c has {size} bytes, but declares {count} tokens of type {np.dtype(dtype)}")
    return _HEAD_BYTES, dtype


@dataclass(frozen=True, slots=True)
class MegatronIndex(_Tokens):
    """Index files of Megatron: their samples are units of the ``.bin`` next to them, the schema is the tokens' type.

    All ``"tokens"`` are a single unit; ``"documents"`` are consecutive ``"sequences"``.
    """

    name: ClassVar[str] = "megatron"
    suffixes: ClassVar[tuple[str, ...]] = (".idx",)

    units: Units = "tokens"

    def walk(self, size: int) -> Walk:
        """Read the index in pieces, and check that its sequences cover the file in order."""
        base = _HEADER.size
        if size < base:
            raise Damaged(f"an index of Megatron has at least {base} bytes, not {size}")
        head = yield Ask(0, size if size <= _AT_ONCE else base)
        dtype, sequences, documents = _header(head, size)
        pointers = base + 4 * sequences
        if self.units == "tokens":
            end = 0
            for first in range(0, sequences, _PIECE):
                count, pieces = min(_PIECE, sequences - first), []
                for at, width in ((base, 4), (pointers, 8)):
                    start, stop = at + width * first, at + width * (first + count)
                    pieces.append(head[start:stop] if len(head) == size else (yield Ask(start, stop)))
                lengths, begins = np.frombuffer(pieces[0], "<i4"), np.frombuffer(pieces[1], "<i8")
                end = int(_starts(lengths, begins, np.dtype(dtype).itemsize, first, end)[-1])
            return Extents(np.array([0]), np.array([end]), (), dtype)
        rest = head[base:] if len(head) == size else (yield Ask(base, size))
        lengths = np.frombuffer(rest, "<i4", sequences)
        begins = np.frombuffer(rest, "<i8", sequences, 4 * sequences)
        starts = _starts(lengths, begins, np.dtype(dtype).itemsize)
        if self.units == "documents":
            starts = starts[_borders(np.frombuffer(rest, "<i8", documents, 12 * sequences), sequences)]
        return Extents(starts[:-1], np.diff(starts), (), dtype)


@dataclass(frozen=True, slots=True)
class DatatroveIndex(_Tokens):
    """Index files of datatrove: their samples are the documents of the ``.ds`` next to them, with places in tokens."""

    name: ClassVar[str] = "datatrove"
    suffixes: ClassVar[tuple[str, ...]] = (".ds.index",)

    def walk(self, size: int) -> Walk:
        if size % 8:
            raise Damaged(f"an index of datatrove has 8 bytes for each document, and {size} bytes are no multiple")
        ends = np.frombuffer((yield Ask(0, size)) if size else b"", "<u8")
        if ends.size and int(ends.max()) > _MOST_BYTES // 8:
            raise Damaged(f"a document of the index ends at token {ends.max()}, beyond any file")
        starts = np.append(0, ends.astype(np.int64))
        if (wrong := np.flatnonzero(np.diff(starts) < 0)).size:
            at = wrong[0]
            raise Damaged(f"document {at} of the index ends at token {starts[at + 1]}, before it begins: {starts[at]}")
        return Extents(starts[:-1], np.diff(starts))


def encode_index(lengths: NDArray[np.int32], dtype: np.dtype[Any]) -> bytes:
    """Return the index that Megatron's builder writes for documents of these lengths in tokens."""
    codes = {np.dtype(name): code for code, name in _CODES.items()}
    ends = np.cumsum(lengths, dtype="<i8")
    documents = np.arange(len(lengths) + 1, dtype="<i8")
    head = _HEADER.pack(_MAGIC, 1, codes[dtype], len(lengths), len(documents))
    begins = (ends - lengths) * dtype.itemsize
    return b"".join((head, lengths.astype("<i4").tobytes(), begins.tobytes(), documents.tobytes()))


def _header(head: memoryview, size: int) -> tuple[str, int, int]:
    """Return the type of the tokens, and the numbers of sequences and of entries of the list of documents."""
    magic, version, code, sequences, documents = _HEADER.unpack_from(head)
    if magic.startswith(_OLD_MAGIC):
        raise Unsupported("the index has Megatron's older format TNTIDX: convert it, or pass format='raw', and dtype=")
    if magic != _MAGIC:
        raise Damaged("the .idx file is not an index of Megatron: to read without it pass format='raw'")
    if version != 1:
        raise Unsupported(f"unsupported version {version} of Megatron's index; known is 1")
    dtype = _CODES.get(code, "")
    if dtype not in _DTYPES:
        raise Unsupported(
            f"the index names type {code} ({np.dtype(dtype) if dtype else 'unknown'}): tokens are integers"
        )
    # Before arithmetic in 64 bits, and before memory is allocated.
    least = _HEADER.size + 12 * sequences + 8 * documents
    if size not in (least, least + sequences):  # multimodal data have a byte more for each sequence
        raise Damaged(f"the index has {size} bytes, and {sequences} sequences and {documents} documents need {least}")
    return dtype, sequences, documents


def _starts(
    lengths: NDArray[np.int32], pointers: NDArray[np.int64], item: int, first: int = 0, begin: int = 0
) -> NDArray[np.int64]:
    """Return the first byte of each sequence, and the end of the last; number ``first`` begins at byte ``begin``."""
    if (wrong := np.flatnonzero(lengths < 0)).size:
        raise Damaged(f"sequence {first + wrong[0]} has {lengths[wrong[0]]} tokens")
    if begin // item + int(lengths.sum(dtype=np.int64)) > _MOST_BYTES // item:
        raise Damaged("the sequences of the index have more than 2^62 bytes")
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    starts *= item
    starts += begin
    if (wrong := np.flatnonzero(starts[:-1] != pointers)).size:
        at = wrong[0]
        raise Damaged(
            f"sequence {first + at} begins at byte {pointers[at]} of the .bin, not at {starts[at]}, where the sequence "
            "before it ends: an index that chooses or reorders sequences is not read; to read the .bin without it pass "
            "format='raw'"
        )
    return starts


def _borders(documents: NDArray[np.int64], sequences: int) -> NDArray[np.int64]:
    """Return the first sequence of each document, and the number of sequences."""
    if documents.size and (int(documents.min()) < 0 or int(documents.max()) > sequences):
        raise Damaged(f"the list of documents leads outside the {sequences} sequences")
    if (np.diff(documents) < 0).any():
        raise Damaged("the list of documents is not in order")
    borders = documents if documents.size else np.zeros(1, np.int64)
    if borders[0] or borders[-1] != sequences:
        raise Damaged(
            f"the list of documents leads from sequence {borders[0]} to {borders[-1]}, and there are {sequences}: "
            "write the index again, or read sequences or windows without documents"
        )
    return borders
