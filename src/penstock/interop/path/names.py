"""Names of objects taken apart and put together: no character of a key is ever dropped or added silently."""

from __future__ import annotations

import posixpath
from typing import ClassVar

from penstock.errors import InvalidURL

__all__ = ["Names", "joined"]


def joined(base: str, *names: str) -> str:
    """Return what lies below ``base``, ``bucket/key`` or a URL, by these names; ``""`` and ``"."`` are ``base`` itself.

    Raises:
        InvalidURL: A name begins with ``/`` or is a URL: pathlib would drop ``base``.

    """
    for name in names:
        if name.startswith("/") or "://" in name:
            raise InvalidURL(f"{name!r} is no name below a path: leave out what it begins with, or make a path of it")
        if name not in ("", "."):
            base = f"{base}{name}" if base.endswith("/") else f"{base}/{name}"
    return base


class Names:
    """The parser of paths ``bucket/key``, as pathlib and universal_pathlib ask for one.

    A single ``/`` at the end is left out of the name before it, and an empty component has an empty name: the parent of
    ``bucket/a//b`` is ``bucket/a//``, so that both together give the path again.
    """

    sep: ClassVar[str] = "/"
    altsep: ClassVar[str | None] = None
    root_marker: ClassVar[str] = "/"
    local_file: ClassVar[bool] = False
    netloc_is_anchor: ClassVar[bool] = True

    @staticmethod
    def strip_protocol(path: object) -> str:
        """Return a path without its scheme."""
        text = str(path)
        head, mark, rest = text.partition("://")
        return rest if mark and "/" not in head else text

    @classmethod
    def split(cls, path: str) -> tuple[str, str]:
        """Return the parent and the name; of a bucket itself and an empty name."""
        bucket, _, key = cls.strip_protocol(path).partition("/")
        key = key.removesuffix("/")
        head, _, name = key.rpartition("/")
        if head.endswith("/") or (not head and key.startswith("/")):
            head += "/"
        return f"{bucket}/{head}", name

    @staticmethod
    def splitext(path: str) -> tuple[str, str]:
        """Return a name's stem and suffix."""
        return posixpath.splitext(path)

    @classmethod
    def splitdrive(cls, path: str) -> tuple[str, str]:
        """Return the bucket and the rest."""
        bucket, _, key = cls.strip_protocol(path).partition("/")
        return bucket, f"/{key}"

    @classmethod
    def splitroot(cls, path: str) -> tuple[str, str, str]:
        """Return the bucket, ``/`` and the key."""
        bucket, rest = cls.splitdrive(path)
        return bucket, "/", rest[1:]

    @classmethod
    def join(cls, path: str, *names: str) -> str:
        """Return what lies below ``path``. Raises ``InvalidURL`` as ``joined``."""
        return joined(cls.strip_protocol(path), *map(str, names))

    @staticmethod
    def isabs(path: str) -> bool:  # noqa: ARG004  pathlib's
        """Return True: relative paths are told otherwise."""
        return True

    @staticmethod
    def normcase(path: str) -> str:
        """Return it: case counts."""
        return path
