"""Which provider a scheme belongs to: one table of Penstock's own, then those that other distributions add."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.providers.provider import Provider

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["GROUP", "LOCAL", "find", "loaded", "own", "schemes"]

GROUP = "penstock.providers"  # entry points, each called by a scheme, each a Provider
LOCAL = "file"  # the scheme of a bare path

# Scheme, or a family of them (`name+*` is every `name+…`) -> the file of this room that has its PROVIDER, or file:NAME;
# imported when a URL first has this scheme.
_TABLE = {
    "s3": "s3",
    "oss": "s3family.oss",
    "r2": "s3family.presets:R2",
    "oci": "s3family.presets:OCI",
    "b2": "s3family.presets:B2",
    "tigris": "s3family.presets:TIGRIS",
    "t3": "s3family.presets:TIGRIS",
    "ais": "s3family.presets:AIS",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
    "adl": "azure",
    "azure": "azure",
    "gs": "gcs",
    "gcs": "gcs",
    "https": "files.web",
    "http": "files.web",
    "fsspec+*": "files.fsspec",
    LOCAL: "local",
    "memory": "memory",
    "penstock": "profiles.penstock",
    "msc": "profiles.msc",
}
_loaded: dict[str, Provider] = {}


def find(scheme: str) -> Provider | None:
    """Return the provider of a scheme, None where no provider has it.

    The entry points of installed distributions are read only for a scheme that Penstock itself does not have.

    Raises:
        ConfigError: Two distributions provide it, or the one that does is broken; the text names them.

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
    """Return the schemes that are known without a look at what is installed."""
    return list(dict.fromkeys((*_TABLE, *_loaded)))


def schemes() -> list[str]:
    """Return all schemes: Penstock's own, and those of other distributions, which are not imported for it."""
    return list(dict.fromkeys((*loaded(), *sorted(each.name for each in _entries()))))


def _family(scheme: str) -> str:
    """Return the name of the family that a scheme may belong to; empty where it can belong to none."""
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
        raise ConfigError(f"{where} is no penstock.providers.provider.Provider but a {type(provider).__name__}")
    if scheme not in provider.schemes:
        raise ConfigError(f"{where} says that its schemes are {', '.join(provider.schemes)}: give each its entry point")
    return provider


def _distribution(entry: EntryPoint) -> str:
    return f"the distribution {entry.dist.name!r}" if entry.dist is not None else "an unnamed distribution"
