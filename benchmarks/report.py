"""Results to RESULTS.md: a table for each condition, then the bars of issues 3 and 4 with met or missed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.sections import ORDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["REASONS", "render"]

_MIB = 1 << 20
Values = list[float]


class Row:
    """One engine's rounds under one condition, and what is derived from each."""

    def __init__(self, row: dict[str, Any]) -> None:
        """Read a row of results.json."""
        rounds: list[dict[str, float]] = row["rounds"]
        self.name, self.script, self.beside = row["name"], row["script"], row["beside"]
        self.threads: int = row["threads"]
        self.rate = [each["objects"] / each["wall_s"] for each in rounds]
        self.seconds = [each["wall_s"] for each in rounds]
        self.cpu_s = [each["cpu_s"] - each["compute_s"] for each in rounds]  # what reading costs, not training
        self.cpu_us = [(each["cpu_s"] - each["compute_s"]) / each["objects"] * 1e6 for each in rounds]
        self.peak_mib = [each["peak_rss"] / _MIB for each in rounds]
        self.beyond_mib = [(each["peak_rss"] - each["bytes"]) / _MIB for each in rounds]
        self.used = [(each["compute_s"] + each["slept_s"]) / each["wall_s"] * 100 for each in rounds]


class Numbers:
    """One task's rounds in a section, as its script told them."""

    def __init__(self, row: dict[str, Any]) -> None:
        """Read a row of results.json."""
        self._rounds: list[dict[str, float]] = row["rounds"]
        self.name = row["name"]

    def __getitem__(self, key: str) -> Values:
        """Return one number of each round."""
        return [each[key] for each in self._rounds]


# Rows by script, of which the first is the one as documented; in a section, by name.
Table = dict[str, Row] | dict[str, Numbers]


def ratio(numerator: Values, denominator: Values) -> Values:
    """Divide round by round: what disturbs a machine for a minute disturbs both."""
    return [a / b for a, b in zip(numerator, denominator, strict=True)]


@dataclass(frozen=True)
class Bar:
    """A promise of issue 3 or 4: ``measure(ours, table)`` is to be at most, or at least, ``limit``."""

    condition: str
    script: str
    words: str
    measure: Callable[[Row, Table], Values]
    limit: float
    at_least: bool = False
    unit: str = "x"

    def line(self, table: Table) -> str:
        """Return the bar's line in the report; empty where it was not measured."""
        try:
            values = self.measure(table[self.script], table)
        except KeyError:
            return ""
        got = median(values)
        met = got >= self.limit if self.at_least else got <= self.limit
        verdict = "met" if met else f"**missed** by {abs(got / self.limit - 1):.0%}"
        bound = "≥" if self.at_least else "≤"
        wanted = f"{bound} {_number(self.limit)} {self.unit}".strip()
        return f"| {self.condition}: {self.words} | {wanted} | {_spread(values)} | {verdict} |"


def _cpu_by_floor(ours: Row, table: Table) -> Values:
    return ratio(ours.cpu_us, table["floor"].cpu_us)


def _cpu_by_theirs(ours: Row, table: Table) -> Values:
    return ratio(ours.cpu_us, table[ours.beside].cpu_us)


def _rate_by_theirs(ours: Row, table: Table) -> Values:
    return ratio(ours.rate, table[ours.beside].rate)


def _first(table: Table, engine: str) -> Row:
    """Return an engine's row where it has only one; KeyError where it has none."""
    scripts = [script for script in table if script.partition("_")[0] == engine]
    return table[scripts[0] if scripts else engine]


def _speed_by_obstore(ours: Row, table: Table) -> Values:
    return ratio(_first(table, "obstore").seconds, ours.seconds)


def _pair(
    condition: str, what: str, measure: Callable[[Row, Table], Values], limit: float, *, at_least: bool
) -> list[Bar]:
    return [
        Bar(condition, f"penstock_{kind}", f"{what}, {kind}", measure, limit, at_least) for kind in ("map", "iterable")
    ]


def _written(condition: str) -> list[Bar]:
    speed = "speed beside obstore's multipart put"
    return [
        Bar(condition, "penstock_write", speed, _speed_by_obstore, 0.7, at_least=True),
        Bar(condition, "penstock_write", "peak RSS beyond the data", lambda ours, _: ours.beyond_mib, 128, unit="MiB"),
    ]


def _decoded(condition: str) -> list[Bar]:
    words = "images/s beside the same threads decoding from the RAM disk"
    return [
        Bar(condition, "penstock_decode", words, _rate_by_theirs, 0.92, at_least=True),
        Bar(condition, "penstock_train", "share of time computed", _used, 95, at_least=True, unit="%"),
    ]


def _used(ours: Row, _: Table) -> Values:
    return ours.used


def _ordered(row: str, words: str, key: str, limit: float, unit: str) -> Bar:
    return Bar("order", row, f"{row}, {words}", lambda ours, _: ours[key], limit, unit=unit)


BARS = (
    *_pair("small", "CPU per object beside the floor's", _cpu_by_floor, 2.5, at_least=False),
    *_pair("small", "CPU per object beside s3torchconnector's", _cpu_by_theirs, 0.25, at_least=False),
    *_pair("small", "objects/s beside s3torchconnector's", _rate_by_theirs, 6, at_least=True),
    *_pair("tiny", "objects/s beside s3torchconnector's", _rate_by_theirs, 8, at_least=True),
    Bar("late", "penstock_iterable", "objects/s, iterable", lambda ours, _: ours.rate, 5000, at_least=True, unit=""),
    Bar("late", "penstock_iterable", "objects/s beside s3torchconnector's", _rate_by_theirs, 100, at_least=True),
    Bar(
        "late",
        "penstock_map",
        "objects/s of map in batches of 256 beside iterable's",
        lambda ours, table: ratio(ours.rate, table["penstock_iterable"].rate),
        0.6,
        at_least=True,
    ),
    Bar(
        "late-busy",
        "penstock_iterable",
        "share of time computed",
        _used,
        90,
        at_least=True,
        unit="%",
    ),
    Bar(
        "big",
        "penstock_open",
        "time beside raw sockets'",
        lambda ours, table: ratio(ours.seconds, table["floor_big"].seconds),
        1.5,
    ),
    Bar("big", "penstock_open", "peak RSS beyond the object", lambda ours, _: ours.beyond_mib, 64, unit="MiB"),
    Bar(
        "big-tls",
        "penstock_open",
        "time beside obstore's",
        lambda ours, table: ratio(ours.seconds, table["obstore_get"].seconds),
        0.6,
    ),
    *_written("write"),
    *_written("write-tls"),
    *_decoded("decode"),
    *_decoded("decode-late"),
    *(_ordered(row, "time per sample", "sample_us", 2, "µs") for row in ORDERS),
    *(_ordered(row, "first batch after 90,000,000", "first_s", 1, "s") for row in ORDERS if row.startswith("100,")),
    Bar(
        "events",
        "penstock_asked",
        "CPU of asking whether anyone listens beside all of map's",
        lambda ours, table: [share * 100 for share in ratio(ours.cpu_us, table["penstock_map"].cpu_us)],
        1,
        unit="%",
    ),
)


# By condition: said where one of its bars is missed.
REASONS = {
    "small": "two threads share two cores and their caches with the server; what is left is Python per object on both.",
    "tiny": (
        "of 39 µs of CPU per object (map) some 19 are Python on the I/O thread (signing 3, loading and unloading a "
        "handle 5, the bookkeeping of a read 6); signing on the caller's thread is next, or libcurl driven by its "
        "socket callbacks."
    ),
    "late-busy": (
        "in full swing a step leaves 91 % to the training; the first batches, while connections are opened, cost some "
        "two points of a run of 40 steps. What is left is the I/O thread's Python, 30 µs per object."
    ),
    "big-tls": (
        "rounds spread threefold, and the best was 0.3: server, client and TLS on both sides are four loads on two "
        "cores. An earlier run of the same read path, on a quieter machine, had 0.42 (0.40 - 0.68)."
    ),
    "write": "copying into parts and SHA-256 are 0.8 CPU s per GiB; obstore's put sends without a digest.",
    "write-tls": "copying into parts and SHA-256 are 0.8 CPU s per GiB; obstore's put sends without a digest.",
    "decode": "two decoding threads, the I/O thread and the server share two cores.",
    "decode-late": "two decoding threads, the I/O thread and the server share two cores.",
}


def render(results: dict[str, Any], plots: Sequence[str]) -> str:
    """Return RESULTS.md for what ``results.json`` holds."""
    parts = [
        _head(results),
        *(_section(condition) for condition in results["conditions"]),
        *(_plain(section) for section in results["sections"]),
        _bars(results["conditions"], results["sections"]),
    ]
    if plots:
        parts.append("\n".join(["## Plots", "", *(f"![]({path})" for path in plots)]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(results: dict[str, Any]) -> str:
    machine, versions = results["machine"], results["versions"]
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    served = _SERVED if results["conditions"] else ""
    warning = "\n**A quick run: few objects, so its numbers mean nothing.**\n" if results["quick"] else ""
    return f"""# Results

Written by `{results["command"]}`; do not edit. {results["date"]}, commit {results["commit"]}.
{warning}
- {machine["cpu"]}, {machine["cores"]} cores, {machine["memory_gib"]} GiB; {machine["system"]}; load before the run \
{machine["load"]:.1f}.
- {told}.
- Median of {results["rounds"]} rounds (least - most); engines alternate, each time in a fresh process. Ratios are taken
  round by round. Opening and importing are not timed.{served}"""


_SERVED = """
- One nginx worker on loopback, serving a RAM disk by sendfile and storing uploads on it, shares the cores with one
  client process. Every client signs its requests; "floor" is raw blocking sockets, with no HTTP client.
  CPU and memory are the client's alone; CPU is what reading takes, without the computing beside it.
  Every body's length is checked, and the bytes of a sample; what was written is compared whole."""


def _plain(section: dict[str, Any]) -> str:
    columns = section["columns"]
    rows = [(row.name, [_spread(row[key]) for _, key in columns]) for row in map(Numbers, section["rows"])]
    return _drawn(section, [title for title, _ in columns], rows)


def _drawn(described: dict[str, Any], titles: list[str], rows: list[tuple[str, list[str]]]) -> str:
    lines = [f"## {described['name']}: {described['title']}", "", "| | " + " | ".join(titles) + " |"]
    lines.append("|---" * (len(titles) + 1) + "|")
    return "\n".join([*lines, *(" | ".join([f"| {name}", *cells]) + " |" for name, cells in rows)])


def _section(condition: dict[str, Any]) -> str:
    rows = [Row(row) for row in condition["rows"]]
    table = _table(condition)
    columns = _LARGE if condition["load"]["count"] == 1 else _SMALL
    if condition["compute_s"] or any(any(row.used) for row in rows):
        columns = (*columns, ("time computed, %", lambda row, _: row.used))
    cells = [(row.name, [_cell(column, row, table) for _, column in columns]) for row in rows]
    return _drawn(condition, [title for title, _ in columns], cells)


def _cell(column: Callable[[Row, Table], Values], row: Row, table: Table) -> str:
    try:
        return _spread(column(row, table))
    except KeyError:
        return ""


_SMALL: tuple[tuple[str, Callable[[Row, Table], Values]], ...] = (
    ("objects/s", lambda row, _: row.rate),
    ("CPU µs/object", lambda row, _: row.cpu_us),
    ("peak RSS MiB", lambda row, _: row.peak_mib),
    ("CPU x floor", _cpu_by_floor),
    ("objects/s x its like in s3torchconnector", _rate_by_theirs),
)
_LARGE: tuple[tuple[str, Callable[[Row, Table], Values]], ...] = (
    ("seconds", lambda row, _: row.seconds),
    ("CPU s", lambda row, _: row.cpu_s),
    ("peak RSS MiB", lambda row, _: row.peak_mib),
    ("seconds x floor", lambda row, table: ratio(row.seconds, _first(table, "floor").seconds)),
    ("seconds x obstore", lambda row, table: ratio(row.seconds, _first(table, "obstore").seconds)),
)


def _bars(conditions: list[dict[str, Any]], sections: list[dict[str, Any]]) -> str:
    tables: dict[str, Table] = {condition["name"]: _table(condition) for condition in conditions}
    tables |= {section["name"]: {row["name"]: Numbers(row) for row in section["rows"]} for section in sections}
    lines = [line for bar in BARS if bar.condition in tables and (line := bar.line(tables[bar.condition]))]
    if not lines:
        return ""
    missed = {bar.condition for bar in BARS if bar.condition in tables and "missed" in bar.line(tables[bar.condition])}
    whys = [f"- {name}: {REASONS[name]}" for name in REASONS if name in missed]
    table = ["## Bars", "", "| what | bar | measured | |", "|---|---|---|---|", *lines]
    return "\n".join([*table, *(["", "Why those are missed, and what would meet them:", "", *whys] if whys else [])])


def _table(condition: dict[str, Any]) -> Table:
    rows = [Row(row) for row in condition["rows"]]
    return {row.script: row for row in reversed(rows)}


def _spread(values: Values) -> str:
    if len(values) == 1:
        return _number(values[0])
    return f"{_number(median(values))} ({_number(min(values))} - {_number(max(values))})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
