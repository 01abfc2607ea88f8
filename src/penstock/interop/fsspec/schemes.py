"""Schemes that fsspec opens with Penstock: a class for each, since fsspec keeps a scheme with its class.

A class is found here by its scheme, ``penstock.interop.fsspec.schemes.s3``: that is how pickles and JSON name it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsspec import register_implementation

from penstock.errors import ConfigError, UnknownScheme
from penstock.interop.fsspec.filesystem import PenstockFileSystem
from penstock.options import StoreOptions
from penstock.providers.urls import scheme_provider

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["kind_of", "register"]

_kinds: dict[str, type[PenstockFileSystem]] = dict.fromkeys(PenstockFileSystem.protocol, PenstockFileSystem)


def register(*schemes: str, store: StoreOptions | str | None = None) -> None:
    """Have fsspec open these schemes with Penstock from here on, in this process, whatever is installed for them.

    ``register("s3", "gs", "az")``; without a name ``s3``. ``store``'s options are for every URL of them; default:
    environment and profile. Call it where the program begins, before anything opens a URL: file systems that exist
    already stay what they are. A process that is spawned registers again; file systems that travel there need not.

    Raises:
        UnknownScheme: No provider has a scheme; then none is registered.
        ConfigError: ``store`` holds options of another provider.

    """
    given: tuple[object, ...] = schemes
    for scheme in given:
        if not isinstance(scheme, str):
            message = f"register takes schemes, and options as store=: register('s3', store={type(scheme).__name__}(…))"
            raise ConfigError(message)
        if "://" in scheme:
            raise UnknownScheme(f"register takes schemes: {scheme.partition('://')[0]!r}, not a URL")
    kinds = {scheme: kind_of(scheme) for scheme in schemes or ("s3",)}
    if isinstance(store, StoreOptions):
        for scheme in kinds:
            if scheme_provider(scheme).named is None:
                scheme_provider(scheme).take(store)
    for scheme, kind in kinds.items():
        kind.default = store
        register_implementation(scheme, kind, clobber=True)


def kind_of(scheme: str) -> type[PenstockFileSystem]:
    """Return the class of one scheme's file systems. Raises ``UnknownScheme``."""
    kind = _kinds.get(scheme)
    if kind is None:
        scheme_provider(scheme)
        made = type(scheme, (PenstockFileSystem,), {"protocol": scheme, "default": None, "__module__": __name__})
        kind = _kinds.setdefault(scheme, made)
    return kind


def __getattr__(name: str) -> Callable[..., object]:
    """Return a scheme's class, for what names it: pickles, JSON, fsspec's registry."""
    if name.startswith("_"):
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    try:
        return kind_of(name)
    except UnknownScheme as error:
        raise AttributeError(str(error)) from error
