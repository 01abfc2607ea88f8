"""Entries of a listing that are all written alike, read as columns by one expression: a tenth of what a parser takes.

Whatever is unusual (entries of several forms, characters that XML escapes, attributes) is left to the parser.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from penstock.drivers.http.headers import SIZE_LIMIT, unquoted

__all__ = ["Columns", "columns"]

_OPEN, _CLOSE = b"<Contents>", b"</Contents>"
_LONGEST = 8192  # bytes of an entry, most of them its key's
_FIELDS = 24  # of an entry
_TOKENS = re.compile(rb"(</?[A-Za-z0-9]+>)")
_DIGITS = 19


class Columns(NamedTuple):
    """The entries of a page, as texts; ``rest`` is the document without them."""

    keys: list[str]
    sizes: list[int]
    etags: list[str]
    dates: list[str]
    rest: bytes


class _Form(NamedTuple):
    """How an entry is written: the expression, the bytes that are the same in all, and the group of each field."""

    expression: re.Pattern[bytes]
    fixed: int
    fields: dict[str, int]


def columns(body: object, version: str) -> Columns | None:
    """Return the entries of a ListObjectsV2 answer; None where a parser has to read it.

    ``version`` is the element that holds an object's version.
    """
    start, stop, form = _entries(body) if isinstance(body, bytes) else (0, 0, None)
    if form is None or not isinstance(body, bytes):
        return None
    rest = body[:start] + body[stop:]
    found = form.expression.findall(body, start, stop)
    texts = [b"\n".join(column) for column in zip(*found, strict=True)]
    # The groups are all that varies, so there is nothing between the entries. Comments, say, may stand around them.
    varying = sum(map(len, texts)) - len(texts) * (len(found) - 1)
    if not found or b"<!" in rest or varying + form.fixed * len(found) != stop - start:
        return None
    try:
        lines = [text.replace(b"&quot;", b'"').replace(b"&#34;", b'"').decode() for text in texts]
    except UnicodeDecodeError:
        return None
    if not all(map(_plain, lines)):
        return None
    return _read({name: lines[at] for name, at in form.fields.items()}, version, len(found), rest)


def _entries(body: bytes) -> tuple[int, int, _Form | None]:
    """Return where the entries begin and end, and the form of the first one."""
    start, stop = body.find(_OPEN), body.rfind(_CLOSE) + len(_CLOSE)
    end = body.find(_CLOSE, start, start + _LONGEST) + len(_CLOSE)
    if start < 0 or end <= start:
        return 0, 0, None
    return start, stop, _form(tuple(_TOKENS.split(body[start:end])[1::2]))


@lru_cache(maxsize=16)
def _form(tags: tuple[bytes, ...]) -> _Form | None:
    """Return the form of entries with just these tags, without spaces between them; None where it is none."""
    fields: dict[str, int] = {}
    path: list[bytes] = []
    pattern, groups = b"", 0
    for tag, following in zip(tags, (*tags[1:], b""), strict=True):
        pattern += tag
        if tag.startswith(b"</"):
            if not path or path.pop() != tag[2:-1]:
                return None
            continue
        path.append(tag[1:-1])
        if following == b"</" + tag[1:]:
            pattern += b"([^<]*)"
            name = tag[1:-1].decode()
            if len(path) == 2:  # noqa: PLR2004  a child of the entry
                if name in fields:
                    return None
                fields[name] = groups
            groups += 1
    if path or not {"Key", "Size"} <= fields.keys() or groups > _FIELDS:
        return None
    return _Form(re.compile(pattern), sum(map(len, tags)), fields)


def _read(lines: dict[str, str], version: str, count: int, rest: bytes) -> Columns | None:
    """Return the fields' lines as columns; None where an entry lacks something, or has a line break in it."""
    keys, sizes, etags, dates = (
        lines[name].split("\n") if name in lines else [""] * count for name in ("Key", "Size", version, "LastModified")
    )
    digits = "".join(sizes)
    right = digits.isdecimal() and digits.isascii() and all(sizes) and max(map(len, sizes)) <= _DIGITS
    if not right or not all(keys) or {*map(len, (keys, sizes, etags, dates))} != {count}:
        return None
    numbers = [*map(int, sizes)]
    return None if max(numbers) > SIZE_LIMIT else Columns(keys, numbers, [*map(unquoted, etags)], dates, rest)


def _plain(text: str) -> bool:
    """Say whether XML reads each line as it stands: nothing that it forbids, escapes or ends a section with."""
    return text.replace("\n", "").isprintable() and "&" not in text and "]]>" not in text
