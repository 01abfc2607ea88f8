"""Decoders of chunks: made of an array's metadata, by numcodecs where it has the codecs, by zarr otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import Damaged, NoSpace, PenstockError, Unusable
from penstock.formats.zarr.decoding.chain import chain_of
from penstock.formats.zarr.decoding.foreign import ForeignDecoder
from penstock.formats.zarr.index import sharding

if TYPE_CHECKING:
    from penstock.formats.zarr.decoding.chain import Chain
    from penstock.formats.zarr.layout import Layout

__all__ = ["Decoder", "decoder_of"]


class Decoder:
    """Decodes the chunks of one array. Thread-safe, also in forked children; pickled as its layout.

    Zstandard, Blosc, LZ4, zlib, gzip, bz2, LZMA, delta and copies release Python's lock, so that threads decode in
    parallel; shuffle, Fletcher-32 and CRC-32C hold it.

    Attributes:
        layout: The array's.
        foreign: Whether zarr decodes the chunks.
        direct: Whether a chunk is decoded straight into ``out``; otherwise it is copied there.

    """

    def __init__(self, layout: Layout, decoding: Chain | ForeignDecoder) -> None:
        self.layout = layout
        self.foreign = isinstance(decoding, ForeignDecoder)
        self.direct = not isinstance(decoding, ForeignDecoder) and decoding.direct
        self._shape, self._dtype = layout.chunks, layout.dtype
        self._decode = decoding.decode

    def decode(
        self, data: bytes | bytearray | memoryview, out: np.ndarray[Any, Any] | None = None, *, url: str = ""
    ) -> np.ndarray[Any, Any]:
        """Return a chunk of shape ``layout.chunks``: ``out``, or an array that may be a read-only view of ``data``.

        Args:
            data: The encoded chunk.
            out: Where to: C-contiguous, of the layout's ``dtype`` and ``chunks``. Undefined after an error.
            url: Of the chunk, for errors.

        Raises:
            ChecksumMismatch: A checksum of the chunk does not match.
            Damaged: It does not decode, or to another size.
            NoSpace: There is too little memory.
            Unusable: ``out`` has another type or shape.

        """
        if out is not None and (out.shape != self._shape or out.dtype != self._dtype or not out.flags.c_contiguous):
            raise Unusable(f"a chunk is decoded into a C-contiguous array of {self._dtype} of shape {self._shape}")
        try:
            found = self._decode(data, out)
            if found is out:
                return found
            if out is None:
                return found.astype(self._dtype, copy=False)
            out[...] = found
        except PenstockError as error:
            error.url = error.url or url
            raise
        except MemoryError as error:
            raise NoSpace("too little memory to decode the chunk", url=url) from error
        except Exception as error:
            raise Damaged(f"the chunk does not decode: {str(error) or type(error).__name__}", url=url) from error
        return out

    def filled(self) -> np.ndarray[Any, Any]:
        """Return a chunk of fill values: read-only, and no larger than one value."""
        return np.broadcast_to(np.asarray(self.layout.fill, self._dtype), self._shape)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the layout alone."""
        return decoder_of, (self.layout,)


def decoder_of(layout: Layout, url: str = "") -> Decoder:
    """Return what decodes the array's chunks (inner chunks, where it is sharded): made once for each process.

    Raises:
        Damaged: Codecs that cannot be; ``url`` is the document's.
        Unsupported: Codecs that neither numcodecs nor zarr knows.
        MissingExtra: There is no numcodecs, or zarr is needed and there is none.

    """
    document = layout.document
    if layout.shards is not None:
        document = {**document, "codecs": sharding(layout)["codecs"]}
    chain = chain_of(layout, document, url)
    return Decoder(layout, ForeignDecoder(layout, document, url) if chain is None else chain)
