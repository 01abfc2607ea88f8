"""``penstock mb`` and ``penstock rb``: create and delete buckets of local servers and test accounts."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, cast

from typer import Argument, Option, Typer

from penstock.cli.commands.objects.rm import delete_victims
from penstock.cli.options import JsonOne, Store, with_store
from penstock.cli.output import write_row
from penstock.engine.contracts.driver import Buckets, Driver
from penstock.engine.contracts.exchange import Exchange
from penstock.errors import AlreadyExists, Cancelled, Forbidden, InvalidURL, NotFound, Unusable, printable
from penstock.jobs.trees.selection import select
from penstock.source import Source, open_source

app = Typer()
Bucket = Annotated[str, Argument(metavar="URL", help="s3://bucket, az://container.")]
# Names that S3, Azure and their servers all take; Azure takes neither dots nor two hyphens, and says so itself.
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@app.command(epilog="Example: penstock mb s3://test-data --endpoint http://127.0.0.1:9000")
@with_store
def mb(url: Bucket, *, json: JsonOne = False, store: Store) -> None:
    """Create a bucket, or a container of Azure. It is an error if it exists.

    For local servers and test accounts: settings such as encryption, versions and access are the store's defaults.
    """
    source = _open_bucket(url, store)
    name = source.root.rstrip("/").rpartition("/")[2]
    if not _NAME.fullmatch(name):
        raise InvalidURL(
            "the name of a bucket must have 3 to 63 lower-case letters, digits, hyphens and dots, with a letter or a "
            f"digit at both ends, got {name!r}"
        )
    try:
        source.page("")
    except NotFound:
        with _hinted("create"):
            source.ask(_make_bucket)
    else:
        raise AlreadyExists("the bucket exists", url=source.root)
    write_row({"url": source.root, "status": "created"}, source.root, as_json=json)


@app.command(epilog="Example: penstock rb --force s3://test-data --endpoint http://127.0.0.1:9000")
@with_store
def rb(
    url: Bucket,
    *,
    force: Annotated[bool, Option("--force", help="Delete all objects in it first.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask, with --force.")] = False,
    json: JsonOne = False,
    store: Store,
) -> None:
    """Delete a bucket, or a container of Azure, if it is empty.

    With --force, all objects in it are deleted first, after a question, or with -y. A bucket that keeps old versions
    of objects is not empty for its store as long as it has any.
    """
    source = _open_bucket(url, store)
    page = source.page("")
    if page.entries or page.prefixes or page.token:
        if not force:
            raise Unusable("the bucket has objects: pass --force to delete all of them", url=source.root)
        _empty(source, yes=yes, store=store)
    with _hinted("delete"):
        source.ask(_remove_bucket)
    write_row({"url": source.root, "status": "deleted"}, source.root, as_json=json)


def _open_bucket(url: str, store: Store) -> Source:
    source, key = open_source(url, store)
    source.require(Buckets, key)
    if key:
        raise InvalidURL(f"this must be a whole bucket, such as {source.root}, and has a key", url=source.url(key))
    return source


def _make_bucket(driver: Driver) -> Exchange[None]:
    return cast("Buckets", driver).make_bucket()


def _remove_bucket(driver: Driver) -> Exchange[None]:
    return cast("Buckets", driver).remove_bucket()


def _empty(source: Source, *, yes: bool, store: Store) -> None:
    """Delete all objects of a bucket, once that was confirmed, and abort its unfinished uploads."""
    if not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise Unusable("--force deletes all objects of the bucket: pass -y, too, to confirm that", url=source.root)
        sys.stderr.write(f"Delete {printable(source.root)} with all its objects? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise Cancelled("nothing was deleted")
    victims = ((source, meta) for meta in select(source.root, store, recursive=True).entries())
    delete_victims(victims, as_json=False)
    for upload in list(source.unfinished("")):
        source.abort(upload)


@contextmanager
def _hinted(action: str) -> Iterator[None]:
    """Add to a refusal which permission is missing."""
    try:
        yield
    except Forbidden as error:
        raise Forbidden(
            f"{error.message}; to {action} buckets needs rights of the account, which clouds rarely give to keys for "
            "data: use the cloud's own tool, or an administrator's credentials",
            url=error.url,
        ) from error
