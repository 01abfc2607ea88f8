"""Parser of web servers' index pages, and a tree of directories as one sorted listing.

It reads the pages of nginx (HTML and JSON), Apache, lighttpd, Python's ``http.server`` and similar ones. They are not
trusted: only names directly in the page's own directory count.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from html import unescape
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

from penstock.errors import Damaged
from penstock.stores.direct import item_bytes, key_bytes, split_items
from penstock.stores.http.headers import SIZE_LIMIT, parse_date
from penstock.stores.web.route import canonical
from penstock.values import UNKNOWN_SIZE, ObjectMeta, Page

if TYPE_CHECKING:
    from collections.abc import Iterable
    from urllib.parse import SplitResult

_TITLE = re.compile(r"\s*(?:index of|directory listing for)\s", re.IGNORECASE).match
# nginx: "22-Nov-2026 10:00     1234", exact unless K, M or G follows. Other servers round sizes, or give none.
_EXACT = re.compile(r"\s+[0-9]{2}-[A-Z][a-z]{2}-[0-9]{4} [0-9]{2}:[0-9]{2}\s+([0-9]{1,19})\s*").fullmatch
_SIMPLE = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*/?").fullmatch  # a name that is its own link
# A path without dots that lead elsewhere, in characters without another meaning in a URL: most other links.
_PATH = re.compile(r"[^\s\x00-\x20\x7f-\xa0.:?#;\\][^\s\x00-\x20\x7f-\xa0:?#;\\]*").fullmatch
# Each match begins at the end of the previous one, and the search stops at a tag without end: one pass is enough.
_TAG = re.compile(r"<(?:(/?)([A-Za-z][^\s/>]*)|!--|[!?])")
_ATTRIBUTE = re.compile(r"""[\s/=]*(?:>|([^\s/>=]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]*)))?)""")
# The rest of a tag whose attributes do not matter.
_REST = re.compile(r"""(?:[^>"'=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+|["'])*+>""")
_RAW = {name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style")}  # their text has no tags
# Tags of a page: those of 180,000 names in Apache's largest form, of a million in nginx's.
_MOST_MARKS = 3 << 20
_MOST_LINKS = 400_000
# How nginx, Apache and lighttpd end a name that is longer than its column.
_SHORTENED = ("..>", "...", "…")


class IndexEntry(NamedTuple):
    """Entry of an index page.

    Attributes:
        name: The name in its canonical spelling, a single segment of a path; a directory's ends in ``/``.
        size: Bytes; ``UNKNOWN_SIZE`` if the page does not state them exactly.
        modified: Seconds since the epoch; None if the page does not state the time with its time zone.
    """

    name: str
    size: int = UNKNOWN_SIZE
    modified: float | None = None


def read_index(body: bytes, content_type: str, url: str) -> list[IndexEntry] | None:
    """Return the entries of an index page of the directory ``url``, in its order; None for any other page."""
    if content_type.partition(";")[0].strip().lower() == "application/json":
        return _from_json(body)
    page = _IndexPage(body.decode("utf-8", "surrogateescape"))
    if not _TITLE(page.title):
        return None
    if not page.whole:
        raise Damaged("the index page is truncated")
    here = urlsplit(url)
    folder, base = canonical(here.path), here.geturl()
    found = [_parse_link(link, here, folder, base) for link in page.links]
    return list({each.name: each for each in found if each is not None}.values())


class _Link:
    """Link: its target, the text on it, and the text after it."""

    __slots__ = ("after", "href", "text")

    def __init__(self, href: str) -> None:
        self.href, self.text, self.after = href, "", ""


class _IndexPage:
    """Title and links of a page, found in one pass: its time is proportional to the text's length."""

    def __init__(self, text: str) -> None:
        self.title = ""
        self.links: list[_Link] = []
        self.whole = False
        self._text = text
        self._left = _MOST_MARKS
        self._into = ""
        self._parts: list[str] = []
        at = 0
        while (tag := _TAG.search(text, at)) is not None:
            if self._into:
                self._parts.append(text[at : tag.start()])
            end = self._enter(tag)
            # A tag or comment without end is the last one.
            if end < 0:
                break
            at = end
        if self._into and tag is None:
            self._parts.append(text[at:])
        self._flush()

    def _enter(self, tag: re.Match[str]) -> int:
        """Process a tag; return where the text continues, or -1 at its end."""
        self._count()
        start, name = tag.end(), tag[2].lower() if tag[2] else ""
        if not name:
            mark = "-->" if tag[0] == "<!--" else ">"
            end = self._text.find(mark, start)
            return end + len(mark) if end >= 0 else -1
        if tag[1]:
            self._leave(name)
            return self._text.find(">", start) + 1 or -1
        if name == "a":
            href, end = self._attributes(start)
            self._flush("a" if href is not None else "")
            if href is not None:
                self.links.append(_Link(_unescape_entities(href)))
            if len(self.links) > _MOST_LINKS:
                raise Damaged(f"the index page has more than {_MOST_LINKS} links")
            return end
        rest = _REST.match(self._text, start)
        end = rest.end() if rest else -1
        if name in ("title", "head", "body"):
            self._flush(name)
        elif end >= 0 and name in _RAW:
            closing = _RAW[name].search(self._text, end)
            end = closing.start() if closing else -1
        return end

    def _attributes(self, at: int) -> tuple[str | None, int]:
        """Return the last ``href`` of a tag, and the end of the tag; -1 for a tag without end."""
        href = None
        while (found := _ATTRIBUTE.match(self._text, at)) is not None:
            at = found.end()
            if found[1] is None:
                return href, at
            self._count()
            if len(found[1]) == len("href") and found[1].lower() == "href" and found.lastindex != 1:
                href = found[found.lastindex or 0]
        return None, -1

    def _leave(self, name: str) -> None:
        if name == "a":
            self._flush("after" if self.links else "")
        elif name in ("title", "html", "pre", "table"):
            self.whole = self.whole or name == "html"
            self._flush()

    def _flush(self, into: str = "") -> None:
        """Assign the text since the last change to its element; the following text belongs to ``into``."""
        if self._parts and self._into in ("title", "a", "after"):
            text = _unescape_entities("".join(self._parts))
            link = self.links[-1] if self.links else None
            if self._into == "title":
                self.title = self.title or text
            elif link is not None and self._into == "a":
                link.text = text
            elif link is not None:
                link.after = link.after or text
        self._parts, self._into = [], into

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Damaged(f"the index page has more than {_MOST_MARKS} tags")


def _unescape_entities(text: str) -> str:
    try:
        return unescape(text) if "&" in text else text
    except ValueError:  # a number of thousands of digits
        raise Damaged("the index page names a character that does not exist") from None


def _parse_link(link: _Link, here: SplitResult, folder: str, base: str) -> IndexEntry | None:
    """Return the entry that a link names; None for other links: sorting, the parent, a link in a text, another host."""
    href = link.href
    if not link.text:
        return None
    if _SIMPLE(href):
        path = folder + href
    elif _PATH(href) and "//" not in href and "/." not in href:
        path = canonical(href) if href[0] == "/" else folder + canonical(href)
    else:
        path = _resolve_link(href, here, base)
    name = path[len(folder) :].removesuffix("/")
    if not path.startswith(folder) or "/" in name or name in ("", ".", "..") or not _says(link.text, name):
        return None
    if path.endswith("/"):
        return IndexEntry(f"{name}/")
    size = _EXACT(link.after)
    return IndexEntry(name, int(size[1]) if size and int(size[1]) <= SIZE_LIMIT else UNKNOWN_SIZE)


def _resolve_link(href: str, here: SplitResult, base: str) -> str:
    """Return the path that a link leads to; empty if it leads to another host, or not to a file."""
    try:
        there = urlsplit(urljoin(base, href.strip()))
    except ValueError:
        return ""
    same = (here.scheme, here.netloc) == (there.scheme, there.netloc)
    return canonical(there.path) if same and not (there.query or there.fragment) else ""


def _says(text: str, name: str) -> bool:
    """Return whether a link's text is its name, perhaps shortened: true of entries, not of links in a README."""
    if text == name or (text[-1:] == "/" and text[:-1] == name):  # nearly all
        return True
    text, name = (_normalize_text(each) for each in (text.strip().removesuffix("/").removesuffix("@"), unquote(name)))
    cut = next((text.removesuffix(end) for end in _SHORTENED if text.endswith(end)), None)
    return text == name or name.removesuffix("@") == text or (bool(cut) and name.startswith(str(cut)))


def _normalize_text(text: str) -> str:
    """Return a text without differences between servers: bytes that are not UTF-8 as one character, no outer spaces."""
    return re.sub(r"[\udc80-\udcff�]+", "�", text).strip()


def _from_json(body: bytes) -> list[IndexEntry] | None:
    if sum(map(body.count, (b"{", b"[", b","))) > _MOST_MARKS:
        raise Damaged(f"the index has more than {_MOST_MARKS} values")
    try:
        rows = json.loads(body.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise Damaged(f"the index is not JSON: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(each, dict) and "name" in each for each in rows):
        return None
    if len(rows) > _MOST_LINKS:
        raise Damaged(f"the index has more than {_MOST_LINKS} files")
    found = [_row(each) for each in rows]
    return [each for each in found if each is not None]


def _row(row: dict[str, object]) -> IndexEntry | None:
    name, kind, size, date = (row.get(each) for each in ("name", "type", "size", "mtime"))
    if not isinstance(name, str) or "/" in name or "\0" in name or name in ("", ".", ".."):
        raise Damaged("the index names a file with an invalid name")
    try:
        name = canonical(quote(name, safe="", errors="surrogateescape"))
    except UnicodeEncodeError:
        raise Damaged("the index names a file with incomplete characters") from None
    if kind == "directory":
        return IndexEntry(f"{name}/")
    known = isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= SIZE_LIMIT
    modified = parse_date(date) if isinstance(date, str) else None
    return (
        IndexEntry(name, size if known and isinstance(size, int) else UNKNOWN_SIZE, modified)
        if kind == "file"
        else None
    )


# Nested directories; beyond that, a link leads back into itself.
_MOST_DEEP = 100


@dataclass(frozen=True, slots=True)
class _Rest:
    """Remaining items of a directory, followed by those of its parent; immutable, and shared by walks."""

    items: tuple[ObjectMeta | str, ...]
    at: int
    above: _Rest | None


@dataclass(frozen=True, slots=True)
class Walk:
    """State of a listing in progress. In key order, a directory's ``name/`` takes the place of its contents.

    Attributes:
        prefix: Prefix of every key.
        after: Keys up to this one are left out.
        flat: Directories are listed by name and not entered: ``delimiter="/"``.
        directory: Key of the next directory to read, empty or ending in ``/``.
        first: ``directory`` is the first one of the listing.
    """

    prefix: str
    after: str = ""
    flat: bool = False
    directory: str = ""
    first: bool = True
    _rest: _Rest | None = field(default=None, repr=False)

    @classmethod
    def begin(cls, prefix: str, after: str = "", *, flat: bool = False) -> Walk:
        return cls(prefix, after, flat, prefix[: prefix.rfind("/") + 1])

    def enter(self, found: Iterable[IndexEntry]) -> tuple[Page, Walk | None]:
        """Process the contents of the directory; return a page of items, and the walk to continue with, if any."""
        if self.directory.count("/") > _MOST_DEEP + self.prefix.count("/"):
            raise Damaged(f"directories are more than {_MOST_DEEP} deep: one of them is a link that leads back")
        items = sorted(self._wanted(found), key=item_bytes)
        if self.flat:
            return split_items(items), None
        return self._tell(_Rest(tuple(items), 0, self._rest))

    def _wanted(self, found: Iterable[IndexEntry]) -> Iterable[ObjectMeta | str]:
        asked = canonical(self.prefix[len(self.directory) :]) if self.first else ""
        bound = key_bytes(self.after)
        for name, size, modified in found:
            if not name.startswith(asked):
                continue
            key = self.prefix + name[len(asked) :] if self.first else self.directory + name  # in the spelling asked for
            if key_bytes(key) > bound or (key.endswith("/") and not self.flat and self.after.startswith(key)):
                yield key if key.endswith("/") else ObjectMeta(key, size, modified=modified)

    def _tell(self, rest: _Rest | None) -> tuple[Page, Walk | None]:
        """Return a page of files up to the next directory, here or above."""
        files: list[ObjectMeta] = []
        while rest is not None:
            for at in range(rest.at, len(rest.items)):
                item = rest.items[at]
                if isinstance(item, str):
                    left = _Rest(rest.items, at + 1, rest.above) if at + 1 < len(rest.items) else rest.above
                    return Page(tuple(files)), replace(self, directory=item, first=False, _rest=left)
                files.append(item)
            rest = rest.above
        return Page(tuple(files)), None
