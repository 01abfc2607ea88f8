"""``penstock rm --incomplete``: abort unfinished uploads to free their space."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from time import time
from typing import TYPE_CHECKING

from penstock.cli.exits import write
from penstock.cli.text import harmless, moment
from penstock.errors import NotFound, Unusable
from penstock.jobs.guard import clock_beside
from penstock.jobs.selection import local
from penstock.source import open_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.options import StoreOptions
    from penstock.source import Source
    from penstock.values import Upload

__all__ = ["incomplete"]

_HOUR_S = 3600
_SHOWN = 20  # uploads named as left


def incomplete(
    urls: Sequence[str], hours: float, store: StoreOptions | str, *, dry_run: bool, as_json: bool = False
) -> None:
    """Abort uploads to keys that begin with one of ``urls`` and were started more than ``hours`` ago.

    Nothing shows whether the process of an upload still runs, so ``hours`` must be longer than any upload takes.
    Uploads whose age the store does not report are left, and named on standard error. One request for each 1,000
    uploads, and one for each aborted upload.

    Raises:
        NotFound: No upload matches.

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
    for url in urls:
        source, prefix = open_source(url, store)
        if local(source) and not prefix:
            raise Unusable("this is every file of this machine: name a directory", url=source.root)
        # List all uploads first: a page token may become invalid when the upload that it names is aborted.
        for upload in list(source.unfinished(prefix)):
            now = time()
            if local(source):
                # If nothing can be written there, nothing can be removed either.
                with suppress(OSError):
                    now = clock_beside(upload.id)
            if upload.begun is None or upload.begun <= now - hours * _HOUR_S:
                yield source, upload
