"""The connector's two datasets over Penstock's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Self

from torch.utils.data import Dataset
from torch.utils.data import IterableDataset as TorchIterableDataset

from penstock.compat.osstorchconnector.absent import TAR
from penstock.compat.osstorchconnector.access import Access
from penstock.compat.osstorchconnector.catalogs import of_manifest, of_objects, of_prefix
from penstock.compat.osstorchconnector.items import DataObject, Transform, identity
from penstock.datasets.iterable import IterableDataset
from penstock.datasets.map import MapDataset
from penstock.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import BinaryIO

    from penstock.catalog.catalog import Catalog

__all__ = ["OssIterableDataset", "OssMapDataset"]


class _Constructors:
    """How both datasets are made; the signatures are the connector's."""

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
        """Make a dataset of every object whose key begins with that of ``oss_uri``; one LIST for each 1,000.

        Args:
            oss_uri: ``oss://bucket/prefix`` or ``/bucket/prefix``; without an endpoint, the path of local files.
            endpoint: Base URL of the service; "" for local files.
            cred_path: File of credentials in JSON.
            cred_provider: An object whose ``get_credentials()`` returns credentials, as Alibaba's SDKs have them.
            config_path: Accepted and not read.
            transform: Makes of a ``DataObject`` what is yielded.
            region: The bucket's region; default what the endpoint says, then ``OSS_REGION``.

        Raises:
            NotFound: Nothing is there.
            InvalidURL: Another kind of URI.

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
        """Make a dataset of objects of one bucket, in the order given, without a request; see ``from_prefix``.

        Raises:
            NotFound: No URI.
            InvalidURL: Another kind of URI, or URIs of several buckets.

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
        """Make a dataset of the objects that a file names, a local one or ``oss://…``; see ``from_prefix``.

        ``manifest_parser(file)`` yields pairs of key and label. An object's URI is ``oss_base_uri`` and the key, put
        together as they are: a base of a folder ends in ``/``.

        Raises:
            NotFound: No manifest, or one that names nothing.
            ManifestError: An item of the parser that is no pair, or names no object of the base's bucket.

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
    """A map-style dataset of objects; made by ``from_prefix``, ``from_objects`` or ``from_manifest_file``."""

    def __init__(self, dataset: MapDataset) -> None:
        """Read by ``dataset``; programs call a constructor with a name."""
        self._dataset = dataset

    @classmethod
    def _made(cls, catalog: Catalog, transform: Callable[[DataObject], Any], access: Access) -> Self:
        return cls(MapDataset.from_catalog(catalog, transform=Transform(transform), store=access.store))

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self._dataset)

    def __getitem__(self, i: int) -> Any:  # noqa: ANN401  whatever the transform returns
        """Read one object. Raises ``NotFound`` where it is gone."""
        return self._dataset[i]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Read a batch, all requests in flight together."""
        return self._dataset.__getitems__(indices)

    def __iter__(self) -> Iterator[Any]:
        """Read all objects in order, reading ahead."""
        return iter(self._dataset)


class OssIterableDataset(_Constructors, TorchIterableDataset[Any]):
    """An iterable dataset of objects, shared by a loader's workers; made by a constructor with a name.

    Every rank reads all objects, in the order of the listing, as with the connector.
    """

    def __init__(self, dataset: IterableDataset) -> None:
        """Read by ``dataset``; programs call a constructor with a name."""
        self._dataset = dataset

    @classmethod
    def _made(cls, catalog: Catalog, transform: Callable[[DataObject], Any], access: Access) -> Self:
        function = Transform(transform)
        dataset = IterableDataset.from_catalog(catalog, transform=function, place="unsharded", store=access.store)
        return cls(dataset)

    def __iter__(self) -> Iterator[Any]:
        """Read all objects, or this worker's share of them, reading ahead."""
        return iter(self._dataset)

    def shuffle(self, generator: object = None) -> NoReturn:  # noqa: ARG002  the connector's
        """Raise ``Unsupported``: the connector shuffles archives only."""
        raise Unsupported(
            "OssIterableDataset.shuffle is for archives (from_tar), which are not a part of "
            "penstock.compat.osstorchconnector: penstock.IterableDataset.from_prefix(…, shuffle=True) shuffles objects"
        )
