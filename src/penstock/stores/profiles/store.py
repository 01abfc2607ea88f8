"""Profiles as stores: ``penstock://name/path``, and ``msc://name/path`` for those of Multi-Storage Client."""

from __future__ import annotations

import os
from copy import copy
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from penstock.engine.contracts.driver import (
    Copy,
    Delete,
    Driver,
    List,
    Metered,
    Move,
    Multipart,
    PartCopy,
    Presign,
    Put,
    PutMany,
    Suffix,
    Summed,
    Versions,
)
from penstock.engine.contracts.exchange import Exchange
from penstock.engine.listing.listing import Entries
from penstock.engine.support import supports
from penstock.errors import ConfigError, PenstockError, alias
from penstock.options import StoreOptions
from penstock.stores.profiles.lookup import MSC, PENSTOCK, Profile, bad_name, load
from penstock.stores.profiles.sinks import open_named
from penstock.stores.store import Opening, Route, Store
from penstock.stores.urls import Location
from penstock.values import ObjectMeta, Page, Span, Uploads

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.driver import Abilities, Attributes, Payload, UploadPart
    from penstock.engine.contracts.exchange import Response, Transport
    from penstock.values import Checksum

_stores: dict[tuple[str, str], tuple[Profile, ProfileStore]] = {}


def choose_options(location: Location, store: str) -> StoreOptions:
    """Return the options of the profile that ``store=`` names for a location; none for the location's own profile."""
    if location.store.defaults is None:
        profile = load(store)
        if profile.sinks:
            open_named(profile.sinks)
        return profile.options
    if store == location.bucket:
        return StoreOptions()
    raise ConfigError(f"{location.root} uses the options of its profile: leave out store={store!r}")


class Profiles(Store):
    """``penstock://name/path``: paths below the URL of profile ``name``, with its options."""

    name = "a profile"
    schemes = (PENSTOCK,)
    any_options = True
    profiles = True

    def open(self, opening: Opening) -> tuple[Driver, Transport]:
        raise ConfigError("a profile is opened by its name", url=opening.root)

    def bucket_fault(self, bucket: str) -> str:
        return bad_name(bucket)

    def named(self, bucket: str) -> Store:
        """Return the store of one profile; cached until the profile changes."""
        scheme = self.schemes[0]
        profile = load(bucket.partition("/")[0], os.environ, scheme)
        held = _stores.get((scheme, bucket))
        if held is None or held[0] is not profile:
            held = _stores[scheme, bucket] = profile, ProfileStore(self, self._completed(profile, bucket))
        return held[1]

    def _completed(self, profile: Profile, bucket: str) -> Profile:  # noqa: ARG002  for the subclass
        return profile


class MultiStorage(Profiles):
    """``msc://``: profiles of NVIDIA's Multi-Storage Client, from its own files; it need not be installed.

    For a profile without a bucket, the bucket follows the name, as for rclone's remotes: ``msc://profile/bucket/key``.
    """

    name = "a profile of Multi-Storage Client"
    schemes = (MSC,)

    def split(self, rest: str) -> tuple[str, str]:
        """Split after the profile, or after the bucket that follows it."""
        name, _, path = rest.partition("/")
        try:
            whole = bad_name(name, MSC) or load(name, os.environ, MSC).target is not None
        except PenstockError:
            whole = True  # the location reports the error
        if whole or not path:
            return name, path
        bucket, _, key = path.partition("/")
        return f"{name}/{bucket}", key

    def bucket_fault(self, bucket: str) -> str:
        name, mark, inner = bucket.partition("/")
        return bad_name(name, MSC) or (bad_name(inner, MSC) if mark else "")

    def _completed(self, profile: Profile, bucket: str) -> Profile:
        name, _, inner = bucket.partition("/")
        target = profile.target
        if target is None:
            if not inner:
                raise ConfigError(f"{profile.origin} names no bucket: write msc://{name}/bucket/key")
            target = Location(profile.store.schemes[0], inner, "")
        return replace(profile, name=bucket, target=target)


class ProfileStore(Store):
    """Store of one profile: its own store, with keys relative to the profile's URL."""

    def __init__(self, entry: Profiles, profile: Profile) -> None:
        """Represent ``profile`` of ``entry``; raise ``ConfigError`` if it has no URL."""
        name, scheme, real, target = profile.name, entry.schemes[0], profile.store, profile.target
        if target is None:
            message = f"{profile.origin} has no url: use it as store={name!r}, and {scheme}://{name}/ needs one"
            raise ConfigError(message)
        self._entry, self._profile, self._place = entry, profile, target
        self.schemes, self.defaults, self.target = entry.schemes, profile.options, target.url
        self.options, self.any_options = real.options, real.any_options
        self.example, self.where = real.example, real.where
        self._stand_for(real)
        alias(f"/{target.key}" if target.local else target.url, f"{scheme}://{name}/")  # as drivers write it

    def _stand_for(self, real: Store) -> None:
        """Take the differences between presets of one store from ``real``, which opens the buckets."""
        self._real = real
        self.name, self.abilities, self.extra = real.name, real.abilities, real.extra
        most = max(real.limits.key_bytes - len(self._place.key.encode()), 0)
        self.limits = replace(real.limits, key_bytes=most)

    def open(self, opening: Opening) -> tuple[Driver, Transport]:
        """Open the profile's sinks and its bucket; users leave the base of its keys out."""
        if self._profile.sinks:
            open_named(self._profile.sinks)
        route = opening.settings
        inner = replace(opening, scheme=route.scheme, bucket=route.bucket, settings=route.settings)
        driver, transport = self._real.open(inner)
        return scope_driver(driver, route.base, opening.root), transport

    def split(self, rest: str) -> tuple[str, str]:
        return self._entry.split(rest)

    def bucket_fault(self, bucket: str) -> str:
        return self._entry.bucket_fault(bucket)

    def key_fault(self, key: str) -> str:
        """Return why the whole key is invalid; refuse to leave a profile's directory."""
        if self._place.local and ".." in key.split("/"):
            return "'..' does not leave the directory of a profile"
        return self._profile.store.key_fault(self._place.key + key)

    def resolve(self, options: Any, environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:  # noqa: ANN401  the store's
        settings, identity = self._profile.store.resolve(options, environ)
        return Route(self._place.scheme, self._place.bucket, self._place.key, settings), identity

    def variant(self, route: Route) -> Store | None:
        found = self._profile.store.variant(route.settings)
        if found is None:
            return None
        made = copy(self)
        made._stand_for(found)  # noqa: SLF001  its own class
        return made


T = TypeVar("T")
_VERBS = (Suffix, Summed, Metered, List, Versions, Put, PutMany, Delete, Multipart, Copy, Move, PartCopy, Presign)


class _Verbs(
    Summed,
    Metered,
    Driver,
    Suffix,
    List,
    Versions,
    Put,
    PutMany,
    Delete,
    Multipart,
    Copy,
    Move,
    PartCopy,
    Presign,
    Protocol,
):
    """Driver with all verbs, for type checkers."""


def scope_driver(driver: Driver, base: str, root: str) -> Driver:
    """Return a driver with the same verbs as ``driver`` for keys relative to ``base``.

    URLs consist of ``root`` and the relative key; errors of the driver itself keep the full key. A read costs one more
    Python call than without ``base``.
    """
    kind = _make_driver_class(tuple(verb for verb in _VERBS if not supports(driver, verb)))
    return kind(cast("_Verbs", driver), base, root)


@cache
def _make_driver_class(missing: tuple[type, ...]) -> type[_Below]:
    names = (name for verb in missing for name in vars(verb) if not name.startswith("_") and name != "head")
    return type("Below", (_Below,), dict.fromkeys(names))


def _with_base(name: str) -> Callable[..., Any]:
    """Return a method that calls the inner driver's verb with the whole key."""

    def verb(self: _Below, key: str, *given: Any, **options: Any) -> Any:  # noqa: ANN401  those of the verb
        return getattr(self._inner, name)(self._base + key, *given, **options)

    return verb


class _Below:
    """Driver with all verbs; a subclass sets the driver's missing verbs to None."""

    def __init__(self, inner: _Verbs, base: str, root: str) -> None:
        self._inner, self._base, self._root = inner, base, root
        self.prepare: Callable[[], None] = inner.prepare
        self.identity: object = getattr(inner, "identity", None)  # of drivers that sign
        # Without a base there is nothing to translate: as fast as the driver itself.
        if not base:
            self.read, self.get = inner.read, inner.get  # type: ignore[method-assign]

    @property
    def abilities(self) -> Abilities:
        return self._inner.abilities

    @abilities.setter
    def abilities(self, learned: Abilities) -> None:
        self._inner.abilities = learned

    def url(self, key: str) -> str:
        return self._root + key

    def head(self, key: str, *, sums: bool = False) -> Exchange[ObjectMeta]:
        whole = self._base + key
        found = self._inner.head(whole, sums=True) if sums else self._inner.head(whole)
        return _map_exchange(found, lambda meta: replace(meta, key=key))

    def head_version(self, key: str, etag: str = "", *, sums: bool = False) -> Exchange[ObjectMeta]:
        found = self._inner.head_version(self._base + key, etag, sums=sums)
        return _map_exchange(found, lambda meta: replace(meta, key=key))

    def read(self, span: Span, target: Buffer) -> Exchange[int]:
        return self._inner.read(Span(self._base + span[0], *span[1:]), target)

    @property
    def rates(self) -> dict[str, float]:
        return self._inner.rates

    def quota(self, verb: str, key: str) -> str:
        return self._inner.quota(verb, self._base + key)

    def checksum(self, headers: Mapping[str, str]) -> Checksum | None:
        return self._inner.checksum(headers)

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        return self._list(self._inner.list, prefix, token, start_after, delimiter)

    def list_versions(
        self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = ""
    ) -> Exchange[Page]:
        return self._list(self._inner.list_versions, prefix, token, start_after, delimiter)

    def _list(
        self, verb: Callable[..., Exchange[Page]], prefix: str, token: str, start_after: str, delimiter: str
    ) -> Exchange[Page]:
        after = self._base + start_after if start_after else ""
        listing = verb(self._base + prefix, token=token, start_after=after, delimiter=delimiter)
        return _map_exchange(listing, self._page) if self._base else listing

    def _page(self, page: Page) -> Page:
        found = page.entries
        if isinstance(found, Entries):
            entries: Sequence[ObjectMeta] = found.below(self._base)
        else:
            entries = tuple(replace(each, key=self._relative(each.key)) for each in found)
        return replace(page, entries=entries, prefixes=tuple(self._relative(each) for each in page.prefixes))

    def _relative(self, key: str) -> str:
        # A key outside the base is left unchanged: the caller checks the page against its prefix.
        return key.removeprefix(self._base)

    def put_many(
        self, prefix: str, puts: Sequence[tuple[str, Payload, Attributes]]
    ) -> Exchange[Sequence[str | PenstockError]]:
        whole = [(self._base + key, body, attributes) for key, body, attributes in puts]
        return self._inner.put_many(self._base + prefix, whole)

    def uploads(self, prefix: str, *, token: str = "") -> Exchange[Uploads]:
        return _map_exchange(self._inner.uploads(self._base + prefix, token=token), self._uploads)

    def _uploads(self, page: Uploads) -> Uploads:
        return Uploads(tuple(replace(each, key=self._relative(each.key)) for each in page.entries), page.token)

    def copy(self, source: str, key: str, etag: str = "") -> Exchange[str]:
        return self._inner.copy(self._base + source, self._base + key, etag)

    def move(
        self, source: str, key: str, etag: str = "", *, create_only: bool = False, replaces: str = ""
    ) -> Exchange[str]:
        here, there = self._base + source, self._base + key
        return self._inner.move(here, there, etag, create_only=create_only, replaces=replaces)

    def copy_part(self, key: str, upload: str, part: UploadPart, span: Span) -> Exchange[str]:
        return self._inner.copy_part(self._base + key, upload, part, Span(self._base + span[0], *span[1:]))

    # Verbs of one object, whose key comes first.
    get, suffix, put, delete, presign = map(_with_base, ("get", "suffix", "put", "delete", "presign"))
    versioning = _with_base("versioning")
    create, part, complete, abort = map(_with_base, ("create", "part", "complete", "abort"))


def _map_exchange(exchange: Exchange[T], change: Callable[[T], T]) -> Exchange[T]:
    read = exchange.parse

    def parse(response: Response) -> T:
        return change(read(response))

    return Exchange(exchange.request, parse)
