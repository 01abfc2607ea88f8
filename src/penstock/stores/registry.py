"""Lookup of stores by URL scheme: Penstock's own table first, then entry points of other distributions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.stores.store import Store

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["GROUP", "LOCAL", "find", "loaded", "own", "schemes"]

GROUP = "penstock.providers"  # entry points: scheme -> class of a store
LOCAL = "file"  # the scheme of a bare path

# Scheme, or family (`name+*` is every `name+…`) -> module in this package, and the class in it. The module is imported
# when a URL first has this scheme.
_TABLE = {
    "s3": "s3.services:AWS",
    "oss": "oss.store:OSS",
    "r2": "s3.services:R2",
    "oci": "s3.services:OCI",
    "b2": "s3.services:B2",
    "tigris": "s3.services:Tigris",
    "t3": "s3.services:Tigris",
    "ais": "s3.services:AIStore",
    "az": "azure.store:Azure",
    "abfs": "azure.store:Azure",
    "abfss": "azure.store:Azure",
    "adl": "azure.store:Azure",
    "azure": "azure.store:Azure",
    "gs": "gcs.store:GCS",
    "gcs": "gcs.store:GCS",
    "https": "web.store:Web",
    "http": "web.store:Web",
    "fsspec+*": "fsspec.store:Fsspec",
    LOCAL: "local.driver:Local",
    "memory": "memory.driver:Memory",
    "penstock": "profiles.store:Profiles",
    "msc": "profiles.store:MultiStorage",
}
_loaded: dict[str, Store] = {}
_instances: dict[type[Store], Store] = {}


def find(scheme: str) -> Store | None:
    """Return the store of a scheme; None for an unknown scheme.

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


def own() -> list[Store]:
    """Return Penstock's own stores, each once; S3 last."""
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


def _own(scheme: str) -> Store | None:
    return _imported(scheme) if scheme in _TABLE else None


def _imported(scheme: str) -> Store:
    file, _, name = _TABLE[scheme].partition(":")
    return _made(getattr(import_module(f"{__package__}.{file}"), name))


def _made(kind: type[Store]) -> Store:
    """Return the only instance of a class: one for all of its schemes."""
    return _instances.get(kind) or _instances.setdefault(kind, kind())


def _entries() -> list[EntryPoint]:
    from importlib.metadata import entry_points

    return list(entry_points(group=GROUP))


def _installed(scheme: str) -> Store | None:
    offers = {f"{each.value!r} of {_distribution(each)}": each for each in _entries() if each.name == scheme}
    if len(offers) > 1:
        raise ConfigError(f"{scheme}:// is provided twice, by {' and by '.join(sorted(offers))}: uninstall one of them")
    for offer, entry in offers.items():
        return _load(scheme, offer, entry)
    return None


def _load(scheme: str, offer: str, entry: EntryPoint) -> Store:
    where = f"the provider of {scheme}://, {offer},"
    try:
        kind: object = entry.load()
    except Exception as error:
        words = f"{where} cannot be imported: {type(error).__name__}: {error}; upgrade or uninstall that distribution"
        raise ConfigError(words) from error
    if not (isinstance(kind, type) and issubclass(kind, Store)):
        found = f"the class {kind.__name__}" if isinstance(kind, type) else f"a {type(kind).__name__}"
        raise ConfigError(f"{where} must be a class derived from penstock.stores.store.Store, got {found}")
    if scheme not in kind.schemes:
        raise ConfigError(f"{where} says that its schemes are {', '.join(kind.schemes)}: give each its entry point")
    return _made(kind)


def _distribution(entry: EntryPoint) -> str:
    return f"the distribution {entry.dist.name!r}" if entry.dist is not None else "an unnamed distribution"
