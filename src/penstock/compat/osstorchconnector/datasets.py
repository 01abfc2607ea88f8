"""The connector's two datasets over Penstock's.

Items of a dataset (an object's bytes as a file with key, size and label), and a manifest parser.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Self

from torch.utils.data import Dataset
from torch.utils.data import IterableDataset as TorchIterableDataset

from penstock.compat.osstorchconnector.access import TAR, Access
from penstock.data.catalog.catalog import Catalog
from penstock.data.catalog.manifest import read_manifest
from penstock.data.datasets.constructors import listed
from penstock.data.datasets.iterable import IterableDataset
from penstock.data.datasets.map import MapDataset
from penstock.errors import NotFound, Unsupported
from penstock.stores.urls import parse
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import BinaryIO

    from penstock.data.datasets.sample import Sample


__all__ = [
    "DataObject",
    "OssIterableDataset",
    "OssMapDataset",
    "Transform",
    "identity",
    "imagenet_manifest_parser",
    "of_manifest",
    "of_objects",
    "of_prefix",
]


class DataObject(io.BytesIO):
    """Complete, verified object as an in-memory file. It can be pickled for the queue of a worker.

    Attributes:
        key: ``/bucket/key``.
        size: Bytes.
        label: Label in the manifest; "" without one.

    """

    def __init__(self, key: str = "", data: bytes = b"", label: object = "") -> None:
        """Wrap the bytes, without a copy."""
        super().__init__(data)
        self.key = key
        self.size = len(data)
        self.label = label

    def copy(self) -> DataObject:
        """Return a new file with the same bytes, at position 0."""
        return DataObject(self.key, self.getvalue(), self.label)


def identity(item: DataObject) -> DataObject:
    """Return the item unchanged."""
    return item


@dataclass(frozen=True, slots=True)
class Transform:
    """Transform of Penstock's samples that calls a transform of the connector's items."""

    function: Callable[[DataObject], Any]

    def __call__(self, sample: Sample) -> Any:  # noqa: ANN401  the transform's result
        """Wrap a sample as a ``DataObject``, and return the transform's result."""
        scheme, _, rest = sample.url.partition("://")
        key = f"/{rest.removeprefix('/')}" if scheme == "file" else f"/{rest}"
        return self.function(DataObject(key, sample.read(), "" if sample.label is None else sample.label))


def imagenet_manifest_parser(reader: BinaryIO) -> Iterator[tuple[str, str]]:
    """Yield key and label of each line, separated by a tab; "" for a missing label. Blank lines are skipped.

    This is the connector's own parser; a custom parser takes the same file and yields such pairs.
    """
    for line in reader.read().decode().split("\n"):
        if text := line.strip():
            key, _, rest = text.partition("\t")
            yield key, rest.partition("\t")[0]


class _Constructors:
    """Constructors of both datasets, with the connector's signatures."""

    @classmethod
    def from_prefix(  # noqa: PLR0913  the connector's
        cls,
        oss_uri: str,
        endpoint: str,
        *,
        cred_path: str = "",
        cred_provider: Any = None,  # noqa: ANN401  any SDK's
        config_path: str = "",
        transform: Callable[[DataObject], Any] = identity,
        region: str = "",
    ) -> Self:
        """Return a dataset of all objects whose key begins with that of ``oss_uri``; one LIST for each 1,000.

        Args:
            oss_uri: ``oss://bucket/prefix`` or ``/bucket/prefix``; without an endpoint, the path of local files.
            endpoint: Base URL of the service; "" for local files.
            cred_path: Path of a JSON file with credentials.
            cred_provider: An object whose ``get_credentials()`` returns credentials, as Alibaba's SDKs have them.
            config_path: Accepted and ignored.
            transform: Function that makes a sample of a ``DataObject``.
            region: The bucket's region; default: the region that the endpoint names, then ``OSS_REGION``.

        Raises:
            NotFound: No object matches.
            InvalidURL: ``oss_uri`` has another form.

        """
        access = Access(endpoint, cred_path, config_path, cred_provider, region)
        return cls._made(of_prefix(oss_uri, access), transform, access)

    @classmethod
    def from_objects(  # noqa: PLR0913  the connector's
        cls,
        object_uris: str | Iterable[str],
        endpoint: str,
        *,
        cred_path: str = "",
        cred_provider: Any = None,  # noqa: ANN401  any SDK's
        config_path: str = "",
        transform: Callable[[DataObject], Any] = identity,
        region: str = "",
    ) -> Self:
        """Return a dataset of objects of one bucket, in the given order, without a request; see ``from_prefix``.

        Raises:
            NotFound: ``object_uris`` is empty.
            InvalidURL: A URI has another form, or the URIs are of several buckets.

        """
        access = Access(endpoint, cred_path, config_path, cred_provider, region)
        return cls._made(of_objects(object_uris, access), transform, access)

    @classmethod
    def from_manifest_file(  # noqa: PLR0913  the connector's
        cls,
        manifest_file_path: str,
        manifest_parser: Callable[[BinaryIO], Iterable[tuple[str, str]]],
        oss_base_uri: str,
        endpoint: str,
        *,
        cred_path: str = "",
        cred_provider: Any = None,  # noqa: ANN401  any SDK's
        config_path: str = "",
        transform: Callable[[DataObject], Any] = identity,
        region: str = "",
    ) -> Self:
        """Return a dataset of the objects in a manifest, a local file or ``oss://…``; see ``from_prefix``.

        ``manifest_parser(file)`` yields pairs of key and label. An object's URI is ``oss_base_uri`` followed directly
        by the key, so the base of a folder must end in ``/``.

        Raises:
            NotFound: The manifest does not exist, or is empty.
            ManifestError: The parser yields an item that is not a pair, or not an object of the base's bucket.

        """
        access = Access(endpoint, cred_path, config_path, cred_provider, region)
        return cls._made(of_manifest(manifest_file_path, manifest_parser, oss_base_uri, access), transform, access)

    @classmethod
    def from_tar(cls, *_args: object, **_options: object) -> NoReturn:
        """Raise ``Unsupported``: the index of an archive is the connector's own format."""
        raise Unsupported(f"{cls.__name__}.from_tar is not a part of penstock.compat.osstorchconnector: {TAR}")

    @classmethod
    def _made(cls, catalog: Catalog, transform: Callable[[DataObject], Any], access: Access) -> Self:
        raise NotImplementedError


class OssMapDataset(_Constructors, Dataset[Any]):
    """Map-style dataset of objects, created by ``from_prefix``, ``from_objects`` or ``from_manifest_file``."""

    def __init__(self, dataset: MapDataset) -> None:
        """Wrap ``dataset``; programs call a named constructor instead."""
        self._dataset = dataset

    @classmethod
    def _made(cls, catalog: Catalog, transform: Callable[[DataObject], Any], access: Access) -> Self:
        return cls(MapDataset.from_catalog(catalog, transform=Transform(transform), store=access.store))

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self._dataset)

    def __getitem__(self, i: int) -> Any:  # noqa: ANN401  the transform's result
        """Read one object. Raise ``NotFound`` if it does not exist."""
        return self._dataset[i]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Read a batch, with all requests in flight at once."""
        return self._dataset.__getitems__(indices)

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over all objects in order, which reads ahead."""
        return iter(self._dataset)


class OssIterableDataset(_Constructors, TorchIterableDataset[Any]):
    """Iterable dataset of objects, shared by a loader's workers; created by a named constructor.

    Every rank reads all objects, in the order of the listing, as with the connector.
    """

    def __init__(self, dataset: IterableDataset) -> None:
        """Wrap ``dataset``; programs call a named constructor instead."""
        self._dataset = dataset

    @classmethod
    def _made(cls, catalog: Catalog, transform: Callable[[DataObject], Any], access: Access) -> Self:
        function = Transform(transform)
        dataset = IterableDataset.from_catalog(catalog, transform=function, place="unsharded", store=access.store)
        return cls(dataset)

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over all objects, or this worker's share of them, which reads ahead."""
        return iter(self._dataset)

    def shuffle(self, generator: object = None) -> NoReturn:  # noqa: ARG002  the connector's
        """Raise ``Unsupported``: the connector shuffles archives only."""
        raise Unsupported(
            "OssIterableDataset.shuffle is for archives (from_tar), which are not a part of "
            "penstock.compat.osstorchconnector: penstock.IterableDataset.from_prefix(…, shuffle=True) shuffles objects"
        )


def of_prefix(uri: str, access: Access) -> Catalog:
    """List the objects below a prefix. Raise ``NotFound`` if none exist."""
    catalog = Catalog.scan(access.url(uri), allow_empty=True, store=access.store)
    return _full(catalog, "no object's key begins with this prefix", uri)


def of_objects(uris: str | Iterable[str], access: Access) -> Catalog:
    """Return the catalog of objects of one bucket by URI; no request.

    Raises:
        NotFound: ``uris`` is empty.
        InvalidURL: A URI has another form, or the URIs are of several buckets.

    """
    each = [uris] if isinstance(uris, str) else uris
    return _full(listed([access.url(uri) for uri in each], labels=None, allow_empty=True), "object_uris is empty", "")


def of_manifest(
    path: str, parser: Callable[[BinaryIO], Iterable[tuple[str, str]]], base: str, access: Access
) -> Catalog:
    """Read a manifest, a local file or an object, and return the catalog of its objects, below ``base``.

    Raises:
        NotFound: The manifest does not exist, or is empty.
        ManifestError: An item is not a pair of key and label, or is not in the base's bucket.

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
