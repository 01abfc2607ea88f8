"""Sinks that profiles name, and who opens them: with the first store of such a profile. Imported by ``penstock``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NamedSinks", "open_named", "opened_by"]

_opener: list[Callable[[NamedSinks], None]] = []


@dataclass(frozen=True, slots=True)
class NamedSinks:
    """The sinks of a profile.

    Attributes:
        words: As ``PENSTOCK_OBSERVE`` has them, with absolute paths.
        telemetry: What Multi-Storage Client's section ``opentelemetry`` says: see ``telemetry``. It may hold secrets.

    """

    words: tuple[str, ...] = ()
    telemetry: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        """Say whether there are any."""
        return bool(self.words or self.telemetry)


def opened_by(opener: Callable[[NamedSinks], None]) -> None:
    """Have ``opener`` open what profiles name; it raises nothing, and opens nothing twice."""
    _opener[:] = [opener]


def open_named(sinks: NamedSinks) -> None:
    """Open a profile's sinks in this process, as one of its stores is opened."""
    if sinks:
        for each in _opener:
            each(sinks)
