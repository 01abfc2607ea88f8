"""Results to RESULTS.md: a table for each condition, then each bar with met or missed. Pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from benchmarks.bars import BARS, REASONS, cpu_by_floor, first, rate_by_theirs
from benchmarks.rows import Numbers, Row, Table, Values, by_script, ratio, spread

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["encode", "render"]


def render(results: dict[str, Any]) -> str:
    """Return RESULTS.md for what ``results.json`` holds."""
    parts = [
        _head(results),
        *(_section(condition, results["rounds"]) for condition in results["conditions"]),
        *(_plain(section) for section in results["sections"]),
        _bars(results["conditions"], results["sections"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def encode(results: dict[str, Any]) -> str:
    """Return ``results.json``: a line for each round of a row, so that a new run is a readable difference."""
    text = json.dumps(results, indent=1)
    return re.sub(r"[\[{][^\[\]{}]*[\]}]", lambda inner: re.sub(r"\n\s*", " ", inner[0]), text) + "\n"


def _head(results: dict[str, Any]) -> str:
    machine, versions = results["machine"], results["versions"]
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    served = _SERVED if results["conditions"] else ""
    remarks = "".join(f"\n- {each}" for each in results.get("remarks", ()))  # of results that are of several runs
    warning = "\n**A quick run: few objects, so its numbers mean nothing.**\n" if results["quick"] else ""
    return f"""# Results

Written by `{results["command"]}`; do not edit. {results["date"]}, commit {results["commit"]}.
{warning}
- {machine["cpu"]}, {machine["cores"]} cores, {machine["memory_gib"]} GiB; {machine["system"]}; load before the run \
{machine["load"]:.1f}.
- {told}.
- Median of {results["rounds"]} rounds (least - most); engines alternate, each time in a fresh process. Ratios are taken
  round by round. Opening and importing are not timed, and free memory is touched before: a virtual machine's host may
  have taken it back.{served}{remarks}"""


_SERVED = """
- One nginx worker on loopback, serving a RAM disk by sendfile and storing uploads on it, shares the cores with one
  client process. Every client signs its requests; "floor" is raw blocking sockets, with no HTTP client.
  CPU and memory are the client's alone; CPU is what reading takes, worker processes included, without the computing
  beside it; memory is the main process's.
  Every body's length is checked, and the bytes of a sample; what was written is compared whole. A state of 1 GiB is
  20 tensors of 16 MiB, 11 of 64 MiB and 120 of 4 to 16 KiB; each is compared bit for bit after the stopwatch, in what
  was loaded and in what was saved."""


def _plain(section: dict[str, Any]) -> str:
    columns = section["columns"]
    rows = [(row.name, [spread(row[key]) for _, key in columns]) for row in map(Numbers, section["rows"])]
    return _drawn(section, [title for title, _ in columns], rows)


def _drawn(described: dict[str, Any], titles: list[str], rows: list[tuple[str, list[str]]]) -> str:
    lines = [f"## {described['name']}: {described['title']}", "", "| | " + " | ".join(titles) + " |"]
    lines.append("|---" * (len(titles) + 1) + "|")
    return "\n".join([*lines, *(" | ".join([f"| {name}", *cells]) + " |" for name, cells in rows)])


def _section(condition: dict[str, Any], rounds: int) -> str:
    rows = [Row(row) for row in condition["rows"]]
    table = by_script(condition)
    columns = _LARGE if condition["load"]["count"] == 1 else _SMALL
    if condition["load"]["state"]:
        columns = _STATE
    if condition["compute_s"] or any(any(row.used) for row in rows):
        columns = (*columns, ("time computed, %", lambda row, _: row.used))
    drawn = [(title, [_cell(column, row, table) for row in rows]) for title, column in columns]
    drawn = [(title, cells) for title, cells in drawn if any(cells)]
    by_row = [(row.name, [cells[place] for _, cells in drawn]) for place, row in enumerate(rows)]
    fewer = len(rows[0].seconds)
    title = condition["title"] + (f" ({fewer} rounds)" if fewer < rounds else "")
    return _drawn({**condition, "title": title}, [title for title, _ in drawn], by_row)


def _cell(column: Callable[[Row, Table], Values], row: Row, table: Table) -> str:
    try:
        return spread(column(row, table))
    except KeyError:
        return ""


_SMALL: tuple[tuple[str, Callable[[Row, Table], Values]], ...] = (
    ("objects/s", lambda row, _: row.rate),
    ("CPU µs/object", lambda row, _: row.cpu_us),
    ("peak RSS MiB", lambda row, _: row.peak_mib),
    ("CPU x floor", cpu_by_floor),
    ("objects/s x its like in s3torchconnector", rate_by_theirs),
)
_LARGE: tuple[tuple[str, Callable[[Row, Table], Values]], ...] = (
    ("seconds", lambda row, _: row.seconds),
    ("CPU s", lambda row, _: row.cpu_s),
    ("peak RSS MiB", lambda row, _: row.peak_mib),
    ("seconds x floor", lambda row, table: ratio(row.seconds, first(table, "floor").seconds)),
    ("seconds x obstore", lambda row, table: ratio(row.seconds, first(table, "obstore").seconds)),
)
_STATE = (
    *_LARGE[:3],
    ("peak MiB beyond process and state", lambda row, _: row.grown_mib),
    *_LARGE[3:],
    ("speed x its like", rate_by_theirs),
    ("waiting for a save, s", lambda row, _: row["waited_s"]),
    ("a background save returns after, s", lambda row, _: row["returned_s"]),
    ("steps lose, % of the waiting", lambda row, _: row["lost_percent"]),
)


def _bars(conditions: list[dict[str, Any]], sections: list[dict[str, Any]]) -> str:
    tables: dict[str, Table] = {condition["name"]: by_script(condition) for condition in conditions}
    tables |= {section["name"]: {row["name"]: Numbers(row) for row in section["rows"]} for section in sections}
    lines = [line for bar in BARS if bar.condition in tables and (line := bar.line(tables[bar.condition]))]
    if not lines:
        return ""
    missed = {bar.condition for bar in BARS if bar.condition in tables and "missed" in bar.line(tables[bar.condition])}
    whys = [f"- {name}: {REASONS[name]}" for name in REASONS if name in missed]
    table = ["## Bars", "", "| what | bar | measured | |", "|---|---|---|---|", *lines]
    return "\n".join([*table, *(["", "Why those are missed, and what would meet them:", "", *whys] if whys else [])])
