"""One engine's rounds and what is derived from each; a number and its spread as the report writes them. Pure."""

from __future__ import annotations

from statistics import median
from typing import Any

__all__ = ["Numbers", "Row", "Table", "Values", "by_script", "number", "ratio", "spread"]

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
        self._rounds = rounds

    def __getitem__(self, key: str) -> Values:
        """Return one number of each round; KeyError where its script tells none of that name."""
        return [each[key] for each in self._rounds]

    @property
    def grown_mib(self) -> Values:
        """Peak RSS beyond what the process had before and what it was asked for; of ranks the one that grew most."""
        return [each / _MIB for each in self["beyond"]]


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


def by_script(condition: dict[str, Any]) -> dict[str, Row]:
    """Return a condition's rows by script."""
    rows = [Row(row) for row in condition["rows"]]
    return {row.script: row for row in reversed(rows)}


def spread(values: Values) -> str:
    """Return the median, and least and most where there is more than one."""
    if len(values) == 1:
        return number(values[0])
    return f"{number(median(values))} ({number(min(values))} - {number(max(values))})"


def number(value: float) -> str:
    """Return three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
