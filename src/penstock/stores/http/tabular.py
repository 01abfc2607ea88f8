"""Column reader for listings whose entries all have one form: takes 1/15 of an XML parser's time.

Unusual listings (entries of several forms, characters that XML escapes, characters outside ASCII) are left to the
parser.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from penstock.stores.http.headers import SIZE_LIMIT, unquoted

__all__ = ["Columns", "columns"]

_OPEN, _CLOSE = b"<Contents>", b"</Contents>"
_LONGEST = 8192  # bytes of an entry, mostly its key
_FIELDS = 24  # of an entry
_DIGITS = 19
_TOKENS = re.compile(rb"(</?[A-Za-z0-9]+>)")
_QUOTE = b"&quot;"
_TEXT = "([ -%'-;=-~]*)"  # printable ASCII that XML does not escape
_TEXTS = {"Key": f"{_TEXT[:-2]}+)", "Size": f"([0-9]{{1,{_DIGITS}}})"}
# Fields whose quotes are part of the text; around a version they are not.
_BARE = ("Key", "Size", "LastModified")
_FORBIDDEN = b"]]>"  # in XML text


class Columns(NamedTuple):
    """Entries of a page as columns of text, with sizes as integers; ``rest`` is the document without them."""

    keys: list[str]
    sizes: list[int]
    etags: list[str]
    dates: list[str]
    rest: bytes


class _Form(NamedTuple):
    """Form of an entry.

    Attributes:
        texts: Pattern that finds the texts of each entry.
        marked: Number of characters of an entry outside its texts.
        fields: Index of each field's text.

    """

    texts: re.Pattern[str]
    marked: int
    fields: dict[str, int]


def columns(body: object, version: str) -> Columns | None:
    """Return the entries of a ListObjectsV2 answer; None if a parser must read it.

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
    # Comments are left to the parser.
    if form is None or b"<!" in rest or body.find(_FORBIDDEN, start, stop) >= 0:
        return None
    with suppress(UnicodeDecodeError):
        return _read(form, str(memoryview(body)[start:stop], "ascii"), version, rest)
    return None


@lru_cache(maxsize=16)
def _form(tags: tuple[bytes, ...], quoted: tuple[bool, ...]) -> _Form | None:
    """Return the form of entries with exactly these tags, ``quoted`` texts in quotes; None if the form is unusual."""
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
    """Return the columns of entries; None unless all of them have exactly this form, with nothing between them."""
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
