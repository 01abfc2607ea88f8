"""Self-contained page of a benchmark: rates beside the machine's limits, as SVG."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from html import escape
from math import log10
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli.bench.verdict import epoch
from penstock.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cli.bench.machine import Machine
    from penstock.cli.bench.result import Result

__all__ = ["amount", "page", "rate"]

_WIDTH, _ROW = 860, 26  # units of the plot
# Widths in these units: maximum average of a letter, and a rate.
_LETTER, _SPEED = 8.5, 90
_TICKS = tuple(each * unit for unit in (1 << 10, 1 << 20, 1 << 30) for each in (1.0, 10.0, 100.0))[1:]  # bytes/s
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#1f2328}"
    "svg{display:block;width:100%;height:auto}svg text{font-size:13px}"
    "svg .speed{paint-order:stroke;stroke:#fff;stroke-width:4px}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #d0d7de}"
    "td:first-child,th:first-child,td:last-child,th:last-child{text-align:left}"
)


class _Bar(NamedTuple):
    label: str
    bytes_per_s: float
    limit: bool


def amount(number: float, unit: str) -> str:
    """Return a number with its unit: three digits, or all digits of a large number."""
    text = f"{number:,.0f}" if number >= 100 else f"{number:.3g}"  # noqa: PLR2004  three digits
    return f"{text} {unit}"


def rate(bytes_per_s: float) -> str:
    """Return a readable rate in bytes per second; empty for 0."""
    if not bytes_per_s:
        return ""
    for unit in ("B/s", "KiB/s", "MiB/s"):
        if bytes_per_s < 1024:  # noqa: PLR2004  factor between units
            return amount(bytes_per_s, unit)
        bytes_per_s /= 1024
    return amount(bytes_per_s, "GiB/s")


def page(url: str, machine: Machine, results: Sequence[Result]) -> str:
    """Return the page as HTML, with the time, the machine and the version."""
    made = f"{datetime.now(UTC).isoformat(timespec='seconds')}, Penstock {VERSION} on {platform.node()}"
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
        f"{machine.cores:.3g} processors and {memory}. {escape(made)}.</p><p>{escape(epoch(results))}</p>{_plot(bars)}"
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
    """Return rates as bars with a logarithmic axis, because limits are often a hundred times as large."""
    if not bars:
        return ""
    most = max(each.bytes_per_s for each in bars)
    ticks = [each for each in _TICKS if each <= max(most, _TICKS[1])]
    left = 16 + _LETTER * max(len(each.label) for each in bars)
    scale = (_WIDTH - left - _SPEED) / log10(max(most, ticks[-1]) / _TICKS[0])

    def x(speed: float) -> float:
        return left + scale * log10(max(speed / _TICKS[0], 1.02))

    bottom = _ROW * len(bars)
    found = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 40}" role="img">']
    found.append("<title>bytes per second, on a logarithmic scale</title>")
    for tick in ticks:
        at = left + scale * log10(tick / _TICKS[0])
        found.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{bottom + 4}" stroke="#8c959f" stroke-width=".5"/>')
        found.append(f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{rate(tick)}</text>')
    found.append(f'<text x="{left}" y="{bottom + 36}">bytes per second, on a logarithmic scale</text>')
    for at, (label, speed, limit) in enumerate(bars):
        top, middle, end = at * _ROW, at * _ROW + 17, x(speed)
        found.append(f'<text x="{left - 8}" y="{middle}" text-anchor="end">{escape(label)}</text>')
        colour = "#afb8c1" if limit else "#1f6feb"
        found.append(f'<rect x="{left}" y="{top + 3}" width="{end - left:.1f}" height="{_ROW - 8}" fill="{colour}"/>')
        found.append(f'<text class="speed" x="{end + 8:.1f}" y="{middle}">{rate(speed)}</text>')
    return "".join([*found, "</svg>"])
