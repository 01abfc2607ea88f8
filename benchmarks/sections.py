"""What is measured without the load server: a script, its tasks, and what of its answers makes a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.conditions import CONNECTOR

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CACHED", "LISTERS", "ORDERS", "SECTIONS", "Section"]


@dataclass(frozen=True)
class Section:
    """``peers/<script>.py TASK``, in a fresh process each time, prints one JSON object of numbers: a row of a table.

    Bars over its rows stand with the others, in ``report.py``.

    Attributes:
        name: Short name, for ``--only`` and bars.
        title: What the table is headed.
        script: Name of the script; it runs where the benchmark itself does, but for rows with requirements.
        tasks: Name of each row, and what its script is told.
        columns: Heading of each column, and the number shown in it.
        requirements: What pip installs, alone, for the rows of others, by name.
        rounds: At most so many.
    """

    name: str
    title: str
    script: str
    tasks: tuple[tuple[str, Mapping[str, object]], ...]
    columns: tuple[tuple[str, str], ...]
    requirements: Mapping[str, str] = field(default_factory=dict)
    rounds: int = 1 << 30


_SIZES = (10**4, 10**6, 10**8)
ORDERS: dict[str, Mapping[str, object]] = {
    **{f"{n:,} samples": {"samples": n} for n in _SIZES},
    **{f"{n:,} in blocks of 250": {"samples": n, "block": 250} for n in _SIZES},
}

_DATAFLUX = "gcs-torch-dataflux==1.4.0 lightning torch==2.13.0 numpy==2.4.6"
CACHED = ("cached", "files", "open")  # files: a dataset of them; open: Python's open and read, which compares nothing
LISTERS = ("penstock", "plain", "s3torchconnector", "dataflux")  # plain: ours, page by page

SECTIONS = (
    Section(
        "order",
        "computing a shuffled order, 4,096 positions at a time, and the first batch of 256 after 0.9 of an epoch",
        "order",
        tuple(ORDERS.items()),
        (("µs/sample", "sample_us"), ("first batch, s", "first_s"), ("peak RSS MiB beyond numpy", "beyond_mib")),
    ),
    Section(
        "listing",
        "listing 1,000,000 made-up keys of one flat prefix, from a server that waits 30 ms before each page",
        "listing",
        tuple((engine, {"engine": engine, "keys": 10**6}) for engine in LISTERS),
        (("seconds", "wall_s"), ("CPU s", "cpu_s"), ("keys/s", "keys_a_second")),
        {"s3torchconnector": CONNECTOR, "dataflux": _DATAFLUX},
        rounds=3,
    ),
    Section(
        "index",
        "finding the samples in 1,000 tar shards of 8 MiB with members of 512 KiB, 30 ms an answer",
        "indexed",
        (("headers", {"shards": 1000, "members": 16, "bytes": 512 << 10}),),
        (("seconds", "wall_s"), ("% of the bytes", "percent")),
        rounds=3,
    ),
    Section(
        "cache",
        "epochs of 2,000 objects of 100 KiB that a cache on local disk has, beside the same bytes as local files",
        "cached",
        tuple((kind, {"kind": kind, "objects": 2000}) for kind in CACHED),
        (("objects/s", "objects_a_second"), ("CPU µs/object", "cpu_us")),
    ),
    Section(
        "hedge",
        "4,000 reads of 100 KiB by 16 threads, of which 1 % wait for 2 s, and where none does",
        "hedge",
        (("without", {"hedge": False}), ("hedged", {"hedge": True}), ("idle", {"idle": True})),
        (
            ("median, s", "p50_s"),
            ("p99, s", "p99_s"),
            ("most, s", "most_s"),
            ("more requests, %", "more_percent"),
            ("CPU, µs/read", "cpu_us"),
            ("of which for hedging, idle, %", "idle_percent"),
        ),
        rounds=3,
    ),
)
