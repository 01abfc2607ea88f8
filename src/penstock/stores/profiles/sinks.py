"""Sinks that profiles name, opened with the first store of such a profile. Imported by ``penstock``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_opener: list[Callable[[NamedSinks], None]] = []


@dataclass(frozen=True, slots=True)
class NamedSinks:
    """Sinks of a profile: ``words`` in the form of ``PENSTOCK_OBSERVE``, with absolute paths.

    ``telemetry`` are values of Multi-Storage Client's section ``opentelemetry``; they may hold secrets.
    """

    words: tuple[str, ...] = ()
    telemetry: tuple[tuple[str, str], ...] = field(default=(), repr=False)


def opened_by(opener: Callable[[NamedSinks], None]) -> None:
    """Register ``opener`` to open the sinks of profiles; it must not raise, nor open a sink twice."""
    _opener[:] = [opener]


def open_named(sinks: NamedSinks) -> None:
    """Open a profile's sinks in this process, when one of its stores is opened."""
    for each in _opener:
        each(sinks)
