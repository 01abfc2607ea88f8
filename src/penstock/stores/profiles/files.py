"""Files of profiles: ``penstock.toml``, Multi-Storage Client's and ``rclone.conf``; places, contents and tables."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock.errors import ConfigError, MissingExtra, kind_of
from penstock.options.parts import PART_KINDS
from penstock.options.typed import Value, suggest_word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Kind = Literal["PENSTOCK_CONFIG", "project", "user", "system"]

# tomllib's time and memory grow with the square of the number of dotted parts of a key.
_MOST_CHARS = 1 << 20
_MOST_DOTS = 200

NAME = "penstock.toml"
_SYSTEM = "/etc/penstock/penstock.toml"
_TABLES = ("options", *PART_KINDS)  # the parts have a separate table, for every provider
_WORDS = ("url", "provider", "extends")
_OBSERVE = "observe"


class Signature(NamedTuple):
    """Identity of a file's content: changes when the file is written or replaced."""

    path: str
    changed_ns: int
    size: int
    inode: int


@dataclass(frozen=True, slots=True)
class ProfileTable:
    """A profile of one file.

    Attributes:
        origin: File, line and key of its table.
        values: By ``url``, ``provider``, ``extends``, ``observe``, or ``table.key``.
        notes: Keys of another tool's file that have no meaning here.
        open_to_all: Whether every user of this machine may read the file.
    """

    name: str
    origin: str
    values: Mapping[str, Value]
    notes: tuple[str, ...] = ()
    open_to_all: bool = False


@dataclass(frozen=True, slots=True)
class File:
    """Configuration file that was read.

    Attributes:
        kind: Way in which the file was found.
        lines: Line of each key.
        profiles: Tables below ``[profiles]``, as written.
    """

    path: str
    kind: Kind
    lines: Mapping[tuple[str, ...], int] = field(repr=False)
    profiles: Mapping[str, object] = field(repr=False)
    open_to_all: bool = False

    def at(self, keys: tuple[str, ...]) -> str:
        """Return the position of a key, else of the table that holds it: ``file:line: key``."""
        number = next((self.lines[keys[:depth]] for depth in range(len(keys), 0, -1) if keys[:depth] in self.lines), 0)
        return f"{self.path}{f':{number}' if number else ''}: {'.'.join(keys)}"

    def table(self, name: str) -> ProfileTable:
        """Return a profile of the file; errors name file, line and key, and the key that was probably intended."""
        top, content = ("profiles", name), self.profiles[name]
        if not isinstance(content, dict):
            raise ConfigError(f"{self.at(top)} is a table: [profiles.{name}]")
        values: dict[str, Value] = {}
        for key, raw in content.items():
            where = self.at((*top, key))
            if key in _TABLES and not isinstance(raw, dict):
                raise ConfigError(f"{where} is a table: [profiles.{name}.{key}]")
            if key in _TABLES:
                values |= {f"{key}.{each}": self._value(found, (*top, key, each)) for each, found in raw.items()}
                continue
            if key not in (*_WORDS, _OBSERVE):
                instead = f"; options of the provider stand in [profiles.{name}.options] ({key} = …)"
                near = suggest_word(key, (*_WORDS, _OBSERVE, *_TABLES), instead)
                raise ConfigError(f"{where}: unknown key {key!r}{near}")
            wanted = "a text or a list of texts" if key == _OBSERVE else "a text"
            if not isinstance(raw, str) and not (key == _OBSERVE and isinstance(raw, list)):
                found = {dict: "a table", list: "a list", bool: "a truth value"}.get(type(raw), kind_of(raw))
                raise ConfigError(f"{where} must be {wanted}, got {found}")
            values[key] = self._value(raw, (*top, key))
        return ProfileTable(name, self.at(top), values, open_to_all=self.open_to_all)

    def _value(self, raw: object, keys: tuple[str, ...]) -> Value:
        return Value(raw, self.at(keys), str(Path(self.path).parent), self.kind == "project")


def find_tables(name: str, files: Sequence[File]) -> list[ProfileTable]:
    """Return a profile and all that it extends, the nearest first; the first file that has a profile counts."""
    if not files:
        raise ConfigError(
            f"no profile {name!r}: no {NAME} found here, above, in ~/.config/penstock or /etc/penstock, and "
            "PENSTOCK_CONFIG names none"
        )
    found: dict[str, ProfileTable] = {}
    wanted, by = name, ""
    while wanted:
        if wanted in found:
            circle = " -> ".join([*found, wanted])
            raise ConfigError(f"{by} is circular, {circle}: remove one 'extends'")
        # A profile extends those of its own file and of later files: the user's file never extends a project's.
        at = next((number for number, file in enumerate(files) if wanted in file.profiles), None)
        if at is None:
            known = sorted(each for file in files for each in file.profiles)
            near = suggest_word(wanted, known, f"; profiles are {', '.join(known[:20])}" if known else "")
            raise ConfigError(f"{by and f'{by}: '}no profile {wanted!r}{near}")
        files = files[at:]
        found[wanted] = files[0].table(wanted)
        extends = found[wanted].values.get("extends")
        wanted, by = ("", "") if extends is None else (str(extends.raw), extends.origin)
    return list(found.values())


def merge_tables(tables: Sequence[ProfileTable]) -> dict[str, Value]:
    """Return the effective values by key: a profile overrides those that it extends."""
    return {key: value for each in reversed(tables) for key, value in each.values.items() if key != "extends"}


def candidates(environ: Mapping[str, str]) -> Iterator[tuple[Kind, str]]:
    """Yield the places of configuration files, in order; a profile comes from the first file that has it.

    ``PENSTOCK_CONFIG`` names the only file; otherwise the files are the project's (``penstock.toml`` in the working
    directory, or the nearest directory above it that has one), the user's
    (``$XDG_CONFIG_HOME/penstock/penstock.toml``, by default in ``~/.config``), and ``/etc/penstock/penstock.toml``.
    """
    if named := environ.get("PENSTOCK_CONFIG"):
        yield "PENSTOCK_CONFIG", str(Path(named).expanduser().absolute())
        return
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME") or "~", ".config")  # noqa: PTH118
    home = os.path.expanduser(home)  # noqa: PTH111  pathlib's raises if no home directory is known
    user = os.path.join(home, "penstock", NAME) if os.path.isabs(home) else ""  # noqa: PTH117, PTH118
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the working directory was deleted
        pass
    else:
        for folder in (here, *here.parents):
            path = os.path.join(folder, NAME)  # noqa: PTH118  a third of pathlib's time
            # In its own directory the user's file is not a project file.
            if os.path.isfile(path) and os.path.realpath(path) not in (os.path.realpath(user), _SYSTEM):  # noqa: PTH113
                yield "project", path
                break
    if user:
        yield "user", user
    yield "system", _SYSTEM


def config_files(environ: Mapping[str, str]) -> list[tuple[Kind, Signature]]:
    """Return the existing files, in order; the file that ``PENSTOCK_CONFIG`` names must exist."""
    found = [(kind, signature(path)) for kind, path in candidates(environ)]
    for kind, each in found:
        if kind == "PENSTOCK_CONFIG" and not each.inode:
            raise ConfigError(f"PENSTOCK_CONFIG names {each.path!r}, which is not a file: correct it, or unset it")
    return [(kind, each) for kind, each in found if each.inode]


def config_signatures(environ: Mapping[str, str]) -> tuple[Signature, ...]:
    return tuple(each for _, each in config_files(environ))


_files: dict[str, tuple[Signature, File]] = {}


def config_tables(name: str, environ: Mapping[str, str]) -> list[ProfileTable]:
    """Return a profile's tables as ``find_tables`` does; a file is read again when it has changed."""
    files = []
    for kind, found in config_files(environ):
        held = _files.get(found.path)
        if held is None or held[0] != found or held[1].kind != kind:
            held = _files[found.path] = found, read_file(found.path, kind)
        files.append(held[1])
    return find_tables(name, files)


def signature(path: str) -> Signature:
    """Return the signature of a file's current version; ``inode`` is 0 unless it is a regular file."""
    try:
        found = os.stat(path)  # noqa: PTH116  called for each URL
    except OSError:
        return Signature(path, 0, 0, 0)
    if not stat.S_ISREG(found.st_mode):
        return Signature(path, 0, 0, 0)
    return Signature(path, found.st_mtime_ns, found.st_size, found.st_ino)


def read_file(path: str, kind: Kind) -> File:
    """Read and parse a file of ``[profiles]``; refuse a project file of another user."""
    text, fault = "", ""
    parsed: dict[str, object] = {}
    try:
        with open(path, encoding="utf-8") as stream:  # noqa: PTH123  the path is a str
            found = os.fstat(stream.fileno())
            if kind == "project" and _foreign(found, path):
                raise ConfigError(f"{path} belongs to another user: PENSTOCK_CONFIG={path} uses it anyway")
            text = stream.read(_MOST_CHARS + 1)
        _check_bounds(text, path)
        parsed = tomllib.loads(text)
    except OSError as error:
        fault = f"{path} cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        fault = f"{path} is not UTF-8 text"
    except tomllib.TOMLDecodeError as error:
        fault = f"{path} is not TOML: {error}"
    except (ValueError, RecursionError):
        fault = f"{path} cannot be read as TOML: it has a number of thousands of digits, or nests too deep"
    # Raised outside the except blocks: a parser's error holds the text, and must not be chained.
    if fault:
        raise ConfigError(fault)
    profiles = parsed.get("profiles", {})
    whole = File(
        path, kind, key_lines(text), profiles if isinstance(profiles, dict) else {}, bool(found.st_mode & stat.S_IROTH)
    )
    for key in parsed:
        if key != "profiles":
            raise ConfigError(
                f"{whole.at((key,))} is unknown{suggest_word(key, ('profiles',), '; profiles are [profiles.NAME]')}"
            )
    if not isinstance(profiles, dict):
        raise ConfigError(f"{whole.at(('profiles',))} must be a table: [profiles.NAME]")
    return whole


def _check_bounds(text: str, path: str) -> None:
    if len(text) > _MOST_CHARS or any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
        raise ConfigError(f"{path} is not a profile file: it is too long, or its lines have too many dots")


def _foreign(found: os.stat_result, path: str) -> bool:
    """Return whether another user may have created the file: in a directory that all may write to, for example.

    Root, as in containers, accepts files of other users, except in such directories.
    """
    me = os.geteuid()
    if found.st_uid in (me, 0):
        return False
    return me != 0 or bool(Path(path).parent.stat().st_mode & stat.S_IWOTH)


_KEY = r"(?:[A-Za-z0-9_-]+|\"[^\"\\]*\"|'[^']*')"
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_HEADER = re.compile(rf"\s*\[\s*({_DOTTED})\s*\]\s*(?:#.*)?")
_ENTRY = re.compile(rf"\s*({_DOTTED})\s*=")
_PART = re.compile(_KEY)
_LONG = ('"""', "'''")


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the lines, from 1, of keys and tables, by the path of the key.

    Strings over several lines are skipped; for keys within an inline table there is only the table's line.
    """
    lines: dict[tuple[str, ...], int] = {}
    inside = ""
    head: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        found: tuple[str, ...] = ()
        if inside:
            inside = "" if inside in line else inside
        elif header := _HEADER.fullmatch(line):
            head = _split_dotted_key(header[1])
            found = head
        elif entry := _ENTRY.match(line):
            found = (*head, *_split_dotted_key(entry[1]))
            inside = _find_open_quote(line[entry.end() :])
        for depth in range(1, len(found) + 1):
            lines.setdefault(found[:depth], number)
    return lines


def _split_dotted_key(dotted: str) -> tuple[str, ...]:
    return tuple(part[1:-1] if part[0] in "\"'" else part for part in _PART.findall(dotted))


def _find_open_quote(value: str) -> str:
    """Return the end mark of a string that continues in the next line; empty without one."""
    try:
        tomllib.loads(f"x ={value}")
    except (ValueError, RecursionError):
        return next((mark for mark in _LONG if value.count(mark) % 2), "")
    return ""


def msc_candidates(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the places of Multi-Storage Client's file, in its order; the first existing file counts."""
    if named := environ.get("MSC_CONFIG"):
        yield str(Path(named).expanduser().absolute())
        return
    home, xdg = environ.get("HOME"), environ.get("XDG_CONFIG_HOME")
    stems = [f"{xdg}/msc/config"] if xdg else []
    stems += [f"{home}/.msc_config", f"{home}/.config/msc/config"] if home else []
    stems += [f"{each}/msc/config" for each in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")]
    # A relative path would refer to the working directory, which may belong to another user.
    stems = [stem for stem in stems if stem.startswith("/")]
    for stem in (*stems, "/etc/msc_config"):
        yield from (f"{stem}.yaml", f"{stem}.json")


def rclone_file(environ: Mapping[str, str]) -> str:
    """Return the path of ``rclone.conf``; empty if it does not exist.

    Places, in Multi-Storage Client's order: next to the program, ``$XDG_CONFIG_HOME/rclone``, ``/etc``,
    ``~/.config/rclone``, and ``~/.rclone.conf``.
    """
    program = shutil.which("rclone", path=environ.get("PATH"))
    home, xdg = environ.get("HOME"), environ.get("XDG_CONFIG_HOME")
    paths = [Path(program).with_name("rclone.conf")] if program else []
    paths += [Path(xdg, "rclone", "rclone.conf")] if xdg else []
    paths += [Path("/etc/rclone.conf")]
    paths += [Path(home, ".config", "rclone", "rclone.conf"), Path(home, ".rclone.conf")] if home else []
    # A relative path, as from a PATH with ".", would refer to the working directory, which may belong to another user.
    return next((str(path) for path in paths if path.is_absolute() and path.is_file()), "")


_parsed: dict[str, tuple[Signature, Mapping[str, Any]]] = {}


def content_of(path: str) -> Mapping[str, Any]:
    """Return the contents of a YAML or JSON file; an empty mapping for a blank one."""
    now, held = signature(path), _parsed.get(path)
    if held is None or held[0] != now:
        held = _parsed[path] = now, _read_mapping(path)
    return held[1]


def _read_mapping(path: str) -> Mapping[str, Any]:
    try:
        text = Path(path).read_text("utf-8")
        content: object = json.loads(text) if path.endswith(".json") else yaml_of(text, path)
        # A blank file, or a file of comments.
        if content is None and not path.endswith(".json"):
            content = {}
        if isinstance(content, Mapping):
            return content
        fault = "is not a mapping of keys"
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        fault = "is not UTF-8 text"
    except (ValueError, RecursionError):
        fault = "is not JSON"
    # Raised outside the except blocks: a parser's error holds the text, and must not be chained.
    raise ConfigError(f"the file of Multi-Storage Client, {path}, {fault}")


def yaml_of(text: str, path: str) -> object:
    """Return the contents of a YAML text; no error quotes it."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise MissingExtra(f"{path} is YAML, which needs PyYAML: pip install 'penstock[msc]'") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark is not None else ""
        fault = f"the file of Multi-Storage Client, {path}, is not YAML: an error{line}"
    # Raised outside the except block: the parser's error quotes the line.
    raise ConfigError(fault)
