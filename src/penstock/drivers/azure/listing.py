"""Azure's listings in XML as pages: blobs and common prefixes, blobs that have blocks only, the marker that goes on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter, ge
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.drivers.http.headers import parse_date, unquoted
from penstock.drivers.http.listing import required, required_size
from penstock.drivers.http.xml import child_texts, local_name
from penstock.errors import Damaged, Unsupported
from penstock.values import ObjectMeta, Page, Upload, Uploads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from xml.etree.ElementTree import Element

__all__ = ["Blobs", "is_folder", "page_of", "read_blobs", "read_uncommitted", "utf_16"]

_FOLDER = (
    "hdi_isfolder"  # metadata of what stands for a folder: in accounts with a hierarchical namespace, and Hadoop's
)


def is_folder(metadata: dict[str, str], kind: str) -> bool:
    """Say whether a blob with this user metadata and this resource type stands for a folder."""
    return kind == "directory" or metadata.get(_FOLDER, "").lower() == "true"


@dataclass(frozen=True, slots=True)
class Blobs:
    """What one answer lists, in the order of bytes.

    Attributes:
        entries: Objects; what stands for a folder is none.
        prefixes: Common prefixes.
        marker: Continues the listing; empty where it is over.
        last: The last name in the service's order, without the delimiter at the end of a prefix.
        hierarchical: The account has a hierarchical namespace, as its answers say of each name.
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
        Damaged: A blob lacks its name or size, or there is no list, or it is in no order.
        Unsupported: The order is that of a hierarchical namespace, and the account does not say that it has one.

    """
    entries, prefixes, names, hierarchical, folders = [], [], [], False, False
    for child in _children(root, "Blobs"):
        name = _name(child)
        parts = {local_name(part): part for part in child}
        fields = child_texts(parts["Properties"]) if "Properties" in parts else {}
        kind = fields.get("ResourceType", "")  # of accounts with a hierarchical namespace alone
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
    """Return what lies beyond ``after`` (exclusive) as a page, of an account without a hierarchical namespace.

    The page's token is the marker of the next one, and what is left of ``after`` behind a NUL.
    """
    entries, prefixes, marker = found.entries, found.prefixes, found.marker
    if after:
        entries = [each for each in entries if each.key > after]
        prefixes = [each for each in prefixes if each > after]
        marker = f"{marker}\0{after}" if marker and found.last <= after else marker
    return Page(tuple(entries), tuple(prefixes), marker)


def utf_16(name: str) -> bytes:
    """Return what the service orders names by."""
    return name.encode("utf-16-be", "surrogatepass")


def read_uncommitted(root: Element) -> Uploads:
    """Read the answer to List Blobs with uncommitted ones: those that have blocks only. Raises as ``read_blobs``.

    They have no content type. They have no date on Azure either, so when they were begun is unknown.
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
    return unquote(name, errors="strict") if named.get("Encoded", "").lower() == "true" else name


def _metadata(element: Element | None) -> dict[str, str]:
    return {} if element is None else {name.lower(): text for name, text in child_texts(element).items()}


def _check_order(names: Sequence[str]) -> None:
    """Raise ``Unsupported`` where names stand in the order of paths' components and not in that of their characters.

    The order of UTF-16, in which an emoji stands before some letters, is mended page by page; any other is ``Damaged``.
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
