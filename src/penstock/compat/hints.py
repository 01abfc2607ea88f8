"""Arguments of other libraries that change nothing here: each is named in one warning per process."""

from __future__ import annotations

import warnings

__all__ = ["not_honoured"]

_named: set[str] = set()


def not_honoured(argument: str, why: str) -> None:
    """Warn, the first time in this process, that ``argument`` was given and changes nothing, and why."""
    if argument in _named:
        return
    _named.add(argument)
    warnings.warn(f"{argument} is not honoured: {why}", UserWarning, stacklevel=4)
