"""Compressors by the words that people write: ``zstd``, ``zstd:5``, ``blosc-lz4``, ``gzip:6``, ``none``; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.config.profiles.table import meant
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CODECS", "codec_v2", "codecs_v3", "spelled"]

_BLOSC = ("lz4", "lz4hc", "zstd", "zlib", "blosclz")
_LEVELS = {"zstd": (-131072, 22, 0), "gzip": (0, 9, 5)} | {f"blosc-{each}": (0, 9, 5) for each in _BLOSC}
CODECS = ("none", *_LEVELS)


def codec_v2(text: str) -> dict[str, Any] | None:
    """Return ``compressor`` of a ``.zarray``. Raises ``Unusable`` as ``codecs_v3``."""
    name, level = _parsed(text)
    if name == "none":
        return None
    if name.startswith("blosc-"):
        return {"id": "blosc", "cname": name.removeprefix("blosc-"), "clevel": level, "shuffle": 1, "blocksize": 0}
    return {"id": name, "level": level}


def codecs_v3(text: str, item_bytes: int) -> list[dict[str, Any]]:
    """Return the codecs of a ``zarr.json`` that compress: none or one.

    Raises:
        Unusable: No such codec, with what was probably meant; a level that it does not have.

    """
    name, level = _parsed(text)
    if name == "none":
        return []
    if name.startswith("blosc-"):
        shuffle = "shuffle" if item_bytes > 1 else "noshuffle"
        configuration = {"typesize": item_bytes, "cname": name.removeprefix("blosc-"), "clevel": level}
        return [{"name": "blosc", "configuration": {**configuration, "shuffle": shuffle, "blocksize": 0}}]
    more = {"checksum": False} if name == "zstd" else {}
    return [{"name": name, "configuration": {"level": level, **more}}]


def _parsed(text: str) -> tuple[str, int]:
    name, colon, level = text.strip().lower().partition(":")
    if name not in CODECS:
        others = f"; there are {', '.join(CODECS)}"
        raise Unusable(f"no codec is called {name!r}{meant(name, CODECS, others)}")
    if name == "none":
        if colon:
            raise Unusable(f"codec {text!r}: 'none' has no level")
        return name, 0
    least, most, usual = _LEVELS[name]
    if not colon:
        return name, usual
    try:
        number = int(level)
    except ValueError:
        raise Unusable(f"codec {text!r}: a level is a whole number, as in {name}:{usual}") from None
    if not least <= number <= most:
        raise Unusable(f"codec {text!r}: {name} has levels from {least} to {most}")
    return name, number


def spelled(codecs: Sequence[object]) -> str:
    """Return codecs of a document, for people: ``bytes+zstd:0``."""
    return "+".join(_spelled(each) for each in codecs) or "none"


def _spelled(codec: object) -> str:
    if not isinstance(codec, dict):
        return str(codec)
    settings = codec.get("configuration", codec)
    name = str(codec.get("name", codec.get("id", "?")))
    if name == "blosc":
        return f"blosc-{settings.get('cname', '?')}:{settings.get('clevel', '?')}"
    return f"{name}:{settings['level']}" if isinstance(settings, dict) and "level" in settings else name
