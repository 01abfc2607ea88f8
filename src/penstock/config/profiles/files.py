"""Which ``penstock.toml`` files there are, in the order in which they count, and what they hold."""

from __future__ import annotations

import os
import stat
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from penstock.config.profiles.lines import key_lines, line_of
from penstock.config.profiles.table import Table, meant, table
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Kind = Literal["PENSTOCK_CONFIG", "project", "user", "system"]

__all__ = ["NAME", "File", "Signature", "candidates", "config_files", "read_file", "signature"]

NAME = "penstock.toml"
_PROGRAM = "options.credentials_process"
_SYSTEM = "/etc/penstock/penstock.toml"


class Signature(NamedTuple):
    """Differs where a file was written or replaced."""

    path: str
    changed_ns: int
    size: int
    inode: int


@dataclass(frozen=True, slots=True)
class File:
    """A configuration file that was read.

    Attributes:
        path: Absolute.
        kind: How it was found.
        lines: Where its keys are written.
        profiles: The tables below ``[profiles]``, as they are written.
        open_to_all: Every user of this machine may read it.

    """

    path: str
    kind: Kind
    lines: Mapping[tuple[str, ...], int] = field(repr=False)
    profiles: Mapping[str, object] = field(repr=False)
    open_to_all: bool = False

    def at(self, keys: tuple[str, ...]) -> str:
        """Return where a key stands: ``file:line: key``."""
        number = line_of(self.lines, keys)
        return f"{self.path}{f':{number}' if number else ''}: {'.'.join(keys)}"

    def table(self, name: str) -> Table | None:
        """Return a profile; None where the file does not have it.

        Raises:
            ConfigError: As of ``table.table``; or a project's file names a program to run.

        """
        if name not in self.profiles:
            return None
        found = table(name, self.profiles[name], self.at, str(Path(self.path).parent))
        program = found.values.get(_PROGRAM) if self.kind == "project" else None
        if program is not None:
            # A directory that was downloaded must not run programs of its own.
            raise ConfigError(
                f"{program.origin}: a project's file names no program to run: set it in ~/.config/penstock/{NAME}, or "
                f"set PENSTOCK_CONFIG={self.path}"
            )
        if self.kind == "project":
            found = replace(found, values={key: replace(each, foreign=True) for key, each in found.values.items()})
        return replace(found, open_to_all=self.open_to_all)


def candidates(environ: Mapping[str, str]) -> Iterator[tuple[Kind, str]]:
    """Yield where configuration is looked for, in order; a profile counts in the first file that has it.

    ``PENSTOCK_CONFIG`` names the only file; otherwise they are the project's (``penstock.toml`` in the working
    directory, or the nearest directory above it that has one), the user's
    (``$XDG_CONFIG_HOME/penstock/penstock.toml``, by default in ``~/.config``), and ``/etc/penstock/penstock.toml``.
    """
    if named := environ.get("PENSTOCK_CONFIG"):
        yield "PENSTOCK_CONFIG", str(Path(named).expanduser().absolute())
        return
    try:
        here = Path.cwd()
    except FileNotFoundError:  # a working directory that is gone
        pass
    else:
        for folder in (here, *here.parents):
            if os.path.isfile(path := os.path.join(folder, NAME)):  # noqa: PTH113, PTH118  a third of pathlib's time
                yield "project", path
                break
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME") or "~", ".config")  # noqa: PTH118
    home = os.path.expanduser(home)  # noqa: PTH111  pathlib's raises where no home directory is known
    if os.path.isabs(home):  # noqa: PTH117
        yield "user", os.path.join(home, "penstock", NAME)  # noqa: PTH118
    yield "system", _SYSTEM


def config_files(environ: Mapping[str, str]) -> list[tuple[Kind, Signature]]:
    """Return the files that are there, in order.

    Raises:
        ConfigError: ``PENSTOCK_CONFIG`` names a file that is not there.

    """
    found = [(kind, signature(path)) for kind, path in candidates(environ)]
    for kind, each in found:
        if kind == "PENSTOCK_CONFIG" and not each.inode:
            raise ConfigError(f"PENSTOCK_CONFIG names {each.path!r}, which is no file: correct it, or unset it")
    return [(kind, each) for kind, each in found if each.inode]


def signature(path: str) -> Signature:
    """Return what tells one version of a file from another; ``inode`` is 0 where there is no file."""
    try:
        found = os.stat(path)  # noqa: PTH116  asked for each URL
    except OSError:
        return Signature(path, 0, 0, 0)
    if not stat.S_ISREG(found.st_mode):
        return Signature(path, 0, 0, 0)
    return Signature(path, found.st_mtime_ns, found.st_size, found.st_ino)


def read_file(path: str, kind: Kind) -> File:
    """Read and parse a file.

    Raises:
        ConfigError: It cannot be read or parsed, has keys beside ``[profiles]``, or is a project's file that another
            user has put there.

    """
    text, fault = "", ""
    parsed: dict[str, object] = {}
    try:
        with open(path, encoding="utf-8") as stream:  # noqa: PTH123  a path as text
            found = os.fstat(stream.fileno())
            if kind == "project" and _foreign(found, path):
                raise ConfigError(f"{path} belongs to another user: PENSTOCK_CONFIG={path} uses it all the same")
            text = stream.read()
        parsed = tomllib.loads(text)
    except OSError as error:
        fault = f"{path} cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        fault = f"{path} is not UTF-8 text"
    except tomllib.TOMLDecodeError as error:
        fault = f"{path} is not TOML: {error}"
    if fault:  # out here: a parser's error holds the text, and nothing of it is chained
        raise ConfigError(fault)
    profiles = parsed.get("profiles", {})
    whole = File(
        path, kind, key_lines(text), profiles if isinstance(profiles, dict) else {}, bool(found.st_mode & stat.S_IROTH)
    )
    for key in parsed:
        if key != "profiles":
            raise ConfigError(
                f"{whole.at((key,))} is unknown{meant(key, ('profiles',), '; profiles are [profiles.NAME]')}"
            )
    if not isinstance(profiles, dict):
        raise ConfigError(f"{whole.at(('profiles',))} is a table: [profiles.NAME]")
    return whole


def _foreign(found: os.stat_result, path: str) -> bool:
    """Say whether somebody else could have put it there: in a directory that all may write to, say.

    Root, as in containers, takes files of other users, but for those in such directories.
    """
    me = os.geteuid()
    if found.st_uid in (me, 0):
        return False
    return me != 0 or bool(Path(path).parent.stat().st_mode & stat.S_IWOTH)
