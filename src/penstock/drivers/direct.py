"""What drivers share: a blocking call as an exchange, S3's idea of a page, the bound where a size is not known."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeVar, cast

from penstock.errors import Unusable
from penstock.protocols.exchange import Exchange, Response, Work
from penstock.values import ObjectMeta, Page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["beyond", "direct", "octets", "page_of"]

T = TypeVar("T")
_PAGE = 1000  # keys, as on S3


def direct(run: Callable[[], T]) -> Exchange[T]:
    """Wrap a blocking call that returns a verb's result or raises one of our errors."""

    def parse(response: Response) -> T:
        if response.fault is not None:
            raise response.fault
        return cast("T", response.body)

    return Exchange(Work(run), parse)


def beyond(most_bytes: int, url: str) -> Unusable:
    """Return the error for an object that is larger than what is read of one whose size is not known."""
    limit = f"more than {most_bytes} bytes, the most that is read of an object of unknown size"
    return Unusable(f"{limit}: list it (from_prefix, a manifest), or use ps.open", url=url)


def octets(key: str) -> bytes:
    """Return what keys are ordered by: their UTF-8, or whatever bytes a file's name is made of."""
    return key.encode("utf-8", "surrogateescape")


def page_of(metas: Iterable[ObjectMeta], prefix: str, *, after: str, delimiter: str) -> Page:
    """Return the page of sorted ``metas`` that follows ``after`` (exclusive), grouped by ``delimiter`` as S3 does.

    A common prefix is listed once and serves as a token itself: what lies under it is not listed after it.
    """
    items = list(islice(_grouped(metas, prefix, after, delimiter), _PAGE + 1))
    shown = items[:_PAGE]
    final = shown[-1] if len(items) > _PAGE else ""
    return Page(
        tuple(item for item in shown if isinstance(item, ObjectMeta)),
        tuple(item for item in shown if isinstance(item, str)),
        final if isinstance(final, str) else final.key,
    )


def _grouped(metas: Iterable[ObjectMeta], prefix: str, after: str, delimiter: str) -> Iterator[ObjectMeta | str]:
    bound, last = octets(after), ""
    for meta in metas:
        head, mark, _ = meta.key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
        if not mark:
            if octets(meta.key) > bound:
                yield meta
            continue
        group = prefix + head + mark
        if group != last and octets(group) > bound:
            yield group
        last = group
