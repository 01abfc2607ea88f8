"""The file that the processes of a node share: this user's alone, in a directory that is this user's alone."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.engine.node.table import SIZE
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FILE", "directory", "open_file"]

FILE: Final = "node-1"  # includes the format's number
_OTHERS: Final = 0o077
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # never waits on a pipe


def directory(environ: Mapping[str, str]) -> Path | None:
    """Return the directory that ``environ`` selects, or None if ``PENSTOCK_NODE=off``.

    ``PENSTOCK_NODE`` is its absolute path. Without it, the directory is ``penstock`` in ``XDG_RUNTIME_DIR`` if that
    exists, else ``/tmp/penstock-UID``. ``TMPDIR`` is not used, because in some clusters it differs between jobs or lies
    on a file server.

    Raises:
        ConfigError: ``PENSTOCK_NODE`` has another value.

    """
    said = environ.get("PENSTOCK_NODE", "")
    if said.lower() == "off":
        return None
    if said.startswith("/"):
        return Path(said)
    if said:
        raise ConfigError(f"PENSTOCK_NODE must be the absolute path of a directory, or off, not {said!r}")
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and Path(runtime).is_dir():
        return Path(runtime, "penstock")
    return Path(f"/tmp/penstock-{os.geteuid()}")  # noqa: S108  open_file refuses other users' files


def open_file(where: Path) -> int:
    """Return a descriptor of the file in ``where``; creates the directory and the file if they are missing.

    Links to either are not followed, and a directory or file that another user owns, may write or may read is refused.

    Raises:
        ConfigError: The directory or file is not this user's alone, or the file is not a plain file or is too large.
        OSError: The file cannot be created or opened.

    """
    with suppress(FileExistsError):
        where.mkdir(mode=0o700)
    folder = os.open(where, _DIRECTORY)
    try:
        found = os.fstat(folder)
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
            raise ConfigError(f"{where} is not this user's alone (mode 0700): nothing is shared by it")
        descriptor = os.open(FILE, _FILE, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        _check(descriptor, where)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(descriptor: int, where: Path) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        raise ConfigError(f"{where / FILE} is no plain file: nothing is shared by it")
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
        raise ConfigError(f"{where / FILE} is not this user's alone (mode 0600): nothing is shared by it")
    if found.st_size > SIZE:
        raise ConfigError(f"{where / FILE} has {found.st_size} bytes, more than {SIZE}: nothing is shared by it")
