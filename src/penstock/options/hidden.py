"""A mapping for options: immutable and hashable; its repr shows only names, because values may be secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["HiddenMapping"]

V = TypeVar("V")


class HiddenMapping(Mapping[str, V], Generic[V]):
    """A copy of a mapping, equal to any mapping with the same items."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, V]) -> None:
        """Copy ``items``; their values are not copied."""
        self._items = dict(items)

    def __getitem__(self, name: str) -> V:
        """Return the value of ``name``; raise ``KeyError`` without one."""
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._items)

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._items)

    def __hash__(self) -> int:
        """Hash the names: values need not be hashable."""
        return hash(frozenset(self._items))

    def __repr__(self) -> str:
        """Return the names."""
        return f"<{', '.join(self._items) or 'nothing'}>"

    def __reduce__(self) -> tuple[type[HiddenMapping[V]], tuple[dict[str, V]]]:
        """Pickle the items; the options that hold this mapping decide whether they may be pickled."""
        return HiddenMapping, (self._items,)
