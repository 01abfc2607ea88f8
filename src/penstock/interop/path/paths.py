"""Paths of objects, with pathlib's manners, over Penstock's own verbs."""

from __future__ import annotations

import os
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, Self

from upath import UPath
from upath._chain import DEFAULT_CHAIN_PARSER, Chain, ChainSegment
from upath._stat import UPathStatResult

from penstock.errors import AlreadyExists, InvalidURL, NotFound
from penstock.interop.path import trees
from penstock.interop.path.names import Names, joined
from penstock.providers.urls import parse
from penstock.source import open_source
from penstock.values import Span, as_folder
from penstock.verbs import copy, delete
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.options import StoreOptions
    from penstock.source import Reader, Source, Writer

__all__ = ["PenstockPath"]


class PenstockPath(UPath):
    """A path of an object, or of a prefix, in any store: ``ps.Path("s3://bucket/a") / "b.txt"``.

    The key is what was written: ``//``, ``?``, ``#``, ``%``, ``.`` and ``..`` stay. A path that ends in ``/`` is
    another one than without it, as its key is; its ``name`` leaves that ``/`` out. Making a path, and taking it apart,
    makes no request. A bare path is one of this machine. ``store=`` is options or a profile.

    Raises:
        InvalidURL: The URL cannot be parsed.
        UnknownScheme: No provider has its scheme.

    """

    parser = Names  # type: ignore[assignment]  # its methods need no instance

    def __new__(cls, *_: object, **__: object) -> Self:
        """Make a path of any scheme: Penstock knows which there are."""
        return object.__new__(cls)

    def __init__(
        self,
        *names: str | os.PathLike[str] | UPath,
        protocol: str | None = None,
        store: StoreOptions | str | None = None,
        chain_parser: Any = DEFAULT_CHAIN_PARSER,  # noqa: ANN401  universal_pathlib's own
    ) -> None:
        """Join a URL and names below it; ``protocol`` is the scheme of a URL that is written without one."""
        base, *below = names or (".",)
        if isinstance(base, PenstockPath):
            store = base.storage_options.get("store") if store is None else store
        text = str(base) if isinstance(base, UPath) else os.fspath(base)
        if protocol and "://" not in text:
            text = f"{protocol}://{text}"
        location = parse(text)
        path = joined(f"{location.bucket}/{location.key}", *(_name(each) for each in below))
        options = {} if store is None else {"store": store}
        self._chain = Chain(ChainSegment(path, location.scheme, options))
        self._chain_parser = chain_parser
        self._raw_urlpaths = (text, *below)
        self._relative_base = None

    # -- names: no requests ----------------------------------------------------------------------------------------

    def __str__(self) -> str:
        """Return the URL, or the name below what it is relative to."""
        path = self._chain.active_path
        if self._relative_base is None:
            return f"{self.protocol}://{path}"
        return path.removeprefix(as_folder(self._relative_base)) if path != self._relative_base else "."

    def __repr__(self) -> str:
        """Return how it is made, without options."""
        relative = "" if self._relative_base is None else "relative "
        return f"<{relative}{type(self).__name__} {str(self)!r}>"

    @property
    def name(self) -> str:
        """The last component, without a ``/`` at the end of the path."""
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
        """The bucket with its ``/``; empty of a relative path."""
        return "" if self._relative_base is not None else self.drive + self.root

    def with_name(self, name: str) -> Self:
        """Return the path with another last component. ``ValueError`` where it has none, or ``name`` is none."""
        if not self.name or not name or "/" in name or name == ".":
            message = f"{str(self)!r} cannot be given the name {name!r}"
            raise ValueError(message)
        path = self._again(joined(self.parser.split(self._chain.active_path)[0], name))
        path._relative_base = self._relative_base  # noqa: SLF001  of its own class
        return path

    def relative_to(self, other: UPath | str, /, *_: object, walk_up: bool = False) -> Self:
        """Return the path below another one; ``str`` of it is the rest of the key. ``ValueError`` where it is not."""
        if walk_up:
            raise NotImplementedError("walk_up=True: name a path that this one is below")
        base = self._other(other)
        if not self._below(base):
            message = f"{str(self)!r} is not below {str(other)!r}"
            raise ValueError(message)
        path = self._again(self._chain.active_path)
        path._relative_base = base._chain.active_path  # noqa: SLF001  of its own class
        return path

    def is_relative_to(self, other: UPath | str, /, *_: object) -> bool:
        """Say whether it is another path, or below it."""
        return self._below(self._other(other))

    def resolve(self, strict: bool = False) -> Self:  # noqa: ARG002, FBT001, FBT002  pathlib's signature
        """Return it: ``.`` and ``..`` are names like others in a key, and there are no links."""
        return self.absolute()

    def __rtruediv__(self, key: object) -> Self:
        """Refuse: what stands before a path would be lost."""
        return NotImplemented

    # -- what is there ---------------------------------------------------------------------------------------------

    def stat(self, *, follow_symlinks: bool = True) -> UPathStatResult:  # noqa: ARG002  there are none
        """Describe it: one request, two for a directory. Raises ``NotFound``."""
        return UPathStatResult.from_info(trees.described(*self._place()))

    def lstat(self) -> UPathStatResult:
        """Describe it as ``stat``."""
        return self.stat()

    @property
    def info(self) -> PathInfo:
        """What pathlib's own algorithms ask: asked for anew each time."""
        return PathInfo(self)

    def exists(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002  there are none
        """Say whether it is an object, or something lies below: one request, or two. Errors are raised."""
        return self.is_file() or self.is_dir()

    def is_file(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002  there are none
        """Say whether it is an object: one request. Errors are raised."""
        return trees.file_at(*self._place()) is not None

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002  there are none
        """Say whether something lies below: one request. Errors are raised."""
        return trees.directory(*self._place())

    def is_symlink(self) -> bool:
        """Return False: there are none."""
        return False

    def iterdir(self) -> Iterator[Self]:
        """Yield what lies right below, in order: a request for each 1,000.

        Raises:
            NotFound: There is nothing.
            NotADirectoryError: It is an object.

        """
        return (self._at(key) for key in trees.children(*self._place()))

    def glob(self, pattern: str, **_: object) -> Iterator[Self]:
        """Yield files and directories below that match, in order: patterns and requests are those of ``ps.glob``.

        ``**`` matches any run of characters, and ``**/`` also nothing. Case counts.
        """
        return (self._at(key) for key in trees.matches(*self._place(), str(pattern)))

    def rglob(self, pattern: str, **_: object) -> Iterator[Self]:
        """Yield what ``glob`` does for ``**/`` and the pattern."""
        return self.glob(f"**/{pattern}")

    # -- files -----------------------------------------------------------------------------------------------------

    def open(  # type: ignore[override]
        self,
        mode: str = "r",
        buffering: int = -1,  # noqa: ARG002  a file has its own
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
    ) -> IO[Any]:
        """Open it as ``ps.open`` does; the default is text, as pathlib has it."""
        how = {"encoding": encoding, "errors": errors, "newline": newline}
        return open_object(self._absolute(), mode, metadata=metadata, store=self._store, **how)  # type: ignore[no-any-return]

    def read_bytes(self) -> bytes:
        """Return all bytes: one request for an object of up to 16 MiB."""
        source, key = self._file()
        return source.read(Span(key))

    def read_text(self, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> str:
        """Return all text; UTF-8 by default."""
        with self.open("r", encoding=encoding, errors=errors, newline=newline) as file:
            return str(file.read())

    def write_bytes(self, data: bytes | bytearray | memoryview) -> int:
        """Replace the object; returns how many bytes it has: one PUT and a HEAD."""
        with self.open("wb") as file:
            return int(file.write(data))

    def write_text(
        self, data: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> int:
        """Replace the object with text; returns how many characters it has."""
        with self.open("w", encoding=encoding, errors=errors, newline=newline) as file:
            return int(file.write(data))

    def touch(self, mode: int = 0o666, exist_ok: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002  pathlib's
        """Make an empty object, unless there is one: that one stays as it is. ``AlreadyExists`` if not ``exist_ok``."""
        if self.is_file():
            if not exist_ok:
                raise AlreadyExists("there is one already", url=str(self))
            return
        self.open("xb").close()

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002
        """Do nothing, and make no request: a prefix needs no making, and one that nothing lies below is not there."""

    # -- changes ---------------------------------------------------------------------------------------------------

    def unlink(self, missing_ok: bool = False) -> None:  # noqa: FBT001, FBT002  pathlib's signature
        """Delete the object: a HEAD and a DELETE. ``NotFound``; with ``missing_ok`` neither that nor the HEAD."""
        source, key = self._file()
        if not missing_ok:
            source.head(key)
        source.delete([key])

    def rmdir(self, recursive: bool = False) -> None:  # noqa: FBT001, FBT002  universal_pathlib's name for it
        """Delete all that lies below, if ``recursive``; else a directory's marker, if nothing else does.

        Raises:
            OSError: Something lies below, and ``recursive`` is False.
            NotFound: There is nothing.
            InvalidURL: A whole bucket.

        """
        trees.remove_tree(*self._place(), recursive=recursive)

    def rename(self, target: UPath | str | os.PathLike[str], **_: object) -> Self:  # type: ignore[override]
        """Copy an object, or all that lies below, and delete it then; returns the new path. Not atomic.

        ``target`` is a path or a URL, of any store. What is there is replaced, object by object.

        Raises:
            NotFound: There is nothing.
            InvalidURL: ``target`` is a name without a scheme (write ``path.with_name(…)``), or lies below this path.

        """
        if not isinstance(target, UPath) and "://" not in os.fspath(target):
            raise InvalidURL(f"{target!r} is a file of this machine: rename takes a URL, or path.with_name(…)")
        to = target if isinstance(target, type(self)) else self._again(str(target))
        if to == self:
            return to
        source, key = self._file()
        if trees.file_at(source, key) is not None:
            copy(str(self), str(to), store=self._store)
            source.delete([key])
            return to
        if to._below(self):  # noqa: SLF001  of its own class
            raise InvalidURL("a directory cannot be moved below itself", url=str(to))
        found = trees.objects(source, key)
        if not found:
            raise NotFound("nothing there", url=str(self))
        for each in found:
            copy(source.url(each), as_folder(str(to)) + each.removeprefix(as_folder(key)), store=self._store)
        delete([source.url(each) for each in found], store=self._store)
        return to

    def replace(self, target: UPath | str | os.PathLike[str]) -> Self:  # type: ignore[override]
        """Do what ``rename`` does: that replaces, too."""
        return self.rename(target)

    # -- what universal_pathlib asks for ---------------------------------------------------------------------------

    def __open_reader__(self) -> Reader:  # type: ignore[override]
        """Open to read."""
        return self.open("rb")  # type: ignore[return-value]

    def __open_writer__(self, mode: str) -> Writer:  # type: ignore[override]
        """Open to write."""
        return self.open(f"{mode}b")  # type: ignore[return-value]

    @classmethod
    def _fs_factory(cls, urlpath: str, protocol: str, storage_options: Mapping[str, Any]) -> Any:  # noqa: ANN401, ARG003
        """Return the scheme's fsspec file system, for libraries that ask a path for it."""
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
        source, key = self._place()
        if not key:
            raise InvalidURL("this names a bucket, not an object in it", url=source.root)
        return source, key

    def _at(self, key: str) -> Self:
        return self._again(f"{self.parser.splitdrive(self._chain.active_path)[0]}/{key}")

    def _again(self, path: str) -> Self:
        """Return a path of the same store."""
        return type(self)(path, protocol=self.protocol, **self.storage_options)

    def _other(self, other: UPath | str) -> PenstockPath:
        if isinstance(other, PenstockPath):
            return other
        return self._again(str(other))

    def _below(self, base: PenstockPath) -> bool:
        mine, other = self._chain.active_path, base._chain.active_path
        if (self.protocol, self.storage_options) != (base.protocol, base.storage_options):
            return False
        return mine == other or mine.startswith(as_folder(other))


class PathInfo:
    """What is there, by a path."""

    def __init__(self, path: PenstockPath) -> None:
        """Take a path."""
        self._path = path

    def exists(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002  there are none
        """Say whether something is there."""
        return self._path.exists()

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002  there are none
        """Say whether something lies below."""
        return self._path.is_dir()

    def is_file(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002  there are none
        """Say whether it is an object."""
        return self._path.is_file()

    def is_symlink(self) -> bool:
        """Return False."""
        return False


def _name(each: object) -> str:
    if isinstance(each, UPath):
        return str(each) if each._relative_base is not None else each.as_uri()  # noqa: SLF001  as universal_pathlib
    return os.fspath(each) if isinstance(each, os.PathLike) else str(each)
