"""A benchmark as one page that needs nothing from elsewhere: rates beside the machine's limits, as SVG."""

from __future__ import annotations

from html import escape
from math import log10
from typing import TYPE_CHECKING, NamedTuple

from penstock.bench.verdict import epoch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.bench.machine import Machine
    from penstock.bench.result import Result

__all__ = ["amount", "page", "rate"]

_WIDTH, _LABEL, _ROW = 860, 170, 26  # pixels
_LEAST = 1e4  # bytes per second: where the scale begins
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#1f2328}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #d0d7de}"
    "td:first-child,th:first-child,td:last-child,th:last-child{text-align:left}"
)


class _Bar(NamedTuple):
    label: str
    bytes_per_s: float
    limit: bool


def amount(number: float, unit: str) -> str:
    """Return a number with its unit: three digits, or all of a large one."""
    text = f"{number:,.0f}" if number >= 100 else f"{number:.3g}"  # noqa: PLR2004  three digits
    return f"{text} {unit}"


def rate(bytes_per_s: float) -> str:
    """Return bytes per second for people; empty for none."""
    if not bytes_per_s:
        return ""
    for unit in ("B/s", "KiB/s", "MiB/s"):
        if bytes_per_s < 1024:  # noqa: PLR2004  what the units are made of
            return amount(bytes_per_s, unit)
        bytes_per_s /= 1024
    return amount(bytes_per_s, "GiB/s")


def page(url: str, machine: Machine, results: Sequence[Result]) -> str:
    """Return the page as HTML."""
    bars = [_Bar(each.name, each.bytes_per_s, limit=False) for each in results if each.bytes_per_s]
    limits = {
        f"network ({machine.network})": machine.network_bytes_per_s,
        "one connection, loopback": machine.socket_bytes_per_s,
        "copying in memory": machine.copy_bytes_per_s,
    }
    bars += [_Bar(label, speed, limit=True) for label, speed in limits.items() if speed]
    rows = "".join(_row(each) for each in results)
    memory = f"{machine.memory_bytes / (1 << 30):.3g} GiB of memory"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>penstock bench {escape(url)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>penstock bench</h1><p><code>{escape(url)}</code> from a machine with "
        f"{machine.cores:.3g} processors and {memory}.</p><p>{escape(epoch(results))}</p>{_plot(bars)}"
        f"<table><tr><th>step</th><th>a second</th><th>bytes</th><th>first byte p50</th><th>p99</th><th>processors</th>"
        f"<th>limited by</th></tr>{rows}</table></body></html>\n"
    )


def _row(result: Result) -> str:
    if result.outcome != "measured":
        return f'<tr><td>{escape(result.name)}</td><td colspan="6">{result.outcome}: {escape(result.detail)}</td></tr>'
    cells = (
        result.name,
        amount(result.objects_per_s, ""),
        rate(result.bytes_per_s),
        *(f"{each * 1000:.3g} ms" if each else "" for each in (result.first_byte_p50_s, result.first_byte_p99_s)),
        f"{result.cores:.2f}",
        result.binds,
    )
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _plot(bars: Sequence[_Bar]) -> str:
    """Return rates as bars on a logarithmic scale: limits are often a hundred times as large."""
    if not bars:
        return ""
    most = max(each.bytes_per_s for each in bars)
    full = max(log10(most / _LEAST), 1.0)
    found = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_ROW * len(bars)}" role="img">']
    found.append("<title>bytes per second, on a logarithmic scale</title>")
    for at, (label, speed, limit) in enumerate(bars):
        width = (_WIDTH - _LABEL - 120) * max(log10(max(speed, _LEAST) / _LEAST), 0.01) / full
        top, middle = at * _ROW, at * _ROW + 17
        found.append(f'<text x="{_LABEL - 8}" y="{middle}" text-anchor="end" font-size="13">{escape(label)}</text>')
        colour = "#d0d7de" if limit else "#1f6feb"
        found.append(f'<rect x="{_LABEL}" y="{top + 3}" width="{width:.1f}" height="{_ROW - 8}" fill="{colour}"/>')
        found.append(f'<text x="{_LABEL + width + 8:.1f}" y="{middle}" font-size="13">{rate(speed)}</text>')
    return "".join([*found, "</svg>"])
