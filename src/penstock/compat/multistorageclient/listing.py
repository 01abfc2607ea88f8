"""Listings of a profile: objects, the directories that their keys imply, and patterns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatch
from glob import glob
from typing import TYPE_CHECKING, Any

from penstock.compat.multistorageclient.config import FILESYSTEM
from penstock.compat.multistorageclient.types import MSC_PROTOCOL, PatternType, described, directory
from penstock.engine.listing.select import fixed_part, selector
from penstock.errors import NotFound
from penstock.source import open_source
from penstock.stores.urls import LOCAL_ROOT, Unmapped, parse
from penstock.verbs import list as list_objects
from penstock.verbs import stat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.compat.multistorageclient.config import StorageClientConfig
    from penstock.compat.multistorageclient.types import ObjectMetadata, PatternList

__all__ = ["Listing"]


@dataclass(frozen=True, slots=True)
class Listing:
    """Names of one profile; keys are relative to its URL."""

    config: StorageClientConfig

    def url(self, path: str) -> str:
        """Return the URL of a path, never mapped; repeated ``/`` count as one, as in Multi-Storage Client."""
        return Unmapped(self.config.base + re.sub("/+", "/", path).removeprefix("/"))

    def key(self, url: str) -> str:
        """Return the key of a URL of this profile."""
        return url.removeprefix(self.config.base)

    def public(self, key: str) -> str:
        """Return a key with its profile; for the profile of local files, the path."""
        if self.config.profile == FILESYSTEM:
            return f"/{key}"
        return f"{MSC_PROTOCOL}{self.config.profile}/{key}"

    def local(self, path: str) -> str | None:
        """Return the local path if the profile's objects are local files, else None."""
        location = parse(self.url(path))
        root = location.provider.target or location.root
        return f"/{root.removeprefix(LOCAL_ROOT)}{location.key}" if root.startswith(LOCAL_ROOT) else None

    def info(self, path: str, *, strict: bool) -> ObjectMetadata:
        """Return the metadata of an object or a directory; the root always exists. Raise ``NotFound`` otherwise."""
        if path in ("", "."):
            return directory("")
        if not self._directory(path):
            try:
                meta = stat(self.url(path), store=self.config.store)
                return described(meta, self.key(meta.url))
            except NotFound:
                if not strict or not self._is_directory(path):
                    raise
        elif not self._is_directory(path):
            raise NotFound("neither an object nor a directory", url=self.url(path))
        return directory(self._folder(path))

    def below(self, path: str) -> Iterator[ObjectMetadata]:
        """Yield all objects below a directory, or the object with this path."""
        found = self._object(path)
        return self._under(path) if found is None else iter((found,))

    def one_level(self, path: str) -> Iterator[ObjectMetadata]:
        """Yield the objects and directories directly in a directory, in key order."""
        if (found := self._object(path)) is not None:
            yield found
            return
        source, prefix = open_source(self._folder_url(path), self.config.store)
        for page in source.pages(prefix, delimiter="/"):
            found_here = [meta for meta in page.entries if not meta.key.endswith("/")]
            entries = [described(meta, self.key(source.url(meta.key))) for meta in found_here]
            folders = [directory(self.key(source.url(each)).removesuffix("/")) for each in page.prefixes]
            yield from sorted((*entries, *folders), key=lambda each: each.key)

    def chosen(
        self,
        found: Iterable[ObjectMetadata],
        start_after: str | None,
        end_at: str | None,
        patterns: PatternList | None,
    ) -> Iterator[ObjectMetadata]:
        """Yield the entries between two keys that the patterns select; the last matching pattern decides."""
        kinds = {kind for kind, _ in patterns or ()}
        otherwise = kinds != {PatternType.INCLUDE}
        for entry in found:
            if start_after is not None and entry.key <= start_after:
                continue
            if end_at is not None and entry.key > end_at:
                continue
            matching = [kind for kind, pattern in patterns or () if fnmatch(entry.key, pattern)]
            if (matching[-1] is PatternType.INCLUDE) if matching else otherwise:
                yield entry

    def glob(self, pattern: str) -> list[str]:
        """Return the sorted keys of matching objects and directories; a wildcard never matches a leading dot."""
        wanted = self.key(self.url(pattern)).removesuffix("/")
        if (base := self.local("")) is not None:
            found = glob(wanted, root_dir=base, recursive=True)  # noqa: PTH207  pathlib's matches hidden names
            return sorted(each for each in found if each and not each.endswith("/"))
        start = fixed_part(wanted)[0]
        folder = start.rpartition("/")[0] if start != wanted else start
        keys: set[str] = set()
        for entry in self.below(folder):
            parts = entry.key.split("/")
            keys.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
        return sorted(filter(_matcher(wanted), keys))

    def all_below(self, path: str) -> Iterator[str]:
        """Yield the keys of all objects of a directory, including directory markers."""
        for meta in list_objects(self._folder_url(path), store=self.config.store):
            yield self.key(meta.url)

    def _object(self, path: str) -> ObjectMetadata | None:
        if self._directory(path):
            return None
        try:
            meta = stat(self.url(path), store=self.config.store)
        except NotFound:
            return None
        return described(meta, self.key(meta.url))

    def _under(self, path: str) -> Iterator[ObjectMetadata]:
        """Yield the objects below a directory; a key that ends in ``/`` is a directory marker, not a file."""
        for meta in list_objects(self._folder_url(path), store=self.config.store):
            if not meta.url.endswith("/"):
                yield described(meta, self.key(meta.url))

    def _is_directory(self, path: str) -> bool:
        return next(self.all_below(path), None) is not None

    def _directory(self, path: str) -> bool:
        return not path.strip("/") or path.endswith("/")

    def _folder(self, path: str) -> str:
        return f"{self.key(self.url(path)).rstrip('/')}/"

    def _folder_url(self, path: str) -> str:
        return self.url(self._folder(path)) if path.strip("/") else self.config.base


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches keys by the rules of a shell's ``globstar``: ``**`` is a whole component."""
    components = pattern.replace("[^", "[!").split("/")
    if components[-1] == "**":  # not the directory itself
        components.append("*")
    steps = [None if each == "**" else (selector(each), each.startswith(".")) for each in components]

    def matches(key: str) -> bool:
        # Indexes of the steps that may match the next part.
        at = {0}
        for part in key.split("/"):
            hidden, found = part.startswith("."), set()
            for number in _with_empty(at, steps):
                if number == len(steps):
                    continue
                step = steps[number]
                if step is None:
                    found |= set() if hidden else {number}
                elif (step[1] or not hidden) and step[0](part, 1):
                    found.add(number + 1)
            at = found
        return len(steps) in at

    return matches


def _with_empty(at: set[int], steps: list[Any]) -> set[int]:
    """Return these steps, and those after a ``**`` that matches nothing."""
    found = set(at)
    for number, step in enumerate(steps):
        if number in found and step is None:
            found.add(number + 1)
    return found
