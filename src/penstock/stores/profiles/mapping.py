"""``path_mapping`` in Multi-Storage Client's files: URLs and paths that stand for a path of a profile.

Sinks that profiles name, opened with the first store of such a profile. Imported by ``penstock``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.stores.profiles.multistorage import msc_mappings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


__all__ = ["NamedSinks", "divides", "mapped", "open_named", "opened_by"]

_SOURCE = re.compile(r"(?:/|[a-z][a-z0-9+.-]*://)[^/].*/").fullmatch  # as in its schema
_TARGET = re.compile(r"msc://[^/]+/").fullmatch


def mapped(text: str, environ: Mapping[str, str]) -> str:
    """Return the URL that ``path_mapping`` gives for a URL or absolute path, ``msc://profile/…``; unmapped, the text.

    The longest matching source counts, as in Multi-Storage Client; ``file:///path/x`` matches ``/path/``. URLs of
    ``msc://`` are never mapped.

    Raises:
        ConfigError: A source or a target is invalid; also as in ``msc_files``.
        MissingExtra: As in ``msc_files``.

    """
    if text.startswith("msc://"):
        return text
    plain = _plain(text)
    for source, target in _sorted(msc_mappings(environ)):
        if plain.startswith(source):
            return target + plain[len(source) :].lstrip("/")
    return text


def divides(text: str, environ: Mapping[str, str]) -> bool:
    """Return whether ``path_mapping`` has a source that begins with ``text`` and is longer. Raises as ``mapped``."""
    plain = _plain(text)
    return any(len(source) > len(plain) and source.startswith(plain) for source, _ in _sorted(msc_mappings(environ)))


@lru_cache(maxsize=4)
def _sorted(mappings: tuple[tuple[str, str, str], ...]) -> list[tuple[str, str]]:
    for path, source, target in mappings:
        if not _SOURCE(source) or not _TARGET(target):
            raise ConfigError(
                f"{path}: path_mapping.{source}: a path or URL that ends in '/' is mapped to msc://PROFILE/, "
                f"not {source!r} to {target!r}"
            )
    pairs = [(_plain(source), target) for _, source, target in mappings]
    return sorted(pairs, key=lambda pair: len(pair[0]), reverse=True)


def _plain(text: str) -> str:
    """Return a path unchanged, and a URL with its scheme in lower case; a ``file`` URL becomes a path."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return text
    return f"/{rest.lstrip('/')}" if scheme.lower() == "file" else f"{scheme.lower()}://{rest}"


_opener: list[Callable[[NamedSinks], None]] = []


@dataclass(frozen=True, slots=True)
class NamedSinks:
    """Sinks of a profile.

    Attributes:
        words: In the form of ``PENSTOCK_OBSERVE``, with absolute paths.
        telemetry: Values of Multi-Storage Client's section ``opentelemetry``: see ``telemetry``. It may hold secrets.

    """

    words: tuple[str, ...] = ()
    telemetry: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        """Return whether the profile names any sinks."""
        return bool(self.words or self.telemetry)


def opened_by(opener: Callable[[NamedSinks], None]) -> None:
    """Register ``opener`` to open the sinks of profiles; it must not raise, nor open a sink twice."""
    _opener[:] = [opener]


def open_named(sinks: NamedSinks) -> None:
    """Open a profile's sinks in this process, when one of its stores is opened."""
    if sinks:
        for each in _opener:
            each(sinks)
