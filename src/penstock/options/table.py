"""Profiles as they are written: their tables, the origin of each value, and the profiles they extend. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, kind_of
from penstock.options.parts import PART_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["PARTS", "PART_KINDS", "ProfileTable", "Value", "chain", "merge_tables", "suggest_word", "table"]

# Parts with a separate table, for every provider.
PARTS = tuple(PART_KINDS)
_TABLES = ("options", *PARTS)
_WORDS = ("url", "provider", "extends")
_OBSERVE = "observe"


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a profile before expansion; its repr does not show the value.

    Attributes:
        raw: The value as written in the file.
        origin: File, line and key: ``/home/me/penstock.toml:7: profiles.data.options.region``.
        folder: Directory of the file, where relative paths start.
        foreign: Whether the value is from a project's file, which may belong to someone else.

    """

    raw: object = field(repr=False)
    origin: str
    folder: str = ""
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class ProfileTable:
    """A profile of one file.

    Attributes:
        name: Name of the profile.
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

    @property
    def extends(self) -> str:
        """The name of the profile that this one extends; empty for none."""
        value = self.values.get("extends")
        return "" if value is None else str(value.raw)


def table(name: str, content: object, at: Callable[[tuple[str, ...]], str], folder: str) -> ProfileTable:
    """Return a profile of ``penstock.toml``; ``at`` returns the origin of a key, as ``file:line: key``.

    Raises:
        ConfigError: A key is unknown, a table stands in place of a value, or a value in place of a table; the text
            names file, line and key, and the key that was probably intended.

    """
    top = ("profiles", name)
    if not isinstance(content, dict):
        raise ConfigError(f"{at(top)} is a table: [profiles.{name}]")
    values: dict[str, Value] = {}
    for key, raw in content.items():
        where = at((*top, key))
        if key in _TABLES:
            if not isinstance(raw, dict):
                raise ConfigError(f"{where} is a table: [profiles.{name}.{key}]")
            inner = {f"{key}.{each}": Value(found, at((*top, key, each)), folder) for each, found in raw.items()}
            values |= inner
        elif key in _WORDS:
            if not isinstance(raw, str):
                raise ConfigError(f"{where} must be a text, got {_name_raw_type(raw)}")
            values[key] = Value(raw, where, folder)
        elif key == _OBSERVE:
            if not isinstance(raw, str | list):
                raise ConfigError(f"{where} must be a text or a list of texts, got {_name_raw_type(raw)}")
            values[key] = Value(raw, where, folder)
        else:
            raise ConfigError(
                f"{where}: a profile has no "
                f"{key!r}{suggest_word(key, (*_WORDS, _OBSERVE, *_TABLES), _instead(key, name))}"
            )
    return ProfileTable(name, at(top), values)


def _instead(key: str, name: str) -> str:
    return f"; options of the provider stand in [profiles.{name}.options] ({key} = …)"


def suggest_word(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return ``: did you mean …?`` with the closest known word, or ``otherwise`` if none is close."""
    near = get_close_matches(word, list(known), 1, cutoff=0.6)
    return f": did you mean {near[0]!r}?" if near else otherwise


def chain(
    name: str, find: Callable[[str], ProfileTable | None], known: Callable[[], Iterable[str]]
) -> list[ProfileTable]:
    """Return a profile and all profiles that it extends, the nearest first.

    ``find`` returns a profile by name; ``known`` returns all names.

    Raises:
        ConfigError: A profile does not exist, or extends itself, directly or through others.

    """
    found: dict[str, ProfileTable] = {}
    wanted, by = name, ""
    while wanted:
        if wanted in found:
            circle = " -> ".join([*found, wanted])
            raise ConfigError(f"{by} leads in a circle, {circle}: take one 'extends' out")
        each = find(wanted)
        if each is None:
            raise ConfigError(_absent(wanted, by, sorted(known())))
        found[wanted] = each
        wanted = each.extends
        by = each.values["extends"].origin if wanted else ""
    return list(found.values())


def _absent(name: str, by: str, known: list[str]) -> str:
    have = f"; there are {', '.join(known[:20])}" if known else ""
    guess = suggest_word(name, known, have)
    return f"{by}: no profile {name!r}{guess}" if by else f"no profile {name!r}{guess}"


def merge_tables(tables: Iterable[ProfileTable]) -> dict[str, Value]:
    """Return the effective values by key: a profile overrides those that it extends."""
    values: dict[str, Value] = {}
    for each in tables:
        values = {**each.values, **values}
    values.pop("extends", None)
    return values


def _name_raw_type(raw: object) -> str:
    return {dict: "a table", list: "a list", bool: "a truth value"}.get(type(raw), kind_of(raw))
