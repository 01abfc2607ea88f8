"""Errors for a prefix without objects, with hints at the intended name, from two requests at most."""

from __future__ import annotations

import re
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING

from penstock.errors import NotFound, PenstockError

if TYPE_CHECKING:
    from penstock.data.catalog.scanning.scan import Listable
    from penstock.values import Page

__all__ = ["absent"]

_SHOWN = 3
_CLOSE = 0.5  # least ratio of difflib: one or two letters of a short name differ
_GLOB = re.compile(r"[*?\[]")


def absent(source: Listable, prefix: str, given: str, *, chosen: bool, instead: str = "") -> NotFound:
    """Return the error for an empty listing of ``prefix``; the message suggests what to write instead.

    At most two LIST requests look for objects that globs have left out (if ``chosen``), and for prefixes that exist.
    ``given`` is the URL as the caller wrote it, and ``instead`` a further suggestion. Errors of these requests are
    ignored.
    """
    hints: list[str] = []
    with suppress(PenstockError):
        hints.append(_left_out(source, prefix) if chosen else "")
    if not any(hints):
        if "://" not in given and not given.startswith(("/", "./", "../")):
            hints.append(f"{given!r} has no scheme, so it is a path of this machine: write s3://{given} for a bucket")
        hints.append(_glob(given))
        with suppress(PenstockError):
            hints.append(_nearest(source, prefix, 1 if chosen else 2))
    said = "; ".join(filter(None, [*hints, instead]))
    return NotFound(f"no objects there: {said}" if said else "no objects there", url=source.url(prefix))


def _left_out(source: Listable, prefix: str) -> str:
    page = _page(source, prefix)
    if not page.entries:
        return ""
    count = f"{len(page.entries)} or more" if page.token else len(page.entries)
    return f"{count} objects are there, and include= and exclude= leave none of them"


def _glob(given: str) -> str:
    """Return how to write a URL that looks like a glob; empty for other URLs."""
    literal = _GLOB.split(given, maxsplit=1)[0]
    folder = literal[: literal.rfind("/") + 1]
    return "" if literal == given else f"a URL is literal: write {folder!r} with include={given[len(folder) :]!r}"


def _nearest(source: Listable, prefix: str, requests: int) -> str:
    """Return a hint at names in the innermost existing folder of ``prefix``: similar names, or else the first few.

    Makes at most ``requests`` LIST requests; returns "" if they reach no such folder.
    """
    path = prefix.rstrip("/")
    while path and requests:
        path = path.rpartition("/")[0]
        folder = f"{path}/" if path else ""
        page = _page(source, folder, "/")
        found = [*page.prefixes, *(entry.key for entry in page.entries)]
        if prefix in found:  # a directory, or a marker of one
            return "the folder is there, and empty"
        if close := _alike(prefix[len(folder) :], {name[len(folder) :]: name for name in found}):
            return f"the nearest that exist are {', '.join(map(source.url, close))}"
        if found:
            more = ", …" if page.token or len(found) > _SHOWN else ""
            return f"{source.url(folder)} holds {', '.join(map(source.url, found[:_SHOWN]))}{more}"
        requests -= 1
    return "" if path else f"{source.url('')} holds no objects"


def _alike(wanted: str, found: dict[str, str]) -> list[str]:
    """Return the keys of the names in ``found`` spelled like the first component of ``wanted``, ignoring case."""
    first, slash, _ = wanted.partition("/")
    names = {name.casefold(): key for name, key in found.items()}
    return [names[each] for each in get_close_matches(f"{first}{slash}".casefold(), names, _SHOWN, _CLOSE)]


def _page(source: Listable, prefix: str, delimiter: str = "") -> Page:
    with source.pager() as pages:
        pages.start(prefix, delimiter=delimiter)
        while True:
            for _, page in pages.take():
                return page
