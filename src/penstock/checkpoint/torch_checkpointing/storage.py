"""Files and directories of torch_checkpointing as objects, their digests, and the rename that commits a directory."""

from __future__ import annotations

import errno
import fnmatch
import io
import os
import posixpath
import random
import re
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import xxhash
from torch_checkpointing.checkpoint_writer import DEFAULT_TEMP_DIR_PREFIX
from torch_checkpointing.storage import base_storage

from penstock.checkpoint.commit import publish, read_current
from penstock.checkpoint.integrity import BlockChecksums, ChecksummedReader, ChecksummedWriter, Manifest, fits
from penstock.checkpoint.torch_checkpointing.names import DirectoryPlace, DirectoryTable, FoundPath
from penstock.errors import (
    AlreadyExists,
    CheckpointError,
    Conflict,
    Forbidden,
    InvalidURL,
    NotFound,
    PreconditionFailed,
    Transient,
    Truncated,
    Unsupported,
    Unusable,
)
from penstock.source import open_source
from penstock.values import Span, as_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from penstock.options import StoreOptions
    from penstock.source import Source

    Path = str | os.PathLike[str]

_RESERVED = ".penstock"  # the component of Penstock's own objects, in the root and in each directory
_TABLE = f"{_RESERVED}/directories.json"
_MARK = f"{_RESERVED}/directory"  # makes an empty directory exist
_TRIES = 40  # of a table that other processes change, too
_LISTINGS = 8  # kept in memory
_COLLAPSED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class MissingDirectory(NotFound, RuntimeError):
    """The directory that a path is in does not exist; torch_checkpointing expects ``RuntimeError``."""


class FileWriter(ChecksummedWriter):
    """File that is published when it is closed, with a second object: the digests of its blocks."""

    def __init__(self, source: Source, key: str) -> None:
        super().__init__(source.open_write(key))
        self._source = source
        self._key = key
        self._digested = False

    def close(self) -> None:
        super().close()
        self._store_digests()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._store_digests()

    def _store_digests(self) -> None:
        # Without an ETag nothing was published.
        if self._writer.etag and not self._digested:
            sums = self.checksums()
            self._source.put(f"{_digests_stem(self._key, self._writer.etag)}{_seal(sums)}", sums.digests)
            self._digested = True


@dataclass
class StorageConfig(base_storage.StorageConfig):
    """Checkpoints of torch_checkpointing below a URL: pass it as ``storage_config`` of ``CheckpointManager.Config``.

    Args:
        url: The folder of a run; checkpoint ids are paths below it, or URLs that begin with it.
        store: Options, or the name of a profile; default: environment and profile. With secrets, this can be pickled
            for worker processes only.

    Example:
        >>> from penstock.checkpoint.torch_checkpointing import StorageConfig
        >>> StorageConfig("s3://bucket/run/").create_storage().exists("step-1")
        False
    """

    url: Path
    store: StoreOptions | str | None = None

    def create_storage(self) -> Storage:
        """Return the storage: no request."""
        return Storage(self.url, store=self.store)


class Storage(base_storage.Storage):
    """Files and directories below a URL for torch_checkpointing, and for torchtitan's ``CheckpointStorage``.

    Renaming a directory is atomic: one conditional PUT, which moves no object. Of two processes that rename to one
    name, one succeeds. Files of a renamed directory cannot be replaced or deleted one by one; ``rmdir`` deletes all.
    Each read is compared with the digests that were written with the file.

    Paths are relative to ``url`` or begin with it, also as ``pathlib.Path`` writes URLs: ``s3:/bucket/run``. On a store
    with buckets, an absolute path is one below ``url``, too. Errors are Penstock's: ``NotFound`` is a
    ``FileNotFoundError``, and ``AlreadyExists`` a ``FileExistsError``.

    Args:
        url: The folder that contains all paths.
        store: Options, or the name of a profile; default: environment and profile.

    Raises:
        InvalidURL: A path leads out of ``url``, or has a component ``..`` or ``.penstock``.

    Example:
        >>> from penstock.checkpoint.torch_checkpointing import Storage
        >>> storage = Storage("s3://bucket/run/")
        >>> storage.mkdir("tmp_step-1")
        >>> storage.write("tmp_step-1/model.pt", b"weights")
        >>> storage.rename("tmp_step-1", "step-1", is_directory=True)
        >>> storage.read("step-1/model.pt"), storage.ls("")
        (b'weights', ['step-1'])
        >>> storage.rmdir("step-1")
    """

    def __init__(self, url: Path, *, store: StoreOptions | str | None = None) -> None:
        self._source, prefix = open_source(url, store)
        self._folder = as_folder(prefix)
        self._local = self._source.root.startswith("file:")
        roots = [self._source.url(self._folder), os.fspath(url), *([f"/{self._folder}"] if self._local else [])]
        self._roots = {_collapse(each).rstrip("/") for each in roots}
        self._table = DirectoryTable()
        self._known: set[str] = set()  # keys of directories that exist
        self._listings: OrderedDict[str, Manifest] = OrderedDict()
        self._unsettled: dict[tuple[str, str], DirectoryPlace] = {}  # renames whose outcome is unknown
        self._conditional = False

    @property
    def mmap_fill_workers(self) -> int | None:
        """One: a read is sent as parallel ranges already."""
        return 1

    def stream_read(self, path: Path, read_args: base_storage.ReadArgs | None = None) -> io.RawIOBase:
        """Return a file to read, all of it in memory by default (``pre_read_full_file``); each block is verified.

        Costs two requests for a file of a renamed directory, otherwise five, and then the data. ``direct_io`` and
        ``timeout_us`` have no effect: patience is an option of the store.

        Raises:
            NotFound: The file does not exist.
            Truncated: Its size is not ``known_size_bytes``.
        """
        args, name = read_args or base_storage.ReadArgs(), self._name(path)
        try:
            reader = self._open(*self._locate(name))
        except NotFound:
            # The table in memory may be old.
            before = self._table
            if self._read_table() == before:
                raise
            reader = self._open(*self._locate(name))
        size = reader.seek(0, io.SEEK_END)
        reader.seek(0)
        if args.known_size_bytes not in (None, size):
            raise Truncated(f"the file must have {args.known_size_bytes} bytes, got {size}", url=os.fspath(path))
        if not args.pre_read_full_file:
            return cast("io.RawIOBase", reader)
        with reader:
            return cast("io.RawIOBase", io.BytesIO(reader.read()))

    def stream_write(self, path: Path) -> io.IOBase:
        """Return a file to write, published when it is closed; an exception in its ``with`` block publishes nothing.

        Costs two PUTs, of the file and of its digests, and up to five small requests.

        Raises:
            NotFound: Its directory does not exist; the error is a ``RuntimeError``, too.
            Forbidden: It is a file of a renamed directory.
        """
        name = self._name(path)
        found, above = self._read_table().find(name), posixpath.dirname(name)
        if found is None or (posixpath.dirname(found.key) not in self._known and self._kind(above) != "directory"):
            raise MissingDirectory("cannot write the file: its directory does not exist; make it first", url=name)
        self._require_free(found, "write")
        return FileWriter(self._source, self._folder + found.key)

    def write(self, path: Path, data: Any) -> None:  # noqa: ANN401  any buffer
        """Write a file, as ``stream_write`` does."""
        with cast("FileWriter", self.stream_write(path)) as file:
            file.write(data)

    def delete(self, path: Path) -> None:
        """Delete a file; ``Forbidden`` for one of a renamed directory."""
        name = self._name(path)
        found = self._read_table().find(name)
        self._require_free(found, "delete")
        key = self._folder + _require_file(found, name).key
        self._source.delete([key, *self._source.keys_below(_digests_stem(key, self._source.head(key).etag))])

    def mkdir(self, path: Path, recursive: bool = True) -> None:  # noqa: FBT001, FBT002  torch_checkpointing's
        """Make a directory, which an object marks; ``AlreadyExists`` if a file has its name."""
        name = self._name(path)
        self._read_table()
        kind = self._kind(name)
        if kind == "file" or (kind and not recursive):
            raise AlreadyExists(f"cannot make the directory: a {kind} has this name", url=name)
        if not recursive and self._kind(posixpath.dirname(name)) != "directory":
            raise MissingDirectory("cannot make the directory: the one above it does not exist", url=name)
        if kind:
            return
        table = self._table
        while table.find(name) is None:
            table = self._change_table(lambda now: now.with_directory(name))
        key = cast("FoundPath", table.find(name)).key
        self._source.put(f"{self._folder}{as_folder(key)}{_MARK}", b"")
        self._known.add(key)

    def rmdir(self, path: Path) -> None:
        """Delete a directory: a renamed one disappears in one conditional PUT, before its objects are deleted.

        Args:
            path: The directory.
        """
        name = self._name(path)
        found = self._read_table().find(name)
        if not name or self._kind(name) != "directory":
            raise NotFound("cannot delete the directory: it does not exist, or is a file or the root", url=name)
        self._require_free(found, "delete")
        gone = [place.prefix for place in self._table.below(name).values()]
        table = self._change_table(lambda now: now.remove_directory(name)) if gone else self._table
        plain = table.find(name)
        self._delete_prefixes([*gone, *([as_folder(plain.key)] if plain is not None else [])])

    def rename(
        self,
        src_path: Path,
        dst_path: Path,
        is_directory: bool = False,  # noqa: ARG002, FBT001, FBT002  torch_checkpointing's
        background_cleanup: bool = False,  # noqa: ARG002, FBT001, FBT002  torch_checkpointing's
    ) -> None:
        """Rename a directory in one conditional PUT, after a listing; or copy a file in the store and delete the old.

        Args:
            src_path: An existing file or directory.
            dst_path: Its new path. A file replaces a file, and a directory an empty directory.
            is_directory: Not needed.
            background_cleanup: No effect: there is nothing to clean up.

        Raises:
            AlreadyExists: ``dst_path`` is occupied; nothing was changed.
            NotFound: ``src_path`` does not exist, or the directory that ``dst_path`` is in.
            Unusable: The store has no conditional writes; nothing was changed.
        """
        source, dest = self._name(src_path), self._name(dst_path)
        self._read_table()
        kind = "directory" if (source, dest) in self._unsettled else self._kind(source)
        if not kind or not source:
            raise NotFound("cannot rename: the path does not exist, or is the root", url=source)
        if source == dest:
            return
        if dest.startswith(f"{source}/") or not dest:
            raise InvalidURL("cannot rename: the new path is the root, or below the old one", url=dest)
        if self._kind(posixpath.dirname(dest)) != "directory":
            raise MissingDirectory("cannot rename: the directory of the new path does not exist", url=dest)
        self._require_free(self._table.find(source), "rename")
        self._require_free(self._table.find(dest), "replace")
        if kind == "file":
            self._rename_file(source, dest)
        else:
            self._rename_directory(source, dest)

    def ls(self, path: Path) -> list[str]:
        """Return the sorted names in a directory: two requests, and one for each 1,000 entries.

        Args:
            path: The directory.
        """
        name = self._name(path)
        found, start = self._read_table().find(name), as_folder(name)
        table = self._table
        names = {each.removeprefix(start).partition("/")[0] for each in table.below(name) if each != name}
        if found is not None:
            prefix = self._folder + as_folder(found.key)
            for page in self._source.pages(prefix, delimiter="/"):
                names.update(each.key.removeprefix(prefix) for each in page.entries)
                inner = (each.removeprefix(prefix).removesuffix("/") for each in page.prefixes)
                names.update(each for each in inner if table.find(start + each) is not None)
        names -= {_RESERVED, ""}
        if not names and self._kind(name) != "directory":
            raise NotFound("cannot list the directory: it does not exist, or is a file", url=name)
        return sorted(names)

    def exists(self, path: Path) -> bool:
        """Return whether a file or directory exists; for a file of a renamed directory, often without a request."""
        name = self._name(path)
        if self._find_listed(name):
            return True
        self._read_table()
        return bool(self._kind(name))

    def isdir(self, path: Path) -> bool:
        """Return whether a directory exists: two requests, or four."""
        self._read_table()
        return self._kind(self._name(path)) == "directory"

    def isfile(self, path: Path) -> bool:
        """Return whether a file exists.

        Args:
            path: The path.
        """
        self._read_table()
        return self._kind(self._name(path)) == "file"

    def getsize(self, path: Path) -> int:
        """Return a file's bytes; for a file of a renamed directory, often without a request."""
        found, size = self._locate(self._name(path))
        return self._source.head(self._folder + found.key).size if size is None else size

    def glob(self, pattern: str) -> list[str]:
        """Return the paths whose last component matches the pattern's; errors are raised."""
        folder, last = posixpath.split(pattern)
        try:
            return [posixpath.join(folder, each) for each in fnmatch.filter(self.ls(folder), last)]
        except NotFound:
            return []

    # torchtitan's names.
    listdir = ls
    remove = rmdir

    def remap_path(self, path: Path) -> str:
        """Return the URL of a file's object, or of the prefix that has a directory's objects."""
        found = self._read_table().find(self._name(path))
        return self._source.url(self._folder + (found.key if found is not None else self._name(path)))

    def sweep(
        self, path: Path = "", *, temp_dir_prefix: str = DEFAULT_TEMP_DIR_PREFIX, older_than_s: float = 86400.0
    ) -> list[str]:
        """Delete half-written directories of dead runs, and what interrupted calls of ``rmdir`` have left.

        Call it in one process, while no other process deletes: for example before a training begins.

        Args:
            path: The directory of the checkpoints.
            temp_dir_prefix: Beginning of the names of temporary directories, as torch_checkpointing is configured.
            older_than_s: Seconds since the last file of a directory was written, by the store's clock.

        Returns:
            The paths of the deleted directories. Costs a listing, and a request for each deleted object.
        """
        start, dead = as_folder(self._name(path)), []
        self._delete_prefixes(list(self._read_table().removed))
        for name in (start + each for each in self.ls(path) if each.startswith(temp_dir_prefix)):
            found = self._table.find(name)
            if found is None or found.place.listing:
                continue
            pages = self._source.pages(self._folder + as_folder(found.key))
            newest = max((each.modified or 0.0 for page in pages for each in page.entries), default=0.0)
            if newest and time.time() - newest > older_than_s:
                self.rmdir(name)
                dead.append(name)
        return dead

    # -- Paths

    def _name(self, path: Path) -> str:
        """Return a path below the root, without a slash at either end; empty for the root."""
        text = _collapse(os.fspath(path))
        root = next((each for each in self._roots if each and f"{text}/".startswith(f"{each}/")), "")
        if not root and (_COLLAPSED.match(text) or (self._local and text.startswith("/") and "" not in self._roots)):
            raise InvalidURL(f"the path must be below {self._source.url(self._folder)}", url=os.fspath(path))
        name = "/".join(each for each in text.removeprefix(root).split("/") if each not in ("", "."))
        if name and (not fits(name) or _RESERVED in name.split("/")):
            raise InvalidURL(f"a path must be UTF-8 without '..' and {_RESERVED!r}", url=os.fspath(path))
        return name

    def _kind(self, name: str) -> str:
        """Return ``file``, ``directory``, or an empty text for a missing path, by the table that was read last."""
        if not name or self._table.below(name):
            return "directory"
        found = self._table.find(name)
        if found is None:
            return ""
        if self._find_listed(name):
            return "file"
        key = self._folder + found.key
        if self._source.stat_existing([key]) != [None]:
            return "file"
        if not self._source.page(as_folder(key)).entries:
            return ""
        self._known.add(found.key)
        return "directory"

    def _find_listed(self, name: str) -> tuple[FoundPath, int] | None:
        """Return a file of a renamed directory, and its size, by the table that was read last."""
        found = self._table.find(name)
        files = self._read_listing(found.place) if found is not None and found.rest else None
        if found is None or files is None or found.rest not in files.indexed:
            return None
        return found, files.indexed[found.rest]

    def _locate(self, name: str) -> tuple[FoundPath, int | None]:
        """Return a file, and its size if it is one of a renamed directory."""
        listed = self._find_listed(name)
        if listed is None:
            self._read_table()
            listed = self._find_listed(name)
        return listed or (_require_file(self._table.find(name), name), None)

    def _require_free(self, found: FoundPath | None, verb: str) -> None:
        """Raise ``Forbidden`` for files of a renamed directory, and for directories with such files."""
        files = self._read_listing(found.place) if found is not None and found.rest else None
        if found is None or files is None:
            return
        if any(each == found.rest or each.startswith(f"{found.rest}/") for each in files.indexed):
            message = f"cannot {verb} files of a renamed directory: they are final; delete the directory instead"
            raise Forbidden(message, url=self._source.url(self._folder + found.key))

    # -- Files

    def _open(self, found: FoundPath, size: int | None) -> io.BufferedIOBase:
        key, files = self._folder + found.key, self._read_listing(found.place)
        meta = self._source.head(key)
        if files is not None and size is not None:
            name = files.content["digests"].get(found.rest)
        else:
            size = meta.size
            name = next((posixpath.basename(each) for each in self._find_digests(key, meta.etag)), None)
        if name is None:
            # Another program wrote it.
            return self._source.open_read(key, meta)
        at = f"{_reserved_folder(key)}{name}"
        sums = BlockChecksums(size, self._source.read(Span(at)))
        if not name.endswith(_seal(sums)):
            raise CheckpointError("the digests of the file are damaged", url=self._source.url(at))
        return ChecksummedReader(self._source.open_read(key, meta), sums, self._source.url(key))

    def _find_digests(self, key: str, etag: str) -> list[str]:
        """Return the key of a file's digests, if there are any."""
        return self._source.keys_below(_digests_stem(key, etag))[:1]

    def _rename_file(self, source: str, dest: str) -> None:
        here, there = self._table.find(source), self._table.find(dest)
        if here is None or there is None or self._kind(dest) == "directory":
            raise _refuse_occupied(dest, "directory", errno.EISDIR)
        old, new = self._folder + here.key, self._folder + there.key
        meta, (replaced,) = self._source.head(old), self._source.stat_existing([new])
        digests = self._find_digests(old, meta.etag)
        spare = self._find_digests(new, replaced.etag) if replaced is not None else []
        self._source.copy(old, new, meta)
        stem = _digests_stem(new, self._source.head(new).etag)
        for each in digests:
            self._source.put(f"{stem}{each.rpartition('.')[2]}", self._source.read(Span(each)))
        self._source.delete([old, *digests, *(each for each in spare if not each.startswith(stem))])

    # -- Directories

    def _rename_directory(self, source: str, dest: str) -> None:
        self._require_conditions()
        place = self._unsettled.get((source, dest))
        if place is None:
            here = cast("FoundPath", self._table.find(source))
            final = here.place.listing if not here.rest else ""
            place = DirectoryPlace(as_folder(here.key), final or self._write_listing(here))

        def commit(table: DirectoryTable) -> DirectoryTable:
            # The answer to an earlier attempt may have been lost.
            if table.directories.get(dest) == place:
                return table
            here = table.find(source)
            if here is None or as_folder(here.key) != place.prefix:
                raise NotFound("cannot rename the directory: another process has renamed or deleted it", url=source)
            self._require_empty(dest)
            return table.rename_directory(source, dest, place)

        self._unsettled[source, dest] = place
        try:
            self._change_table(commit)
        except Transient:
            # The outcome is unknown: the same call again finds it.
            raise
        except BaseException:
            self._unsettled.pop((source, dest), None)
            raise
        self._unsettled.pop((source, dest), None)

    def _require_empty(self, dest: str) -> None:
        """Raise ``AlreadyExists`` if a path is occupied; delete the mark of an empty directory."""
        kind, found = self._kind(dest), self._table.find(dest)
        if kind == "file":
            raise _refuse_occupied(dest, kind, errno.ENOTDIR)
        if kind and self.ls(dest):
            raise _refuse_occupied(dest, kind, errno.ENOTEMPTY)
        if kind and found is not None:
            self._source.delete([f"{self._folder}{as_folder(found.key)}{_MARK}"])

    def _write_listing(self, found: FoundPath) -> str:
        """Write the list of a directory's files, with the names of their digests; return the list's id."""
        prefix = as_folder(found.key)
        start = self._folder + prefix
        digests: dict[str, str] = {}
        files: dict[str, tuple[int, str]] = {}
        for page in self._source.pages(start):
            for each in page.entries:
                name = each.key.removeprefix(start)
                if _RESERVED in name.split("/"):
                    digests[each.key.rpartition(".")[0] + "."] = posixpath.basename(each.key)
                elif self._table.owns(prefix, prefix + name):
                    files[name] = each.size, each.etag
        stems = {name: _digests_stem(start + name, etag) for name, (_, etag) in files.items()}
        content = {"digests": {name: digests[stem] for name, stem in stems.items() if stem in digests}}
        listing = Manifest(uuid4().hex, "files", {}, content, {name: size for name, (size, _) in files.items()})
        self._source.put(f"{start}{_RESERVED}/{listing.save}.json", listing.encode())
        return listing.save

    def _read_listing(self, place: DirectoryPlace) -> Manifest | None:
        """Return the list of a renamed directory's files, which never changes; None for other directories."""
        if not place.listing:
            return None
        found = self._listings.get(place.listing)
        if found is None:
            key = f"{self._folder}{place.prefix}{_RESERVED}/{place.listing}.json"
            found = Manifest.decode(read_current(self._source, key)[1], self._source.url(key))
            self._listings[place.listing] = found
            if len(self._listings) > _LISTINGS:
                self._listings.popitem(last=False)
        return found

    def _delete_prefixes(self, prefixes: list[str]) -> None:
        """Delete the objects below prefixes, except those of other names; then drop the prefixes from the table."""
        others = replace(self._table, removed=tuple({*self._table.removed} - {*prefixes}))
        for prefix in prefixes:
            keys = self._source.keys_below(self._folder + prefix)
            self._source.delete([each for each in keys if others.owns(prefix, each.removeprefix(self._folder))])
            self._known = {each for each in self._known if not f"{each}/".startswith(prefix)}
        if {*prefixes} & {*self._table.removed}:
            self._change_table(
                lambda now: replace(now, removed=tuple(each for each in now.removed if each not in prefixes))
            )

    # -- The table

    def _read_table(self) -> DirectoryTable:
        self._table = DirectoryTable.read(self._source, self._folder + _TABLE)
        return self._table

    def _change_table(self, change: Callable[[DirectoryTable], DirectoryTable]) -> DirectoryTable:
        """Replace the table in one conditional PUT; after a conflict, call ``change`` with the newer table."""
        for attempt in range(_TRIES):
            table = self._read_table()
            changed = change(table)
            if changed is table:
                return table
            try:
                etag = publish(self._source, self._folder + _TABLE, changed.encode(), table.etag, [])
            except Conflict:
                time.sleep(random.uniform(0, min(1.0, 0.02 * 2**attempt)))  # noqa: S311  jitter
                continue
            self._table = replace(changed, etag=etag)
            return self._table
        message = f"cannot change the table of directories: other processes were faster {_TRIES} times; try again"
        raise Conflict(message, url=self._source.url(self._folder + _TABLE))

    def _require_conditions(self) -> None:
        """Raise ``Unusable`` if the store writes although a condition is false: two renames could both succeed."""
        if self._conditional:
            return
        key = f"{self._folder}{_RESERVED}/conditions"
        etag = self._source.put(key, b"")
        other = etag[:-1] + ("1" if etag[-1:] != "1" else "2")
        for create_only, replaces in ((True, ""), (False, other)):
            try:
                self._source.put(key, b"", create_only=create_only, replaces=replaces)
            except (AlreadyExists, PreconditionFailed):
                continue
            except (Unsupported, NotFound):
                pass
            message = (
                "cannot rename a directory: the store has no conditional writes, so one process could overwrite the "
                "commit of another; use a store that has them, or penstock.checkpoint.dcp with one writer"
            )
            raise Unusable(message, url=self._source.url(self._folder))
        self._conditional = True


def _collapse(path: str) -> str:
    """Return a path as ``pathlib`` writes it: with single slashes."""
    return re.sub("/+", "/", path)


def _require_file(found: FoundPath | None, name: str) -> FoundPath:
    if found is None or not found.key:
        raise NotFound("the file does not exist", url=name)
    return found


def _refuse_occupied(dest: str, kind: str, code: int) -> AlreadyExists:
    error = AlreadyExists(f"cannot rename: a {kind} occupies the new path; delete it first", url=dest)
    error.errno = code
    return error


def _reserved_folder(key: str) -> str:
    return f"{as_folder(posixpath.dirname(key))}{_RESERVED}/"


def _digests_stem(key: str, etag: str) -> str:
    """Return the key of a file's digests up to their seal; it depends on the file's name and version."""
    named = xxhash.xxh3_128_hexdigest(f"{posixpath.basename(key)}\0{etag}".encode())
    return f"{_reserved_folder(key)}{named}."


def _seal(sums: BlockChecksums) -> str:
    return xxhash.xxh3_64_hexdigest(sums.digests, sums.size)
