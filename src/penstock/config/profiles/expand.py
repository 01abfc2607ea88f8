"""``${NAME}`` and ``${NAME:-default}`` in a text, by a function that knows the variables; pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Unset", "expand"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Unset(ValueError):
    """A text that cannot be expanded; its message says why and quotes variables' names only."""


def expand(text: str, lookup: Callable[[str], str | None]) -> str:
    """Return ``text`` with variables replaced by their values, which are not expanded again.

    ``${NAME}`` is the value of a variable; ``${NAME:-default}`` is ``default`` where the variable is unset or empty, as
    in a POSIX shell; defaults may hold variables themselves. ``$${`` stands for a literal ``${``. Any other ``$`` is
    itself.

    Raises:
        Unset: A variable is unset or empty and has no default; a ``${`` is not closed, or holds no name.

    """
    found, at = _until(text, 0, lookup, nested=False)
    assert at == len(text)  # noqa: S101  an invariant
    return found


def _until(text: str, at: int, lookup: Callable[[str], str | None], *, nested: bool) -> tuple[str, int]:
    """Expand from ``at`` to the end, or to the ``}`` that closes a default; return what it is, and where that was."""
    pieces: list[str] = []
    while at < len(text):
        if text.startswith("$${", at):
            pieces.append("${")
            at += 3
        elif text.startswith("${", at):
            piece, at = _variable(text, at, lookup)
            pieces.append(piece)
        elif nested and text[at] == "}":
            break
        else:
            pieces.append(text[at])
            at += 1
    return "".join(pieces), at


def _variable(text: str, at: int, lookup: Callable[[str], str | None]) -> tuple[str, int]:
    name = _NAME.match(text, at + 2)
    if name is None:
        raise Unset("'${' is not followed by the name of a variable: write ${NAME}, or $${ for the two characters")
    default, at = None, name.end()
    if text.startswith(":-", at):
        # A default that is not needed may name variables that are not set.
        wanted = lookup(name[0])
        default, at = _until(text, at + 2, _nothing if wanted else lookup, nested=True)
    if not text.startswith("}", at):
        raise Unset(f"'${{{name[0]}' is not closed: write ${{{name[0]}}} or ${{{name[0]}:-default}}")
    value = lookup(name[0]) or default
    if value is None:
        raise Unset(f"the variable {name[0]} is not set: set it, or write ${{{name[0]}:-default}}")
    return value, at + 1


def _nothing(_name: str) -> str:
    return "unused"
