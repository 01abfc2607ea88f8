"""``StorageClient``: one profile's objects by path.

Listings of a profile: objects, the directories that their keys imply, and patterns.
"""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from glob import glob
from typing import IO, TYPE_CHECKING, Any, NoReturn

from penstock.compat.arguments import refuse_name
from penstock.compat.multistorageclient.config import FILESYSTEM, StorageClientConfig
from penstock.compat.multistorageclient.file import ObjectFile, PosixFile, local_copy
from penstock.compat.multistorageclient.transfer import chosen_by, each, fetch_object, send_object, sync_folders
from penstock.compat.multistorageclient.types import (
    MSC_PROTOCOL,
    ExecutionMode,
    InvalidMode,
    PatternType,
    SourceVersionCheckMode,
    SymlinkHandling,
    SyncResult,
    convert_metadata,
    directory,
    refuse,
)
from penstock.engine.listing.select import fixed_part, selector
from penstock.errors import InvalidURL, NotFound, Unusable
from penstock.jobs.trees.find import presign
from penstock.options import CacheOptions, StoreOptions
from penstock.source import object_at, open_source
from penstock.stores.urls import LOCAL_ROOT, Unmapped, parse
from penstock.values import Span
from penstock.verbs import copy, delete, stat
from penstock.verbs import list as list_objects
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    import builtins
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.compat.multistorageclient.types import ObjectMetadata, PatternList, Range

_PIECE_BYTES = 8 << 20
_AT_ONCE = 16
_MODES = ("r", "w", "a", "x")


class StorageClient:
    """Objects of one profile, by their paths below it. A client is pickled as its profile, and need not be closed."""

    def __init__(self, config: StorageClientConfig) -> None:
        if not isinstance(config, StorageClientConfig):
            raise Unusable(f"config must be a StorageClientConfig, got {type(config).__name__}")
        self._config = config
        self._store = config.store

    def __repr__(self) -> str:
        return f"<StorageClient {self.profile}>"

    def url(self, path: str) -> str:
        """Return the URL of a path, never mapped; repeated ``/`` count as one, as in Multi-Storage Client."""
        return Unmapped(self._config.base + re.sub("/+", "/", path).removeprefix("/"))

    def _key(self, url: str) -> str:
        return url.removeprefix(self._config.base)

    def _public(self, key: str) -> str:
        if self._config.profile == FILESYSTEM:
            return f"/{key}"
        return f"{MSC_PROTOCOL}{self._config.profile}/{key}"

    def get_posix_path(self, path: str) -> str | None:
        """Return the local path if the profile's objects are local files, else None."""
        location = parse(self.url(path))
        root = location.store.target or location.root
        return f"/{root.removeprefix(LOCAL_ROOT)}{location.key}" if root.startswith(LOCAL_ROOT) else None

    def info(self, path: str, strict: bool = True) -> ObjectMetadata:
        """Return the metadata of an object (a HEAD), or with ``strict`` of a directory (also a LIST).

        The root always exists. Raise ``NotFound`` otherwise.
        """
        if path in ("", "."):
            return directory("")
        if not self._directory(path):
            try:
                return self._stat(path)
            except NotFound:
                if not strict or not self._is_directory(path):
                    raise
        elif not self._is_directory(path):
            raise NotFound("neither an object nor a directory", url=self.url(path))
        return directory(self._folder(path))

    def _below(self, path: str) -> Iterator[ObjectMetadata]:
        found = self._object(path)
        return self._under(path) if found is None else iter((found,))

    def _one_level(self, path: str) -> Iterator[ObjectMetadata]:
        """Yield the objects and directories directly in a directory, in key order."""
        if (found := self._object(path)) is not None:
            yield found
            return
        source, prefix = open_source(self._folder_url(path), self._store)
        for page in source.pages(prefix, delimiter="/"):
            found_here = [meta for meta in page.entries if not meta.key.endswith("/")]
            entries = [convert_metadata(meta, self._key(source.url(meta.key))) for meta in found_here]
            folders = [directory(self._key(source.url(each)).removesuffix("/")) for each in page.prefixes]
            yield from sorted((*entries, *folders), key=lambda each: each.key)

    def _chosen(
        self, found: Iterable[ObjectMetadata], start_after: str | None, end_at: str | None, patterns: PatternList | None
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

    def _glob_keys(self, pattern: str) -> list[str]:
        """Return the sorted keys of matching objects and directories; a wildcard never matches a leading dot."""
        wanted = self._key(self.url(pattern)).removesuffix("/")
        if (base := self.get_posix_path("")) is not None:
            found = glob(wanted, root_dir=base, recursive=True)  # noqa: PTH207  pathlib's matches hidden names
            return sorted(each for each in found if each and not each.endswith("/"))
        start = fixed_part(wanted)[0]
        folder = start.rpartition("/")[0] if start != wanted else start
        keys: set[str] = set()
        for entry in self._below(folder):
            parts = entry.key.split("/")
            keys.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
        return sorted(filter(_matcher(wanted), keys))

    def _all_below(self, path: str) -> Iterator[str]:
        for meta in list_objects(self._folder_url(path), store=self._store):
            yield self._key(meta.url)

    def _object(self, path: str) -> ObjectMetadata | None:
        if self._directory(path):
            return None
        try:
            return self._stat(path)
        except NotFound:
            return None

    def _stat(self, path: str) -> ObjectMetadata:
        meta = stat(self.url(path), store=self._store)
        return convert_metadata(meta, self._key(meta.url))

    def _under(self, path: str) -> Iterator[ObjectMetadata]:
        """Yield the objects below a directory; a key that ends in ``/`` is a directory marker, not a file."""
        for meta in list_objects(self._folder_url(path), store=self._store):
            if not meta.url.endswith("/"):
                yield convert_metadata(meta, self._key(meta.url))

    def _is_directory(self, path: str) -> bool:
        return next(self._all_below(path), None) is not None

    def _directory(self, path: str) -> bool:
        return not path.strip("/") or path.endswith("/")

    def _folder(self, path: str) -> str:
        return f"{self._key(self.url(path)).rstrip('/')}/"

    def _folder_url(self, path: str) -> str:
        return self.url(self._folder(path)) if path.strip("/") else self._config.base

    @property
    def profile(self) -> str:
        return self._config.profile

    @property
    def replicas(self) -> list[StorageClient]:
        """An empty list: replicas do not exist here."""
        return []

    def is_default_profile(self) -> bool:
        return self.profile == FILESYSTEM

    def open(
        self,
        path: str,
        mode: str = "rb",
        buffering: int = -1,
        encoding: str | None = None,
        disable_read_cache: bool = False,
        memory_load_limit: int = 0,
        atomic: bool = True,
        check_source_version: object = None,
        attributes: dict[str, Any] | None = None,
        prefetch_file: bool | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:
        """Open an object as ``ps.open`` does; "a" and "ab" publish the old and the new bytes as a new object.

        ``disable_read_cache=True``, and a ``check_source_version`` of ENABLE, read without the profile's cache.
        Arguments for buffers and memory are accepted and ignored: a reader reads ahead in bounded memory, bound to one
        version, and a write is always atomic.
        """
        if mode.replace("b", "", 1).replace("t", "", 1) not in _MODES:
            raise InvalidMode(f"mode must be 'r', 'w', 'a' or 'x', and 'b' for bytes, got {mode!r}")
        store = self._uncached() if disable_read_cache or _checks(check_source_version) else self._store
        text = {"encoding": encoding, "errors": errors, "newline": newline}
        file = self._opened(path, mode, attributes, text, store)
        if (local := self.get_posix_path(path)) is not None:
            return PosixFile(path, mode, file, lambda: local)
        return ObjectFile(path, mode, file, partial(local_copy, self.download_file, path))

    def _opened(
        self,
        path: str,
        mode: str,
        attributes: dict[str, Any] | None,
        text: dict[str, str | None],
        store: StoreOptions | None,
    ) -> Any:
        opened: Any = partial(open_object, self.url(path), store=store)
        opened = partial(opened, **{name: value for name, value in text.items() if value is not None})
        if "r" in mode:
            return opened(mode, metadata=attributes or None)
        if "a" in mode and text["newline"] not in (None, "", "\n"):
            refuse(
                f"newline={text['newline']!r} in mode {mode!r}",
                "the old lines would be translated, too: write '\\r\\n' yourself",
            )
        file = opened(mode.replace("a", "w"), metadata=attributes or None)
        if "a" in mode:
            as_written = {} if "b" in mode else {"newline": "", "errors": "strict"}
            with suppress(NotFound), opened(mode.replace("a", "r"), **as_written) as old:
                shutil.copyfileobj(old, file, _PIECE_BYTES)
        return file

    def read(self, path: str, byte_range: Range | None = None, check_source_version: object = None) -> bytes:
        """Return the verified bytes of an object, or of a range of it. Raise ``NotFound`` if it does not exist.

        Costs one request for each 16 MiB, and for a range also a HEAD. A ``check_source_version`` of ENABLE reads
        without the profile's cache.
        """
        store = self._uncached() if _checks(check_source_version) else self._store
        if byte_range is None:
            source, key = object_at(self.url(path), store)
            return source.read(Span(key))
        with open_object(self.url(path), store=store) as file:
            file.seek(byte_range.offset)
            return file.read(byte_range.size)

    def _uncached(self) -> StoreOptions:
        return replace(self._store or StoreOptions(), cache=CacheOptions(mode="off"))

    def write(self, path: str, body: bytes, attributes: dict[str, Any] | None = None) -> None:
        """Write an object atomically; ``attributes`` are its user metadata."""
        with open_object(self.url(path), "wb", metadata=attributes or None, store=self._store) as file:
            file.write(body)

    def copy(self, src_path: str, dest_path: str) -> None:
        """Copy an object: see ``ps.copy``. Raise ``NotFound`` if it does not exist."""
        copy(self.url(src_path), self.url(dest_path), store=self._store)

    def delete(self, path: str, recursive: bool = False) -> None:
        """Delete an object; with ``recursive``, all objects below a directory."""
        if self.info(path).type == "file":
            delete(self.url(path), store=self._store)
        elif not recursive:
            raise InvalidURL("this is a directory: pass recursive=True to delete all below it", url=self.url(path))
        else:
            self.delete_many(list(self._all_below(path)))

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete objects in parallel; missing ones are not an error."""
        delete([self.url(path) for path in paths], store=self._store)

    def is_file(self, path: str) -> bool:
        try:
            return not path.endswith("/") and bool(stat(self.url(path), store=self._store).key)
        except NotFound:
            return False

    def is_empty(self, path: str) -> bool:
        return next(self.list(path), None) is None

    def list(
        self,
        path: str = "",
        start_after: str | None = None,
        end_at: str | None = None,
        include_directories: bool = False,
        include_url_prefix: bool = False,
        attribute_filter_expression: str | None = None,
        show_attributes: bool = False,
        patterns: PatternList | None = None,
        symlink_handling: SymlinkHandling = SymlinkHandling.FOLLOW,
    ) -> Iterator[ObjectMetadata]:
        """Yield the objects below a directory, in key order; for an object's path, that object.

        Args:
            path: A directory, with or without a trailing ``/``, or an object.
            start_after: Yield only keys after this one.
            end_at: Yield only keys up to and including this one.
            include_directories: Yield one level with its directories, instead of everything below.
            include_url_prefix: Prefix keys with ``msc://profile/``.
            attribute_filter_expression: Not supported: raises ``Unsupported``.
            show_attributes: Also request each object's metadata: a HEAD for each.
            patterns: Pairs of ``PatternType`` and glob (of ``fnmatch``) for the whole key; the last match decides.
            symlink_handling: Must be FOLLOW.
        """
        if attribute_filter_expression is not None:
            refuse("attribute_filter_expression", "filter by the metadata that show_attributes=True yields")
        _follows(symlink_handling)
        found = self._one_level(path) if include_directories else self._below(path)
        for entry in self._chosen(found, start_after, end_at, patterns):
            known = self.info(entry.key) if show_attributes and entry.type == "file" else entry
            yield known.replace(key=self._public(known.key)) if include_url_prefix else known

    def list_recursive(
        self,
        path: str = "",
        start_after: str | None = None,
        end_at: str | None = None,
        max_workers: int = 32,
        look_ahead: int = 2,
        include_url_prefix: bool = False,
        patterns: PatternList | None = None,
        symlink_handling: SymlinkHandling = SymlinkHandling.FOLLOW,
    ) -> Iterator[ObjectMetadata]:
        """Yield all objects below a directory: see ``list``. Ignores ``max_workers`` and ``look_ahead``."""
        return self.list(
            path,
            start_after,
            end_at,
            include_url_prefix=include_url_prefix,
            patterns=patterns,
            symlink_handling=symlink_handling,
        )

    def glob(
        self, pattern: str, include_url_prefix: bool = False, attribute_filter_expression: str | None = None
    ) -> builtins.list[str]:
        """Return the sorted keys of matching objects and directories; wildcards: ``*``, ``?``, ``**``, ``[a-z]``."""
        if attribute_filter_expression is not None:
            refuse("attribute_filter_expression", "filter by what StorageClient.info returns")
        keys = self._glob_keys(pattern)
        return [self._public(key) for key in keys] if include_url_prefix else keys

    def upload_file(
        self, remote_path: str, local_path: str | os.PathLike[str] | IO[Any], attributes: dict[str, Any] | None = None
    ) -> None:
        """Write a local file, or the rest of a file-like object, as an object, atomically."""
        send_object(self.url(remote_path), local_path, attributes, self._store)

    def download_file(
        self, remote_path: str, local_path: str | os.PathLike[str] | IO[Any], metadata: object = None
    ) -> None:
        """Write an object to a local file or a file-like object. Raise ``NotFound`` if it does not exist.

        ``metadata`` is accepted and ignored: the object's own is requested.
        """
        fetch_object(self.url(remote_path), local_path, self._store)

    def upload_files(
        self,
        remote_paths: Sequence[str],
        local_paths: Sequence[str],
        attributes: Sequence[dict[str, Any] | None] | None = None,
        max_workers: int = 16,
        transfer_callback: object = None,
    ) -> None:
        """Upload files, ``max_workers`` at once. Raise the first failure, in order, after all have ended."""
        _no_callback(transfer_callback)
        extra = [None] * len(remote_paths) if attributes is None else attributes
        each(self.upload_file, remote_paths, local_paths, extra, workers=max_workers)

    def download_files(
        self,
        remote_paths: Sequence[str],
        local_paths: Sequence[str],
        metadata: object = None,
        max_workers: int = 16,
        transfer_callback: object = None,
    ) -> None:
        """Download objects, ``max_workers`` at once. Raise the first failure, in order, after all have ended."""
        _no_callback(transfer_callback)
        each(self.download_file, remote_paths, local_paths, workers=max_workers)

    def generate_presigned_url(
        self,
        path: str,
        *,
        method: str = "GET",
        signer_type: object = None,
        signer_options: dict[str, Any] | None = None,
    ) -> str:
        """Return a presigned URL that reads or writes an object for one hour: see ``ps.presign``.

        ``signer_options={"expires_in": seconds}`` sets another duration.
        """
        options = dict(signer_options or {})
        expires_s = options.pop("expires_in", None)
        if options or getattr(signer_type, "value", signer_type) == "cloudfront":
            refuse("this signer", "leave it out; signer_options takes only {'expires_in': seconds}")
        return str(presign(self.url(path), method=method, expires_s=expires_s, store=self._store))  # type: ignore[arg-type]

    def sync_from(
        self,
        source_client: StorageClient,
        source_path: str = "",
        target_path: str = "",
        delete_unmatched_files: bool = False,
        description: str = "Syncing",
        num_worker_processes: int | None = None,
        execution_mode: ExecutionMode = ExecutionMode.LOCAL,
        patterns: PatternList | None = None,
        preserve_source_attributes: bool | None = None,
        source_files: Sequence[str] | None = None,
        ignore_hidden: bool = True,
        commit_metadata: bool = True,
        dryrun: bool = False,
        dryrun_output_path: str | None = None,
        symlink_handling: SymlinkHandling = SymlinkHandling.FOLLOW,
    ) -> SyncResult:
        """Make ``target_path`` equal to ``source_path`` of ``source_client``: see ``ps.sync``.

        Args:
            source_client: The client to copy from. Both clients must use profiles in a file.
            source_path: Directory to copy.
            target_path: Destination directory.
            delete_unmatched_files: Delete objects that the source does not have, after all copies, if none failed.
            description: Accepted and ignored.
            num_worker_processes: Accepted and ignored: threads copy.
            execution_mode: Must be LOCAL.
            patterns: Pairs of ``PatternType`` and glob of the relative key: includes only, or excludes after includes.
            preserve_source_attributes: True or None: user metadata is always copied.
            source_files: Copy these paths below ``source_path``, without a comparison.
            ignore_hidden: Leave out names that begin with a dot.
            commit_metadata: Accepted and ignored.
            dryrun: Change nothing, and write the planned changes into two files.
            dryrun_output_path: Folder of these files; default: a new temporary folder.
            symlink_handling: Must be FOLLOW.

        Raises:
            NotFound: The source is empty; nothing was changed.
            Unsupported: Another mode, ``preserve_source_attributes=False``, or a pattern that includes again what an
                earlier one excludes.
        """
        _follows(symlink_handling)
        if getattr(execution_mode, "value", execution_mode) != ExecutionMode.LOCAL.value:
            refuse(
                f"execution_mode={execution_mode!r}",
                "threads of this process copy; ps.sync(…, job=…, on=ps.Ray()) on a cluster",
            )
        if preserve_source_attributes is False:
            refuse("preserve_source_attributes=False", "a copy keeps the metadata of its source: leave it out")
        if source_client._store is not None or self._store is not None:
            refuse("sync of a profile from a dictionary", "ps.sync takes the URLs of both sides and store=")
        if source_files is not None:
            if patterns is not None:
                raise Unusable("pass source_files or patterns, not both")
            if dryrun or delete_unmatched_files:
                asked = "dryrun" if dryrun else "delete_unmatched_files"
                refuse(f"{asked}=True with source_files", "source_files are copied without comparison: leave one out")
            return self._copied(source_client, source_path, target_path, source_files)
        chosen = chosen_by(patterns, ignore_hidden=ignore_hidden)
        source, target = source_client.url(source_path), self.url(target_path)
        return sync_folders(
            source, target, chosen, delete=delete_unmatched_files, dry_run=dryrun, output=dryrun_output_path
        )

    def _copied(self, source: StorageClient, below: str, to: str, names: Sequence[str]) -> SyncResult:
        def copied(name: str) -> None:
            copy(source.url(f"{below}/{name}"), self.url(f"{to}/{name}"))

        each(copied, names, workers=_AT_ONCE)
        return SyncResult(total_work_units=len(names), total_files_added=len(names))

    def sync_replicas(self, *_args: object, **_options: object) -> NoReturn:
        refuse("sync_replicas", "sync to each store by its own profile")

    def make_symlink(self, path: str, target: str) -> NoReturn:
        refuse("make_symlink", "copy the object")

    def commit_metadata(self, prefix: str | None = None) -> None:
        """Do nothing: metadata providers do not exist here, and written objects are visible immediately."""


def _follows(handling: SymlinkHandling) -> None:
    if handling is not SymlinkHandling.FOLLOW:
        refuse(f"symlink_handling={handling.value!r}", "links of local files are followed")


def _checks(mode: object) -> bool:
    return getattr(mode, "value", mode) == SourceVersionCheckMode.ENABLE.value


def _no_callback(callback: object) -> None:
    if callback is not None:
        refuse("transfer_callback", "subscribe to penstock.events")


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
    """Return these steps, and the steps after a ``**`` that matches nothing."""
    found = set(at)
    for number, step in enumerate(steps):
        if number in found and step is None:
            found.add(number + 1)
    return found


_ABSENT = dict.fromkeys(
    ("CompositeStorageClient", "SingleStorageClient"), "use StorageClient, the class of all clients"
)


def __getattr__(name: str) -> NoReturn:
    refuse_name(__name__, name, _ABSENT)
