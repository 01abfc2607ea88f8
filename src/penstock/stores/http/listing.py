"""Listings in XML as pages: objects, common prefixes, unfinished uploads, the token to continue; walks between pages.

A column reader takes 1/15 of an XML parser's time for listings whose entries all have one form. Unusual ones (entries
of several forms, characters that XML escapes, characters outside ASCII) are left to the parser.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from itertools import chain, count
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote_plus

from penstock.engine.listing.listing import Entries
from penstock.errors import Damaged
from penstock.stores.http.answers import child_texts, local_name
from penstock.stores.http.headers import SIZE_LIMIT, parse_size, strip_quotes
from penstock.values import ObjectMeta, Page, Upload, Uploads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from xml.etree.ElementTree import Element

_QUOTED = 40  # characters of a foreign text


def read_page(
    root: Element, version: str = "ETag", *, escaped_token: bool = False, entries: Columns | None = None
) -> Page:
    """Read a ListObjectsV2 answer; ``version`` is the element that holds an object's version.

    ``escaped_token``: the continuation token is escaped if the keys are. ``entries`` were already read, and are not in
    ``root``. Dates may be invalid.
    """
    fields = child_texts(root)
    decode = _decoder(fields)
    found: list[ObjectMeta] = []
    prefixes = []
    for child in root:
        name = local_name(child)
        if name == "Contents":
            entry = child_texts(child)
            size, etag = required_size(entry, "Size"), strip_quotes(entry.get(version, ""))
            key, modified = decode(require_field(entry, "Key")), parse_iso_date(entry.get("LastModified", ""))
            found.append(ObjectMeta(key, size, etag, modified))
        elif name == "CommonPrefixes":
            prefixes.append(decode(require_field(child_texts(child), "Prefix")))
    token = _token(fields, ("NextContinuationToken",))
    token = decode(token) if escaped_token else token
    if entries is None:
        return Page(tuple(found), tuple(prefixes), token)
    keys = entries.keys if decode is str else _unescaped_all(entries.keys)
    return Page(Entries(keys, entries.sizes, entries.etags, entries.dates, parse_iso_date), tuple(prefixes), token)


def read_uploads(root: Element) -> Uploads:
    fields = child_texts(root)
    decode = _decoder(fields)
    entries = []
    for child in root:
        if local_name(child) == "Upload":
            entry = child_texts(child)
            begun = parse_iso_date(entry.get("Initiated", ""))
            entries.append(Upload(decode(require_field(entry, "Key")), require_field(entry, "UploadId"), begun))
    fields.setdefault("IsTruncated", "false")  # gofakes3 omits it where it is false
    return Uploads(tuple(entries), decode(_token(fields, ("NextKeyMarker", "NextUploadIdMarker"))))


def require_field(entry: Mapping[str, str], name: str) -> str:
    text = entry.get(name, "")
    if not text:
        raise Damaged(f"the listing has an entry without a {name}")
    return text


def required_size(entry: Mapping[str, str], name: str) -> int:
    text = require_field(entry, name)
    size = parse_size(text)
    if size is None:
        raise Damaged(f"the listing has an entry with the size {text[:_QUOTED]!r}")
    return size


def parse_iso_date(date: str) -> float | None:
    try:
        return datetime.fromisoformat(date).timestamp() if date else None
    except (ValueError, OverflowError):
        return None


def _decoder(fields: Mapping[str, str]) -> Callable[[str], str]:
    return _unescape_key if fields.get("EncodingType") == "url" else str


def _unescape_key(text: str) -> str:
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError:
        raise Damaged(f"the listing contains {text[:200]!r}, which is not a key: it is not UTF-8") from None


def _unescaped_all(keys: list[str]) -> list[str]:
    text = "\n".join(keys)
    if "%" not in text and "+" not in text:
        return keys
    if "%0A" in text or "%0a" in text:
        return [*map(_unescape_key, keys)]
    return _unescape_key(text).split("\n")


def _token(fields: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Return the token of a truncated listing; several markers are joined by a NUL, which no upload's id contains."""
    truncated = fields.get("IsTruncated", "").strip().lower()
    if truncated == "false":
        return ""
    token = "\0".join(fields.get(name, "") for name in names)
    if truncated != "true" or not token.strip("\0"):
        raise Damaged("the listing does not say whether it is complete, or how to continue it")
    return token


# Walks kept; a listing whose walk was dropped starts a new one at the same place.
_MOST_WALKS = 256


class Walking(Protocol):
    """State of a listing in progress; immutable."""

    @property
    def prefix(self) -> str: ...

    @property
    def flat(self) -> bool: ...


W = TypeVar("W", bound=Walking)


class ListingWalks(Generic[W]):
    """Walks of one store's listings, by the tokens that continue them."""

    def __init__(self, begin: Callable[..., W]) -> None:
        """Start without walks; ``begin`` makes one from a prefix, the key to begin after, and whether it is flat."""
        self._begin = begin
        self._walks: OrderedDict[str, W] = OrderedDict()
        self._serial = count(1)

    def find(self, token: str, prefix: str, *, flat: bool) -> W:
        """Return the walk that a token continues; a walk that was dropped begins again after the token's key."""
        walk = self._walks.get(token)
        if walk is None or (walk.prefix, walk.flat) != (prefix, flat):
            walk = self._begin(prefix, token.partition("\0")[2], flat=flat)
        return walk

    def keep(self, walk: W | None, last: str) -> str:
        """Keep a walk and return the token that continues it after its key ``last``; empty if it is over."""
        if walk is None:
            return ""
        token = f"{next(self._serial)}\0{last}"
        self._walks[token] = walk
        while len(self._walks) > _MOST_WALKS:
            self._walks.popitem(last=False)
        return token


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


class _EntryForm(NamedTuple):
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
    """Return the entries of a ListObjectsV2 answer, ``version`` as in ``read_page``; None if a parser must read it."""
    if not isinstance(body, bytes):
        return None
    start, stop = body.find(_OPEN), body.rfind(_CLOSE) + len(_CLOSE)
    end = body.find(_CLOSE, start, start + _LONGEST) + len(_CLOSE)
    if start < 0 or end <= start:
        return None
    tokens = _TOKENS.split(body[start:end])
    form = _build_entry_form(
        tuple(tokens[1::2]), tuple(len(each) > len(_QUOTE) and _is_quoted(each) for each in tokens[2::2])
    )
    rest = body[:start] + body[stop:]
    # Comments are left to the parser.
    if form is None or b"<!" in rest or body.find(_FORBIDDEN, start, stop) >= 0:
        return None
    with suppress(UnicodeDecodeError):
        return _parse_entries(form, str(memoryview(body)[start:stop], "ascii"), version, rest)
    return None


@lru_cache(maxsize=16)
def _build_entry_form(tags: tuple[bytes, ...], quoted: tuple[bool, ...]) -> _EntryForm | None:
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
    return _EntryForm(re.compile(pattern), sum(map(len, joints)), fields)


def _is_quoted(text: bytes) -> bool:
    return text.startswith(_QUOTE) and text.endswith(_QUOTE)


def _parse_entries(form: _EntryForm, entries: str, version: str, rest: bytes) -> Columns | None:
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
        etags = [*map(strip_quotes, etags)]
    return Columns(keys, sizes, etags, dates, rest)
