"""In which line of a TOML text a key stands: ``tomllib`` does not say; pure."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["key_lines", "line_of"]

_KEY = r"(?:[A-Za-z0-9_-]+|\"[^\"\\]*\"|'[^']*')"
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_HEADER = re.compile(rf"\s*\[\s*({_DOTTED})\s*\]\s*(?:#.*)?")
_ENTRY = re.compile(rf"\s*({_DOTTED})\s*=")
_PART = re.compile(_KEY)
_LONG = ('"""', "'''")


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the lines, from 1, where keys and tables are written, by the path of the key.

    Strings over several lines are passed over; keys within an inline table are not there, but their table is.
    """
    lines: dict[tuple[str, ...], int] = {}
    inside = ""
    head: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        found: tuple[str, ...] = ()
        if inside:
            inside = "" if inside in line else inside
        elif header := _HEADER.fullmatch(line):
            head = _parts(header[1])
            found = head
        elif entry := _ENTRY.match(line):
            found = (*head, *_parts(entry[1]))
            inside = _opened(line[entry.end() :])
        for depth in range(1, len(found) + 1):
            lines.setdefault(found[:depth], number)
    return lines


def line_of(lines: Mapping[tuple[str, ...], int], keys: tuple[str, ...]) -> int:
    """Return the line of a key; else that of the table that holds it; 0 where neither was seen."""
    return next((lines[keys[:depth]] for depth in range(len(keys), 0, -1) if keys[:depth] in lines), 0)


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part[1:-1] if part[0] in "\"'" else part for part in _PART.findall(dotted))


def _opened(value: str) -> str:
    """Return the mark that ends a string which begins in this line and does not end in it."""
    try:
        tomllib.loads(f"x ={value}")
    except tomllib.TOMLDecodeError:
        return next((mark for mark in _LONG if value.count(mark) % 2), "")
    return ""
