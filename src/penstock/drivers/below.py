"""A driver below a prefix of another one's bucket: keys are relative to it, and messages have an address of its own."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from penstock.listing import Entries
from penstock.protocols.driver import (
    UNKNOWN_BYTES,
    Copy,
    Delete,
    List,
    Move,
    Multipart,
    PartCopy,
    Presign,
    Put,
    PutMany,
    Suffix,
)
from penstock.protocols.exchange import Exchange
from penstock.support import supports
from penstock.values import ObjectMeta, Page, Presigned, Span, Uploads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.buffer import Buffer
    from penstock.errors import PenstockError
    from penstock.protocols.driver import Abilities, Attributes, Beginning, Driver, Ending, Part, Payload
    from penstock.protocols.exchange import Response

__all__ = ["below"]

T = TypeVar("T")


def below(driver: Driver, base: str, root: str) -> Driver:
    """Return ``driver`` for the keys that begin with ``base``, which callers leave away; it has the same verbs.

    Addresses are ``root`` and the relative key; errors of the driver itself keep the full one. A read costs one more
    Python call than without ``base``.
    """
    verbs = tuple(verb for verb in _VERBS if supports(driver, verb))
    kind: type[Any] = _kind(verbs)
    found: Driver = kind(driver, base, root)
    return found


class _Below:
    """What every driver has."""

    def __init__(self, inner: Any, base: str, root: str) -> None:  # noqa: ANN401  whatever verbs it has
        self._inner, self._base, self._root = inner, base, root
        self.prepare: Callable[[], None] = inner.prepare
        self.identity: object = getattr(inner, "identity", None)  # of drivers that sign
        if not base:  # nothing to translate: as fast as the driver itself
            self.read, self.get = inner.read, inner.get  # type: ignore[method-assign]

    @property
    def abilities(self) -> Abilities:
        found: Abilities = self._inner.abilities
        return found

    @abilities.setter
    def abilities(self, learned: Abilities) -> None:
        self._inner.abilities = learned

    def url(self, key: str) -> str:
        return self._root + key

    def head(self, key: str) -> Exchange[ObjectMeta]:
        return _mapped(self._inner.head(self._base + key), lambda meta: replace(meta, key=key))

    def read(self, span: Span, target: Buffer) -> Exchange[int]:
        found: Exchange[int] = self._inner.read(Span(self._base + span[0], *span[1:]), target)
        return found

    def get(
        self, key: str, etag: str, most_bytes: int = UNKNOWN_BYTES, buffer: Buffer | None = None
    ) -> Exchange[bytes | Beginning]:
        found: Exchange[bytes | Beginning] = self._inner.get(self._base + key, etag, most_bytes, buffer)
        return found


class _Suffix(_Below):
    def suffix(self, key: str, etag: str, target: Buffer) -> Exchange[Ending | None]:
        found: Exchange[Ending | None] = self._inner.suffix(self._base + key, etag, target)
        return found


class _List(_Below):
    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        base = self._base
        after = base + start_after if start_after else ""
        listing = self._inner.list(base + prefix, token=token, start_after=after, delimiter=delimiter)
        return _mapped(listing, self._page) if base else listing

    def _page(self, page: Page) -> Page:
        found = page.entries
        if isinstance(found, Entries):
            entries: Sequence[ObjectMeta] = found.renamed(self._relative)
        else:
            entries = tuple(replace(each, key=self._relative(each.key)) for each in found)
        return replace(page, entries=entries, prefixes=tuple(self._relative(each) for each in page.prefixes))

    def _relative(self, key: str) -> str:
        # What does not lie below is left as it is: the caller compares the page with what was asked for.
        return key.removeprefix(self._base)


class _Put(_Below):
    def put(self, key: str, body: Payload, attributes: Attributes) -> Exchange[str]:
        found: Exchange[str] = self._inner.put(self._base + key, body, attributes)
        return found


class _PutMany(_Below):
    def put_many(
        self, prefix: str, puts: Sequence[tuple[str, Payload, Attributes]]
    ) -> Exchange[Sequence[str | PenstockError]]:
        whole = [(self._base + key, body, attributes) for key, body, attributes in puts]
        found: Exchange[Sequence[str | PenstockError]] = self._inner.put_many(self._base + prefix, whole)
        return found


class _Delete(_Below):
    def delete(self, key: str) -> Exchange[None]:
        found: Exchange[None] = self._inner.delete(self._base + key)
        return found


class _Multipart(_Below):
    def create(self, key: str, attributes: Attributes) -> Exchange[str]:
        found: Exchange[str] = self._inner.create(self._base + key, attributes)
        return found

    def part(self, key: str, upload: str, part: Part, body: Payload) -> Exchange[str]:
        found: Exchange[str] = self._inner.part(self._base + key, upload, part, body)
        return found

    def complete(
        self, key: str, upload: str, etags: Sequence[str], *, create_only: bool = False, replaces: str = ""
    ) -> Exchange[str]:
        whole = self._base + key
        found: Exchange[str] = self._inner.complete(whole, upload, etags, create_only=create_only, replaces=replaces)
        return found

    def abort(self, key: str, upload: str) -> Exchange[None]:
        found: Exchange[None] = self._inner.abort(self._base + key, upload)
        return found

    def uploads(self, prefix: str, *, token: str = "") -> Exchange[Uploads]:
        return _mapped(self._inner.uploads(self._base + prefix, token=token), self._uploads)

    def _uploads(self, page: Uploads) -> Uploads:
        entries = tuple(replace(each, key=each.key.removeprefix(self._base)) for each in page.entries)
        return Uploads(entries, page.token)


class _Copy(_Below):
    def copy(self, source: str, key: str, etag: str = "") -> Exchange[str]:
        found: Exchange[str] = self._inner.copy(self._base + source, self._base + key, etag)
        return found


class _Move(_Below):
    def move(
        self, source: str, key: str, etag: str = "", *, create_only: bool = False, replaces: str = ""
    ) -> Exchange[str]:
        here, there = self._base + source, self._base + key
        found: Exchange[str] = self._inner.move(here, there, etag, create_only=create_only, replaces=replaces)
        return found


class _PartCopy(_Below):
    def copy_part(self, key: str, upload: str, part: Part, span: Span) -> Exchange[str]:
        whole = Span(self._base + span[0], *span[1:])
        found: Exchange[str] = self._inner.copy_part(self._base + key, upload, part, whole)
        return found


class _Presign(_Below):
    def presign(self, key: str, method: Literal["GET", "PUT"], expires_s: float | None, now: float) -> Presigned:
        found: Presigned = self._inner.presign(self._base + key, method, expires_s, now)
        return found


_VERBS: dict[Callable[..., object], type[_Below]] = {
    Suffix: _Suffix,
    List: _List,
    Put: _Put,
    PutMany: _PutMany,
    Delete: _Delete,
    Multipart: _Multipart,
    Copy: _Copy,
    Move: _Move,
    PartCopy: _PartCopy,
    Presign: _Presign,
}


@cache
def _kind(verbs: tuple[Callable[..., object], ...]) -> type[_Below]:
    """Return the class of the drivers with these verbs and no other."""
    return type("Below", (*(_VERBS[verb] for verb in verbs), _Below), {})


def _mapped(exchange: Exchange[T], change: Callable[[T], T]) -> Exchange[T]:
    read = exchange.parse

    def parse(response: Response) -> T:
        return change(read(response))

    return Exchange(exchange.request, parse)
