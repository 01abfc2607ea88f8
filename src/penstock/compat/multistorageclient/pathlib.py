"""``msc.Path``: paths of profiles and of this machine, with the manners of ``pathlib``."""

from __future__ import annotations

from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.compat.multistorageclient.local import local_copy
from penstock.compat.multistorageclient.shortcuts import resolve_storage_client
from penstock.errors import InvalidURL, NotFound, Unsupported

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

__all__ = ["MultiStoragePath", "StatResult"]

_MODES = {"file": 0o100644, "directory": 0o040755}


class StatResult(NamedTuple):
    """What ``os.stat`` says, as far as a store knows it."""

    st_mode: int
    st_size: int
    st_mtime: float


class MultiStoragePath:
    """A path of a profile, or of this machine; always absolute. What is below an object store's prefix is a directory.

    What only file systems have (owners, links, permissions) raises ``Unsupported`` for paths of other profiles, also
    where their objects are files.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Take a URL or a path; a relative one is of the working directory. No request is made."""
        self._client, inner = resolve_storage_client(str(path))
        self._inner = PurePosixPath(inner)
        if self._client.is_default_profile():
            self._inner = PurePosixPath("/") / self._inner

    @property
    def _local(self) -> Path | None:
        return Path(self._inner) if self._client.is_default_profile() else None

    @property
    def _key(self) -> str:
        """The path below the profile."""
        return "" if str(self._inner) == "." else str(self._inner)

    def _with(self, inner: PurePosixPath | Path) -> MultiStoragePath:
        if self._local is not None:
            return MultiStoragePath(str(inner))
        return MultiStoragePath(f"msc://{self._client.profile}/{'' if str(inner) == '.' else inner}")

    def __str__(self) -> str:
        """Return the URL, or the path of this machine."""
        return str(self._inner) if self._local is not None else f"msc://{self._client.profile}/{self._key}"

    __fspath__ = __str__

    def __repr__(self) -> str:
        """Return how it is made."""
        return f"MultiStoragePath({str(self)!r})"

    def _order(self) -> tuple[str, PurePosixPath]:
        return self._client.profile, self._inner

    def __eq__(self, other: object) -> bool:
        """Compare profile and path."""
        return isinstance(other, MultiStoragePath) and self._order() == other._order()

    def __hash__(self) -> int:
        """Hash profile and path."""
        return hash(self._order())

    def _compared(self, other: object, decide: Callable[[Any, Any], bool]) -> Any:
        if isinstance(other, PurePath):
            other = MultiStoragePath(other)
        return decide(self._order(), other._order()) if isinstance(other, MultiStoragePath) else NotImplemented

    def __lt__(self, other: object) -> Any:
        """Compare profile and path."""
        return self._compared(other, lambda one, two: one < two)

    def __le__(self, other: object) -> Any:
        """Compare profile and path."""
        return self._compared(other, lambda one, two: one <= two)

    def __gt__(self, other: object) -> Any:
        """Compare profile and path."""
        return self._compared(other, lambda one, two: one > two)

    def __ge__(self, other: object) -> Any:
        """Compare profile and path."""
        return self._compared(other, lambda one, two: one >= two)

    def joinpath(self, *pathsegments: str | os.PathLike[str]) -> MultiStoragePath:
        """Return a path below this one."""
        return self._with(self._inner.joinpath(*pathsegments))

    with_segments = joinpath

    def __truediv__(self, key: str | os.PathLike[str]) -> MultiStoragePath:
        """Return a path below this one."""
        return self.joinpath(key)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as text: a profile is looked up where it is loaded."""
        return MultiStoragePath, (str(self),)

    def __getattr__(self, name: str) -> Any:
        """Return what pathlib has for local paths; ``Unsupported`` when it is called, for others."""
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
        """The directory that it lies in."""
        return self._with(self._inner.parent)

    @property
    def parents(self) -> list[MultiStoragePath]:
        """All directories above, the nearest first."""
        return [self._with(each) for each in self._inner.parents]

    def with_name(self, name: str) -> MultiStoragePath:
        """Return its sibling of this name."""
        return self._with(self._inner.with_name(name))

    def with_stem(self, stem: str) -> MultiStoragePath:
        """Return its sibling of this name with its suffix."""
        return self._with(self._inner.with_stem(stem))

    def with_suffix(self, suffix: str) -> MultiStoragePath:
        """Return it with another suffix."""
        return self._with(self._inner.with_suffix(suffix))

    def is_absolute(self) -> bool:
        """Return True."""
        return True

    def absolute(self) -> MultiStoragePath:
        """Return itself."""
        return self

    def resolve(self, strict: bool = False) -> MultiStoragePath:
        """Return it with links followed, where it is local; else itself."""
        return self if self._local is None else self._with(self._local.resolve(strict))

    def is_relative_to(self, other: MultiStoragePath) -> bool:
        """Return whether it is a path of the same profile below ``other``."""
        same = other._client.profile == self._client.profile
        return same and self._inner.is_relative_to(other._inner)

    def relative_to(self, other: MultiStoragePath) -> PurePosixPath:
        """Return the path below ``other``; ``ValueError`` where it is not below it."""
        if not self.is_relative_to(other):
            raise ValueError(f"{str(self)!r} is not below {str(other)!r}")
        return self._inner.relative_to(other._inner)

    def as_posix(self) -> str:
        """Return the path of a file on this machine with its content: itself, or a copy that lasts for the process."""
        local = self._client.get_posix_path(self._key)
        return local_copy(self._client, self._key) if local is None else local

    def stat(self) -> Any:
        """Return size, time and kind. Raises ``NotFound``."""
        if self._local is not None:
            return self._local.stat()
        found = self._client.info(self._key)
        modified = 0.0 if found.type == "directory" else found.last_modified.timestamp()
        return StatResult(_MODES[found.type], found.content_length, modified)

    lstat = stat

    def _kind(self, strict: bool) -> str:
        try:
            return self._client.info(self._key, strict=strict).type
        except NotFound:
            return ""

    def exists(self) -> bool:
        """Return whether there is an object, or something below it."""
        return self._local.exists() if self._local is not None else bool(self._kind(strict=True))

    def is_file(self, strict: bool = True) -> bool:
        """Return whether there is an object."""
        return self._local.is_file() if self._local is not None else self._kind(strict) == "file"

    def is_dir(self, strict: bool = True) -> bool:
        """Return whether something lies below it."""
        if self._local is not None:
            return self._local.is_dir()
        return not self._client.is_empty(f"{self._key}/")

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open it as a file: see ``StorageClient.open``."""
        return self._client.open(self._key, mode, buffering, encoding, errors=errors, newline=newline, **kwargs)

    def read_bytes(self) -> bytes:
        """Return all of it."""
        return self._client.read(self._key)

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return all of it as text."""
        return self.read_bytes().decode(encoding, errors)

    def write_bytes(self, data: bytes) -> None:
        """Write it, atomically."""
        self._client.write(self._key, data)

    def write_text(self, data: str, encoding: str = "utf-8", errors: str = "strict") -> None:
        """Write it as text, atomically."""
        self.write_bytes(data.encode(encoding, errors))

    def touch(self, mode: int = 0o666, exist_ok: bool = False) -> None:
        """Write an empty object where there is none; one that is there stays as it is."""
        if self._local is not None:
            self._local.touch(mode, exist_ok)
        elif not self.exists():
            self.write_bytes(b"")

    def iterdir(self) -> Iterator[MultiStoragePath]:
        """Yield what lies in a directory."""
        if self._local is not None:
            yield from (self._with(each) for each in self._local.iterdir())
            return
        for found in self._client.list(f"{self._key}/", include_directories=True):
            yield self._with(PurePosixPath(found.key))

    def glob(self, pattern: str) -> list[MultiStoragePath]:
        """Return what matches below it."""
        if self._local is not None:
            return [self._with(each) for each in self._local.glob(pattern)]
        return [self._with(PurePosixPath(key)) for key in self._client.glob(str(self._inner / pattern))]

    def rglob(self, pattern: str) -> list[MultiStoragePath]:
        """Return what matches at any depth below it."""
        return self.glob(f"**/{pattern}")

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Make a directory of this machine; elsewhere do nothing, for what is written makes it."""
        if self._local is not None:
            self._local.mkdir(mode, parents, exist_ok)

    def rename(self, target: str | os.PathLike[str]) -> MultiStoragePath:
        """Copy it within its profile, and delete it here. Raises ``NotFound``; ``InvalidURL`` for another profile."""
        new = target if isinstance(target, MultiStoragePath) else MultiStoragePath(target)
        if new._client.profile != self._client.profile:
            raise InvalidURL(f"rename stays within {self._client.profile}: ps.copy goes elsewhere", url=str(new))
        if self._local is not None:
            self._local.rename(new._inner)
        else:
            self._client.copy(self._key, new._key)
            self._client.delete(self._key)
        return new

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete it. Raises ``NotFound`` without ``missing_ok``."""
        if self._local is not None:
            self._local.unlink(missing_ok)
            return
        try:
            self._client.delete(self._key)
        except NotFound:
            if not missing_ok:
                raise

    @classmethod
    def home(cls) -> Path:
        """Return the user's directory."""
        return Path.home()

    @classmethod
    def cwd(cls) -> Path:
        """Return the working directory."""
        return Path.cwd()


_PURE = ("anchor", "match", "name", "parts", "stem", "suffix", "suffixes")


class _Refusal(NamedTuple):
    """A method that only local files have."""

    name: str
    url: str

    def __call__(self, *_args: object, **_options: object) -> Any:
        raise Unsupported(f"{self.name}() is for paths of this machine: objects have no such thing", url=self.url)
