"""Arguments of other libraries: warnings for those without effect, errors for unsupported ones; torch's writer."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.errors import ConfigError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

# Arguments with no effect on the saved data: their defaults in torch 2.13, and the reason.
UNUSED = {
    "single_file_per_rank": (True, "each rank writes one object"),
    "sync_files": (True, "an object is there, and compared, when it is closed"),
    "thread_count": (1, "each rank's object goes up in parallel parts"),
    "per_thread_copy_ahead": (10_000_000, "a rank stages pieces of 8 MiB"),
    "cache_staged_state_dict": (False, "pieces are staged as they are sent"),
}


def overwrite_of(owner: str, arguments: dict[str, Any]) -> bool:
    """Return ``overwrite`` (default True), and warn about arguments that have no effect."""
    given = dict(arguments)
    overwrite = bool(given.pop("overwrite", True))
    for name, (default, why) in UNUSED.items():
        if given.pop(name, default) != default:
            not_honoured(f"{owner}({name}=…)", why)
    if given:
        raise TypeError(f"{owner} got unexpected arguments: {', '.join(given)}")
    return overwrite


def refuse_name(module: str, name: str, instead: Mapping[str, str]) -> NoReturn:
    """Raise ``Unsupported`` with the alternative for a name of the original, and ``AttributeError`` for any other.

    For a module's ``__getattr__``. An ``AttributeError`` would lose its text in ``from module import name``.
    """
    if name in instead:
        raise Unsupported(f"{name} is not a part of {module}: {instead[name]}")
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


class WrongArgument(ConfigError, ValueError):
    """Invalid argument, for which the original raises a ``ValueError``."""


_named: set[str] = set()


def not_honoured(argument: str, why: str) -> None:
    """Warn that ``argument`` has no effect, and why, the first time in this process."""
    if argument in _named:
        return
    _named.add(argument)
    warnings.warn(f"{argument} is not honoured: {why}", UserWarning, stacklevel=4)
