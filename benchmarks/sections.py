"""What is measured with no server and beside nobody: a script, its tasks, and what of its answers makes a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ORDERS", "SECTIONS", "Section"]


@dataclass(frozen=True)
class Section:
    """``peers/<script>.py TASK``, in a fresh process each time, prints one JSON object of numbers: a row of a table.

    Bars over its rows stand with the others, in ``report.py``.

    Attributes:
        name: Short name, for ``--only`` and bars.
        title: What the table is headed.
        script: Name of the script; it runs where the benchmark itself does.
        tasks: Name of each row, and what its script is told.
        columns: Heading of each column, and the number shown in it.

    """

    name: str
    title: str
    script: str
    tasks: tuple[tuple[str, Mapping[str, object]], ...]
    columns: tuple[tuple[str, str], ...]


_SIZES = (10**4, 10**6, 10**8)
ORDERS: dict[str, Mapping[str, object]] = {
    **{f"{n:,} samples": {"samples": n} for n in _SIZES},
    **{f"{n:,} in blocks of 250": {"samples": n, "block": 250} for n in _SIZES},
}

SECTIONS = (
    Section(
        "order",
        "computing a shuffled order, 4,096 positions at a time, and the first batch of 256 after 0.9 of an epoch",
        "order",
        tuple(ORDERS.items()),
        (("µs/sample", "sample_us"), ("first batch, s", "first_s"), ("peak RSS MiB beyond numpy", "beyond_mib")),
    ),
)
