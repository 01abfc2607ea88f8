"""Entries of a listing that are all written alike, read as columns: a fifteenth of what an XML parser takes.

Whatever is unusual (entries of several forms, characters that XML escapes or that are no ASCII) is left to the parser.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from penstock.drivers.http.headers import SIZE_LIMIT, unquoted

__all__ = ["Columns", "columns"]

_OPEN, _CLOSE = b"<Contents>", b"</Contents>"
_LONGEST = 8192  # bytes of an entry, most of them its key's
_FIELDS = 24  # of an entry
_DIGITS = 19
_TOKENS = re.compile(rb"(</?[A-Za-z0-9]+>)")
_QUOTE = b"&quot;"
_TEXT = "([ -%'-;=-~]*)"  # printable ASCII that XML does not escape
_TEXTS = {"Key": f"{_TEXT[:-2]}+)", "Size": f"([0-9]{{1,{_DIGITS}}})"}
_BARE = ("Key", "Size", "LastModified")  # fields whose quotes are their own, as a version's are not
_FORBIDDEN = b"]]>"  # in a text of XML


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
        texts: Finds the texts of each entry.
        marked: How many characters of an entry are none of its texts.
        fields: Which of the texts each field is.

    """

    texts: re.Pattern[str]
    marked: int
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
    if form is None or b"<!" in rest or body.find(_FORBIDDEN, start, stop) >= 0:  # comments are a parser's
        return None
    with suppress(UnicodeDecodeError):
        return _read(form, str(memoryview(body)[start:stop], "ascii"), version, rest)
    return None


@lru_cache(maxsize=16)
def _form(tags: tuple[bytes, ...], quoted: tuple[bool, ...]) -> _Form | None:
    """Return the form of entries with just these tags, some of the texts between them in quotes; None if it is none."""
    fields: dict[str, int] = {}
    path: list[bytes] = []
    texts: list[str] = []
    joints = [b""]
    for tag, following, quotes in zip(tags, (*tags[1:], b""), quoted, strict=True):
        joints[-1] += tag
        if tag.startswith(b"</"):
            if not path or path.pop() != tag[2:-1]:
                return None
            continue
        path.append(tag[1:-1])
        if following == b"</" + tag[1:]:
            name = tag[1:-1].decode() if len(path) == 2 else ""  # noqa: PLR2004  a child of the entry
            if name in fields:
                return None
            if name:
                fields[name] = len(texts)
            texts.append(_TEXTS.get(name, _TEXT))
            joints[-1] += _QUOTE * quotes
            joints.append(_QUOTE * quotes)
    if path or not {"Key", "Size"} <= fields.keys() or len(texts) > _FIELDS:
        return None
    if any(joints[fields[each]].endswith(_QUOTE) for each in _BARE if each in fields):
        return None
    marks = [re.escape(each.decode()) for each in joints]
    pattern = "".join(chain.from_iterable(zip(marks, (*texts, ""), strict=True)))
    return _Form(re.compile(pattern), sum(map(len, joints)), fields)


def _quoted(text: bytes) -> bool:
    return text.startswith(_QUOTE) and text.endswith(_QUOTE)


def _read(form: _Form, entries: str, version: str, rest: bytes) -> Columns | None:
    """Return the columns of entries; None unless these have just this form, with nothing between them."""
    found = form.texts.findall(entries)
    texts = [*zip(*found, strict=True)]
    joined = ["".join(each) for each in texts]
    if not found or len(entries) != form.marked * len(found) + sum(map(len, joined)):
        return None
    sizes = [*map(int, texts[form.fields["Size"]])]
    if max(sizes) > SIZE_LIMIT:
        return None
    nothing, wanted = [""] * len(found), ("Key", version, "LastModified")
    keys, etags, dates = ([*texts[form.fields[each]]] if each in form.fields else nothing for each in wanted)
    versions = joined[form.fields[version]] if version in form.fields else ""
    if '"' in versions or " " in versions:
        etags = [*map(unquoted, etags)]
    return Columns(keys, sizes, etags, dates, rest)
