"""Warnings about other libraries' arguments that have no effect, and an error for arguments that those refuse."""

from __future__ import annotations

import warnings

from penstock.errors import ConfigError

__all__ = ["WrongArgument", "not_honoured"]


class WrongArgument(ConfigError, ValueError):
    """Invalid argument, for which the original raises a ``ValueError``."""


_named: set[str] = set()


def not_honoured(argument: str, why: str) -> None:
    """Warn that ``argument`` has no effect, and why, the first time in this process."""
    if argument in _named:
        return
    _named.add(argument)
    warnings.warn(f"{argument} is not honoured: {why}", UserWarning, stacklevel=4)
