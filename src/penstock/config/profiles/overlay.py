"""Options over options: those that were given, before those of a profile; pure."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass, replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from dataclasses import Field
    from typing import Any

__all__ = ["changed", "overlaid"]

K = TypeVar("K")


def changed(options: object) -> dict[str, object]:
    """Return the options that are not their class's defaults, by name."""
    each_field = fields(options)  # type: ignore[arg-type]  # all kinds are dataclasses
    values = {each.name: getattr(options, each.name) for each in each_field if each.init}
    return {each.name: values[each.name] for each in each_field if each.init and values[each.name] != _default(each)}


def overlaid(under: K, given: K) -> K:
    """Return ``under`` with every option of ``given`` that is not its class's default; parts are overlaid likewise.

    Both are of one class. What contradicts itself then is refused as it is where options are made: ``ConfigError``.
    """
    values = changed(given)
    parts = {
        name: overlaid(getattr(under, name), value)
        for name, value in values.items()
        if is_dataclass(value) and getattr(under, name) is not None
    }
    return replace(under, **(values | parts))  # type: ignore[type-var]


def _default(field: Field[Any]) -> object:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default
