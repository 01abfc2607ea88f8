"""``penstock presign``: a URL to read or write one object without credentials."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import sys
from typing import Annotated

from typer import Argument, Option, Typer

import penstock as ps
from penstock.cli.options import Store, seconds, with_store
from penstock.cli.output import json_line, moment, write
from penstock.errors import Unusable

app = Typer()


@app.command(
    epilog="Examples: penstock presign --expires 7d s3://bucket/model.pt; curl -T model.pt "
    '"$(penstock presign --method PUT s3://bucket/model.pt)"'
)
@with_store
def presign(
    url: Annotated[str, Argument(metavar="URL", help="One object; it need not exist.")],
    *,
    method: Annotated[str, Option(metavar="GET|PUT", help="What the address allows.")] = "GET",
    expires: Annotated[
        str | None, Option(metavar="TIME", help="Seconds, or 15m, 12h, 7d. Default: 1h, or what the credentials have.")
    ] = None,
    json: Annotated[bool, Option("--json", help="One JSON object, with what to send and when it ends.")] = False,
    store: Store,
) -> None:
    """Print a URL at which anyone may read or write one object for a limited time. No request is made.

    It needs keys that sign: S3's and OSS's, an HMAC key or a service account's file for Google Cloud Storage, the
    account's key for Azure. Tokens and shared access signatures are refused.
    """
    expires_s = None if expires is None else seconds(expires, "--expires")
    verb = method.upper()
    if verb not in ("GET", "PUT"):
        raise Unusable(f"--method {method}: GET or PUT")
    signed = ps.presign(url, method="GET" if verb == "GET" else "PUT", expires_s=expires_s, store=store)
    record = {"url": signed.url, "method": signed.method, "expires": moment(signed.expires_at)}
    # The URL is written as it is: an escape would break its signature.
    write((json_line({**record, "headers": signed.headers, "note": signed.note}) if json else str(signed)) + "\n")
    for name, value in signed.headers.items():
        print(f"send with it: {name}: {value}", file=sys.stderr)
    if signed.note:
        print(f"note: {signed.note}", file=sys.stderr)
