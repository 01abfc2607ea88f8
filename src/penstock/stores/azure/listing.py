"""Azure's listings in XML as pages: blobs and common prefixes, blobs with blocks only, the marker to continue."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter, ge
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.errors import Damaged, Unsupported
from penstock.stores.http.headers import parse_date, unquoted
from penstock.stores.http.listing import required, required_size
from penstock.stores.http.xml import child_texts, local_name
from penstock.values import ObjectMeta, Page, Upload, Uploads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from xml.etree.ElementTree import Element

__all__ = ["Blobs", "is_folder", "page_of", "read_blobs", "read_uncommitted", "utf_16"]

_QUOTED = 200  # characters of a foreign text
_FOLDER = "hdi_isfolder"  # metadata of folder markers: in accounts with a hierarchical namespace, and those of Hadoop


def is_folder(metadata: dict[str, str], kind: str) -> bool:
    """Return whether a blob with this user metadata and this resource type is a folder marker."""
    return kind == "directory" or metadata.get(_FOLDER, "").lower() == "true"


@dataclass(frozen=True, slots=True)
class Blobs:
    """Entries of one answer, in byte order.

    Attributes:
        entries: Objects, without folder markers.
        prefixes: Common prefixes.
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

    Raises:
        Damaged: A blob lacks its name or size, the list is missing, or it is not in order.
        Unsupported: The list is in the order of a hierarchical namespace, but the answer does not report one.

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
        size, etag = required_size(fields, "Content-Length"), unquoted(fields.get("Etag", ""))
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
    """Read the answer to List Blobs with uncommitted blobs: those that only have blocks. Raises as ``read_blobs``.

    They have no content type. Azure gives no date for them either, so their begin is unknown.
    """
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
    name = required({"Name": named.text or ""}, "Name")
    if named.get("Encoded", "").lower() != "true":
        return name
    try:
        return unquote(name, errors="strict")
    except UnicodeDecodeError:
        raise Damaged(f"the listing holds {name[:_QUOTED]!r}, which is no name: it is not UTF-8") from None


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
        raise Damaged("the listing is in no order")
