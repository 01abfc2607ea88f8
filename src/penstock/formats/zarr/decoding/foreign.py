"""Chunks whose codecs only zarr knows: each is decoded by zarr as the chunk of an array in memory."""

from __future__ import annotations

import json
import warnings
from contextlib import nullcontext
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import MissingExtra, PenstockError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.formats.zarr.decoding.steps import Encoded
    from penstock.formats.zarr.layout import Layout

__all__ = ["ForeignDecoder"]

_PLACES = 1 << 20  # chunks of the array in memory: more than are ever decoded at a time
_UNSAFE = {"pickle"}  # codecs that run code which the data brings


class ForeignDecoder:
    """Decodes chunks with zarr, 200 to 350 µs more than the codec itself takes. Thread-safe, also after a fork.

    zarr decodes on an event loop of its own thread; whether several chunks are decoded at a time is up to the codec.
    """

    def __init__(self, layout: Layout, document: Mapping[str, Any], url: str = "") -> None:
        """Open an array in memory that has the codecs of ``document``, for one chunk after another.

        Raises:
            Unsupported: zarr does not know a codec, or it is not safe to decode with it.
            MissingExtra: There is no zarr.

        """
        names = sorted(_names(document))
        if unsafe := _UNSAFE & {name.removeprefix("numcodecs.") for name in names}:
            raise Unsupported(f"the codec {min(unsafe)} runs code that the data brings: it is not decoded", url=url)
        try:
            import zarr
            from zarr.core.buffer import default_buffer_prototype
            from zarr.storage import MemoryStore
        except ModuleNotFoundError as error:
            raise MissingExtra("these chunks are decoded by zarr: pip install 'penstock[zarr]'") from error
        self._chunks, self._dtype = layout.chunks, layout.dtype
        self._bytes = default_buffer_prototype().buffer.from_bytes
        self._places: dict[str, Any] = {}
        self._numbers = count()
        # An array without dimensions has one chunk only.
        self._guard = nullcontext() if layout.chunks else Lock()
        file, self._key, document = _one_after_another(document, layout.chunks)
        self._places[file] = self._bytes(json.dumps(document).encode())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that others may not know a codec
                self._array = zarr.open_array(
                    store=MemoryStore(self._places), mode="r", zarr_format=document["zarr_format"]
                )
        except PenstockError:
            raise
        except Exception as error:
            message = f"zarr does not decode these chunks, with the codecs {', '.join(names)}: {error}"
            raise Unsupported(message, url=url) from error

    def decode(self, data: Encoded, out: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any]:
        """Return a chunk, an array of zarr's: it does not decode into ``out``. Any exception is damage."""
        del out
        with self._guard:
            number = next(self._numbers) % _PLACES
            key = self._key.format(number)
            self._places[key] = self._bytes(bytes(data))
            try:
                size = self._chunks[0] if self._chunks else 0
                found = self._array[number * size : (number + 1) * size] if size else self._array[...]
            finally:
                del self._places[key]
        return np.asarray(found, self._dtype)


def _one_after_another(document: Mapping[str, Any], chunks: tuple[int, ...]) -> tuple[str, str, dict[str, Any]]:
    """Return the document of an array of many chunks, its name, and the key of its chunk ``{}``."""
    shape = [chunks[0] * _PLACES, *chunks[1:]] if chunks else []
    zeros = ["0"] * (len(chunks) - 1)
    if document["zarr_format"] == 2:  # noqa: PLR2004  the format's version
        many = {**document, "shape": shape, "chunks": list(chunks), "dimension_separator": "."}
        return ".zarray", ".".join(["{}", *zeros]) if chunks else "0", many
    many = {
        **{name: document[name] for name in ("zarr_format", "node_type", "data_type", "fill_value", "codecs")},
        "shape": shape,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "attributes": {},
    }
    return "zarr.json", "/".join(["c", *(["{}", *zeros] if chunks else [])]), many


def _names(document: object) -> set[str]:
    """Return the names of all codecs of a document, also of those within shards."""
    found: set[str] = set()
    if isinstance(document, list | tuple):
        for each in document:
            found |= _names(each) | ({each} if isinstance(each, str) else set())
    elif hasattr(document, "items"):
        for name, value in document.items():
            if name in {"id", "name"} and isinstance(value, str):
                found.add(value)
            elif name in {"codecs", "index_codecs", "filters", "compressor", "configuration"}:
                found |= _names(value)
    return found
