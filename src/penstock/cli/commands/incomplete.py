"""``penstock rm --incomplete``: frees what unfinished uploads hold."""

from __future__ import annotations

import json
import sys
from time import time
from typing import TYPE_CHECKING

from penstock.bulk.selection import local
from penstock.cli.exits import write
from penstock.cli.text import harmless, moment
from penstock.errors import NotFound, Unusable
from penstock.source import open_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.options import StoreOptions
    from penstock.source import Source
    from penstock.values import Upload

__all__ = ["incomplete"]

_HOUR_S = 3600
_SHOWN = 20  # uploads that are left


def incomplete(
    urls: Sequence[str], hours: float, store: StoreOptions | str, *, dry_run: bool, as_json: bool = False
) -> None:
    """Abort uploads to keys that begin with one of ``urls`` and were begun more than ``hours`` ago.

    Whether an upload's process still runs cannot be seen, so the age must be more than any upload takes; those whose
    age the store does not tell are left, and named on standard error. One request for each thousand uploads, and one
    for each that is aborted.

    Raises:
        NotFound: There are none.

    """
    found, ageless = 0, []
    for source, upload in _old(urls, hours, store):
        url = source.url(upload.key)
        if upload.begun is None:
            ageless.append(harmless(url))
            continue
        record = {"url": url, "begun": moment(upload.begun), "status": "planned" if dry_run else "aborted"}
        write((json.dumps(record) if as_json else harmless(url)) + "\n")
        if not dry_run:
            source.abort(upload)
        found += 1
    if ageless:
        shown, more = ageless[:_SHOWN], f" and {len(ageless) - _SHOWN:,} more" if len(ageless) > _SHOWN else ""
        why = "the store does not say how old they are (Azure deletes them after a week)"
        print(f"left {len(ageless):,}, {why}: {', '.join(shown)}{more}", file=sys.stderr)
    if not found:
        raise NotFound(f"no upload there is unfinished after {hours:g} hours", url=urls[0])
    print(f"{'would abort' if dry_run else 'aborted'} {found:,} upload{'s' * (found != 1)}", file=sys.stderr)


def _old(urls: Sequence[str], hours: float, store: StoreOptions | str) -> Iterator[tuple[Source, Upload]]:
    latest = time() - hours * _HOUR_S
    for url in urls:
        source, prefix = open_source(url, store)
        if local(source) and not prefix:
            raise Unusable("this is every file of this machine: name a directory", url=source.root)
        # Listed whole first: a page's token may not survive that what it names is aborted.
        for upload in list(source.unfinished(prefix)):
            if upload.begun is None or upload.begun <= latest:
                yield source, upload
