"""``msc.Path``: paths of profiles and of this machine, with the interface of ``pathlib``."""

from __future__ import annotations

import os
from functools import partialmethod
from operator import ge, gt, le, lt
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.compat.multistorageclient.file import local_copy
from penstock.compat.multistorageclient.shortcuts import resolve_storage_client
from penstock.copies import move_object
from penstock.errors import InvalidURL, NotFound, Unsupported
from penstock.source import object_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.compat.multistorageclient.types import ObjectMetadata

_MODE = 0o666  # of a new file, in pathlib
_MODES = {"file": 0o100644, "directory": 0o040755}


class StatResult:
    """Result of ``stat``, as far as a store knows it: kind, size and modification time.

    The other fields of ``os.stat_result`` exist, with the values of a file of this user.
    """

    def __init__(self, metadata: ObjectMetadata) -> None:
        """Convert the result of ``StorageClient.info``; a directory has the time 0."""
        self.st_mode = _MODES[metadata.type]
        self.st_size = metadata.content_length
        modified = 0.0 if metadata.type == "directory" else metadata.last_modified.timestamp()
        self.st_mtime = self.st_atime = self.st_ctime = modified
        self.st_mtime_ns = self.st_atime_ns = self.st_ctime_ns = int(modified * 1e9)
        self.st_ino, self.st_dev, self.st_nlink = 0, 0, 1
        self.st_uid, self.st_gid = os.getuid(), os.getgid()


class MultiStoragePath:
    """Absolute path of a profile, or of this machine. In an object store, a prefix with objects below is a directory.

    Features that only file systems have (owners, links, permissions) raise ``Unsupported`` for paths of other profiles,
    even if their objects are local files.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Parse a URL or a path, without a request; a relative path refers to the working directory."""
        self._client, inner = resolve_storage_client(str(path))
        self._inner = PurePosixPath(inner)
        if self._client.is_default_profile():
            self._inner = PurePosixPath("/") / self._inner

    @property
    def _local(self) -> Path | None:
        return Path(self._inner) if self._client.is_default_profile() else None

    @property
    def _key(self) -> str:
        return "" if str(self._inner) == "." else str(self._inner)

    def _with(self, inner: PurePosixPath | Path) -> MultiStoragePath:
        if self._local is not None:
            return MultiStoragePath(str(inner))
        return MultiStoragePath(f"msc://{self._client.profile}/{'' if str(inner) == '.' else inner}")

    def __str__(self) -> str:
        return str(self._inner) if self._local is not None else f"msc://{self._client.profile}/{self._key}"

    __fspath__ = __str__

    def __repr__(self) -> str:
        return f"MultiStoragePath({str(self)!r})"

    def _order(self) -> tuple[str, PurePosixPath]:
        return self._client.profile, self._inner

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MultiStoragePath) and self._order() == other._order()

    def __hash__(self) -> int:
        return hash(self._order())

    def _compared(self, other: object, decide: Callable[[Any, Any], bool]) -> Any:
        if isinstance(other, PurePath):
            other = MultiStoragePath(other)
        return decide(self._order(), other._order()) if isinstance(other, MultiStoragePath) else NotImplemented

    __lt__ = partialmethod(_compared, decide=lt)
    __le__ = partialmethod(_compared, decide=le)
    __gt__ = partialmethod(_compared, decide=gt)
    __ge__ = partialmethod(_compared, decide=ge)

    def joinpath(self, *pathsegments: str | os.PathLike[str]) -> MultiStoragePath:
        return self._with(self._inner.joinpath(*pathsegments))

    with_segments = __truediv__ = joinpath

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as text; the profile is looked up on load."""
        return MultiStoragePath, (str(self),)

    def __getattr__(self, name: str) -> Any:
        """Return pathlib's attribute; for paths that are not local, its file system methods raise ``Unsupported``."""
        if name in _PURE:
            return getattr(self._inner, name)
        if name.startswith("_") or not hasattr(Path, name):
            message = f"'MultiStoragePath' object has no attribute {name!r}"
            raise AttributeError(message)
        if self._local is not None:
            return getattr(self._local, name)
        return _Refusal(name, str(self))

    @property
    def parent(self) -> MultiStoragePath:
        return self._with(self._inner.parent)

    @property
    def parents(self) -> list[MultiStoragePath]:
        return [self._with(each) for each in self._inner.parents]

    def _changed(self, change: Callable[[PurePosixPath, str], PurePosixPath], word: str) -> MultiStoragePath:
        return self._with(change(self._inner, word))

    with_name = partialmethod(_changed, PurePosixPath.with_name)
    with_stem = partialmethod(_changed, PurePosixPath.with_stem)
    with_suffix = partialmethod(_changed, PurePosixPath.with_suffix)

    def is_absolute(self) -> bool:
        return True

    def absolute(self) -> MultiStoragePath:
        return self

    def resolve(self, strict: bool = False) -> MultiStoragePath:
        """Return the path with links followed if it is local, else itself."""
        return self if self._local is None else self._with(self._local.resolve(strict))

    def is_relative_to(self, other: object) -> bool:
        """Return whether ``other``, of the same profile, is this path or a parent; False if it is of another class."""
        if not isinstance(other, MultiStoragePath) or other._client.profile != self._client.profile:
            return False
        return self._inner.is_relative_to(other._inner)

    def relative_to(self, other: MultiStoragePath) -> PurePosixPath:
        """Return the path below ``other``. Raise ``ValueError`` if it is not below, ``TypeError`` for another class."""
        if not isinstance(other, MultiStoragePath):
            raise TypeError(f"relative_to takes a MultiStoragePath, got {type(other).__name__}: wrap it in msc.Path(…)")
        if not self.is_relative_to(other):
            raise ValueError(f"{str(self)!r} is not below {str(other)!r}")
        return self._inner.relative_to(other._inner)

    def as_posix(self) -> str:
        """Return the path of a local file with the content: the file itself, or a copy kept until the process ends."""
        local = self._client.get_posix_path(self._key)
        return local_copy(self._client.download_file, self._key) if local is None else local

    def stat(self) -> Any:
        """Return size, time and kind. Raise ``NotFound`` if the path does not exist."""
        if self._local is not None:
            return self._local.stat()
        return StatResult(self._client.info(self._key))

    def lstat(self) -> Any:
        return self.stat() if self._local is None else self._local.lstat()

    def samefile(self, other_path: Any) -> bool:
        """Return whether both are the same file; for paths that are not local, whether they are equal."""
        return self == other_path if self._local is None else self._local.samefile(other_path)

    def readlink(self) -> MultiStoragePath:
        if self._local is None:
            _Refusal("readlink", str(self))()
        return self._with(Path(self._inner).readlink())

    def _kind(self, key: str, strict: bool) -> str:
        try:
            return self._client.info(key, strict=strict).type
        except NotFound:
            return ""

    def exists(self) -> bool:
        """Return whether an object exists at the path, or anything below it."""
        return self._local.exists() if self._local is not None else bool(self._kind(self._key, strict=True))

    def is_file(self, strict: bool = True) -> bool:
        """Return whether an object exists at the path."""
        return self._local.is_file() if self._local is not None else self._kind(self._key, strict) == "file"

    def is_dir(self, strict: bool = True) -> bool:
        """Return whether anything exists below the path."""
        if self._local is not None:
            return self._local.is_dir()
        return self._kind(f"{self._key}/" if self._key else "", strict) == "directory"

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open the file: see ``StorageClient.open``."""
        return self._client.open(self._key, mode, buffering, encoding, errors=errors, newline=newline, **kwargs)

    def read_bytes(self) -> bytes:
        return self._client.read(self._key)

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.read_bytes().decode(encoding, errors)

    def write_bytes(self, data: bytes) -> None:
        self._client.write(self._key, data)

    def write_text(self, data: str, encoding: str = "utf-8", errors: str = "strict") -> None:
        self.write_bytes(data.encode(encoding, errors))

    def touch(self, mode: int = _MODE, exist_ok: bool = False) -> None:
        """Write an empty object if it does not exist; an existing object stays unchanged."""
        if self._local is not None:
            self._local.touch(mode, exist_ok)
        elif mode != _MODE:
            _Refusal("touch with a mode", str(self))()
        elif not self.exists():
            self.write_bytes(b"")

    def iterdir(self) -> Iterator[MultiStoragePath]:
        if self._local is not None:
            yield from (self._with(each) for each in self._local.iterdir())
            return
        for found in self._client.list(f"{self._key}/", include_directories=True):
            yield self._with(PurePosixPath(found.key))

    def glob(self, pattern: str) -> list[MultiStoragePath]:
        if self._local is not None:
            return [self._with(each) for each in self._local.glob(pattern)]
        return [self._with(PurePosixPath(key)) for key in self._client.glob(str(self._inner / pattern))]

    def rglob(self, pattern: str) -> list[MultiStoragePath]:
        return self.glob(f"**/{pattern}")

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Create a local directory; elsewhere do nothing, because writes create directories."""
        if self._local is not None:
            self._local.mkdir(mode, parents, exist_ok)

    def rename(self, target: str | os.PathLike[str]) -> MultiStoragePath:
        """Move the object within its profile (copy, delete). Raise ``NotFound``, or ``InvalidURL`` across profiles."""
        new = target if isinstance(target, MultiStoragePath) else MultiStoragePath(target)
        if new._client.profile != self._client.profile:
            raise InvalidURL(f"rename works within {self._client.profile}: use ps.copy to leave it", url=str(new))
        if self._local is not None:
            self._local.rename(new._inner)
        else:
            place, into = (object_at(each._client.url(each._key), each._client._store) for each in (self, new))
            move_object(*place, *into)
        return new

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the object. Raise ``NotFound`` for a missing one without ``missing_ok``."""
        if self._local is not None:
            self._local.unlink(missing_ok)
            return
        try:
            self._client.delete(self._key)
        except NotFound:
            if not missing_ok:
                raise

    home = staticmethod(Path.home)
    cwd = staticmethod(Path.cwd)


_PURE = ("anchor", "match", "name", "parts", "stem", "suffix", "suffixes")


class _Refusal(NamedTuple):
    """Method that only local files have; a call raises ``Unsupported``."""

    name: str
    url: str

    def __call__(self, *_args: object, **_options: object) -> Any:
        raise Unsupported(f"{self.name}() is for local paths, not for objects", url=self.url)
