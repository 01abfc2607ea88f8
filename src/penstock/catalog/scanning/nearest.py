"""Nothing below a prefix: what the caller probably meant, from two requests at most."""

from __future__ import annotations

import re
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING

from penstock.errors import NotFound, PenstockError

if TYPE_CHECKING:
    from penstock.catalog.scanning.scan import Listable
    from penstock.values import Page

__all__ = ["absent"]

_SHOWN = 3
_CLOSE = 0.5  # of difflib's ratio: a letter or two of a short name
_GLOB = re.compile(r"[*?\[]")


def absent(source: Listable, prefix: str, given: str, *, chosen: bool, instead: str = "") -> NotFound:
    """Return the error for a listing of ``prefix`` that has chosen nothing; the text says what to write instead.

    Two LIST requests at most look for what is there: objects that globs have left out (``chosen``), and prefixes that
    exist. ``given`` is the URL as the caller wrote it, and ``instead`` what else the caller may do. An error of these
    requests is left out.
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
    """Say how to write a URL that looks like a glob; nothing of another one."""
    literal = _GLOB.split(given, maxsplit=1)[0]
    folder = literal[: literal.rfind("/") + 1]
    return "" if literal == given else f"a URL is literal: write {folder!r} with include={given[len(folder) :]!r}"


def _nearest(source: Listable, prefix: str, requests: int) -> str:
    """Name what exists in the innermost folder of ``prefix`` that exists: names like its own, or else the first few.

    At most ``requests`` LIST requests; "" if these end above no such folder.
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
    """Return the keys of those names in ``found`` that are spelled like the first of ``wanted``, in whatever case."""
    first, slash, _ = wanted.partition("/")
    names = {name.casefold(): key for name, key in found.items()}
    return [names[each] for each in get_close_matches(f"{first}{slash}".casefold(), names, _SHOWN, _CLOSE)]


def _page(source: Listable, prefix: str, delimiter: str = "") -> Page:
    with source.pager() as pages:
        pages.start(prefix, delimiter=delimiter)
        while True:
            for _, page in pages.take():
                return page
