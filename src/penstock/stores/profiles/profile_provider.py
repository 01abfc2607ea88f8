"""Profiles as providers: ``penstock://name/path`` is a path below the URL of profile ``name``, with its options."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from penstock.engine.contracts.driver import (
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
    Summed,
)
from penstock.engine.contracts.exchange import Exchange
from penstock.engine.listing.listing import Entries
from penstock.engine.support import supports
from penstock.errors import ConfigError, alias
from penstock.options import StoreOptions
from penstock.stores.profiles.lookup import PENSTOCK, Profile, bad_name, load
from penstock.stores.profiles.mapping import NamedSinks, open_named
from penstock.stores.provider import Opening, Provider, Route
from penstock.values import ObjectMeta, Page, Presigned, Span, Uploads

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.driver import Abilities, Attributes, Beginning, Driver, Ending, Part, Payload
    from penstock.engine.contracts.exchange import Response, Transport
    from penstock.errors import PenstockError
    from penstock.stores.urls import Location
    from penstock.values import Checksum

__all__ = ["PROVIDER", "below", "chosen", "through"]

_providers: dict[str, tuple[Profile, Provider]] = {}


def chosen(location: Location, store: StoreOptions | str | None) -> StoreOptions:
    """Return the options that ``store=`` selects for a location: given ones, those of a profile by name, or none.

    Raises:
        ConfigError: The profile does not exist, or the location is a path of a different profile.

    """
    if not isinstance(store, str):
        return StoreOptions() if store is None else store
    if location.provider.defaults is None:
        profile = load(store)
        open_named(profile.sinks)
        return profile.options
    if store == location.bucket:
        return StoreOptions()
    raise ConfigError(f"{location.root} has the options of its own profile: leave store={store!r} out")


def _named(name: str) -> Provider:
    """Return the provider of ``penstock://name/…``; cached until the profile changes."""
    profile = load(name)
    made = _providers.get(name)
    if made is None or made[0] is not profile:
        made = _providers[name] = profile, through(PENSTOCK, profile)
    return made[1]


def through(scheme: str, profile: Profile) -> Provider:
    """Return the provider of ``scheme://profile/…``: paths below the profile's URL, with its options.

    Raises:
        ConfigError: The profile has no URL.

    """
    name, real, target = profile.name, profile.provider, profile.target
    if target is None:
        raise ConfigError(f"{profile.origin} has no url: it is for store={name!r}, and {scheme}://{name}/ needs one")
    base, local = target.key, target.local
    alias(f"/{base}" if local else target.url, f"{scheme}://{name}/")  # as drivers write it

    def fault(key: str) -> str:
        if local and ".." in key.split("/"):
            return "'..' does not leave the directory of a profile"
        return real.key_fault(base + key)

    def resolved(options: Any, environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:  # noqa: ANN401  the provider's
        settings, identity = real.resolve(options, environ)
        return Route(target.scheme, target.bucket, base, settings), identity

    whole = replace(
        _below(real, base, profile.sinks),
        schemes=(scheme,),
        split=PROVIDER.split,
        bucket_fault=bad_name,
        key_fault=fault,
        defaults=profile.options,
        target=target.url,
        resolve=resolved,
        named=None,
    )

    def variant(route: Route) -> Provider | None:
        found = real.variant(route.settings)
        return found and replace(whole, **_store_parts(_below(found, base, profile.sinks)))

    return replace(whole, variant=variant)


def _below(real: Provider, base: str, sinks: NamedSinks) -> Provider:
    """Return a provider whose keys all begin with ``base``; users leave ``base`` out."""

    def opened(opening: Opening) -> tuple[Driver, Transport]:

        open_named(sinks)
        route = opening.settings
        inner = replace(opening, provider=real, scheme=route.scheme, bucket=route.bucket, settings=route.settings)
        driver, transport = real.open(inner)
        return below(driver, route.base, opening.root), transport

    most = max(real.limits.key_bytes - len(base.encode()), 0)
    return replace(real, open=opened, limits=replace(real.limits, key_bytes=most))


def _store_parts(provider: Provider) -> dict[str, Any]:
    """Return the parts of a preset: name, function that opens a bucket, limits, abilities and extra."""
    return {each: getattr(provider, each) for each in ("name", "open", "limits", "abilities", "extra")}


def _unnamed(opening: Opening) -> tuple[Driver, Transport]:
    raise ConfigError("a profile is opened by its name", url=opening.root)


PROVIDER = Provider(
    name="a profile",
    schemes=(PENSTOCK,),
    open=_unnamed,
    bucket_fault=bad_name,
    any_options=True,
    named=_named,
)


T = TypeVar("T")


def below(driver: Driver, base: str, root: str) -> Driver:
    """Return a driver with the same verbs as ``driver`` for keys below ``base``, which callers leave out.

    URLs consist of ``root`` and the relative key; errors of the driver itself keep the full key. A read costs one more
    Python call than without ``base``.
    """
    verbs = tuple(verb for verb in _VERBS if supports(driver, verb))
    kind: type[Any] = _kind(verbs)
    found: Driver = kind(driver, base, root)
    return found


class _Below:
    """Members that every driver has."""

    def __init__(self, inner: Any, base: str, root: str) -> None:  # noqa: ANN401  with any verbs
        self._inner, self._base, self._root = inner, base, root
        self.prepare: Callable[[], None] = inner.prepare
        self.identity: object = getattr(inner, "identity", None)  # of drivers that sign
        # Without a base there is nothing to translate: as fast as the driver itself.
        if not base:
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


class _Summed(_Below):
    def head(self, key: str, *, sums: bool = False) -> Exchange[ObjectMeta]:
        return _mapped(self._inner.head(self._base + key, sums=sums), lambda meta: replace(meta, key=key))

    def checksum(self, headers: Mapping[str, str]) -> Checksum | None:
        found: Checksum | None = self._inner.checksum(headers)
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
        # A key outside the base is left unchanged: the caller checks the page against its prefix.
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
    Summed: _Summed,
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
    """Return the class of drivers with exactly these verbs."""
    return type("Below", (*(_VERBS[verb] for verb in verbs), _Below), {})


def _mapped(exchange: Exchange[T], change: Callable[[T], T]) -> Exchange[T]:
    read = exchange.parse

    def parse(response: Response) -> T:
        return change(read(response))

    return Exchange(exchange.request, parse)
