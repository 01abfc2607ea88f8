"""``penstock cache``: list, warm, verify and clear the cache."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import penstock as ps
from penstock.cli.exits import CODES, write
from penstock.cli.text import harmless, moment, readable
from penstock.errors import Damaged, NoSpace, NotFound, PenstockError, Unusable, printable
from penstock.jobs.warm import Warmed, warm_into
from penstock.progress import bar
from penstock.stores.profiles.effective import cache_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.options import StoreOptions

__all__ = ["CacheChoice", "Row", "as_json", "as_long", "as_url", "cached", "clear", "ls", "verify", "warm"]


class CacheChoice(NamedTuple):
    """Cache that a command uses.

    Attributes:
        path: Directory of the cache; None: not given.
        profile: Profile that has the cache; None: not given.

    """

    path: str | None
    profile: str | None

    def open(self) -> ps.Cache:
        """Return the cache; nothing is read yet. Raises ``ConfigError`` for an unknown profile."""
        options = None if self.profile is None else cache_of(self.profile)
        if self.path is not None:
            options = replace(options or ps.CacheOptions(), path=self.path)
        return ps.open_cache(options)


@dataclass(slots=True)
class Row:
    """Cached part of one version of an object."""

    url: str
    etag: str
    object_bytes: int
    cached_bytes: int = 0
    stored_bytes: int = 0
    used_s: float = 0.0
    kept_s: float = 0.0


def ls(prefix: str, line: Callable[[Row], str], choice: CacheChoice) -> None:
    """Print the objects whose URLs begin with ``prefix``, sorted by URL, and how full the cache is.

    Raises:
        NotFound: No object matches.
        Unusable: The directory cannot be read.

    """
    with _directory(choice) as cache:
        usage, rows = cache.usage(), dict[tuple[str, str], Row]()
        for each in cache.entries():
            if each.url.startswith(prefix):
                row = rows.setdefault((each.url, each.etag), Row(each.url, each.etag, each.object_bytes))
                row.object_bytes = max(row.object_bytes, each.object_bytes)
                row.cached_bytes += each.size_bytes
                row.stored_bytes += each.stored_bytes
                row.used_s = max(row.used_s, each.used_s)
                row.kept_s = max(row.kept_s, each.kept_s)
    for _, row in sorted(rows.items()):
        write(line(row) + "\n")
    full = f"{readable(usage.stored_bytes)} in {usage.path}"
    if not rows:
        raise NotFound(f"nothing of it is in the cache, which holds {full}", url=prefix)
    if line is not as_json:
        print(f"{_count(len(rows), 'object')}; the cache holds {printable(full)}", file=sys.stderr)


def as_url(row: Row) -> str:
    """Return the URL."""
    return harmless(row.url)


def as_long(row: Row) -> str:
    """Return bytes on disk, bytes of the object, time of the last use (UTC) and URL."""
    size = "-" if row.object_bytes < 0 else row.object_bytes
    return f"{row.stored_bytes:>15} {size:>15} {moment(row.used_s) or '-':>20} {harmless(row.url)}"


def as_json(row: Row) -> str:
    """Return a JSON object on one line."""
    record = {
        "url": row.url,
        "etag": row.etag,
        "size": None if row.object_bytes < 0 else row.object_bytes,
        "cached": row.cached_bytes,
        "stored": row.stored_bytes,
        "used": moment(row.used_s),
        "kept": moment(row.kept_s),
    }
    return json.dumps(record)


def cached(store: StoreOptions | str, path: str | None) -> StoreOptions | str:
    """Return a store's options with the cache in the directory ``path``; without ``path``, unchanged.

    Raises:
        Unusable: The store is given as a profile.

    """
    if path is None:
        return store
    if isinstance(store, str):
        raise Unusable("--cache and --store: a profile has its own cache: name one of the two")
    return replace(store, cache=replace(store.cache or ps.CacheOptions(), path=path))


def warm(urls: Sequence[str], store: StoreOptions | str, *, catalogs: bool, as_json: bool) -> None:
    """Read the objects that ``urls`` name into the cache: see ``ps.warm``.

    Raises:
        PenstockError: One of ``urls`` matches nothing, or the store has no cache.
        SystemExit: Some objects failed or do not fit: the code of the worst error.

    """
    done = Warmed()
    try:
        with bar("warming", None, None) as count:
            for url in urls:
                what = ps.Catalog.open(url, store=store) if catalogs else url
                warm_into(done, what, store, count)
    finally:
        _tell(done, as_json=as_json)  # after Ctrl-C and errors, too
    codes = [next((code for kind, code in CODES.items() if isinstance(each.error, kind)), 1) for each in done.failures]
    codes += [CODES[NoSpace]] if done.left_out else []
    if codes:
        raise SystemExit(max(codes))


def _tell(done: Warmed, *, as_json: bool) -> None:
    for each in done.failures:
        print(f"penstock: {printable(str(each.error))}", file=sys.stderr)
    if as_json:
        record = asdict(replace(done, failures=[]))
        del record["failures"]
        write(json.dumps(record) + "\n")
        return
    words = [f"read {_count(done.fetched, 'part')}, {readable(done.fetched_bytes)}"]
    words += [f"{done.present:,} were there"] if done.present else []
    words += [f"{done.missing:,} not in the store"] if done.missing else []
    words += [f"{done.failed:,} failed"] if done.failed else []
    words += [f"{done.left_out:,} left out: the cache is full (clear it, or make it larger)"] if done.left_out else []
    print("; ".join(words), file=sys.stderr)


def verify(choice: CacheChoice, *, as_json: bool) -> None:
    """Verify the checksums of all entries and remove damaged ones.

    Raises:
        SystemExit: An entry was damaged.
        Unusable: The directory cannot be read.

    """
    with _directory(choice) as cache, bar("verifying", None, None) as count:
        found = cache.verify(count)
    record = {"entries": found.entries, "size": found.size_bytes, "damaged": found.damaged}
    text = f"verified {_count(found.entries, 'part')}, {readable(found.size_bytes)}"
    text += f"; {found.damaged:,} damaged, and removed" if found.damaged else ""
    _say(record, text, as_json=as_json)
    if found.damaged:
        raise SystemExit(CODES[Damaged])


def clear(prefix: str, choice: CacheChoice, *, as_json: bool) -> None:
    """Remove the objects whose URLs begin with ``prefix``. Raises ``Unusable`` if the directory is not writable."""
    with _directory(choice) as cache, bar("clearing", None, None) as count:
        found = cache.clear(prefix, count)
    record = {"entries": found.entries, "stored": found.stored_bytes}
    _say(record, f"removed {_count(found.entries, 'part')}, {readable(found.stored_bytes)}", as_json=as_json)


@contextmanager
def _directory(choice: CacheChoice) -> Iterator[ps.Cache]:
    """Open the cache; raise ``Unusable`` for errors of the disk."""
    cache = choice.open()
    try:
        yield cache
    except PenstockError:
        raise
    except OSError as error:
        raise Unusable(f"the cache in {cache.path} cannot be used: {error.strerror}") from error


def _say(record: Mapping[str, object], text: str, *, as_json: bool) -> None:
    if as_json:
        write(json.dumps(record) + "\n")
    else:
        print(text, file=sys.stderr)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
