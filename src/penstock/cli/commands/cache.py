"""``penstock cache``: list, warm, verify and clear the cache."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, Typer

import penstock as ps
from penstock.cli.options import CacheFolder, JsonOne, JsonUrls, Store, cluster, with_options, with_store
from penstock.cli.output import CODES, aside, code_of, harmless, json_line, moment, readable, write
from penstock.display import counted
from penstock.errors import Damaged, NoSpace, NotFound, PenstockError, Unusable, printable, worse_of
from penstock.progress import bar

if TYPE_CHECKING:
    from penstock.jobs.warm import Warmed

app = Typer()
cache = Typer(
    no_args_is_help=True,
    help="Show, fill, check and empty the cache on this machine's disk. It is the one that --cache, --store or "
    "PENSTOCK_CACHE name. Where none of them is given, ls, verify and clear look into ~/.cache/penstock, and warm "
    "is refused: programs do not use that folder by default.",
)
app.add_typer(cache, name="cache")
_Prefix = Annotated[
    str, Argument(metavar="[URL]", help="Only objects whose URL begins with this: s3://bucket/train/. Default: all.")
]


def _place(
    *,
    cache: CacheFolder = None,
    store: Annotated[
        str | None, Option("--store", metavar="PROFILE", help="The cache of a profile of penstock.toml.")
    ] = None,
) -> "ps.cache.Cache":
    """Return the cache that the options select; nothing is read yet. Raises ``ConfigError`` for an unknown profile."""
    from penstock.stores.profiles.effective import cache_of

    options = None if store is None else cache_of(store)
    if cache is not None:
        options = replace(options or ps.CacheOptions(), path=cache)
    return ps.cache.open_cache(options)


@contextmanager
def _disk_errors(place: "ps.cache.Cache") -> Iterator[None]:
    try:
        yield
    except PenstockError:
        raise
    except OSError as error:
        raise Unusable(f"the cache in {place.path} cannot be used: {error.strerror}") from error


@dataclass(slots=True)
class CacheRow:
    """Cached part of one version of an object."""

    url: str
    etag: str
    object_bytes: int
    cached_bytes: int = 0
    stored_bytes: int = 0
    used_s: float = 0.0
    kept_s: float = 0.0


@cache.command(epilog="Example: penstock cache ls -l s3://bucket/train/")
@with_options("place", _place)
def ls(
    prefix: _Prefix = "",
    *,
    long: Annotated[
        bool, Option("--long", "-l", help="Size on disk, size of the object, time of the last use, URL.")
    ] = False,
    json: JsonUrls = False,
    place: "ps.cache.Cache",
) -> None:
    """List the objects in the cache, one per line, and how full it is. Exit code 1 if there are none."""
    line = as_json if json else as_long if long else as_url
    with _disk_errors(place):
        usage, rows = place.usage(), dict[tuple[str, str], CacheRow]()
        for each in place.entries():
            if each.url.startswith(prefix):
                row = rows.setdefault((each.url, each.etag), CacheRow(each.url, each.etag, each.object_bytes))
                row.object_bytes = max(row.object_bytes, each.object_bytes)
                row.cached_bytes += each.size_bytes
                row.stored_bytes += each.stored_bytes
                row.used_s = max(row.used_s, each.used_s)
                row.kept_s = max(row.kept_s, each.kept_s)
    for _, row in sorted(rows.items()):
        write(line(row) + "\n")
    full = f"{readable(usage.stored_bytes)} in {usage.path}"
    if not rows:
        raise NotFound(f"no part of this is in the cache, which holds {full}", url=prefix)
    if not json:
        print(f"{counted(len(rows), 'object')}; the cache holds {printable(full)}", file=sys.stderr)


def as_url(row: CacheRow) -> str:
    return harmless(row.url)


def as_long(row: CacheRow) -> str:
    """Return size on disk, size of the object, time of the last use (UTC) and URL, in columns."""
    size = "-" if row.object_bytes < 0 else readable(row.object_bytes)
    return f"{readable(row.stored_bytes):>10}  {size:>10}  {moment(row.used_s) or '-':>20}  {harmless(row.url)}"


def as_json(row: CacheRow) -> str:
    record = {
        "url": row.url,
        "etag": row.etag,
        "size": None if row.object_bytes < 0 else row.object_bytes,
        "cached": row.cached_bytes,
        "stored": row.stored_bytes,
        "used": moment(row.used_s),
        "kept": moment(row.kept_s),
    }
    return json_line(record)


@cache.command(
    epilog="Examples: PENSTOCK_CACHE=/nvme/cache penstock cache warm s3://bucket/train; "
    "penstock cache warm --catalog --cache /nvme/cache s3://bucket/train.catalog --ray auto"
)
@with_store
def warm(
    urls: Annotated[list[str], Argument(metavar="URL...", help="Objects, prefixes or globs.")],
    *,
    catalog: Annotated[bool, Option("--catalog", help="URLs are those of saved catalogs.")] = False,
    cache: CacheFolder = None,
    part: Annotated[str | None, Option("--part", metavar="N/COUNT", help="Only this share of the reads: 3/16.")] = None,
    ray: Annotated[
        str | None, Option("--ray", metavar="ADDRESS", help="Warm the cache of each machine of this Ray cluster.")
    ] = None,
    json: JsonOne = False,
    store: Store,
) -> None:
    """Read objects into the cache, in parallel; those that are there already cost no request.

    Name the cache that the training programs will use: --cache, --store or PENSTOCK_CACHE.
    An interrupted command is repeated and continues where it was. What does not fit is left out, with exit code 6.
    """
    # Imported late: it needs numpy, and the help of all commands does not.
    from penstock.jobs.parts.records import Share
    from penstock.jobs.warm import Warmed, warm_into, warm_nodes

    share, on = Share.of(part), cluster(ray)
    if on is not None and part is not None:
        raise Unusable("--ray warms the caches of all machines, each with all data: leave out --part")
    if cache is not None:
        if isinstance(store, str):
            raise Unusable("--cache and --store: a profile has its own cache: pass one of them")
        store = replace(store, cache=replace(store.cache or ps.CacheOptions(), path=cache))
    done = Warmed(nodes=0 if on else 1)
    try:
        with aside(on), bar("warming", None, None) as count:
            for url in urls:
                what = ps.Catalog.open(url, store=store) if catalog else url
                if on is None:
                    warm_into(done, what, store, count, share)
                else:
                    done.add(warm_nodes(what, store, on))
    finally:
        # After Ctrl-C and errors, too.
        _tell(done, as_json=json)
    full: PenstockError | None = NoSpace("the cache is full") if done.left_out else None
    worst = reduce(worse_of, (each.error for each in done.failures), full)
    if worst is not None:
        raise SystemExit(code_of(worst))


def _tell(done: "Warmed", *, as_json: bool) -> None:
    for each in done.failures:
        print(f"penstock: {printable(str(each.error))}", file=sys.stderr)
    words = [f"read {counted(done.fetched, 'part')}, {readable(done.fetched_bytes)}"]
    words[0] += f" on {done.nodes:,} machines" if done.nodes > 1 else ""
    words += [f"{done.present:,} were there"] if done.present else []
    words += [f"{done.missing:,} not in the store"] if done.missing else []
    words += [f"{done.failed:,} failed"] if done.failed else []
    words += [f"{done.left_out:,} left out: the cache is full (clear it, or make it larger)"] if done.left_out else []
    record = asdict(replace(done, failures=[]))
    del record["failures"]
    _say(record, "; ".join(words), as_json=as_json)


@cache.command(epilog="Example: penstock cache verify")
@with_options("place", _place)
def verify(*, json: JsonOne = False, place: "ps.cache.Cache") -> None:
    """Compare everything in the cache with its checksums, and remove damaged entries: then exit code 5."""
    with _disk_errors(place), bar("verifying", None, None) as count:
        found = place.verify(count)
    record = {"entries": found.entries, "size": found.size_bytes, "damaged": found.damaged}
    text = f"verified {counted(found.entries, 'part')}, {readable(found.size_bytes)}"
    text += f"; {found.damaged:,} damaged, and removed" if found.damaged else ""
    _say(record, text, as_json=json)
    if found.damaged:
        raise SystemExit(CODES[Damaged])


@cache.command(epilog="Example: penstock cache clear s3://bucket/old/")
@with_options("place", _place)
def clear(prefix: _Prefix = "", *, json: JsonOne = False, place: "ps.cache.Cache") -> None:
    """Remove objects from the cache, never from a store. Programs may go on using the cache meanwhile."""
    with _disk_errors(place), bar("clearing", None, None) as count:
        found = place.clear(prefix, count)
    record = {"entries": found.entries, "stored": found.stored_bytes}
    _say(record, f"removed {counted(found.entries, 'part')}, {readable(found.stored_bytes)}", as_json=json)


def _say(record: Mapping[str, object], text: str, *, as_json: bool) -> None:
    """Write a record to standard output, or a text to standard error."""
    if as_json:
        write(json_line(record) + "\n")
    else:
        print(text, file=sys.stderr)
