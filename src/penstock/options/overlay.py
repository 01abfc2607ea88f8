"""Overlay of options: given options take precedence over those of a profile. Pure."""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from typing import TypeVar

from penstock.options.private import given

__all__ = ["overlaid"]

K = TypeVar("K")


def overlaid(under: K, over: K) -> K:
    """Return ``under`` with every option that was given in ``over``, even one equal to its default.

    Both have the same class. Parts are overlaid in the same way. Contradicting options raise ``ConfigError``, as in a
    constructor.
    """
    values = given(over)
    parts = {
        name: overlaid(getattr(under, name), value)
        for name, value in values.items()
        if is_dataclass(value) and getattr(under, name) is not None
    }
    names = frozenset((*given(under), *values))
    return replace(under, **(values | parts | {"_given": names}))  # type: ignore[type-var]
