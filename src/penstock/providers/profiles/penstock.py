"""Profiles as providers: ``penstock://name/path`` is a path below the URL of the profile ``name``, with its options."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.config.profiles.sinks import NamedSinks, open_named
from penstock.errors import ConfigError, alias
from penstock.options import StoreOptions
from penstock.providers.profiles.lookup import PENSTOCK, Profile, bad_name, load
from penstock.providers.provider import Opening, Provider, Route

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from penstock.protocols.driver import Driver
    from penstock.protocols.exchange import Transport
    from penstock.providers.urls import Location

__all__ = ["PROVIDER", "chosen", "through"]

_providers: dict[str, tuple[Profile, Provider]] = {}


def chosen(location: Location, store: StoreOptions | str | None) -> StoreOptions:
    """Return what ``store=`` means for a location: options, those of the profile of this name, or none.

    Raises:
        ConfigError: There is no such profile, or the location is a path of another one.

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
    """Return the provider of ``penstock://name/…``; the same as long as the profile is."""
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
    alias(f"/{base}" if local else target.url, f"{scheme}://{name}/")  # as the drivers say it

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
    """Return a provider whose keys all begin with ``base``, which the key that a user names leaves out."""

    def opened(opening: Opening) -> tuple[Driver, Transport]:
        from penstock.drivers.below import below

        open_named(sinks)
        route = opening.settings
        inner = replace(opening, provider=real, scheme=route.scheme, bucket=route.bucket, settings=route.settings)
        driver, transport = real.open(inner)
        return below(driver, route.base, opening.root), transport

    most = max(real.limits.key_bytes - len(base.encode()), 0)
    return replace(real, open=opened, limits=replace(real.limits, key_bytes=most))


def _store_parts(provider: Provider) -> dict[str, Any]:
    """Return what a preset decides: how a bucket is opened, what its store can do, and how large things may be."""
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
