"""Selection of keys of a listing for a dataset: globs over relative keys."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["fixed_part", "globs", "selector"]

_MEMBER = re.compile(r"(.)(?:-(.))?", re.DOTALL)  # of a set: a character, or a range


def selector(
    include: str | Iterable[str] = (), exclude: str | Iterable[str] = (), *, markers: bool = False
) -> Callable[[str, int], bool]:
    """Return ``chosen(relative_key, size)``: an ``include`` glob (or none given) matches, and no ``exclude`` glob.

    A glob must match the whole relative key, case counts, and only these are special:

    - ``*`` any run of characters within one component (never ``/``), ``?`` one of them;
    - ``**`` any run at all; ``**/`` at a component's start also matches nothing, so ``**/*.jpg`` finds ``a.jpg``;
    - ``[abc]``, ``[a-z]``, ``[!a]`` one character of a set, never ``/``; a ``[`` without its ``]`` is itself.

    Directory markers (empty objects whose key ends in ``/``) are left out unless ``markers``.

    Raises:
        ConfigError: A set of a glob is impossible (``[z-a]``), a glob ends in ``/``, or an argument is neither a glob
            nor several of them.

    """
    wanted, unwanted = _compile(include), _compile(exclude)

    def chosen(key: str, size: int) -> bool:
        if size == 0 and not markers and key[-1:] in ("", "/"):  # "" is the marker of the base itself
            return False
        return (wanted is None or wanted.fullmatch(key) is not None) and (
            unwanted is None or unwanted.fullmatch(key) is None
        )

    return chosen


def globs(given: str | Iterable[str], name: str = "include/exclude") -> tuple[str, ...]:
    """Return the globs of the argument ``name``. Raises ``ConfigError`` if one is not a str, or ends in ``/``."""
    found = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    for each in found:
        if not isinstance(each, str):
            raise ConfigError(f"{name} must be a str, such as '*.jpg', or a list of str, got {each!r}")
        # In other tools "keep/" is a folder with all that it holds. Here it would match no object, and a sync that
        # deletes would delete what it was to keep.
        if each.endswith("/"):
            raise ConfigError(
                f"{name} must not end in '/', got {each!r}: write {each + '**'!r} for all that lies there"
            )
    return found


_FIXED = re.compile(r"(?: [^*?\[] | \[ (?: \] | [^]!/] ) \] )*", re.VERBOSE | re.DOTALL)
_ONLY = re.compile(r"\[(.)\]", re.DOTALL)


def fixed_part(glob: str) -> tuple[str, str]:
    """Divide a glob before its first wildcard: the text that every match begins with, and the glob that follows.

    A set of one character (``[*]``) is that character. The second text is empty without wildcards.
    """
    end = _FIXED.match(glob).end()  # type: ignore[union-attr]  # it matches an empty text, too
    return _ONLY.sub(r"\1", glob[:end]), glob[end:]


_TOKEN = re.compile(
    r"""
      (?P<deep> (?:(?<=/)|^) \*\*/ )
    | (?P<any> \*\*+ )
    | (?P<run> \* )
    | (?P<one> \? )
    | \[ (?P<set> !?+ (?: \][^\]]* | [^\]]+ ) ) \]
    """,
    re.VERBOSE,
)


def _compile(given: str | Iterable[str]) -> re.Pattern[str] | None:
    found = globs(given)
    try:
        return re.compile("|".join(map(_translate, found)), re.DOTALL) if found else None
    except re.error as error:
        raise ConfigError(f"invalid glob: {[*found]} ({error})") from error


def _translate(glob: str) -> str:
    pieces: list[str] = []
    start = 0
    for token in _TOKEN.finditer(glob):
        pieces += re.escape(glob[start : token.start()]), _piece(token)
        start = token.end()
    return "".join(pieces) + re.escape(glob[start:])


def _piece(token: re.Match[str]) -> str:
    members = token["set"]
    if members is None:
        return {"deep": "(?:.*/)?", "any": ".*", "run": "[^/]*", "one": "[^/]"}[token.lastgroup or ""]
    negated = "^" if members.startswith("!") else ""
    # "-" keeps its meaning; everything else in a set stands for itself.
    return f"(?!/)[{negated}{_MEMBER.sub(_escaped, members.removeprefix('!'))}]"


def _escaped(member: re.Match[str]) -> str:
    first, last = member.groups()
    return re.escape(first) + (f"-{re.escape(last)}" if last else "")
