"""Virtual arrays: references of kerchunk and manifests of VirtualiZarr, with the location of each chunk in other files.

A document of references is untrusted, like a catalog (design/0014). References of a document in a store must not name
a file or a profile of this machine, and every range is checked.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from penstock.data.zarr.format.opening import Arrays, check_name, collected, parsed
from penstock.data.zarr.format.virtual.records import METADATA, Records
from penstock.errors import Damaged, InvalidURL, UnknownScheme, Unsupported
from penstock.stores.urls import is_divided, parse

if TYPE_CHECKING:
    from penstock.data.zarr.format.layout import Layout
    from penstock.source import Source
    from penstock.stores.urls import Location

    Entries: TypeAlias = Mapping[str, Any] | Records

__all__ = ["MOST_ROOTS", "References", "Target", "references_of", "references_of_manifests", "references_of_records"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# Prefixes whose meaning depends on the machine, like a path: among them schemes of fsspec, which may be local.
_HERE = ("file:", "memory:", "fsspec+", "penstock:", "msc:")
_TEMPLATE = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_MOST = 1 << 62  # limit of a byte's offset in an object
MOST_ROOTS = 1000  # buckets that references may lead to
_RANGE = 3  # items of a reference to a part of an object


class Target(NamedTuple):
    """Location of a chunk: bytes ``[start, stop)`` of the object at ``url``; the whole object if ``stop`` is None."""

    url: str
    start: int = 0
    stop: int | None = None

    @property
    def location(self) -> Location:
        """Store and key of the object."""
        return parse(self.url)


class References:
    """References of arrays whose chunks lie in other objects. Immutable and picklable.

    Attributes:
        arrays: Layouts by name; ``layout.key`` is a name within the document, not a key in a store.
        url: URL of the document.

    """

    def __init__(self, arrays: Arrays, entries: Entries, url: str, templates: Mapping[str, str]) -> None:
        self.arrays, self.url = arrays, url
        self._entries, self._templates = entries, templates
        self._local = _is_local(url)
        self._roots: dict[str, None] = {}  # beginnings of URLs that passed the check

    def find(self, layout: Layout, chunk: tuple[int, ...]) -> Target | bytes | None:
        """Return the location of the object of a chunk (the shard of a sharded array), or its bytes.

        None without a reference: then the chunk consists of the fill value.

        Raises:
            Damaged: The reference is invalid, or its range is.
            Unsupported: The reference needs an expression; or it names a file or profile of this machine, but its
                document lies in a store.

        """
        return self.at(layout.object_key(chunk))

    def at(self, key: str) -> Target | bytes | None:
        """Return the location of an array's object ``key``, or its bytes: see ``find``."""
        try:
            entry = self._entries[key]
        except KeyError:
            return None
        return self._meant(entry, key)

    def known(self, key: str) -> Target | bytes | None:
        """Return the same as ``at`` if that needs no request; else None."""
        if not isinstance(self._entries, Records):
            return self.at(key)
        entry = self._entries.known(key)
        return None if entry is None else self._meant(entry, key)

    @property
    def records(self) -> Records | None:
        """References that are read from files on demand; None if all references are in memory."""
        return self._entries if isinstance(self._entries, Records) else None

    def _meant(self, entry: object, key: str) -> Target | bytes:
        if isinstance(entry, bytes):  # from Parquet
            return entry
        if isinstance(entry, str):
            return self._inline(entry, key)
        if not isinstance(entry, list | tuple) or len(entry) not in {1, _RANGE} or not isinstance(entry[0], str):
            raise Damaged(f"the reference {key!r} should be text, [URL] or [URL, offset, length]", url=self.url)
        url = self._url(entry[0], key)
        if len(entry) == 1:
            return Target(url)
        if not all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each < _MOST for each in entry[1:]):
            raise Damaged(f"the reference {key!r} has no range: {str(entry[1:])[:80]}", url=self.url)
        return Target(url, entry[1], entry[1] + entry[2])

    def roots(self) -> dict[str, str]:
        """Return the buckets that references lead to, ``scheme://bucket/``, each with the URL of an object in it.

        Empty for references that are read on demand. Invalid references are left out; ``find`` raises their errors.

        Raises:
            Unsupported: The references lead to more than a thousand buckets.

        """
        found: dict[str, str] = {}
        seen: set[str] = set()
        divided: dict[str, bool] = {}
        for key, entry in () if isinstance(self._entries, Records) else self._entries.items():
            if not isinstance(entry, list | tuple) or not entry or not isinstance(entry[0], str):
                continue
            beginning = entry[0][: entry[0].find("/", entry[0].find("://") + 3) + 1] if "://" in entry[0] else ""
            if beginning not in divided:
                divided[beginning] = bool(beginning) and is_divided(beginning)
            if divided[beginning]:  # a mapped prefix ends in "/"
                beginning = entry[0][: entry[0].rfind("/") + 1]
            if beginning in seen and "{{" not in beginning:
                continue
            try:
                url = self._url(entry[0], key)
            except (Damaged, Unsupported):
                continue
            if beginning:
                seen.add(beginning)
            found.setdefault(parse(url).root, url)
            if len(found) > MOST_ROOTS:
                raise Unsupported(f"these references lead to more than {MOST_ROOTS:,} buckets", url=self.url)
        return found

    def _inline(self, text: str, key: str) -> bytes:
        if not text.startswith("base64:"):
            return text.encode("utf-8", "surrogatepass")
        try:
            return base64.b64decode(text[7:], validate=True)
        except (binascii.Error, ValueError):
            raise Damaged(f"the reference {key!r} has data that is no Base64", url=self.url) from None

    def _url(self, text: str, key: str) -> str:
        url = _TEMPLATE.sub(lambda found: self._templates.get(found[1], found[0]), text)
        if "{{" in url:
            message = f"the reference {key!r} needs the expression {url[:80]!r}: only names of templates are filled in"
            raise Unsupported(message, url=self.url)
        root = url[: url.find("/", url.find("://") + 3) + 1] if "://" in url else ""
        if not root or root not in self._roots:
            self._check(url, key)
            if root:
                self._roots[root] = None
        return url

    def _check(self, url: str, key: str) -> None:
        scheme = _SCHEME.match(url)
        if not self._local and (scheme is None or scheme[0].lower().startswith(_HERE)):
            reason = "names a file or a profile of this machine, and the document does not lie on it"
            raise Unsupported(f"the reference {key!r} {reason}: {url[:80]!r}", url=self.url)
        try:
            parse(url)
        except (InvalidURL, UnknownScheme) as error:
            raise Damaged(f"the reference {key!r} has no URL: {error.message}", url=self.url) from error

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the document and the layouts."""
        return References, (self.arrays, self._entries, self.url, self._templates)


def references_of(data: bytes | Mapping[str, Any], url: str) -> References:
    """Return the references in kerchunk's JSON (version 0 or 1), as bytes or parsed; ``url`` is its location.

    Raises:
        Damaged: The document is not valid; for an invalid array, raised when the array is looked up.
        Unsupported: The references are generated by expressions (``gen``), or templates are expressions.

    """
    document = parsed(data, url) if isinstance(data, bytes) else data
    entries = document.get("refs", document)
    templates = document.get("templates", {}) if "refs" in document else {}
    if "refs" in document and document.get("gen"):
        raise Unsupported("references that expressions generate (gen) are not supported: write them out", url=url)
    if not isinstance(entries, Mapping) or not isinstance(templates, Mapping):
        raise Damaged("these are no references: 'refs' and 'templates' should be objects", url=url)
    if not all(isinstance(each, str) and "{" not in each for each in templates.values()):
        raise Unsupported("templates that are expressions are not supported: write the URLs out", url=url)
    documents = {name: _document(value, url) for name, value in entries.items() if _is_document(name)}
    arrays = Arrays(url)
    if ".zmetadata" in documents and not any(name.endswith(".zarray") for name in documents):
        collected(documents[".zmetadata"], "", arrays, url)
    if arrays.record_size is not None:
        raise Unsupported("this document has its references in Parquet: pass the URL of their folder", url=url)
    nodes = {name.removesuffix("zarr.json").rstrip("/"): value for name, value in documents.items()}
    collected({"metadata": nodes}, "", arrays, url)
    return References(arrays, entries, url, templates)


def references_of_manifests(
    manifests: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]], url: str = ""
) -> References:
    """Return the references of VirtualiZarr's arrays: name → (``metadata.to_dict()``, ``manifest.dict()``).

    A manifest's keys are coordinates of chunks (``0.0.1``), its values ``{"path", "offset", "length"}``. ``url`` is
    the URL that they were loaded from; by default they belong to this program, and may name files of this machine.
    """
    arrays, entries = Arrays(url), dict[str, Any]()
    for name, (document, manifest) in manifests.items():
        check_name(name, url)
        arrays.put(name, f"{name}/" if name else "", document, document.get("attributes") or {}, url)
        layout = arrays.get(name)
        if layout is None:
            continue
        for place, entry in manifest.items():
            chunk = _coordinates(place, layout)
            if chunk is None or not isinstance(entry, Mapping):
                raise Damaged(f"the manifest of {name!r} has {place!r}, which is no chunk", url=url)
            entries[layout.object_key(chunk)] = [entry.get("path"), entry.get("offset"), entry.get("length")]
    return References(arrays, entries, url, {})


def references_of_records(arrays: Arrays, source: Source, prefix: str) -> References:
    """Return the references with metadata ``arrays`` and files below ``prefix``.

    Raises:
        Damaged: The metadata does not have a number of references per file.

    """
    return References(arrays, Records(source, prefix, arrays, arrays.record_size), source.url(prefix + METADATA), {})


def _coordinates(place: str, layout: Layout) -> tuple[int, ...] | None:
    """Return the chunk coordinates of a manifest's key; None if the key does not fit the array."""
    shape = layout.shards or layout.chunks
    if not shape:
        return () if place in {"", "0"} else None
    parts = place.split(".")
    if len(parts) != len(shape) or not all(part.isdecimal() and len(part) < 20 for part in parts):  # noqa: PLR2004  digits
        return None
    # For a shard, the coordinates of its first inner chunk: both name the same object.
    return tuple(int(part) * ratio for part, ratio in zip(parts, layout.ratios, strict=True))


def _is_local(url: str) -> bool:
    return not url or not _SCHEME.match(url) or parse(url).local


def _is_document(name: str) -> bool:
    return name.rpartition("/")[2] in {".zarray", ".zattrs", ".zmetadata", "zarr.json"}


def _document(value: object, url: str) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, str):
        raise Damaged("a metadata document among references should be text or an object", url=url)
    if value.startswith("base64:"):
        try:
            return parsed(base64.b64decode(value[7:], validate=True), url)
        except (binascii.Error, ValueError):
            raise Damaged("a metadata document among references is no Base64", url=url) from None
    return parsed(value.encode("utf-8", "surrogatepass"), url)
