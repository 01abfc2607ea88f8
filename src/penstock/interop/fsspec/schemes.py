"""Schemes that fsspec opens with Penstock: one class each, because fsspec stores the scheme in the class.

Each class is an attribute of this module, such as ``penstock.interop.fsspec.schemes.s3``; pickles and JSON refer to it
by this name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsspec import register_implementation

from penstock.errors import ConfigError, InvalidURL, UnknownScheme
from penstock.interop.fsspec.filesystem import PenstockFileSystem
from penstock.options import StoreOptions
from penstock.stores.urls import scheme_store

if TYPE_CHECKING:
    from collections.abc import Callable

_kinds: dict[str, type[PenstockFileSystem]] = {PenstockFileSystem.protocol: PenstockFileSystem}


def register(*schemes: str, store: StoreOptions | str | None = None) -> None:
    r"""Make fsspec open these schemes with Penstock in this process, instead of any other installed implementation.

    Call it at the start of the program, before a URL is opened: existing file systems do not change. A spawned process
    must register again; file systems pickled to it need not.

    Args:
        *schemes: The schemes, such as ``"s3", "gs", "az"``; default: ``s3``.
        store: Options for every URL of these schemes, or the name of a profile; default: environment and profile.

    Raises:
        UnknownScheme: No provider has one of the schemes; then none is registered.
        ConfigError: ``store`` holds options of another provider.

    Example:
        >>> import fsspec
        >>> from penstock.interop.fsspec import register
        >>> register("s3")
        >>> fsspec.open("s3://bucket/train/3/0000.png").open().read(4)
        b'\x89PNG'
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
            if not scheme_store(scheme).profiles:
                scheme_store(scheme).take(store)
    for scheme, kind in kinds.items():
        kind.default = store
        register_implementation(scheme, kind, clobber=True)


def kind_of(scheme: str) -> type[PenstockFileSystem]:
    """Return the class of one scheme's file systems; raise ``UnknownScheme`` if no provider has the scheme."""
    kind = _kinds.get(scheme)
    if kind is None:
        scheme_store(scheme)
        made = type(scheme, (PenstockFileSystem,), {"protocol": scheme, "default": None, "__module__": __name__})
        kind = _kinds.setdefault(scheme, made)
    return kind


def __getattr__(name: str) -> Callable[..., object]:
    """Return the class of a scheme by its name, for pickles, JSON and fsspec's registry."""
    if name.startswith("_"):
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    try:
        return kind_of(name)
    except (UnknownScheme, InvalidURL) as error:
        # pickle looks for the module of a global in all modules, so any name is asked for.
        raise AttributeError(str(error)) from error
