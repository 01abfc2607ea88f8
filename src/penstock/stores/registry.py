"""Lookup of providers by URL scheme: Penstock's own table first, then entry points of other distributions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.stores.provider import Provider

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["GROUP", "LOCAL", "find", "loaded", "own", "schemes"]

GROUP = "penstock.providers"  # entry points: scheme -> Provider
LOCAL = "file"  # the scheme of a bare path

# Scheme, or family (`name+*` is every `name+…`) -> module in this package with its PROVIDER, or module:NAME.
# The module is imported when a URL first has this scheme.
_TABLE = {
    "s3": "s3.provider",
    "oss": "oss.provider",
    "r2": "s3.provider:R2",
    "oci": "s3.provider:OCI",
    "b2": "s3.provider:B2",
    "tigris": "s3.provider:TIGRIS",
    "t3": "s3.provider:TIGRIS",
    "ais": "s3.provider:AIS",
    "az": "azure.provider",
    "abfs": "azure.provider",
    "abfss": "azure.provider",
    "adl": "azure.provider",
    "azure": "azure.provider",
    "gs": "gcs.provider",
    "gcs": "gcs.provider",
    "https": "web.provider",
    "http": "web.provider",
    "fsspec+*": "fsspec.provider",
    LOCAL: "local.driver",
    "memory": "memory.driver",
    "penstock": "profiles.profile_provider",
    "msc": "profiles.msc",
}
_loaded: dict[str, Provider] = {}


def find(scheme: str) -> Provider | None:
    """Return the provider of a scheme; None for an unknown scheme.

    The entry points of installed distributions are read only for a scheme that Penstock itself does not have.

    Raises:
        ConfigError: Two distributions provide the scheme, or its only one is broken; the message names them.

    """
    names = (scheme, family) if (family := _family(scheme)) else (scheme,)
    for look in (_loaded.get, _own, _installed):
        for name in names:
            if (found := look(name)) is not None:
                return _loaded.setdefault(name, found)
    return None


def own() -> list[Provider]:
    """Return Penstock's own providers, each once; S3 last."""
    return [_imported(scheme) for scheme in {file: scheme for scheme, file in reversed(_TABLE.items())}.values()]


def loaded() -> list[str]:
    """Return the schemes that are known without reading installed entry points."""
    return list(dict.fromkeys((*_TABLE, *_loaded)))


def schemes() -> list[str]:
    """Return all schemes: Penstock's own, and those of other distributions, without importing them."""
    return list(dict.fromkeys((*loaded(), *sorted(each.name for each in _entries()))))


def _family(scheme: str) -> str:
    """Return the family that a scheme may belong to, ``name+*``; empty for a scheme without a family."""
    head, mark, rest = scheme.partition("+")
    return f"{head}+*" if mark and rest and rest != "*" else ""


def _own(scheme: str) -> Provider | None:
    return _imported(scheme) if scheme in _TABLE else None


def _imported(scheme: str) -> Provider:
    file, _, name = _TABLE[scheme].partition(":")
    provider: Provider = getattr(import_module(f"{__package__}.{file}"), name or "PROVIDER")
    return provider


def _entries() -> list[EntryPoint]:
    from importlib.metadata import entry_points

    return list(entry_points(group=GROUP))


def _installed(scheme: str) -> Provider | None:
    offers = {f"{each.value!r} of {_distribution(each)}": each for each in _entries() if each.name == scheme}
    if len(offers) > 1:
        raise ConfigError(f"{scheme}:// is provided twice, by {' and by '.join(sorted(offers))}: uninstall one of them")
    for offer, entry in offers.items():
        return _load(scheme, offer, entry)
    return None


def _load(scheme: str, offer: str, entry: EntryPoint) -> Provider:
    where = f"the provider of {scheme}://, {offer},"
    try:
        provider: object = entry.load()
    except Exception as error:
        words = f"{where} cannot be imported: {type(error).__name__}: {error}; upgrade or uninstall that distribution"
        raise ConfigError(words) from error
    if not isinstance(provider, Provider):
        raise ConfigError(f"{where} is no penstock.stores.provider.Provider but a {type(provider).__name__}")
    if scheme not in provider.schemes:
        raise ConfigError(f"{where} says that its schemes are {', '.join(provider.schemes)}: give each its entry point")
    return provider


def _distribution(entry: EntryPoint) -> str:
    return f"the distribution {entry.dist.name!r}" if entry.dist is not None else "an unnamed distribution"
