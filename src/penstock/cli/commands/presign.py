"""``penstock presign``: a URL to read or write one object without credentials."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import penstock as ps
from penstock.cli.exits import write
from penstock.cli.text import moment
from penstock.cli.units import seconds
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.options import StoreOptions
    from penstock.values import Presigned

__all__ = ["as_json", "as_text", "presign"]


def presign(
    url: str, method: str, expires: str | None, shown: Callable[[Presigned], str], store: StoreOptions | str
) -> None:
    """Print a presigned URL; the headers to send, and a note on earlier expiry, go to standard error.

    Raises:
        Unusable: Errors of ``ps.presign``; ``expires`` is not a valid time.

    """
    expires_s = None if expires is None else seconds(expires, "--expires")
    verb = method.upper()
    if verb not in ("GET", "PUT"):
        raise Unusable(f"--method {method}: GET or PUT")
    signed = ps.presign(url, method="GET" if verb == "GET" else "PUT", expires_s=expires_s, store=store)
    write(shown(signed))
    for name, value in signed.headers.items():
        print(f"send with it: {name}: {value}", file=sys.stderr)
    if signed.note:
        print(f"note: {signed.note}", file=sys.stderr)


def as_text(signed: Presigned) -> str:
    """Return the URL."""
    return f"{signed}\n"


def as_json(signed: Presigned) -> str:
    """Return a JSON object on one line."""
    record = {"url": signed.url, "method": signed.method, "expires": moment(signed.expires_at)}
    return json.dumps({**record, "headers": signed.headers, "note": signed.note}) + "\n"
