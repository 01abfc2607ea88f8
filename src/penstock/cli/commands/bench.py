"""``penstock bench``: performance of a bucket and the way to it; a line for each step, and a page with plots."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import platform
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from math import log10
from typing import TYPE_CHECKING, Annotated, NamedTuple

from typer import Argument, Option, Typer

from penstock.cli.options import JsonLines, Store, with_options, with_store
from penstock.cli.output import (
    check_page,
    code_of,
    harmless_lines,
    json_line,
    readable,
    save_page,
    share_bar,
    write,
)
from penstock.cli.screen import Cell, Screen, terminal
from penstock.errors import PenstockError
from penstock.version import VERSION

if TYPE_CHECKING:
    from penstock.cli.bench import BenchOptions, Machine, Result

__all__ = ["amount", "app", "bench", "page", "rate"]

app = Typer()
_SIGNS = {"measured": "✓", "failed": "✗", "skipped": "-"}
_STYLES = {"measured": "green", "failed": "red", "skipped": "dim"}
# Sizes in units of the plot; a letter is at most so wide on average, and a rate.
_WIDTH, _ROW, _LETTER, _SPEED = 860, 26, 8.5, 90
# Bytes per second with a line in the plot.
_TICKS = tuple(each * unit for unit in (1 << 10, 1 << 20, 1 << 30) for each in (1.0, 10.0, 100.0))[1:]
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#1f2328}"
    "svg{display:block;width:100%;height:auto}svg text{font-size:13px}"
    "svg .speed{paint-order:stroke;stroke:#fff;stroke-width:4px}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #d0d7de}"
    "td:first-child,th:first-child,td:last-child,th:last-child{text-align:left}"
)


def _how(
    *,
    seconds: Annotated[float, Option(help="Of each step.")] = 5.0,
    read_only: Annotated[bool, Option("--read-only", help="Write nothing.")] = False,
    transform: Annotated[
        str, Option(metavar="MODULE:NAME", help="Decode samples with this function; default: do not.")
    ] = "",
) -> "BenchOptions":
    from penstock.cli.bench import BenchOptions

    return BenchOptions(seconds=seconds, read_only=read_only, transform=transform)


def _output(
    *,
    json: JsonLines = False,
    html: Annotated[str | None, Option(metavar="FILE", help="Write a page with plots.")] = None,
) -> tuple[bool, str | None]:
    return json, html


@app.command(
    epilog="Examples: penstock bench s3://bucket/train/; penstock bench --read-only --transform train:decode "
    "--html bench.html s3://bucket/train/"
)
@with_store
@with_options("how", _how)
@with_options("output", _output)
def bench(
    url: Annotated[str, Argument(metavar="URL", help="A bucket, a prefix or an object.")],
    *,
    how: "BenchOptions",
    output: tuple[bool, str | None],
    store: Store,
) -> None:
    """Measure a store from here: list, write, read small and large objects, decode; and what limits each.

    Reads your objects below URL: whole ones of up to 1 MiB, ranges of those of 16 MiB or more; and where there are
    none, its own. Writes at most 2,000 objects of 100 KiB and one of 256 MiB to keys below URL that begin with
    penstock-bench-, and deletes them, also after Ctrl-C. The store charges for the requests.
    """
    from penstock.cli.bench import Result, epoch, measure

    as_json, html = output
    if html is not None:
        # Before minutes of measuring.
        check_page(html)
    results: list[Result] = []
    screen, machine = terminal(as_json=as_json), None
    waiting = nullcontext() if screen is None else screen.waiting(f"… measuring, {how.seconds:g} s a step")
    with closing(measure(url, store, how)) as steps, waiting:
        for found in steps:
            if isinstance(found, Result):
                results.append(found)
                if screen is not None:
                    _show(screen, found)
                else:
                    write(_record(found) if as_json else harmless_lines(_line(found)) + "\n")
                continue
            machine, whole = found, epoch(results)
            if as_json:
                write(json_line({"name": "machine", **asdict(found), "epoch": whole}) + "\n")
            elif screen is None:
                write(harmless_lines("\n".join(filter(None, [_machine(found), whole]))) + "\n")
            if html is not None:
                save_page(html, page(url, found, results))
    if screen is not None and machine is not None:
        _show_machine(screen, machine, results)
    failed = next((each for each in results if each.outcome == "failed"), None)
    if failed is not None:
        raise SystemExit(code_of(failed.error))


def _line(result: "Result") -> str:
    sign = _SIGNS[result.outcome]
    if result.outcome != "measured":
        return f"{sign} {result.name:<18} {result.detail}"
    objects, moved, detail = _measured(result)
    line = f"{sign} {result.name:<18} {objects:>18} {moved:>12}  {detail}"
    return f"{line}\n  {'':<18} limited by {result.binds}" if result.binds else line


def _measured(result: "Result") -> tuple[str, str, str]:
    """Return the rate in objects, that in bytes, and the rest, in words."""
    what = {"list": "keys/s", "decode": "samples/s", "decode in threads": "samples/s"}.get(result.name, "objects/s")
    if result.name == "read large":
        what = "ranges/s"
    waits = ""
    if result.first_byte_p50_s:
        waits = f"first byte {result.first_byte_p50_s * 1000:.3g} ms (p99 {result.first_byte_p99_s * 1000:.3g}); "
    detail = f"{waits}{result.cores:.2f} processors; {result.detail}"
    return amount(result.objects_per_s, what), rate(result.bytes_per_s), detail


def _show(screen: Screen, result: "Result") -> None:
    """Print a step on a terminal."""
    sign, style = _SIGNS[result.outcome], _STYLES[result.outcome]
    head = Cell(sign, style, 1), Cell(result.name, "bold", 17)
    if result.outcome != "measured":
        screen.row(*head, Cell(result.detail, "red" if result.outcome == "failed" else "dim"))
        return
    objects, moved, detail = _measured(result)
    screen.row(*head, Cell(objects, "", 18, right=True), Cell(moved, "bold cyan", 12, right=True), Cell(detail, "dim"))
    if result.binds:
        screen.row(Cell("", "", 1), Cell("", "", 17), Cell(f"limited by {result.binds}", "yellow"))


def _show_machine(screen: Screen, machine: "Machine", results: "Sequence[Result]") -> None:
    """Print the rates beside the limits of the machine, as bars, and what follows for an epoch."""
    from penstock.cli.bench import epoch

    bars = _bars(machine, results)
    screen.title("Bytes a second, on a logarithmic scale")
    wide = max((len(each.label) for each in bars), default=1)
    most = log10(max((each.bytes_per_s for each in bars), default=_TICKS[1]) / _TICKS[0])
    for each in bars:
        drawn = share_bar(max(log10(max(each.bytes_per_s / _TICKS[0], 1.0)) / most, 0.02), 40)
        screen.row(
            Cell(each.label, "", wide), Cell(drawn, "dim" if each.limit else "cyan", 40), Cell(rate(each.bytes_per_s))
        )
    for text in filter(None, ("", _machine(machine), epoch(results))):
        screen.row(Cell(text))


def _machine(machine: "Machine") -> str:
    speed = rate(machine.network_bytes_per_s) or "speed unknown"
    network = f"; network {machine.network} ({speed})" if machine.network else ""
    return (
        f"This machine: {machine.cores:.3g} processors, {readable(machine.memory_bytes)} of memory free{network}; one "
        f"connection within it {rate(machine.socket_bytes_per_s)}, copies in memory {rate(machine.copy_bytes_per_s)}."
    )


def _record(result: "Result") -> str:
    record = asdict(result)
    error = record.pop("error")
    record |= {"objects_per_s": result.objects_per_s, "bytes_per_s": result.bytes_per_s, "cores": result.cores}
    if error is not None:
        record["error"] = type(result.error).__name__ if isinstance(result.error, PenstockError) else "transform"
    return json_line(record) + "\n"


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


def page(url: str, machine: "Machine", results: "Sequence[Result]") -> str:
    """Return the page as HTML, with the time, the machine and the version."""
    from penstock.cli.bench import epoch

    made = f"{datetime.now(UTC).isoformat(timespec='seconds')}, Penstock {VERSION} on {platform.node()}"
    rows, plot = "".join(_row(each) for each in results), _plot(_bars(machine, results))
    memory = f"{machine.memory_bytes / (1 << 30):.3g} GiB of memory"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>penstock bench {escape(url)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>penstock bench</h1><p><code>{escape(url)}</code> from a machine with "
        f"{machine.cores:.3g} processors and {memory}. {escape(made)}.</p><p>{escape(epoch(results))}</p>{plot}"
        f"<table><tr><th>step</th><th>a second</th><th>bytes</th><th>first byte p50</th><th>p99</th><th>processors</th>"
        f"<th>limited by</th></tr>{rows}</table></body></html>\n"
    )


def _bars(machine: "Machine", results: "Sequence[Result]") -> list[_Bar]:
    """Return the rates of the steps, and those of the machine that limit them."""
    bars = [_Bar(each.name, each.bytes_per_s, limit=False) for each in results if each.bytes_per_s]
    limits = {
        f"network ({machine.network})": machine.network_bytes_per_s,
        "one connection, loopback": machine.socket_bytes_per_s,
        "copying in memory": machine.copy_bytes_per_s,
    }
    return bars + [_Bar(label, speed, limit=True) for label, speed in limits.items() if speed]


def _row(result: "Result") -> str:
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
