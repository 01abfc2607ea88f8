"""Fields of a metadata document, checked when read: a document is untrusted input."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import Damaged, Unsupported

__all__ = ["Fields"]

# Largest length along one dimension in NumPy.
_MOST = (1 << 63) - 1
_MOST_DIMENSIONS = 32  # limit of NumPy 1
_short = reprlib.Repr()
_short.maxlevel = 3


@dataclass(frozen=True, slots=True)
class Fields:
    """JSON object of a document, and its location.

    Attributes:
        values: The object.
        url: URL of the document, for errors.
        path: Path of the object within the document (``codecs[0].configuration``), for errors; empty for the document.

    """

    values: Mapping[str, Any]
    url: str = ""
    path: str = ""

    def damaged(self, name: str, expected: str) -> Damaged:
        """Return the error for an invalid field; ``expected`` describes valid values."""
        found = _short.repr(self.values[name]) if name in self.values else "missing"
        return Damaged(f"the Zarr metadata is damaged: {self._at(name)} should be {expected}: {found}", url=self.url)

    def unsupported(self, name: str, reason: str) -> Unsupported:
        """Return the error for an unsupported value of a field; ``reason`` explains it."""
        found = _short.repr(self.values.get(name))
        return Unsupported(f"this Zarr array is not supported: {self._at(name)} is {found}: {reason}", url=self.url)

    def sizes(self, name: str, least: int) -> tuple[int, ...]:
        """Return the whole numbers of a list, each at least ``least``."""
        found = self.values.get(name)
        if (
            not isinstance(found, Sequence)
            or isinstance(found, str)
            or not all(_is_size(each, least) for each in found)
        ):
            raise self.damaged(name, f"a list of whole numbers from {least} on")
        if len(found) > _MOST_DIMENSIONS:
            raise self.unsupported(name, f"an array has at most {_MOST_DIMENSIONS} dimensions")
        return tuple(int(each) for each in found)

    def chosen(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """Return a word that must be one of ``choices``; ``default`` if the field is missing."""
        found = self.values.get(name)
        if found is None:
            return default
        if not isinstance(found, str) or found not in choices:
            raise self.damaged(name, " or ".join(map(repr, choices)))
        return found

    def mapping(self, name: str) -> Fields:
        """Return the object in a field; empty if the field is missing."""
        found = self.values.get(name)
        if found is not None and not isinstance(found, Mapping):
            raise self.damaged(name, "an object")
        return Fields(found or {}, self.url, self._path(name))

    def named(self, name: str, value: object) -> tuple[str, Fields]:
        """Return name and configuration of a Zarr v3 extension: ``{"name": …, "configuration": {…}}``, or the name."""
        if isinstance(value, str):
            return value, Fields({}, self.url, self._path(name))
        if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
            raise self.damaged(name, "an object with a name")
        inside = Fields(value, self.url, self._path(name))
        return str(value["name"]), inside.mapping("configuration")

    def extension(self, name: str) -> tuple[str, Fields]:
        """Return name and configuration of a field that is an extension point of Zarr v3."""
        return self.named(name, self.values.get(name))

    def extensions(self, name: str) -> list[tuple[str, Fields]]:
        """Return names and configurations of a field that is a list of extensions; empty if the field is missing."""
        found = self.values.get(name)
        if found is None:
            return []
        if not isinstance(found, Sequence) or isinstance(found, str):
            raise self.damaged(name, "a list")
        return [self.named(name, each) for each in found]

    def _path(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def _at(self, name: str) -> str:
        return f"field {self._path(name)!r}"


def _is_size(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST
