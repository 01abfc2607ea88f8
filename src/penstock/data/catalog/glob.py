"""Objects whose URLs match a pattern."""

from __future__ import annotations

import os
from dataclasses import replace
from glob import escape
from typing import TYPE_CHECKING

from penstock.engine.listing.select import fixed_part, selector
from penstock.errors import InvalidURL, NotFound
from penstock.source import open_source
from penstock.stores.urls import LOCAL_ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.options import StoreOptions
    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["glob"]


def glob(url: str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> Iterator[ObjectMeta]:
    """Yield every object whose key matches a pattern, in UTF-8 byte order; no match is not an error.

    The patterns are those of ``include=`` and of ``penstock ls``: ``*`` and ``?`` within a component, ``**`` across
    components (``**/`` also matches no component), ``[abc]``, ``[a-z]`` and ``[!a]``. The whole key must match.
    ``[*]``, ``[?]`` and ``[[]`` match these characters literally: ``glob.escape(key)`` of the standard library writes
    them. Directory markers (empty, with ``/`` at the end) are left out.

    Lists the keys that begin with the text before the first wildcard: one request per 1,000 objects. If all wildcards
    are in the last component, and none is ``**``, deeper prefixes are not listed. A pattern without wildcards costs
    one HEAD.

    Args:
        url: URL whose key is a pattern.
        store: Options, or the name of a profile; default: environment and profile.

    Raises:
        InvalidURL: The URL has no wildcard and names no object: a bucket, or ``/`` at the end.
        ConfigError: A character set is invalid (``[z-a]``).

    Example:
        >>> [each.key for each in ps.glob("s3://bucket/train/[34]/0007.png")]
        ['train/3/0007.png', 'train/4/0007.png']

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
    """Return the key as a pattern; for a relative path, the working directory is escaped, because it is literal."""
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
