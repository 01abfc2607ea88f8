"""``penstock bench``: performance of a bucket and the network path to it; a line for each step as it ends."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import json
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import penstock as ps
from penstock.cli.exits import CODES, write
from penstock.cli.page import check, save
from penstock.cli.store import with_options, with_store
from penstock.cli.text import harmless, readable
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable

    import typer

    from penstock.cli.bench import BenchOptions, Machine, Result

__all__ = ["COMMANDS"]

_SIGNS = {"measured": "✓", "failed": "✗", "skipped": "-"}


def bench(app: "typer.Typer") -> None:
    """Add ``bench``."""
    import typer

    @app.command(
        epilog="Examples: penstock bench s3://bucket/train/; penstock bench --read-only --transform train:decode "
        "--html bench.html s3://bucket/train/"
    )
    @with_store
    @_with_how
    @_with_output
    def bench(
        url: Annotated[str, typer.Argument(metavar="URL", help="A bucket, a prefix or an object.")],
        *,
        how: "BenchOptions",
        output: tuple[bool, str | None],
        store: ps.StoreOptions | str,
    ) -> None:
        """Measure a store from here: list, write, read small and large objects, decode; and what limits each.

        Reads your objects below URL: whole ones of up to 1 MiB, ranges of those of 16 MiB or more; and where there are
        none, its own. Writes at most 2,000 objects of 100 KiB and one of 256 MiB to keys below URL that begin with
        penstock-bench-, and deletes them, also after Ctrl-C. The store charges for the requests.
        """
        _run(url, how, output, store)


def _with_how(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the options of the measurement to ``command``, which receives them as the keyword ``how``."""
    from typer import Option

    def how(
        *,
        seconds: Annotated[float, Option(help="Of each step.")] = 5.0,
        read_only: Annotated[bool, Option("--read-only", help="Write nothing.")] = False,
        transform: Annotated[
            str, Option(metavar="MODULE:NAME", help="Decode samples with this function; default: do not.")
        ] = "",
    ) -> "BenchOptions":
        from penstock.cli.bench import BenchOptions

        return BenchOptions(seconds=seconds, read_only=read_only, transform=transform)

    return with_options("how", how)(command)


def _with_output(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the output options to ``command``, which receives them as the keyword ``output``."""
    from typer import Option

    def output(
        *,
        json: Annotated[bool, Option("--json", help="One JSON object per line.")] = False,
        html: Annotated[str | None, Option(metavar="FILE", help="Write a page with plots.")] = None,
    ) -> tuple[bool, str | None]:
        return json, html

    return with_options("output", output)(command)


def _run(url: str, how: "BenchOptions", output: tuple[bool, str | None], store: ps.StoreOptions | str) -> None:
    from penstock.cli.bench import Result, measure
    from penstock.cli.bench.page import page

    as_json, html = output
    if html is not None:
        check(html)  # before minutes of measuring
    results: list[Result] = []
    with closing(measure(url, store, how)) as steps:
        for found in steps:
            if isinstance(found, Result):
                results.append(found)
                write(_record(found) if as_json else harmless(_line(found)) + "\n")
                continue
            write(_machine_record(found, results) if as_json else harmless(_machine(found, results)) + "\n")
            if html is not None:
                save(html, page(url, found, results))
    failed = next((each for each in results if each.outcome == "failed"), None)
    if failed is not None:
        raise SystemExit(next((code for kind, code in CODES.items() if isinstance(failed.error, kind)), 1))


def _line(result: "Result") -> str:
    from penstock.cli.bench.page import amount, rate

    sign = _SIGNS[result.outcome]
    if result.outcome != "measured":
        return f"{sign} {result.name:<18} {result.detail}"
    what = {"list": "keys/s", "decode": "samples/s", "decode in threads": "samples/s"}.get(result.name, "objects/s")
    if result.name == "read large":
        what = "ranges/s"
    rates = f"{amount(result.objects_per_s, what):>18} {rate(result.bytes_per_s):>12}"
    waits = ""
    if result.first_byte_p50_s:
        waits = f"first byte {result.first_byte_p50_s * 1000:.3g} ms (p99 {result.first_byte_p99_s * 1000:.3g}); "
    line = f"{sign} {result.name:<18} {rates}  {waits}{result.cores:.2f} processors; {result.detail}"
    return f"{line}\n  {'':<18} limited by {result.binds}" if result.binds else line


def _machine(machine: "Machine", results: "list[Result]") -> str:
    from penstock.cli.bench.page import rate
    from penstock.cli.bench.verdict import epoch

    speed = rate(machine.network_bytes_per_s) or "speed unknown"
    network = f"; network {machine.network} ({speed})" if machine.network else ""
    words = (
        f"This machine: {machine.cores:.3g} processors, {readable(machine.memory_bytes)} of memory free{network}; one "
        f"connection within it {rate(machine.socket_bytes_per_s)}, copies in memory {rate(machine.copy_bytes_per_s)}."
    )
    return "\n".join(filter(None, [words, epoch(results)]))


def _record(result: "Result") -> str:
    record = asdict(result)
    error = record.pop("error")
    record |= {"objects_per_s": result.objects_per_s, "bytes_per_s": result.bytes_per_s, "cores": result.cores}
    if error is not None:
        record["error"] = type(result.error).__name__ if isinstance(result.error, PenstockError) else "transform"
    return json.dumps(record) + "\n"


def _machine_record(machine: "Machine", results: "list[Result]") -> str:
    from penstock.cli.bench.verdict import epoch

    return json.dumps({"name": "machine", **asdict(machine), "epoch": epoch(results)}) + "\n"


COMMANDS = {"bench": bench}
