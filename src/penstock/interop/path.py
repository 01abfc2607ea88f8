"""Objects as pathlib-style paths: ``ps.Path``, which universal_pathlib also uses for ``penstock://`` and ``msc://``.

Differences from pathlib: keys are not normalized (``//``, ``.`` and ``..`` stay); a directory is a prefix with objects
below it, so ``mkdir`` does nothing; ``rename`` copies and deletes; links, owners and modes do not exist.
"""

from __future__ import annotations

import os
import posixpath
from errno import ENOTEMPTY
from glob import escape
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self

from penstock.copies import copy_object, delete_sources, move_object
from penstock.engine.listing.select import fixed_part, selector
from penstock.errors import AlreadyExists, InvalidURL, NotFound, Unusable, require_extras
from penstock.source import open_source, require_key
from penstock.stores.urls import check_deletable, parse
from penstock.values import UNKNOWN_SIZE, Span, as_folder, switch
from penstock.verbs import open as open_object

with require_extras("ps.Path needs universal_pathlib", upath="path"):
    from upath import UPath
    from upath._chain import DEFAULT_CHAIN_PARSER, Chain, ChainSegment
    from upath._stat import UPathStatResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.options import StoreOptions
    from penstock.source import Reader, Source, Writer
    from penstock.values import ObjectMeta

_MODE = 0o666  # of a new file, in pathlib


def join_path(base: str, *names: str) -> str:
    """Return ``base``, which is ``bucket/key`` or a URL, joined with ``names``; ``""`` and ``"."`` are skipped."""
    for name in names:
        if name.startswith("/") or "://" in name:
            raise InvalidURL(
                f"cannot join {name!r}: the name is absolute; leave out its root, or create a path from it"
            )
        if name not in ("", "."):
            base = f"{base}{name}" if base.endswith("/") else f"{base}/{name}"
    return base


class Names:
    """A parser of paths ``bucket/key``, with the interface that pathlib and universal_pathlib require.

    A single trailing ``/`` is not part of the name, and an empty component has an empty name: the parent of
    ``bucket/a//b`` is ``bucket/a//``, so that parent and name together give the path again.
    """

    sep: ClassVar[str] = "/"
    altsep: ClassVar[str | None] = None
    root_marker: ClassVar[str] = "/"
    local_file: ClassVar[bool] = False
    netloc_is_anchor: ClassVar[bool] = True

    @staticmethod
    def strip_protocol(path: object) -> str:
        text = str(path)
        head, mark, rest = text.partition("://")
        return rest if mark and "/" not in head else text

    @classmethod
    def split(cls, path: str) -> tuple[str, str]:
        """Return the parent and the name; for a bucket, the bucket itself and an empty name."""
        bucket, _, key = cls.strip_protocol(path).partition("/")
        key = key.removesuffix("/")
        head, _, name = key.rpartition("/")
        if head.endswith("/") or (not head and key.startswith("/")):
            head += "/"
        return f"{bucket}/{head}", name

    splitext = staticmethod(posixpath.splitext)

    @classmethod
    def splitdrive(cls, path: str) -> tuple[str, str]:
        bucket, _, key = cls.strip_protocol(path).partition("/")
        return bucket, f"/{key}"

    @classmethod
    def splitroot(cls, path: str) -> tuple[str, str, str]:
        bucket, rest = cls.splitdrive(path)
        return bucket, "/", rest[1:]

    @classmethod
    def join(cls, path: str, *names: str) -> str:
        """Return ``path`` without its scheme, joined with ``names``; raise ``InvalidURL`` as ``join_path`` does."""
        return join_path(cls.strip_protocol(path), *map(str, names))

    @staticmethod
    def isabs(path: str) -> bool:
        """Return True: a relative path is marked by its ``_relative_base`` instead."""
        return True

    @staticmethod
    def normcase(path: str) -> str:
        return path


class PenstockPath(UPath):
    """A path of an object, or of a prefix, in any store: ``ps.Path("s3://bucket/a") / "b.txt"``.

    The key is not normalized: ``//``, ``?``, ``#``, ``%``, ``.`` and ``..`` stay. A path with a trailing ``/`` differs
    from the path without it, because the keys differ; its ``name`` omits that ``/``. Creating a path and reading its
    components make no request.

    Args:
        *names: A URL (without a scheme: a local path), and names below it; default: the working directory.
        protocol: Scheme of a URL without one.
        store: Options, or the name of a profile; default: environment and profile.
        chain_parser: Used by universal_pathlib itself.

    Raises:
        InvalidURL: The URL cannot be parsed.
        UnknownScheme: No provider has its scheme.

    Example:
        >>> folder = ps.Path("s3://bucket/train/3")
        >>> (folder / "0000.png").read_bytes()[1:4]
        b'PNG'
        >>> next(folder.iterdir()).name
        '0000.png'
    """

    parser = Names  # type: ignore[assignment]  # its methods need no instance

    def __new__(cls, *_: object, **__: object) -> Self:
        """Create a path of any scheme: Penstock itself knows the schemes."""
        return object.__new__(cls)

    def __init__(
        self,
        *names: str | os.PathLike[str] | UPath,
        protocol: str | None = None,
        store: StoreOptions | str | None = None,
        chain_parser: Any = DEFAULT_CHAIN_PARSER,
    ) -> None:
        """Join a URL and names below it."""
        base, *below = names or (".",)
        if isinstance(base, PenstockPath):
            store = base.storage_options.get("store") if store is None else store
        text = str(base) if isinstance(base, UPath) else os.fspath(base)
        if protocol and "://" not in text:
            text = f"{protocol}://{text}"
        location = parse(text)
        path = join_path(f"{location.bucket}/{location.key}", *(_name(each) for each in below))
        options = {} if store is None else {"store": store}
        self._chain = Chain(ChainSegment(path, location.scheme, options))
        self._chain_parser = chain_parser
        self._raw_urlpaths = (text, *below)
        self._relative_base = None

    # -- names: no requests ----------------------------------------------------------------------------------------

    def __str__(self) -> str:
        """Return the URL, or for a relative path the part below its base."""
        path = self._chain.active_path
        if self._relative_base is None:
            return f"{self.protocol}://{path}"
        return path.removeprefix(as_folder(self._relative_base)) if path != self._relative_base else "."

    def __repr__(self) -> str:
        """Return the class and the URL, without options."""
        relative = "" if self._relative_base is None else "relative "
        return f"<{relative}{type(self).__name__} {str(self)!r}>"

    @property
    def name(self) -> str:
        """The last component, without a trailing ``/``."""
        return self.parser.split(self._chain.active_path)[1] if str(self) != "." else ""

    @property
    def parts(self) -> Sequence[str]:
        """The bucket with its ``/``, and the components of the key."""
        if self._relative_base is not None:
            return () if str(self) == "." else tuple(str(self).split("/"))
        bucket, root, key = self.parser.splitroot(self._chain.active_path)
        return bucket + root, *(key.removesuffix("/").split("/") if key else ())

    @property
    def anchor(self) -> str:
        """The bucket with its ``/``; empty for a relative path."""
        return "" if self._relative_base is not None else self.drive + self.root

    def with_name(self, name: str) -> Self:
        """Return the path with a new last component; raise ``ValueError`` if it has none or ``name`` is not valid."""
        if not self.name or not name or "/" in name or name == ".":
            message = f"{str(self)!r} cannot be given the name {name!r}"
            raise ValueError(message)
        path = self._again(join_path(self.parser.split(self._chain.active_path)[0], name))
        path._relative_base = self._relative_base  # noqa: SLF001  the same class
        return path

    def relative_to(  # type: ignore[override]  # the other arguments of pathlib are deprecated
        self, other: UPath | str, /, *, walk_up: bool = False
    ) -> Self:
        """Return the rest of this path below ``other``; raise ``ValueError`` if it is not below."""
        if walk_up:
            raise NotImplementedError("walk_up=True is not supported: pass a path that contains this one")
        base = self._above(other)
        if base is None:
            message = f"{str(self)!r} is not below {str(other)!r}"
            raise ValueError(message)
        path = self._again(self._chain.active_path)
        path._relative_base = base._chain.active_path  # noqa: SLF001  the same class
        return path

    def is_relative_to(self, other: UPath | str, /) -> bool:
        """Return whether this path is ``other`` or below it."""
        return self._above(other) is not None

    def resolve(self, strict: bool = False) -> Self:
        """Return the absolute path: in keys ``.`` and ``..`` are ordinary names, and links do not exist.

        With ``strict``, raise ``NotFound`` if nothing exists.
        """
        if strict:
            self.stat()
        return self.absolute()

    def __rtruediv__(self, key: object) -> Self:
        """Return ``NotImplemented``: the left operand would be lost."""
        return NotImplemented

    # -- status ----------------------------------------------------------------------------------------------------

    def stat(self, *, follow_symlinks: bool = True) -> UPathStatResult:
        """Return the status: one request, two for a directory; raise ``NotFound`` if nothing exists."""
        return UPathStatResult.from_info(stat_path(*self._place()))

    @property
    def info(self) -> Self:
        """Return this path for the status queries of pathlib's algorithms; each query sends requests."""
        return self

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether an object or a directory exists: one or two requests. Errors are raised."""
        return self.is_file() or self.is_dir()

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether the path is an object: one request. Errors are raised."""
        return file_at(*self._place()) is not None

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether anything exists below: one request. Errors are raised."""
        return directory(*self._place())

    def is_symlink(self) -> bool:
        """Return False: links do not exist."""
        return False

    def iterdir(self) -> Iterator[Self]:
        """Yield the direct children, in order: one request per 1,000; raise ``NotFound`` or ``NotADirectoryError``."""
        return (self._at(key) for key in children(*self._place()))

    def glob(
        self, pattern: str, *, case_sensitive: bool | None = None, recurse_symlinks: bool = False
    ) -> Iterator[Self]:
        """Yield matching files and directories below, in order; patterns and requests are those of ``ps.glob``.

        ``**`` matches any run of characters, and ``**/`` also matches nothing. Keys are always case-sensitive.
        """
        if case_sensitive is not None and not switch(case_sensitive, "case_sensitive"):
            raise Unusable("cannot ignore the case of keys: leave out case_sensitive", url=str(self))
        return (self._at(key) for key in matches(*self._place(), str(pattern)))

    def rglob(
        self, pattern: str, *, case_sensitive: bool | None = None, recurse_symlinks: bool = False
    ) -> Iterator[Self]:
        """Yield the matches of ``**/`` followed by the pattern, as ``glob`` does."""
        return self.glob(f"**/{pattern}", case_sensitive=case_sensitive, recurse_symlinks=recurse_symlinks)

    # -- files -----------------------------------------------------------------------------------------------------

    def open(  # type: ignore[override]
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
    ) -> IO[Any]:
        """Open the object as ``ps.open`` does; the default mode is text, as in pathlib.

        Args:
            mode: As for ``ps.open``, like the other arguments.
            buffering: Not used.
            encoding: Encoding of text.
            errors: Handler for text that the encoding lacks.
            newline: Line ends of text.
            metadata: User metadata that is stored with a written object.

        Returns:
            A binary or text file.
        """
        text: dict[str, Any] = {"encoding": encoding, "errors": errors, "newline": newline}
        return open_object(self._absolute(), mode, metadata=metadata, store=self._store, **text)  # type: ignore[no-any-return]

    def read_bytes(self) -> bytes:
        """Return all bytes: one request for an object of up to 16 MiB."""
        source, key = self._file()
        return source.read(Span(key))

    def read_text(self, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> str:
        """Return all text; UTF-8 by default."""
        with self.open("r", encoding=encoding, errors=errors, newline=newline) as file:
            return str(file.read())

    def write_bytes(self, data: bytes | bytearray | memoryview) -> int:
        """Return the number of bytes written, which replace the object: one PUT and a HEAD."""
        with self.open("wb") as file:
            return int(file.write(data))

    def write_text(
        self, data: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> int:
        """Return the number of characters written, which replace the object."""
        with self.open("w", encoding=encoding, errors=errors, newline=newline) as file:
            return int(file.write(data))

    def touch(self, mode: int = _MODE, exist_ok: bool = True) -> None:
        """Create an empty object; an existing one stays unchanged, or raises ``AlreadyExists`` without ``exist_ok``."""
        if mode != _MODE:
            raise Unusable(f"cannot give an object the mode {mode:#o}: leave out mode", url=str(self))
        if self.is_file():
            if not exist_ok:
                raise AlreadyExists("the object exists already", url=str(self))
            return
        self.open("xb").close()

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing, without a request: a prefix need not be created, and an empty directory does not exist."""

    # -- changes ---------------------------------------------------------------------------------------------------

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the object: a HEAD and a DELETE; raise ``NotFound`` if it is missing.

        With ``missing_ok`` the HEAD is omitted, and a missing object is not an error.
        """
        source, key = self._file()
        if not missing_ok:
            source.head(key)
        source.delete([key])

    def rmdir(self, recursive: bool = False) -> None:
        """Delete all objects below if ``recursive``; otherwise only a directory's marker, if nothing else is below.

        Raises:
            OSError: The directory is not empty, and ``recursive`` is False.
            NotFound: Nothing exists at the path.
            InvalidURL: The path is a whole bucket.
        """
        remove_tree(*self._place(), recursive=recursive)

    def rename(self, target: UPath | str | os.PathLike[str]) -> Self:  # type: ignore[override]
        """Copy an object, or all objects below, then delete the sources; not atomic.

        Args:
            target: A path or a URL, of any store. Existing objects there are replaced, one by one.

        Returns:
            The new path.

        Raises:
            NotFound: Nothing exists at this path.
            InvalidURL: ``target`` is a name without a scheme (write ``path.with_name(…)``), or is below this path.
            Unusable: ``target`` may be this path under another name; nothing was deleted.
        """
        if not isinstance(target, UPath) and "://" not in os.fspath(target):
            raise InvalidURL(f"{target!r} is a local file: rename takes a URL, or path.with_name(…)")
        to = target if isinstance(target, type(self)) else self._again(str(target))
        if to == self:
            return to
        source, key = self._file()
        into, name = to._place()  # noqa: SLF001  the same class
        if file_at(source, key) is not None:
            move_object(source, key, *to._file())  # noqa: SLF001  the same
            return to
        if to._above(self) is not None:  # noqa: SLF001  the same class
            raise InvalidURL("a directory cannot be moved below itself", url=str(to))
        found = source.keys_below(as_folder(key))
        if not found:
            raise NotFound("nothing exists at this path", url=str(self))
        below, folder = as_folder(key), as_folder(name)
        delete_sources([copy_object(source, each, into, folder + each.removeprefix(below)) for each in found])
        return to

    # Of the copy and the move of universal_pathlib.
    def _copy_from(self, source: Any, **options: Any) -> None:  # type: ignore[override]
        if lost := options.keys() - {"follow_symlinks", "on_name_collision"}:
            raise Unusable(f"cannot copy with {', '.join(lost)}=: leave it out, or use ps.copy", url=str(self))
        super()._copy_from(source, **options)

    replace = rename  # type: ignore[assignment]  # which replaces, too

    # -- hooks of universal_pathlib --------------------------------------------------------------------------------

    def __open_reader__(self) -> Reader:  # type: ignore[override]
        """Open the object for reading."""
        return self.open("rb")  # type: ignore[return-value]

    def __open_writer__(self, mode: str) -> Writer:  # type: ignore[override]
        """Open the object for writing."""
        return self.open(f"{mode}b")  # type: ignore[return-value]

    @classmethod
    def _fs_factory(cls, urlpath: str, protocol: str, storage_options: Mapping[str, Any]) -> Any:  # noqa: ARG003
        """Return the fsspec file system of a scheme, for libraries that request it from a path."""
        return import_module("penstock.interop.fsspec.schemes").kind_of(protocol)(**storage_options)

    @property
    def _store(self) -> StoreOptions | str | None:
        return self.storage_options.get("store")

    def _absolute(self) -> str:
        if self._relative_base is not None:
            raise InvalidURL(f"{str(self)!r} is relative: join it to a path, and open that")
        return str(self)

    def _place(self) -> tuple[Source, str]:
        return open_source(self._absolute(), self._store)

    def _file(self) -> tuple[Source, str]:
        return require_key(*self._place())

    def _at(self, key: str) -> Self:
        return self._again(f"{self.parser.splitdrive(self._chain.active_path)[0]}/{key}")

    def _again(self, path: str) -> Self:
        """Return a path of the same store."""
        return type(self)(path, protocol=self.protocol, **self.storage_options)

    def _other(self, other: UPath | str) -> PenstockPath:
        if isinstance(other, PenstockPath):
            return other
        return self._again(str(other))

    def _above(self, given: UPath | str) -> PenstockPath | None:
        """Return ``given`` as a path if this path equals it or is below it; else None, also if it is not valid."""
        try:
            base = self._other(given)
        except Unusable:
            return None
        mine, other = self._chain.active_path, base._chain.active_path  # noqa: SLF001  the same class
        if (self.protocol, self.storage_options) != (base.protocol, base.storage_options):
            return None
        return base if mine == other or mine.startswith(as_folder(other)) else None


def _name(each: object) -> str:
    if isinstance(each, UPath):
        return str(each) if each._relative_base is not None else each.as_uri()  # noqa: SLF001  as universal_pathlib
    return os.fspath(each) if isinstance(each, os.PathLike) else str(each)


def file_at(source: Source, key: str) -> ObjectMeta | None:
    """Return an object's metadata: one request. None for a directory's marker, or if the object does not exist."""
    found = source.stat_existing([key])[0] if key else None
    return None if found is None or (found.key.endswith("/") and found.size == 0) else found


def directory(source: Source, key: str) -> bool:
    """Return whether an object below or a directory's marker exists: one request."""
    return bool(source.page(as_folder(key)).entries)


def stat_path(source: Source, key: str) -> dict[str, object]:
    """Return the fields of universal_pathlib's ``stat``: one request, two for a directory; raise ``NotFound``."""
    found = file_at(source, key)
    if found is not None:
        size = None if found.size == UNKNOWN_SIZE else found.size
        return {"name": key, "type": "file", "size": size, "mtime": found.modified, "ETag": found.etag}
    if key and not directory(source, key):
        raise NotFound("neither an object nor a prefix of one", url=source.url(key))
    return {"name": key, "type": "directory", "size": 0}


def children(source: Source, key: str) -> Iterator[str]:
    """Yield the keys of the direct children, each once, in order: one request per 1,000."""
    prefix, last, there = as_folder(key), None, False
    for page in source.pages(prefix, delimiter="/"):
        there = there or bool(page.entries or page.prefixes)
        found = [(each.key, each.key) for each in page.entries if each.key != prefix]
        found += [(each, _strip_slash(each)) for each in page.prefixes]
        for _, child in sorted(found):
            # An object and a prefix of the same name follow one another, possibly on two pages.
            if child != last:
                yield child
            last = child
    if key and not there:
        if file_at(source, key) is not None:
            raise NotADirectoryError(source.url(key))
        raise NotFound("no such directory", url=source.url(key))


def matches(source: Source, key: str, pattern: str) -> Iterator[str]:
    """Yield the keys of files and directories below that match a pattern (``engine.listing.select``), in order.

    A pattern with a trailing ``/`` matches only directories. The requests are those of ``ps.glob``.
    """
    if not pattern.strip("/") or pattern.startswith("/"):
        raise InvalidURL(f"pattern must be relative and not empty, got {pattern!r}", url=source.url(key))
    folders, whole = pattern.endswith("/"), escape(as_folder(key)) + pattern.removesuffix("/")
    start, rest = fixed_part(whole)
    if not rest:
        if directory(source, start) or (not folders and file_at(source, start) is not None):
            yield start
        return
    chosen = selector(whole, markers=True)
    last = rest if "/" in rest else start.rpartition("/")[2] + rest
    seen: set[str] = set()
    for page in source.pages(start, delimiter="" if "/" in last or "**" in last else "/"):
        found = [(each, _strip_slash(each)) for each in page.prefixes]
        for each in page.entries:
            found += [(each.key, folder) for folder in _folders(each.key, len(as_folder(key)))]
            if not folders and not each.key.endswith("/"):
                found.append((each.key, each.key))
        for _, name in sorted(found, key=lambda pair: pair[0]):
            if name not in seen and chosen(name, 1):
                yield name
            seen.add(name)


def remove_tree(source: Source, key: str, *, recursive: bool) -> None:
    """Delete all objects below; without ``recursive`` only a directory's marker, if nothing else is below."""
    check_deletable(parse(source.url(as_folder(key))))
    found = source.keys_below(as_folder(key))
    if not found:
        list(children(source, key))
    if not recursive and found != [as_folder(key)]:
        message = "the directory is not empty: rmdir(recursive=True) deletes all objects below"
        raise OSError(ENOTEMPTY, message, source.url(key))
    source.delete(found)


def _strip_slash(prefix: str) -> str:
    """Return the directory's key for a common prefix; a trailing ``//`` is an empty name, and stays."""
    return prefix if prefix.endswith("//") else prefix[:-1]


def _folders(key: str, base: int) -> Iterator[str]:
    at = key.find("/", base)
    while at >= 0:
        yield _strip_slash(key[: at + 1])
        at = key.find("/", at + 1)


Path = PenstockPath
