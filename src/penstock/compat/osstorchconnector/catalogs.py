"""Which objects a dataset has: the connector's arguments as catalogs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.catalog.catalog import Catalog
from penstock.catalog.manifest import read_manifest
from penstock.datasets.constructors import listed
from penstock.errors import NotFound
from penstock.providers.urls import parse
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from penstock.compat.osstorchconnector.access import Access

__all__ = ["of_manifest", "of_objects", "of_prefix"]


def of_prefix(uri: str, access: Access) -> Catalog:
    """List what is below a prefix. Raises ``NotFound`` where nothing is."""
    catalog = Catalog.scan(access.url(uri), allow_empty=True, store=access.store)
    return _full(catalog, "no object's key begins with this prefix", uri)


def of_objects(uris: str | Iterable[str], access: Access) -> Catalog:
    """Return the catalog of objects of one bucket by URI; no request.

    Raises:
        NotFound: No URI.
        InvalidURL: Another kind of URI, or several buckets.

    """
    each = [uris] if isinstance(uris, str) else uris
    return _full(listed([access.url(uri) for uri in each], labels=None, allow_empty=True), "object_uris is empty", "")


def of_manifest(
    path: str, parser: Callable[[BinaryIO], Iterable[tuple[str, str]]], base: str, access: Access
) -> Catalog:
    """Read a manifest, a local file or an object, and return the catalog of what it names below ``base``.

    Raises:
        NotFound: No manifest, or one that names nothing.
        ManifestError: An item that is no pair of key and label, or is not in the base's bucket.

    """
    remote = path.startswith("oss://")
    with open_object(access.url(path) if remote else path, store=access.store if remote else None) as file:
        data = file.read()

    def named(reader: BinaryIO) -> Iterator[tuple[str, str]]:
        return ((access.url(f"{base}{key}"), label) for key, label in parser(reader))

    below = parse(access.url(base))
    catalog = Catalog.build(below.root, "", read_manifest(data, path, below, named))
    return _full(catalog, "this manifest names no objects", path)


def _full(catalog: Catalog, otherwise: str, url: str) -> Catalog:
    if not len(catalog):
        raise NotFound(otherwise, url=url)
    return catalog
