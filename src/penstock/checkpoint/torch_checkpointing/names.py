"""Names of renamed directories, in one object that each rename replaces in one conditional PUT."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Self
from uuid import uuid4

from penstock.checkpoint.commit import read_current
from penstock.checkpoint.integrity import Manifest
from penstock.errors import CheckpointError, NotFound
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.source import Source


class DirectoryPlace(NamedTuple):
    """A directory's prefix, empty or ending in ``/``; and the id of the list of its files, if it was renamed."""

    prefix: str
    listing: str = ""


class FoundPath(NamedTuple):
    """Where a path is, or would be: its key below the root, and the directory of the table that holds it."""

    key: str
    rest: str  # the path below that directory; empty for the directory itself
    place: DirectoryPlace


@dataclass(frozen=True)
class DirectoryTable:
    """The prefixes of the names that were renamed; any other name is its own prefix.

    A prefix belongs to the name that the table gives it, and to no other name: so the old name of a renamed directory
    does not exist, and a new directory of that name gets a new prefix.
    """

    etag: str = ""
    directories: Mapping[str, DirectoryPlace] = field(default_factory=dict)
    removed: tuple[str, ...] = ()  # prefixes whose objects are being deleted

    @classmethod
    def read(cls, source: Source, key: str) -> Self:
        """Read the table: two requests. A missing one is empty."""
        try:
            etag, data = read_current(source, key)
        except NotFound:
            return cls()
        manifest = Manifest.decode(data, source.url(key))
        try:
            found = {name: DirectoryPlace(*each) for name, each in manifest.content["directories"].items()}
            return cls(etag, found, tuple(manifest.content["removed"]))
        except (KeyError, TypeError, AttributeError):
            raise CheckpointError("the object is not a table of directories", url=source.url(key)) from None

    def encode(self) -> bytes:
        """Return the table as a document that differs from those of all other writers."""
        content = {"directories": dict(self.directories), "removed": list(self.removed)}
        return Manifest(uuid4().hex, "directories", {}, content).encode()

    def find(self, name: str) -> FoundPath | None:
        """Return where a path is; None if a directory on the way was renamed or removed."""
        parts = name.split("/") if name else []
        for count in range(len(parts), 0, -1):
            place = self.directories.get("/".join(parts[:count]))
            if place is not None:
                break
        else:
            count, place = 0, DirectoryPlace("")
        rest = "/".join(parts[count:])
        key = place.prefix + rest if rest else place.prefix.removesuffix("/")
        return FoundPath(key, rest, place) if self.owns(place.prefix, as_folder(key)) else None

    def owns(self, prefix: str, key: str) -> bool:
        """Return whether a key below ``prefix`` belongs to the same name, not to that of a longer prefix."""
        others = (*(each.prefix for each in self.directories.values()), *self.removed)
        return not any(len(each) > len(prefix) and key.startswith(each) for each in others)

    def below(self, name: str) -> dict[str, DirectoryPlace]:
        """Return the entries of a name and of the names below it."""
        return {each: place for each, place in self.directories.items() if f"{each}/".startswith(as_folder(name))}

    def with_directory(self, name: str) -> Self:
        """Return a table with a new prefix for the first directory of a path that was renamed or removed, if any."""
        parts = name.split("/")
        above = ("/".join(parts[: count + 1]) for count in range(len(parts)))
        first = next((each for each in above if self.find(each) is None), None)
        if first is None:
            return self
        place = DirectoryPlace(f"{first}.{uuid4().hex[:12]}/")
        return replace(self, directories={**self.directories, first: place})

    def rename_directory(self, source: str, dest: str, place: DirectoryPlace) -> Self:
        moved = self.below(source)
        kept = {name: each for name, each in self.directories.items() if name not in moved}
        inner = {dest + name.removeprefix(source): each for name, each in moved.items()}
        return replace(self, directories={**kept, **inner, dest: place})

    def remove_directory(self, name: str) -> Self:
        gone = self.below(name)
        kept = {each: place for each, place in self.directories.items() if each not in gone}
        return replace(self, directories=kept, removed=(*self.removed, *(each.prefix for each in gone.values())))
