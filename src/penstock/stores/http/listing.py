"""Listings in XML as pages: objects, common prefixes, unfinished uploads, the token to continue; walks between pages.

A column reader takes 1/15 of an XML parser's time for listings whose entries all have one form, or 1/60 where numpy is
loaded: it compares all that is between the texts, and makes no Python object for an entry. Unusual listings (entries of
several forms, characters that XML escapes, characters outside ASCII) are left to the parser.
"""

from __future__ import annotations

import re
import sys
from collections import OrderedDict
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from itertools import chain, count
from string import hexdigits
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote_plus

from penstock.engine.listing.listing import Entries
from penstock.errors import Damaged
from penstock.stores.http.answers import child_texts, local_name
from penstock.stores.http.headers import SIZE_LIMIT, is_strong, parse_size, strip_quotes
from penstock.values import VERSION, ObjectMeta, Page, Upload, Uploads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from xml.etree.ElementTree import Element

    import numpy as np
    from numpy.typing import NDArray

    from penstock.engine.listing.names import Names, PackedEntries

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
    lists, packed = entries.lists, entries.packed
    if packed is not None and decode is not str:
        packed = packed._replace(keys=_unescape_names(packed.keys))
    elif lists is not None and decode is not str:
        lists = _unescaped_all(lists[0]), *lists[1:]
    return Page(Entries(lists, parse_iso_date, packed), tuple(prefixes), token)


def read_versions(root: Element, rows: list[tuple[str, ...]], after: str = "") -> Page:
    """Read a ListObjectVersions answer: the latest version of each object but the key ``after``.

    ``rows`` are entries that were read already (``version_rows``), and are not in ``root``.
    """
    fields, prefixes, old = child_texts(root), list[str](), bool(rows)
    decode = _decoder(fields)
    rows = [*rows]
    for child in root:
        name = local_name(child)
        old = old or name in ("Version", "DeleteMarker")
        if name == "Version":
            entry = child_texts(child)
            rows.append((*(require_field(entry, each) for each in _VERSION_FIELDS), entry.get("LastModified", "")))
        elif name == "CommonPrefixes":
            prefixes.append(decode(require_field(child_texts(child), "Prefix")))
    latest = [row for row in rows if row[4] == "true"]
    keys = [row[0] for row in latest] if decode is str else _unescaped_all([row[0] for row in latest])
    first = keys[:1] == [after]
    sizes, etags = list[int](), list[str]()
    for _, size, quoted, version, _, _ in latest[first:]:
        etag = strip_quotes(quoted)
        if not (is_strong(etag) and is_strong(version)):
            raise Damaged(f"the listing has the ETag {etag[:_QUOTED]!r} and the version id {version[:_QUOTED]!r}")
        sizes.append(required_size({"Size": size}, "Size"))
        etags.append(f"{etag}{VERSION}{version}")
    columns = keys[first:], sizes, etags, [row[5] for row in latest[first:]]
    key, mark, version = _token(fields, ("NextKeyMarker", "NextVersionIdMarker")).rpartition("\0")
    token = f"{decode(key)}{mark}{version}"
    return Page(Entries(columns, parse_iso_date), tuple(prefixes), token, advanced=old)


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


_NO_DIGIT = 16
_LATER = 0xC0, 0x80  # mask and value of bytes within a character of UTF-8
_DIGIT_VALUES = bytes(int(chr(each), 16) if chr(each) in hexdigits else _NO_DIGIT for each in range(256))


def _unescape_names(keys: Names) -> Names:
    """Unescape keys as ``_unescape_key`` does, which gets them one by one if there is anything but UTF-8 escaped."""
    import numpy as np

    from penstock.engine.listing.names import Names

    ends, text = keys.ends - keys.ends[0], keys.joined.tobytes().replace(b"+", b" ")
    at = np.flatnonzero(keys.joined == ord("%"))
    valid, data = True, np.frombuffer(text, np.uint8)
    if len(at):
        values = np.frombuffer(text.translate(_DIGIT_VALUES) + bytes([_NO_DIGIT] * 2), np.uint8)
        high, low = values[at + 1], values[at + 2]
        within = np.searchsorted(ends, at, side="right") == np.searchsorted(ends, at + 2, side="right")
        valid = bool(((high | low) < _NO_DIGIT).all() and within.all())
        data = data.copy()
        data[at] = high << 4 | low
        data = np.delete(data, np.concatenate((at + 1, at + 2))) if valid else data
        ends -= 2 * np.searchsorted(at, ends)
        text = data.tobytes()
    with suppress(UnicodeDecodeError):
        # Keys together are UTF-8, and so is each of them if none begins within a character.
        starts = data[ends[:-1][np.diff(ends) > 0]]
        if valid and (text.isascii() or (text.decode() and (starts & _LATER[0] != _LATER[1]).all())):
            return Names(data, ends)
    return Names.of([_unescape_key(each).encode() for each in keys.texts()])


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


_VERSION_FIELDS = ("Key", "Size", "ETag", "VersionId", "IsLatest")
_LONGEST = 8192  # bytes of an entry, mostly its key
_FIELDS = 24  # of an entry
_DIGITS = 19
_TOKENS = re.compile(rb"(</?[A-Za-z0-9]+>)")
_QUOTES = (b"&quot;", b"&#34;", b'"')
_TEXT = "([ -%'-;=-~]*)"  # printable ASCII that XML does not escape
_TEXTS = {"Key": f"{_TEXT[:-2]}+)", "Size": f"([0-9]{{1,{_DIGITS}}})"}
# Fields whose quotes are part of the text; around a version they are not.
_BARE = ("Key", "Size", "LastModified")
_FORBIDDEN = b"]]>"  # in XML text


class Columns(NamedTuple):
    """Entries of a page: keys, sizes, versions and dates, as lists or packed; ``rest`` is the document without them."""

    rest: bytes
    lists: tuple[list[str], list[int], list[str], list[str]] | None
    packed: PackedEntries | None = None


class _EntryForm(NamedTuple):
    """Form of an entry.

    Attributes:
        texts: Pattern that finds the texts of each entry.
        joints: Text before, between and after the texts: tags, and quotes around a text.
        leads: For each joint, the number of bytes before its first tag, which are quotes.
        fields: Index of each field's text.
    """

    texts: re.Pattern[str]
    joints: tuple[bytes, ...]
    leads: tuple[int, ...]
    fields: dict[str, int]


def columns(body: object, version: str) -> Columns | None:
    """Return the entries of a ListObjectsV2 answer, ``version`` as in ``read_page``; None if a parser must read it."""
    found = _find_entries(body, b"Contents")
    if found is None:
        return None
    form, rest, entries = found
    # A short listing is read sooner than numpy is loaded.
    if "numpy" in sys.modules:
        packed = _pack_entries(form, entries, version)
        return None if packed is None else Columns(rest, None, packed)
    with suppress(UnicodeDecodeError):
        lists = _parse_entries(form, str(entries, "ascii"), version)
        return None if lists is None else Columns(rest, lists)
    return None


def version_rows(body: object) -> tuple[bytes, list[tuple[str, ...]]] | None:
    """Return the entries of a ListObjectVersions answer, and the rest of it; None if a parser must read it."""
    found = _find_entries(body, b"Version")
    if found is None or not {*_VERSION_FIELDS, "LastModified"} <= found[0].fields.keys():
        return None
    form, rest, entries = found
    with suppress(UnicodeDecodeError):
        texts = _split_entries(form, str(entries, "ascii"))
        columns = [] if texts is None else [texts[form.fields[each]] for each in (*_VERSION_FIELDS, "LastModified")]
        if columns and all(map(all, columns)):
            return rest, [*zip(*columns, strict=True)]
    return None


def _find_entries(body: object, element: bytes) -> tuple[_EntryForm, bytes, memoryview] | None:
    """Return the form of the first entry, the document without entries, and the entries; None if that is unusual."""
    if not isinstance(body, bytes):
        return None
    opening, closing = b"<%s>" % element, b"</%s>" % element
    start, stop = body.find(opening), body.rfind(closing) + len(closing)
    end = body.find(closing, start, start + _LONGEST) + len(closing)
    if start < 0 or end <= start:
        return None
    tokens = _TOKENS.split(body[start:end])
    form = _build_entry_form(tuple(tokens[1::2]), tuple(map(_find_quote, tokens[2::2])))
    rest, entries = body[:start] + body[stop:], memoryview(body)[start:stop]
    # Comments are left to the parser.
    if form is None or b"<!" in rest or (b"]" in body and _FORBIDDEN in body):
        return None
    return form, rest, entries


@lru_cache(maxsize=16)
def _build_entry_form(tags: tuple[bytes, ...], quotes: tuple[bytes, ...]) -> _EntryForm | None:
    """Return the form of entries with exactly these tags, and the quotes around their texts; None if it is unusual."""
    fields: dict[str, int] = {}
    path: list[bytes] = []
    texts: list[str] = []
    joints, leads = [b""], [0]
    for tag, following, quote in zip(tags, (*tags[1:], b""), quotes, strict=True):
        joints[-1] += tag
        if tag.startswith(b"</"):
            if not path or path.pop() != tag[2:-1]:
                return None
            continue
        path.append(tag[1:-1])
        if following == b"</" + tag[1:]:
            name = tag[1:-1].decode() if len(path) == 2 else ""  # noqa: PLR2004  a child of the entry
            if name in fields or (name in _BARE and quote):
                return None
            if name:
                fields[name] = len(texts)
            texts.append(_TEXTS.get(name, _TEXT))
            joints[-1] += quote
            joints.append(quote)
            leads.append(len(quote))
    if path or not {"Key", "Size"} <= fields.keys() or len(texts) > _FIELDS:
        return None
    marks = [re.escape(each.decode()) for each in joints]
    pattern = "".join(chain.from_iterable(zip(marks, (*texts, ""), strict=True)))
    return _EntryForm(re.compile(pattern), tuple(joints), tuple(leads), fields)


def _find_quote(text: bytes) -> bytes:
    """Return the quote that a text begins and ends with; empty for another text."""
    return next(
        (each for each in _QUOTES if len(text) > len(each) and text.startswith(each) and text.endswith(each)), b""
    )


def _parse_entries(
    form: _EntryForm, entries: str, version: str
) -> tuple[list[str], list[int], list[str], list[str]] | None:
    """Return the columns of entries; None unless all of them have exactly this form, with nothing between them."""
    texts = _split_entries(form, entries)
    if texts is None:
        return None
    sizes = [*map(int, texts[form.fields["Size"]])]
    if max(sizes) > SIZE_LIMIT:
        return None
    nothing, wanted = [""] * len(sizes), ("Key", version, "LastModified")
    keys, etags, dates = ([*texts[form.fields[each]]] if each in form.fields else nothing for each in wanted)
    versions = "".join(etags)
    if '"' in versions or " " in versions:
        etags = [*map(strip_quotes, etags)]
    return keys, sizes, etags, dates


def _split_entries(form: _EntryForm, entries: str) -> list[tuple[str, ...]] | None:
    """Return the texts of entries, by field; None unless all entries have exactly this form, one after the other."""
    found = form.texts.findall(entries)
    texts = [*zip(*found, strict=True)]
    size = sum(map(len, form.joints)) * len(found) + sum(len("".join(each)) for each in texts)
    return texts if found and len(entries) == size else None


def _pack_entries(form: _EntryForm, entries: memoryview, version: str) -> PackedEntries | None:
    """Return the columns that ``_parse_entries`` returns, packed."""
    import numpy as np

    from penstock.engine.listing.names import Names, PackedEntries, windows

    data = np.frombuffer(entries, np.uint8)
    tags = [each.count(b"<") for each in form.joints]
    marks = np.flatnonzero(data == ord("<"))
    count, others = divmod(len(marks), sum(tags))
    escapes = sum(each.count(b"&") for each in form.joints)
    if (
        others
        or data.min() < ord(" ")
        or data.max() > ord("~")
        or np.count_nonzero(data == ord("&")) != count * escapes
    ):
        return None
    firsts, leads, widths = np.cumsum([0, *tags[:-1]]), np.array(form.leads), np.array([*map(len, form.joints)])
    begins: NDArray[np.int64] = marks.reshape(count, -1)[:, firsts] - leads
    stops = begins + widths
    # Joints and texts follow one another from the first byte to the last.
    if (begins[:, 1:] < stops[:, :-1]).any() or (begins[1:, 0] != stops[:-1, -1]).any():
        return None
    if begins[0, 0] != 0 or stops[-1, -1] != len(data):
        return None
    for at, joint in enumerate(form.joints):
        if windows(data, begins[:, at], len(joint)).tobytes() != joint * count:
            return None

    def column(name: str) -> Names:
        at = form.fields.get(name)
        if at is None:
            return Names.between(data, begins[:, 0], begins[:, 0])
        return Names.between(data, stops[:, at], begins[:, at + 1])

    keys, etags, sizes = column("Key"), column(version), _read_numbers(column("Size"))
    if sizes is None or not keys.lengths.all():
        return None
    if (etags.data == ord('"')).any() or (etags.data == ord(" ")).any():
        etags = Names.of([strip_quotes(each).encode() for each in etags.texts()])
    return PackedEntries(keys, sizes, etags, column("LastModified"))


def _read_numbers(texts: Names) -> NDArray[np.int64] | None:
    """Return decimal numbers of 1 to 18 digits; None if one is anything else."""
    import numpy as np

    from penstock.engine.listing.names import windows

    lengths, width = texts.lengths, int(texts.lengths.max())
    if not lengths.min() or width >= _DIGITS:
        return None
    # To the right: zeros stand before the first text, and other texts before the others.
    data = np.concatenate((np.zeros(width, np.uint8), texts.data))
    digits = windows(data, texts.ends[1:], width) - np.uint8(ord("0"))
    digits[np.arange(width) < width - lengths[:, None]] = 0
    return None if digits.max() > 9 else digits @ 10 ** np.arange(width)[::-1]  # noqa: PLR2004  the greatest digit
