"""Entries of a listing that are all written alike, read as columns: a fifteenth of what an XML parser takes.

Whatever is unusual (entries of several forms, characters that XML escapes or that are no ASCII) is left to the parser.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from penstock.drivers.http.headers import SIZE_LIMIT, unquoted

__all__ = ["Columns", "columns"]

_OPEN, _CLOSE = b"<Contents>", b"</Contents>"
_LONGEST = 8192  # bytes of an entry, most of them its key's
_FIELDS = 24  # of an entry: each ends with a control character of its own, of which there are 32
_DIGITS = 19
_TOKENS = re.compile(rb"(</?[A-Za-z0-9]+>)")
_QUOTE = b"&quot;"
_PRINTABLE = bytes(range(0x20, 0x7F))
_LINES = bytes(ord("\n") if each < 0x20 else each for each in range(256))  # noqa: PLR2004  the first that is printable


class Columns(NamedTuple):
    """The entries of a page, as texts but for sizes; ``rest`` is the document without them."""

    keys: list[str]
    sizes: list[int]
    etags: list[str]
    dates: list[str]
    rest: bytes


class _Form(NamedTuple):
    """How an entry is written.

    Attributes:
        joints: What stands between the texts of an entry, in order; the first before its first text, the last after
            its last one.
        fields: Which of the texts each field is.

    """

    joints: tuple[bytes, ...]
    fields: dict[str, int]


def columns(body: object, version: str) -> Columns | None:
    """Return the entries of a ListObjectsV2 answer; None where a parser has to read it.

    ``version`` is the element that holds an object's version.
    """
    if not isinstance(body, bytes):
        return None
    start, stop = body.find(_OPEN), body.rfind(_CLOSE) + len(_CLOSE)
    end = body.find(_CLOSE, start, start + _LONGEST) + len(_CLOSE)
    if start < 0 or end <= start:
        return None
    tokens = _TOKENS.split(body[start:end])
    form = _form(tuple(tokens[1::2]), tuple(len(each) > len(_QUOTE) and _quoted(each) for each in tokens[2::2]))
    rest = body[:start] + body[stop:]
    texts = None if form is None or b"<!" in rest else _texts(body[start:stop], form.joints)  # comments: a parser's
    return None if form is None or texts is None else _read(form, texts, version, rest)


@lru_cache(maxsize=16)
def _form(tags: tuple[bytes, ...], quoted: tuple[bool, ...]) -> _Form | None:
    """Return the form of entries with just these tags, some of the texts between them in quotes; None if it is none."""
    fields: dict[str, int] = {}
    path: list[bytes] = []
    joints = [b""]
    for tag, following, quotes in zip(tags, (*tags[1:], b""), quoted, strict=True):
        joints[-1] += tag
        if tag.startswith(b"</"):
            if not path or path.pop() != tag[2:-1]:
                return None
            continue
        path.append(tag[1:-1])
        if following == b"</" + tag[1:]:
            name = tag[1:-1].decode()
            if len(path) == 2:  # noqa: PLR2004  a child of the entry
                if name in fields:
                    return None
                fields[name] = len(joints) - 1
            joints[-1] += _QUOTE * quotes
            joints.append(_QUOTE * quotes)
    if path or not {"Key", "Size"} <= fields.keys() or len(joints) > _FIELDS:
        return None
    return _Form(tuple(joints), fields)


def _quoted(text: bytes) -> bool:
    return text.startswith(_QUOTE) and text.endswith(_QUOTE)


def _texts(entries: bytes, joints: tuple[bytes, ...]) -> list[list[str]] | None:
    """Return the texts of all entries, a list for each of an entry; None unless all have just these joints."""
    first, *inner, last = joints
    if not (entries.startswith(first) and entries.endswith(last)):
        return None
    text = entries[len(first) : -len(last)]
    count = text.count(last + first) + 1
    marks = bytes(range(len(inner) + 1))
    for mark, joint in enumerate((*inner, last + first)):
        shorter = text.replace(joint, marks[mark : mark + 1])
        if len(text) - len(shorter) != (len(joint) - 1) * (count - (mark == len(inner))):
            return None
        text = shorter
    # In order, and beside them nothing that XML forbids, escapes, or reads as something else.
    if text.translate(None, _PRINTABLE) != (marks * count)[:-1] or b"<" in text or b"&" in text or b"]]>" in text:
        return None
    lines = text.translate(_LINES).decode("ascii").split("\n")
    return [lines[at :: len(marks)] for at in range(len(marks))]


def _read(form: _Form, texts: list[list[str]], version: str, rest: bytes) -> Columns | None:
    nothing, wanted = [""] * len(texts[0]), ("Key", "Size", version, "LastModified")
    keys, sizes, etags, dates = (texts[form.fields[each]] if each in form.fields else nothing for each in wanted)
    digits = "".join(sizes)
    if not (digits.isdecimal() and all(sizes) and max(map(len, sizes)) <= _DIGITS and all(keys)):
        return None
    numbers = [*map(int, sizes)]
    if max(numbers) > SIZE_LIMIT:
        return None
    versions = "".join(etags)
    if '"' in versions or " " in versions:
        etags = [*map(unquoted, etags)]
    return Columns(keys, numbers, etags, dates, rest)
