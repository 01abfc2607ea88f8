"""Advice on unknown options: which option was probably intended, and where to write it."""

from __future__ import annotations

import sys
from dataclasses import fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["advice"]


def advice(kind: type, name: str) -> str:
    """Return advice on an option ``name`` that the options class ``kind`` does not have."""
    own, has = fields(kind), f"{kind.__name__} has no option {name!r}"
    if here := next((each.name for each in own if name in each.metadata.get("elsewhere", ())), None):
        return f"{has}: here it is {here!r}, write {kind.__name__}({here}=…)"
    owners = [each for each in _classes() if name in each.__dataclass_fields__]
    for part in own:
        for owner in owners:
            if str(part.type).partition(" | ")[0] == owner.__name__:
                inner = f"{part.name}={owner.__name__}({name}=…)"
                return f"{has}: it is an option of {owner.__name__}, write {kind.__name__}({inner})"
    if owners:
        named = " or ".join(each.__name__ for each in owners)
        return f"{has}: it is an option of {named}, write {owners[0].__name__}({name}=…)"
    names = [each.name for each in own]
    near = get_close_matches(name, names, 1)
    return f"{has}: did you mean {near[0]!r}?" if near else f"{has}, only {', '.join(names)}"


def _classes() -> Iterator[Any]:
    # By their public names: the options classes of stores are in the stores' folders.
    package: Any = sys.modules["penstock"]
    return (getattr(package, each) for each in package.__all__ if each.endswith("Options"))
