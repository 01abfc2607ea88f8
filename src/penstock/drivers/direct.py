"""Helpers of all drivers: blocking calls as exchanges, pages of a sorted listing, the error of too large an object."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar, cast

from penstock.errors import Unusable
from penstock.protocols.exchange import Exchange, Response, Work
from penstock.values import ObjectMeta, Page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["direct", "grouped", "key_bytes", "page_from", "page_of", "too_large"]

T = TypeVar("T")
_PAGE = 1000  # keys, as on S3


def direct(run: Callable[[], T], *, blocks: bool = True) -> Exchange[T]:
    """Wrap a call that returns a verb's result or raises one of our errors; ``blocks`` as in ``Work``."""

    def parse(response: Response) -> T:
        if response.fault is not None:
            raise response.fault
        return cast("T", response.body)

    return Exchange(Work(run, blocks), parse)


def too_large(most_bytes: int, url: str) -> Unusable:
    """Return the error for an object of unknown size that is larger than the bound of a read."""
    limit = f"more than {most_bytes} bytes, the most that is read of an object of unknown size"
    return Unusable(f"{limit}: list it (from_prefix, a manifest), or use ps.open", url=url)


def key_bytes(key: str) -> bytes:
    """Return the bytes that keys are ordered by: UTF-8, or the bytes of a file's name."""
    return key.encode("utf-8", "surrogateescape")


def page_of(metas: Iterable[ObjectMeta], prefix: str, *, after: str, delimiter: str) -> Page:
    """Return the page of sorted ``metas`` that follows ``after`` (exclusive), grouped by ``delimiter`` as S3 does.

    A common prefix is listed once and serves as a token itself: what lies under it is not listed after it.
    """
    return page_from(grouped(metas, prefix, after, delimiter))[0]


def page_from(items: Iterator[ObjectMeta | str]) -> tuple[Page, Iterator[ObjectMeta | str]]:
    """Return a page of what ``grouped`` has yielded, and what is left for the pages after it."""
    found = list(islice(items, _PAGE + 1))
    shown, more = found[:_PAGE], found[_PAGE:]
    final = shown[-1] if more else ""
    page = Page(
        tuple(item for item in shown if isinstance(item, ObjectMeta)),
        tuple(item for item in shown if isinstance(item, str)),
        final if isinstance(final, str) else final.key,
    )
    return page, chain(more, items)


def grouped(metas: Iterable[ObjectMeta], prefix: str, after: str, delimiter: str) -> Iterator[ObjectMeta | str]:
    """Yield sorted ``metas`` that follow ``after``, and instead of those below a common prefix that prefix."""
    bound, last = key_bytes(after), ""
    for meta in metas:
        head, mark, _ = meta.key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
        if not mark:
            if key_bytes(meta.key) > bound:
                yield meta
            continue
        group = prefix + head + mark
        if group != last and key_bytes(group) > bound:
            yield group
        last = group
