"""``penstock presign``: an address at which one object may be read or written without credentials."""

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
    """Print the address. What must be sent with it, and what may end it sooner, goes to standard error.

    Raises:
        Unusable: As ``ps.presign``; ``expires`` is no time.

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
    """Return the address."""
    return f"{signed}\n"


def as_json(signed: Presigned) -> str:
    """Return a JSON object on one line."""
    record = {"url": signed.url, "method": signed.method, "expires": moment(signed.expires_at)}
    return json.dumps({**record, "headers": signed.headers, "note": signed.note}) + "\n"
