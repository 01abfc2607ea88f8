"""``penstock doctor``: step-by-step examination of a store, with remedies."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict
from typing import Annotated

from typer import Argument, Option, Typer

from penstock.cli.options import JsonLines, Store, with_store
from penstock.cli.output import code_of, write_row
from penstock.cli.screen import Cell, terminal

app = Typer()
_SIGNS = {"passed": "✓", "failed": "✗", "warned": "!", "skipped": "-"}
_STYLES = {"passed": "green", "failed": "red", "warned": "yellow", "skipped": "dim"}


@app.command(
    epilog="Examples: penstock doctor s3://bucket/runs/; penstock doctor --read-only --speed s3://bucket/train/"
)
@with_store
def doctor(
    url: Annotated[str, Argument(metavar="URL", help="A bucket, or a prefix that may be written below.")],
    *,
    read_only: Annotated[bool, Option("--read-only", help="Write nothing; read an object there.")] = False,
    speed: Annotated[
        bool, Option("--speed", help="Measure 3 s each: keys listed, small objects and large ones read.")
    ] = False,
    json: JsonLines = False,
    store: Store,
) -> None:
    """Examine a store step by step: host, TLS, clock, credentials, then each verb. Failures say what to do.

    Writes about 6 MiB below URL, and deletes them. With --speed, writes another 41 MiB if URL has no objects to read.
    The exit code is that of the first failure.
    """
    # Imported late: no other command needs the examination.
    from penstock.cli.doctor import examine

    code, screen, counts = 0, terminal(as_json=json), Counter[str]()
    with nullcontext() if screen is None else screen.waiting(f"… examining {url}"):
        for finding in examine(url, store, read_only=read_only, speed=speed):
            counts[finding.outcome] += 1
            sign, milliseconds = _SIGNS[finding.outcome], f"{finding.elapsed_s * 1000:,.0f} ms"
            if screen is None:
                record = asdict(finding)
                del record["error"]
                write_row(record, f"{sign} {finding.name:<25} {milliseconds:>9}  {finding.detail}", as_json=json)
            else:
                style = _STYLES[finding.outcome]
                name, detail = Cell(finding.name, "bold", 24), Cell(finding.detail, style if style == "red" else "")
                screen.row(Cell(sign, style, 1), name, Cell(milliseconds, "dim", 9, right=True), detail)
            if finding.outcome == "failed" and not code:
                code = code_of(finding.error)
    if screen is not None:
        screen.title(", ".join(f"{counts[each]} {each}" for each in _SIGNS if counts[each]))
    if code:
        raise SystemExit(code)
