"""What lies where in a profile: objects, the directories that their keys imply, and patterns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from penstock.catalog.select import fixed_part, selector
from penstock.compat.multistorageclient.config import FILESYSTEM
from penstock.compat.multistorageclient.types import MSC_PROTOCOL, PatternType, described, directory
from penstock.errors import NotFound
from penstock.source import open_source
from penstock.verbs import list as list_objects
from penstock.verbs import stat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.compat.multistorageclient.config import StorageClientConfig
    from penstock.compat.multistorageclient.types import ObjectMetadata, PatternList

__all__ = ["Listing"]


@dataclass(frozen=True, slots=True)
class Listing:
    """The names of one profile; keys are relative to its URL."""

    config: StorageClientConfig

    def url(self, path: str) -> str:
        """Return the URL of a path; runs of ``/`` count as one, as Multi-Storage Client has it."""
        return self.config.base + re.sub("/+", "/", path).removeprefix("/")

    def key(self, url: str) -> str:
        """Return the key of a URL of this profile."""
        return url.removeprefix(self.config.base)

    def public(self, key: str) -> str:
        """Return a key with its profile; of the profile of local files, the path."""
        if self.config.profile == FILESYSTEM:
            return f"/{key}"
        return f"{MSC_PROTOCOL}{self.config.profile}/{key}"

    def info(self, path: str, *, strict: bool) -> ObjectMetadata:
        """Describe an object or a directory. Raises ``NotFound``."""
        if not self._directory(path):
            try:
                meta = stat(self.url(path), store=self.config.store)
                return described(meta, self.key(meta.url))
            except NotFound:
                if not strict or next(self._under(path), None) is None:
                    raise
        elif next(self._under(path), None) is None:
            raise NotFound("neither an object nor a directory", url=self.url(path))
        return directory(self._folder(path))

    def below(self, path: str) -> Iterator[ObjectMetadata]:
        """Yield all objects below a directory, or the object of this path."""
        found = self._object(path)
        return self._under(path) if found is None else iter((found,))

    def one_level(self, path: str) -> Iterator[ObjectMetadata]:
        """Yield what lies in a directory, its directories among it, in the order of keys."""
        if (found := self._object(path)) is not None:
            yield found
            return
        source, prefix = open_source(self._folder_url(path), self.config.store)
        for page in source.pages(prefix, delimiter="/"):
            entries = [described(meta, self.key(source.url(meta.key))) for meta in page.entries if meta.key != prefix]
            folders = [directory(self.key(source.url(each)).removesuffix("/")) for each in page.prefixes]
            yield from sorted((*entries, *folders), key=lambda each: each.key)

    def chosen(
        self,
        found: Iterable[ObjectMetadata],
        start_after: str | None,
        end_at: str | None,
        patterns: PatternList | None,
    ) -> Iterator[ObjectMetadata]:
        """Yield entries between two keys that patterns choose; the last pattern that matches counts."""
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
        """Return the keys of objects and directories that match, sorted."""
        wanted = self.key(self.url(pattern)).removesuffix("/")
        start = fixed_part(wanted)[0]
        folder = start.rpartition("/")[0] if start != wanted else start
        keys: set[str] = set()
        for entry in self.below(folder):
            parts = entry.key.split("/")
            keys.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
        matches = selector(wanted)
        return sorted(key for key in keys if matches(key, 0))

    def _object(self, path: str) -> ObjectMetadata | None:
        if self._directory(path):
            return None
        try:
            meta = stat(self.url(path), store=self.config.store)
        except NotFound:
            return None
        return described(meta, self.key(meta.url))

    def _under(self, path: str) -> Iterator[ObjectMetadata]:
        folder = self._folder_url(path)
        for meta in list_objects(folder, store=self.config.store):
            if meta.url != folder:
                yield described(meta, self.key(meta.url))

    def _directory(self, path: str) -> bool:
        return not path.strip("/") or path.endswith("/")

    def _folder(self, path: str) -> str:
        return f"{self.key(self.url(path)).rstrip('/')}/"

    def _folder_url(self, path: str) -> str:
        return self.url(self._folder(path)) if path.strip("/") else self.config.base
