"""Index pages of web servers: the files and directories that a page names, or the finding that it is no index.

Read are the pages of nginx (HTML and JSON), Apache, lighttpd, Python's ``http.server`` and those that look like them.
They are not trusted: a page names only what lies directly in its own directory.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

from penstock.drivers.http.headers import SIZE_LIMIT, parse_date
from penstock.drivers.web.paths import canonical
from penstock.errors import Damaged
from penstock.values import UNKNOWN_SIZE

if TYPE_CHECKING:
    from urllib.parse import SplitResult

__all__ = ["Named", "read_index"]

_TITLE = re.compile(r"\s*(?:index of|directory listing for)\s", re.IGNORECASE).match
# nginx: "22-Nov-2026 10:00     1234", exact unless a K, M or G follows. Other servers round sizes, or give none.
_EXACT = re.compile(r"\s+[0-9]{2}-[A-Z][a-z]{2}-[0-9]{4} [0-9]{2}:[0-9]{2}\s+([0-9]{1,19})\s*").fullmatch
_SIMPLE = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*/?").fullmatch  # a name that is its own link
_SHORTENED = ("..>", "...", "…")  # how nginx, Apache and lighttpd end a name that is longer than its column


class Named(NamedTuple):
    """One name on an index page.

    Attributes:
        name: The name in its canonical spelling, a single segment of a path; a directory's ends in ``/``.
        size: Bytes; ``UNKNOWN_SIZE`` where the page does not say them exactly.
        modified: Seconds since the epoch; None where the page does not say it with its time zone.

    """

    name: str
    size: int = UNKNOWN_SIZE
    modified: float | None = None


def read_index(body: bytes, content_type: str, url: str) -> list[Named] | None:
    """Return what an index page of the directory ``url`` names, in its order; None where it is no index page.

    Raises:
        Damaged: An index that is cut short, or JSON that is no nginx's.

    """
    if content_type.partition(";")[0].strip().lower() == "application/json":
        return _from_json(body)
    page = _Page()
    page.feed(body.decode("utf-8", "surrogateescape"))
    page.close()
    if not _TITLE(page.title):
        return None
    if not page.whole:
        raise Damaged("the index page is cut short")
    here = urlsplit(url)
    folder = canonical(here.path)
    found = [_named(link, here, folder) for link in page.links]
    return list({each.name: each for each in found if each is not None}.values())


class _Link:
    """A link: where it leads, the text on it, and the text after it."""

    __slots__ = ("after", "href", "text")

    def __init__(self, href: str) -> None:
        self.href, self.text, self.after = href, "", ""


class _Page(HTMLParser):
    """The title and the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.title = ""
        self.links: list[_Link] = []
        self.whole = False
        self._into = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            href = dict(attrs).get("href")
            self._into = "a" if href is not None else ""
            if href is not None:
                self.links.append(_Link(href))
        elif tag in ("title", "head", "body"):
            self._into = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._into = "after" if self.links else ""
        elif tag == "title":
            self._into = ""
        elif tag in ("html", "pre", "table"):
            self.whole = self.whole or tag == "html"
            self._into = ""

    def handle_data(self, data: str) -> None:
        if self._into == "title":
            self.title += data
        elif self._into == "a":
            self.links[-1].text += data
        elif self._into == "after":
            self.links[-1].after += data


def _named(link: _Link, here: SplitResult, folder: str) -> Named | None:
    """Return what a link names; None where it is no entry: sorting, the parent, a link in a text, another host."""
    path = folder + link.href if _SIMPLE(link.href) else _resolved(link.href, here)
    name = path[len(folder) :].removesuffix("/")
    if not path.startswith(folder) or "/" in name or name in ("", ".", "..") or not _says(link.text, name):
        return None
    if path.endswith("/"):
        return Named(f"{name}/")
    size = _EXACT(link.after)
    return Named(name, int(size[1]) if size and int(size[1]) <= SIZE_LIMIT else UNKNOWN_SIZE)


def _resolved(href: str, here: SplitResult) -> str:
    """Return the path that a link leads to; empty where it leads to another host, or to no file."""
    try:
        there = urlsplit(urljoin(here.geturl(), href.strip()))
    except ValueError:
        return ""
    same = (here.scheme, here.netloc) == (there.scheme, there.netloc)
    return canonical(there.path) if same and not (there.query or there.fragment) else ""


def _says(text: str, name: str) -> bool:
    """Say whether a link's text is its name, perhaps shortened: that of an entry is, and that of a README's is not."""
    if text == name or (text[-1:] == "/" and text[:-1] == name):  # nearly all
        return True
    text, name = (_plain(each) for each in (text.strip().removesuffix("/").removesuffix("@"), unquote(name)))
    cut = next((text.removesuffix(end) for end in _SHORTENED if text.endswith(end)), None)
    return text == name or name.removesuffix("@") == text or (bool(cut) and name.startswith(str(cut)))


def _plain(text: str) -> str:
    """Return a text as servers differ in nothing: bytes that are no UTF-8 as one sign, and no space around it."""
    return re.sub(r"[\udc80-\udcff�]+", "�", text).strip()


def _from_json(body: bytes) -> list[Named] | None:
    try:
        rows = json.loads(body.decode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise Damaged(f"the index is no JSON: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(each, dict) and "name" in each for each in rows):
        return None
    found = [_row(each) for each in rows]
    return [each for each in found if each is not None]


def _row(row: dict[str, object]) -> Named | None:
    name, kind, size, date = (row.get(each) for each in ("name", "type", "size", "mtime"))
    if not isinstance(name, str) or "/" in name or "\0" in name or name in ("", ".", ".."):
        raise Damaged("the index names a file that cannot be one")
    name = canonical(quote(name, safe="", errors="surrogateescape"))
    if kind == "directory":
        return Named(f"{name}/")
    known = isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= SIZE_LIMIT
    modified = parse_date(date) if isinstance(date, str) else None
    return Named(name, size if known and isinstance(size, int) else UNKNOWN_SIZE, modified) if kind == "file" else None
