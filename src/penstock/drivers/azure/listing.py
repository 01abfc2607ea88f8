"""Azure's listings in XML as pages: blobs and common prefixes, blobs that have blocks only, the marker that goes on."""

from __future__ import annotations

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

__all__ = ["is_folder", "read_blobs", "read_uncommitted"]

_FOLDER = (
    "hdi_isfolder"  # metadata of what stands for a folder: in accounts with a hierarchical namespace, and Hadoop's
)


def is_folder(metadata: dict[str, str], kind: str) -> bool:
    """Say whether a blob with this user metadata and this resource type stands for a folder."""
    return kind == "directory" or metadata.get(_FOLDER, "").lower() == "true"


def read_blobs(root: Element, after: str = "") -> Page:
    """Read the answer to List Blobs with metadata: what lies beyond ``after`` (exclusive), without folders.

    The page's token is the marker of the next one, and what is left of ``after`` behind a NUL.

    Raises:
        Damaged: A blob lacks its name or size, or there is no list.
        Unsupported: The order is that of a hierarchical namespace, in a place where it is not the order of bytes.

    """
    entries, prefixes, last = [], [], ""
    for child in _children(root, "Blobs"):
        name = _name(child)
        last = max(last, name)
        if local_name(child) == "BlobPrefix":
            prefixes.append(name)
            continue
        parts = {local_name(part): part for part in child}
        fields = child_texts(parts["Properties"]) if "Properties" in parts else {}
        if not is_folder(_metadata(parts.get("Metadata")), fields.get("ResourceType", "")):
            size, etag = required_size(fields, "Content-Length"), unquoted(fields.get("Etag", ""))
            entries.append(ObjectMeta(name, size, etag, parse_date(fields.get("Last-Modified", ""))))
    _check_order([each.key for each in entries])
    _check_order(prefixes)
    entries.sort(key=attrgetter("key"))  # by code points, which is the order of UTF-8
    prefixes.sort()
    marker = child_texts(root).get("NextMarker", "")
    if after:
        entries = [each for each in entries if each.key > after]
        prefixes = [each for each in prefixes if each > after]
        marker = f"{marker}\0{after}" if marker and last <= after else marker
    return Page(tuple(entries), tuple(prefixes), marker)


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
                f"this account has a hierarchical namespace, which lists {before[:200]!r} before {after[:200]!r}: that "
                "is not the order of bytes, which Penstock needs. List folders one by one, or name the objects in a "
                "manifest"
            )
    coded = [name.encode("utf-16-be", "surrogatepass") for name in names]
    if any(map(ge, coded, coded[1:])):
        raise Damaged("the listing is in no order")
