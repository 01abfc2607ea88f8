"""``penstock doctor``: step-by-step examination of a store, with remedies."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from dataclasses import asdict
from typing import Annotated

from typer import Argument, Option, Typer

from penstock.cli.options import JsonLines, Store, with_store
from penstock.cli.output import code_of, write_row

__all__ = ["app", "doctor"]

app = Typer()
_SIGNS = {"passed": "✓", "failed": "✗", "warned": "!", "skipped": "-"}


@app.command(epilog="Example: penstock doctor s3://bucket/runs/")
@with_store
def doctor(
    url: Annotated[str, Argument(metavar="URL", help="A bucket, or a prefix that may be written below.")],
    *,
    read_only: Annotated[bool, Option("--read-only", help="Write nothing; read an object there.")] = False,
    json: JsonLines = False,
    store: Store,
) -> None:
    """Examine a store step by step: host, TLS, clock, credentials, then each verb. What fails says what to do.

    Writes about 6 MiB into a new folder below URL, and deletes them. The exit code is that of the first failure.
    """
    # Imported late: no other command needs the examination.
    from penstock.cli.doctor import examine

    code = 0
    for finding in examine(url, store, read_only=read_only):
        record = asdict(finding)
        del record["error"]
        milliseconds = f"{finding.elapsed_s * 1000:>6,.0f} ms"
        write_row(
            record, f"{_SIGNS[finding.outcome]} {finding.name:<25} {milliseconds}  {finding.detail}", as_json=json
        )
        if finding.outcome == "failed" and not code:
            code = code_of(finding.error)
    if code:
        raise SystemExit(code)
