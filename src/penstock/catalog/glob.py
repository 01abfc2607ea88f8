"""Objects whose URLs match a pattern."""

from __future__ import annotations

import os
from dataclasses import replace
from glob import escape
from typing import TYPE_CHECKING

from penstock.catalog.select import fixed_part, selector
from penstock.errors import InvalidURL, NotFound
from penstock.providers.urls import LOCAL_ROOT
from penstock.source import open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.options import StoreOptions
    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["glob"]


def glob(url: str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> Iterator[ObjectMeta]:
    """Yield every object whose key matches the URL's, a pattern, in UTF-8 byte order; none is no error.

    The patterns are those of ``include=`` and of ``penstock ls``: ``*`` and ``?`` within a component, ``**`` across
    components (``**/`` also none), ``[abc]``, ``[a-z]`` and ``[!a]``. The whole key must match. ``[*]``, ``[?]`` and
    ``[[]`` are these characters themselves: ``glob.escape(key)`` of the standard library writes them. Markers of
    directories (empty, with ``/`` at the end) are left out.

    Lists what begins with the text before the first wildcard: one request for each 1,000 objects there. Where all
    wildcards are in the last component, and none is ``**``, what lies in deeper prefixes is not listed. A pattern
    without wildcards is one HEAD.

    Raises:
        InvalidURL: No wildcard, and no object's name: a bucket, or ``/`` at the end.
        ConfigError: A set is impossible (``[z-a]``).

    """
    source, key = open_source(url, store)
    pattern = _pattern(source, os.fspath(url), key)
    start, rest = fixed_part(pattern)
    if rest:
        last = rest if "/" in rest else start.rpartition("/")[2] + rest
        delimiter = "" if "/" in last or "**" in last else "/"
        return _listed(source, start, selector(pattern), delimiter)
    if not start or start.endswith("/"):
        message = "no wildcard, and no object of such a name: '**' at the end matches all below, as ps.list(url) does"
        raise InvalidURL(message, url=source.url(start))
    return _looked_up(source, start)


def _pattern(source: Source, text: str, key: str) -> str:
    """Return the key as a pattern: of a relative path the working directory is no part of it."""
    here = f"{os.getcwd()}/".lstrip("/")  # noqa: PTH109  a text
    relative = source.root == LOCAL_ROOT and "://" not in text and not text.startswith("/")
    return escape(here) + key.removeprefix(here) if relative else key


def _listed(source: Source, prefix: str, chosen: Callable[[str, int], bool], delimiter: str) -> Iterator[ObjectMeta]:
    for page in source.pages(prefix, delimiter=delimiter):
        for entry in page.entries:
            if chosen(entry.key, entry.size):
                yield replace(entry, url=source.url(entry.key))


def _looked_up(source: Source, key: str) -> Iterator[ObjectMeta]:
    try:
        yield replace(source.head(key), url=source.url(key))
    except NotFound:
        return
