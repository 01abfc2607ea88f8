"""Azure's listings in XML as pages; those of a hierarchical namespace are put into byte order.

Such an account compares paths part by part: it lists all of ``a/`` before ``a-b``, which comes first in byte order.
So a folder that is larger than one answer is listed on its own level, with its folders as common prefixes, and each of
them is entered when its ``name/`` is next in byte order. An answer that holds everything below a folder is sorted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter, ge
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.errors import Damaged, Unsupported
from penstock.stores.direct import item_bytes, key_bytes
from penstock.stores.http.answers import child_texts, local_name
from penstock.stores.http.headers import parse_date, strip_quotes
from penstock.stores.http.listing import require_field, required_size
from penstock.values import ObjectMeta, Page, Upload, Uploads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from xml.etree.ElementTree import Element

_QUOTED = 200  # characters of a foreign text
_FOLDER = "hdi_isfolder"  # metadata of folder markers: in accounts with a hierarchical namespace, and those of Hadoop


def is_folder(metadata: dict[str, str], kind: str) -> bool:
    return kind == "directory" or metadata.get(_FOLDER, "").lower() == "true"


@dataclass(frozen=True, slots=True)
class Blobs:
    """Entries of one answer, in byte order; ``entries`` are without folder markers.

    Attributes:
        marker: Continues the listing; empty at its end.
        last: The last name in the service's order, without the delimiter at the end of a prefix.
        hierarchical: The account has a hierarchical namespace, as its answers show for each name.
        folders: Folders are among the names, and not as prefixes.
    """

    entries: list[ObjectMeta]
    prefixes: list[str]
    marker: str
    last: str
    hierarchical: bool
    folders: bool


def read_blobs(root: Element) -> Blobs:
    """Read the answer to List Blobs with metadata.

    Raises ``Damaged`` if a blob lacks its name or size, the list is missing, or it is not in order; ``Unsupported`` if
    it is in the order of a hierarchical namespace, but the answer does not report one.
    """
    entries, prefixes, names, hierarchical, folders = [], [], [], False, False
    for child in _children(root, "Blobs"):
        name = _name(child)
        parts = {local_name(part): part for part in child}
        fields = child_texts(parts["Properties"]) if "Properties" in parts else {}
        kind = fields.get("ResourceType", "")  # only with a hierarchical namespace
        hierarchical = hierarchical or bool(kind)
        if local_name(child) == "BlobPrefix":
            prefixes.append(name)
            names.append(name[:-1])
            continue
        names.append(name)
        if is_folder(_metadata(parts.get("Metadata")), kind):
            folders = True
            continue
        size, etag = required_size(fields, "Content-Length"), strip_quotes(fields.get("Etag", ""))
        entries.append(ObjectMeta(name, size, etag, parse_date(fields.get("Last-Modified", ""))))
    if not hierarchical:
        _check_order([each.key for each in entries])
        _check_order(prefixes)
    entries.sort(key=attrgetter("key"))  # by code points, which is the order of UTF-8
    prefixes.sort()
    last = max(names, key=None if all(map(str.isascii, names)) else utf_16, default="")
    return Blobs(entries, prefixes, child_texts(root).get("NextMarker", ""), last, hierarchical, folders)


def page_of(found: Blobs, after: str = "") -> Page:
    """Return the entries beyond ``after`` (exclusive) as a page, for an account without a hierarchical namespace.

    The page's token is the marker of the next one and, while needed, a NUL and ``after``.
    """
    entries, prefixes, marker = found.entries, found.prefixes, found.marker
    if after:
        entries = [each for each in entries if each.key > after]
        prefixes = [each for each in prefixes if each > after]
        marker = f"{marker}\0{after}" if marker and found.last <= after else marker
    return Page(tuple(entries), tuple(prefixes), marker)


def utf_16(name: str) -> bytes:
    """Return the key that the service sorts names by."""
    return name.encode("utf-16-be", "surrogatepass")


def read_uncommitted(root: Element) -> Uploads:
    """Read the blobs that only have blocks: those without a content type. Azure gives no date for them either."""
    found = []
    for child in _children(root, "Blobs"):
        fields = {local_name(field): field.text for part in child if local_name(part) == "Properties" for field in part}
        if local_name(child) == "Blob" and not fields.get("Content-Type"):
            found.append(Upload(_name(child), ""))
    return Uploads(tuple(found), child_texts(root).get("NextMarker", ""))


def _children(root: Element, name: str) -> Iterator[Element]:
    found = next((child for child in root if local_name(child) == name), None)
    if found is None:
        raise Damaged(f"the listing has no {name}")
    return iter(found)


def _name(child: Element) -> str:
    named = next((part for part in child if local_name(part) == "Name"), None)
    if named is None:
        raise Damaged("the listing has an entry without a Name")
    name = require_field({"Name": named.text or ""}, "Name")
    if named.get("Encoded", "").lower() != "true":
        return name
    try:
        return unquote(name, errors="strict")
    except UnicodeDecodeError:
        raise Damaged(f"the listing contains {name[:_QUOTED]!r}, which is not a name: it is not UTF-8") from None


def _metadata(element: Element | None) -> dict[str, str]:
    return {} if element is None else {name.lower(): text for name, text in child_texts(element).items()}


def _check_order(names: Sequence[str]) -> None:
    """Raise ``Unsupported`` if names are in the order of path components and not of characters.

    UTF-16 order, in which an emoji comes before some letters, is corrected page by page; any other order is
    ``Damaged``.
    """
    if not any(map(ge, names, names[1:])):
        return
    for before, after in pairwise(names):
        if before > after and before.replace("/", "\0") < after.replace("/", "\0"):
            raise Unsupported(
                f"the service lists {before[:200]!r} before {after[:200]!r}, as accounts with a hierarchical namespace "
                "do, but does not say that it is one. Penstock needs the order of bytes: list folders one by one, or "
                "name the objects in a manifest"
            )
    coded = [*map(utf_16, names)]
    if any(map(ge, coded, coded[1:])):
        raise Damaged("the listing is not in order")


# Of a name; a folder with a longer name contains itself.
_MOST_CHARACTERS = 1024


@dataclass(frozen=True, slots=True)
class _Folder:
    """Folder that is being listed; immutable, and shared by walks.

    Attributes:
        prefix: Prefix to query.
        whole: Query everything below; otherwise folders are common prefixes.
        above: Folder where the walk continues afterwards.
        marker: Marker of the next answer; empty for the first.
        ready: Items that can be listed or entered, in byte order: later answers hold nothing that belongs before them.
        at: Index of the next item in ``ready``.
        held: Known items that later answers may still precede.
        last: The last name so far.
        over: The last answer was received.
    """

    prefix: str
    whole: bool
    above: _Folder | None = None
    marker: str = ""
    ready: tuple[ObjectMeta | str, ...] = ()
    at: int = 0
    held: tuple[ObjectMeta | str, ...] = ()
    last: str = ""
    over: bool = False


@dataclass(frozen=True, slots=True)
class Walk:
    """State of a listing in progress.

    Attributes:
        after: Keys up to this one are skipped, or were listed already.
        flat: Folders are listed by name and not entered: ``delimiter="/"``.
    """

    prefix: str
    after: str
    flat: bool
    _folder: _Folder

    @classmethod
    def begin(cls, prefix: str, after: str = "", *, flat: bool = False) -> Walk:
        return cls(prefix, after, flat, _Folder(prefix, whole=not flat))

    @property
    def query(self) -> dict[str, str]:
        folder = self._folder
        return {"prefix": folder.prefix, "delimiter": "" if folder.whole else "/", "marker": folder.marker}

    def enter(self, found: Blobs) -> tuple[Page, Walk | None]:
        """Process the answer to ``query``; return a page of items, and the walk to continue with, if any."""
        folder, advanced = self._folder, bool(found.last) or not found.marker
        if folder.whole and found.marker and _is_nested(found, folder.prefix):
            # The held items come again.
            anew = replace(folder, whole=False, marker="", last="", held=())
            return Page((), advanced=True), replace(self, _folder=anew)
        if found.last and found.last <= folder.last and utf_16(found.last) <= utf_16(folder.last):
            raise Damaged(f"the listing does not advance: {found.last[:200]!r} came after {folder.last[:200]!r}")
        names: list[ObjectMeta | str] = [*found.entries, *(() if folder.whole else found.prefixes)]
        items = sorted((*folder.held, *names), key=item_bytes)
        _check_listed_names(folder.prefix, items)
        items = [each for each in items if self._wanted(each)]
        ready = len(items)
        if found.marker:
            bound = _bound_later_names(found.last)
            ready = next((at for at, each in enumerate(items) if item_bytes(each) > bound), ready)
        state = replace(folder, marker=found.marker, last=found.last or folder.last, over=not found.marker)
        page, walk = self._tell(replace(state, ready=tuple(items[:ready]), at=0, held=tuple(items[ready:])))
        return replace(page, advanced=advanced), walk

    def _wanted(self, item: ObjectMeta | str) -> bool:
        if isinstance(item, str):
            return item_bytes(item) > key_bytes(self.after) or (not self.flat and self.after.startswith(item))
        return item_bytes(item) > key_bytes(self.after)

    def _tell(self, folder: _Folder | None) -> tuple[Page, Walk | None]:
        """Return a page of files up to the next folder, here or above, or up to the last known item."""
        files: list[ObjectMeta] = []
        prefixes: list[str] = []
        while folder is not None:
            for at in range(folder.at, len(folder.ready)):
                item = folder.ready[at]
                if isinstance(item, ObjectMeta):
                    files.append(item)
                elif self.flat:
                    prefixes.append(item)
                else:
                    return self._page(files, prefixes, _Folder(item, whole=True, above=_rest(folder, at + 1)))
            if not folder.over:
                return self._page(files, prefixes, replace(folder, ready=(), at=0))
            folder = folder.above
        return self._page(files, prefixes, None)

    def _page(self, files: list[ObjectMeta], prefixes: list[str], folder: _Folder | None) -> tuple[Page, Walk | None]:
        page = Page(tuple(files), tuple(prefixes))
        if folder is None:
            return page, None
        told = (self.after, *(each.key for each in files[-1:]), *prefixes[-1:])
        return page, replace(self, after=max(told, key=key_bytes), _folder=folder)


def _rest(folder: _Folder, at: int) -> _Folder | None:
    """Return the folder state to continue with after the item before ``at``."""
    return folder.above if folder.over and at == len(folder.ready) else replace(folder, at=at)


def _is_nested(found: Blobs, prefix: str) -> bool:
    """Return whether an answer goes deeper than one folder, and so may not be in byte order."""
    base = prefix.rfind("/") + 1
    return found.folders or any("/" in each.key[base:] for each in found.entries)


def _check_listed_names(prefix: str, items: list[ObjectMeta | str]) -> None:
    """Raise ``Damaged`` for names that would lead a walk outside its prefix or into a loop."""
    names = [each if isinstance(each, str) else each.key for each in items]
    astray = next((name for name in names if not name.startswith(prefix)), None)
    if astray is not None or prefix in (each for each in items if isinstance(each, str)):
        raise Damaged(f"the listing went astray: {prefix!r} was requested, but it contains {astray or prefix!r}")
    deep = next((each for each in names if len(each) > _MOST_CHARACTERS), None)
    if deep is not None:
        raise Damaged(f"the listing has a name of {len(deep)} characters: {deep[:200]!r}…")


def _bound_later_names(last: str) -> bytes:
    """Return the greatest name that no later name can precede, after the name ``last``.

    Later names are greater, but a folder's name is compared with a "/" behind it. The service's order is UTF-16, where
    characters beyond U+FFFF come before those from U+E000 on: names with the former wait for names with the latter.
    """
    beyond = next((at for at, character in enumerate(last) if character > "\uffff"), None)
    return key_bytes(last) if beyond is None else key_bytes(last[:beyond]) + b"\xee\x7f"  # U+E000 is EE 80 80
