"""The commands over many objects, and over addresses, as typer sees them: names, options, help with an example."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from typing import TYPE_CHECKING, Annotated

import penstock as ps
from penstock.cli.commands import presign as signing
from penstock.cli.store import with_store

if TYPE_CHECKING:
    import typer

__all__ = ["MANY"]


def _presign(app: "typer.Typer") -> None:
    import typer

    @app.command(
        epilog="Examples: penstock presign --expires 7d s3://bucket/model.pt; curl -T model.pt "
        '"$(penstock presign --method PUT s3://bucket/model.pt)"'
    )
    @with_store
    def presign(
        url: Annotated[str, typer.Argument(metavar="URL", help="One object; it need not exist.")],
        *,
        method: Annotated[str, typer.Option(metavar="GET|PUT", help="What the address allows.")] = "GET",
        expires: Annotated[
            str | None,
            typer.Option(metavar="TIME", help="Seconds, or 15m, 12h, 7d. Default: 1h, or what the credentials have."),
        ] = None,
        json: Annotated[
            bool, typer.Option("--json", help="One JSON object, with what to send and when it ends.")
        ] = False,
        store: ps.StoreOptions | str,
    ) -> None:
        """Print an address at which anybody may read or write one object, for a time. No request is made.

        It needs keys that sign: S3's and OSS's, an HMAC key or a service account's file for Google Cloud Storage, the
        account's key for Azure. Tokens and shared access signatures are refused.
        """
        signing.presign(url, method, expires, signing.as_json if json else signing.as_text, store)


MANY = (_presign,)
