"""Translation of the arguments of torch's ``FileSystemWriter`` into those of Penstock's ``StorageWriter``."""

from __future__ import annotations

from typing import Any

from penstock.compat.hints import not_honoured

__all__ = ["overwrite_of"]

# Arguments with no effect on the saved data: their defaults in torch 2.13, and the reason.
_UNUSED = {
    "single_file_per_rank": (True, "each rank writes one object"),
    "sync_files": (True, "an object is there, and compared, when it is closed"),
    "thread_count": (1, "each rank's object goes up in parallel parts"),
    "per_thread_copy_ahead": (10_000_000, "a rank stages pieces of 8 MiB"),
    "cache_staged_state_dict": (False, "pieces are staged as they are sent"),
}


def overwrite_of(owner: str, arguments: dict[str, Any]) -> bool:
    """Return ``overwrite`` (default True), and warn about arguments that have no effect.

    Raises:
        TypeError: ``FileSystemWriter`` does not have the argument, or Penstock's layout does not support it.

    """
    given = dict(arguments)
    overwrite = bool(given.pop("overwrite", True))
    for name, (default, why) in _UNUSED.items():
        if given.pop(name, default) not in (default, False):
            not_honoured(f"{owner}({name}=…)", why)
    if given:
        raise TypeError(f"{owner} got unexpected arguments: {', '.join(given)}")
    return overwrite
