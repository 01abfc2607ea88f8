"""Helpers for all drivers: blocking calls as exchanges, pages of a sorted listing, errors for oversized objects."""

from __future__ import annotations

from functools import partial, wraps
from itertools import chain, islice
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from penstock.engine.contracts.exchange import Exchange, Response, Work
from penstock.errors import Damaged, Unusable
from penstock.values import ObjectMeta, Page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

P = ParamSpec("P")
T = TypeVar("T")
_PAGE = 1000  # keys, as on S3


def direct(run: Callable[[], T], *, blocks: bool = True) -> Exchange[T]:
    """Wrap a call that returns a verb's result or raises a Penstock error; see ``Work`` for ``blocks``."""

    def parse(response: Response) -> T:
        if response.fault is not None:
            raise response.fault
        return cast("T", response.body)

    return Exchange(Work(run, blocks), parse)


def blocking(verb: Callable[P, T]) -> Callable[P, Exchange[T]]:
    """Convert a blocking method to a driver's verb, which the transport's threads run."""

    @wraps(verb)
    def begin(*args: P.args, **options: P.kwargs) -> Exchange[T]:
        return direct(partial(verb, *args, **options))

    return begin


def reading(verb: Callable[P, tuple[T, str]]) -> Callable[P, Exchange[T]]:
    """Convert, like ``blocking``, a method that returns the result of a read and the object's version."""

    def parse(response: Response) -> T:
        if response.fault is not None:
            raise response.fault
        found, response.version = cast("tuple[T, str]", response.body)
        return found

    @wraps(verb)
    def begin(*args: P.args, **options: P.kwargs) -> Exchange[T]:
        return Exchange(Work(partial(verb, *args, **options)), parse)

    return begin


def too_large(most_bytes: int, url: str) -> Unusable:
    limit = f"more than {most_bytes} bytes, the most that is read of an object of unknown size"
    return Unusable(f"{limit}: list it (from_prefix, a manifest), or use ps.open", url=url)


def untold(most_bytes: int, url: str) -> Damaged:
    message = f"the server does not report the object's size, and sent more than {most_bytes} bytes: if that is right"
    return Damaged(f"{message}, raise ReadOptions(unknown_bytes=…)", url=url)


def key_bytes(key: str) -> bytes:
    """Return the bytes that keys are sorted by: UTF-8, or the raw bytes of a file name."""
    return key.encode("utf-8", "surrogateescape")


def page_of(metas: Iterable[ObjectMeta], prefix: str, *, after: str, delimiter: str) -> Page:
    """Return the page of sorted ``metas`` that follows ``after`` (exclusive), grouped by ``delimiter`` as S3 does.

    A common prefix is listed once. As a token (``after``) it skips all keys below it.
    """
    return page_from(group_prefixes(metas, prefix, after, delimiter))[0]


def split_items(items: Iterable[ObjectMeta | str], token: str = "") -> Page:
    listed = [*items]
    metas = tuple([each for each in listed if isinstance(each, ObjectMeta)])
    return Page(metas, tuple([each for each in listed if isinstance(each, str)]), token)


def item_bytes(item: ObjectMeta | str) -> bytes:
    return key_bytes(item if isinstance(item, str) else item.key)


def page_from(items: Iterator[ObjectMeta | str]) -> tuple[Page, Iterator[ObjectMeta | str]]:
    """Return one page of the items of ``group_prefixes``, and an iterator over the items for later pages."""
    found = list(islice(items, _PAGE + 1))
    shown, more = found[:_PAGE], found[_PAGE:]
    final = shown[-1] if more else ""
    return split_items(shown, final if isinstance(final, str) else final.key), chain(more, items)


def group_prefixes(metas: Iterable[ObjectMeta], prefix: str, after: str, delimiter: str) -> Iterator[ObjectMeta | str]:
    """Yield the sorted ``metas`` that follow ``after``; a common prefix replaces the entries below it."""
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
