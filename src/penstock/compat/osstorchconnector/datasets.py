"""Datasets of the connector: objects, or the files in a tar archive, as in-memory files."""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np
import torch
from torch.utils.data import Dataset
from torch.utils.data import IterableDataset as TorchIterableDataset

from penstock.compat.arguments import WrongArgument
from penstock.data.catalog.catalog import Catalog, scan_all
from penstock.data.catalog.discovery.manifest import read_manifest
from penstock.data.datasets.dataset import make_url_catalog
from penstock.data.datasets.iterable import IterableDataset
from penstock.data.datasets.map import MapDataset
from penstock.data.order.block_permutation import BlockShuffle
from penstock.data.shards.format import Fields
from penstock.data.shards.tar import TarFormat
from penstock.engine.contracts.credentials import Credentials
from penstock.errors import ConfigError, InvalidURL, NotFound, Unsupported
from penstock.stores.oss.options import OSSOptions
from penstock.stores.urls import parse
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import BinaryIO

    from penstock.data.reading.sample import Sample


@dataclass(frozen=True, slots=True)
class Access:
    """Arguments shared by all of the connector's classes: see ``from_prefix``."""

    endpoint: str
    cred_path: str | None = ""
    config_path: str | None = ""
    cred_provider: Any = None
    region: str | None = ""

    def url(self, uri: str) -> str:
        """Return the URL of ``oss://bucket/key`` or ``/bucket/key``; without an endpoint, the path of a local file."""
        rest = uri.removeprefix("oss://") if uri.startswith("oss://") else uri.removeprefix("/")
        if rest == uri or not rest.partition("/")[0]:
            raise InvalidURL(f"write oss://bucket/key or /bucket/key, not {uri!r}")
        return f"oss://{rest}" if self.endpoint else f"/{rest}"

    @property
    def store(self) -> OSSOptions | None:
        if not self.endpoint:
            return None
        provided = None if self.cred_provider is None else _Provided(self.cred_provider)
        return OSSOptions(
            endpoint=self.endpoint,
            region=self.region or None,
            credentials_file=self.cred_path or None,
            credentials=provided,
        )


@dataclass(frozen=True, slots=True)
class _Provided:
    """Adapter of a credentials provider of Alibaba's SDKs: a function that returns ``ps.credentials.Credentials``."""

    provider: Any

    def __call__(self) -> Credentials:
        found = self.provider.get_credentials()
        expires = _field(found, "expiration")
        if isinstance(expires, datetime):
            expires = (expires if expires.tzinfo else expires.replace(tzinfo=UTC)).timestamp()
        access_key, secret_key = _field(found, "access_key_id"), _field(found, "access_key_secret")
        if not access_key or not secret_key:
            raise ConfigError(f"cred_provider={type(self.provider).__name__} returned no access_key_id and secret")
        return Credentials(
            str(access_key),
            str(secret_key),
            str(_field(found, "security_token") or ""),
            float(expires) if isinstance(expires, int | float) else None,
            found_in="cred_provider",
        )


def _field(found: object, name: str) -> object:
    """Return a field of credentials: an attribute in the newer SDK, a method ``get_…`` in the older."""
    value = getattr(found, name, None)
    method = getattr(found, f"get_{name}", None)
    return method() if value is None and callable(method) else value


TAR = "from_tar needs no index; write the archive with tar or tarfile, and copy it with penstock cp"


def _refuse(name: str, instead: str) -> NoReturn:
    raise Unsupported(f"{name} is not a part of penstock.compat.osstorchconnector: {instead}")


class OssClient:
    """The connector's internal client, not implemented; use Penstock's functions."""

    def __init__(self, *_args: object, **_options: object) -> None:
        _refuse("OssClient", "use ps.open, ps.list, ps.stat, ps.copy and ps.delete with store=ps.OSSOptions(…)")


def new_data_object(*_args: object, **_options: object) -> NoReturn:
    _refuse("new_data_object", "make a DataObject(key, data, label)")


def generate_tar_archive(*_args: object, **_options: object) -> NoReturn:
    _refuse("generate_tar_archive", TAR)


class DataObject(io.BytesIO):
    """Complete, verified object as an in-memory file. It can be pickled for the queue of a worker.

    Attributes:
        key: ``/bucket/key``.
        size: Bytes.
        label: Label in the manifest; "" without one.
    """

    def __init__(self, key: str = "", data: bytes = b"", label: object = "") -> None:
        super().__init__(data)
        self.key = key
        self.size = len(data)
        self.label = label

    def copy(self) -> DataObject:
        """Return a new file with the same bytes, at position 0."""
        return DataObject(self.key, self.getvalue(), self.label)


def identity(item: DataObject) -> DataObject:
    return item


@dataclass(frozen=True, slots=True)
class Transform:
    """Transform of Penstock's samples that calls a transform of the connector's items."""

    function: Callable[[DataObject], Any]

    def __call__(self, sample: Sample) -> Any:
        scheme, _, rest = sample.url.partition("://")
        key = f"/{rest.removeprefix('/')}" if scheme == "file" else f"/{rest}"
        return self.function(DataObject(key, sample.read(), "" if sample.label is None else sample.label))


@dataclass(frozen=True, slots=True)
class TarMembers(TarFormat):
    """Format of a tar file in which each file is one sample, whatever its name is."""

    leave_out: ClassVar[str] = "leave it out with ps.MapDataset.from_shards(…, skip=…), as from_tar has no skip="

    def split(self, name: str, offset: int) -> tuple[str, str] | None:
        """Return the place of a member as its key: names may repeat, and need no ending."""
        return str(offset), name.removeprefix("./")

    def made(self, key: str, values: dict[str, Any]) -> Fields | memoryview:
        [(name, data)] = values.items()
        return Fields(name, {"data": data})


@dataclass(frozen=True, slots=True)
class MemberTransform:
    """Transform of members of an archive that calls a transform of the connector's items."""

    function: Callable[[DataObject], Any]

    def __call__(self, sample: Sample) -> Any:
        return self.function(DataObject(sample.key, bytes(sample["data"].data), str(sample.columns["number"])))


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
    def from_prefix(
        cls,
        oss_uri: str,
        endpoint: str,
        *,
        cred_path: str = "",
        cred_provider: Any = None,
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
    def from_objects(
        cls,
        object_uris: str | Iterable[str],
        endpoint: str,
        *,
        cred_path: str = "",
        cred_provider: Any = None,
        config_path: str = "",
        transform: Callable[[DataObject], Any] = identity,
        region: str = "",
    ) -> Self:
        """Return a dataset of objects of one bucket, in the given order, without a request; see ``from_prefix``."""
        access = Access(endpoint, cred_path, config_path, cred_provider, region)
        return cls._made(of_objects(object_uris, access), transform, access)

    @classmethod
    def from_manifest_file(
        cls,
        manifest_file_path: str,
        manifest_parser: Callable[[BinaryIO], Iterable[tuple[str, str]]],
        oss_base_uri: str,
        endpoint: str,
        *,
        cred_path: str = "",
        cred_provider: Any = None,
        config_path: str = "",
        transform: Callable[[DataObject], Any] = identity,
        region: str = "",
    ) -> Self:
        """Return a dataset of the objects in a manifest, a local file or ``oss://…``; see ``from_prefix``.

        ``manifest_parser(file)`` yields pairs of key and label. An object's URI is ``oss_base_uri`` followed directly
        by the key, so the base of a folder must end in ``/``.
        """
        access = Access(endpoint, cred_path, config_path, cred_provider, region)
        return cls._made(of_manifest(manifest_file_path, manifest_parser, oss_base_uri, access), transform, access)

    @classmethod
    def _made(cls, catalog: Catalog, transform: Callable[[DataObject], Any], access: Access) -> Self:
        raise NotImplementedError


class OssMapDataset(_Constructors, Dataset[Any]):
    """Map-style dataset, created by ``from_prefix``, ``from_objects``, ``from_manifest_file`` or ``from_tar``."""

    def __init__(self, dataset: MapDataset) -> None:
        self._dataset = dataset

    @classmethod
    def _made(cls, catalog: Catalog, transform: Callable[[DataObject], Any], access: Access) -> Self:
        return cls(MapDataset.from_catalog(catalog, transform=Transform(transform), store=access.store))

    @classmethod
    def from_tar(
        cls,
        tar_uri: str,
        tar_index_uri: str,
        endpoint: str,
        *,
        cred_path: str = "",
        cred_provider: Any = None,
        config_path: str = "",
        transform: Callable[[DataObject], Any] = identity,
        region: str = "",
    ) -> Self:
        """Return a dataset of the files in a tar archive, in its order; ``DataObject.key`` is the name of the file.

        The headers of the archive are read here, once: all bytes if the files are below 256 KiB. Batches of
        neighbours are not read together: ``ps.MapDataset.from_shards`` and ``ps.DataLoader`` do so.

        ``tar_index_uri`` is the connector's index of the archive, in the same bucket; it is not read, may be missing,
        and may be "". The label of a ``DataObject`` is the number of the file. Other arguments are as for
        ``from_prefix``.

        Raises:
            NotFound: The archive does not exist, or has no file.
            Damaged: The object is not a tar archive, or is incomplete.
            Unsupported: The archive is compressed, or has a link or a sparse file.
            ValueError: The URIs are of different buckets, or ``tar_uri`` is empty.
        """
        access = Access(endpoint, cred_path, config_path, cred_provider, region)
        catalog = of_tar(tar_uri, tar_index_uri, access)
        return cls(MapDataset.from_catalog(catalog, transform=MemberTransform(transform), store=access.store))

    def is_continuous(self, indices: Sequence[int]) -> bool:
        return all(after - before == 1 for before, after in pairwise(indices))

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, i: int) -> Any:
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

    def __init__(self, dataset: IterableDataset, reseed: Callable[..., IterableDataset] | None = None) -> None:
        """Wrap ``dataset``, which ``reseed`` recreates with a seed; programs call a named constructor instead."""
        self._dataset = dataset
        self._reseed = reseed

    @classmethod
    def _made(cls, catalog: Catalog, transform: Callable[[DataObject], Any], access: Access) -> Self:
        function = Transform(transform)
        dataset = IterableDataset.from_catalog(catalog, transform=function, place="unsharded", store=access.store)
        return cls(dataset)

    @classmethod
    def from_tar(
        cls,
        tar_uri: str,
        tar_index_uri: str,
        endpoint: str,
        *,
        cred_path: str = "",
        cred_provider: Any = None,
        config_path: str = "",
        transform: Callable[[DataObject], Any] = identity,
        shuffle: bool = False,
        shuffle_chunk_size: int = 1000,
        region: str = "",
    ) -> Self:
        """Return a dataset of the files in a tar archive: see ``OssMapDataset.from_tar``.

        Neighbouring files are read in one request. With ``shuffle``, chunks of ``shuffle_chunk_size`` neighbouring
        files come in a random order, each file once. The connector cuts chunks of about this size, and keeps the order
        within a chunk and from one epoch to the next; here the files of a chunk are mixed, and each epoch has another
        order. The seed is drawn from torch's generator, so ``torch.manual_seed`` fixes all of them.
        """
        access = Access(endpoint, cred_path, config_path, cred_provider, region)
        order = BlockShuffle(shuffle_chunk_size, 1) if shuffle else False
        catalog = of_tar(tar_uri, tar_index_uri, access)
        function = MemberTransform(transform)
        seeded = partial(
            IterableDataset, catalog, transform=function, shuffle=order, place="unsharded", store=access.store
        )
        return cls(seeded(seed=_draw_seed(None)), seeded) if shuffle else cls(seeded())

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over all objects, or this worker's share of them, which reads ahead."""
        return iter(self._dataset)

    def shuffle(self, generator: torch.Generator | None = None) -> None:
        """Shuffle again from the next iteration on, with a seed from ``generator``; default: torch's own."""
        if self._reseed is None:
            raise Unsupported(
                "OssIterableDataset.shuffle is for archives that were opened by from_tar(…, shuffle=True): "
                "penstock.IterableDataset.from_prefix(…, shuffle=True) shuffles objects"
            )
        self._dataset = self._reseed(seed=_draw_seed(generator))


def _draw_seed(generator: torch.Generator | None) -> int:
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator))


def of_prefix(uri: str, access: Access) -> Catalog:
    catalog = scan_all(access.url(uri), access.store)
    return _full(catalog, "no object's key begins with this prefix", uri)


def of_objects(uris: str | Iterable[str], access: Access) -> Catalog:
    urls = [access.url(uri) for uri in ([uris] if isinstance(uris, str) else uris)]
    return _full(make_url_catalog(urls, labels=None, allow_empty=True), "object_uris is empty", "")


def of_tar(uri: str, index_uri: str, access: Access) -> Catalog:
    """Return the catalog of the files in an archive, with their numbers; its headers are read."""
    if not uri:
        raise WrongArgument("tar_uri must be the URI of an archive, got an empty one")
    url = access.url(uri)
    if index_uri and access.endpoint and parse(access.url(index_uri)).root != parse(url).root:
        raise WrongArgument(f"tar_uri and tar_index_uri must be in the same bucket, got {uri!r} and {index_uri!r}")
    catalog = Catalog.from_shards([url], format=TarMembers(), allow_empty=True, progress=False, store=access.store)
    return _full(catalog, "this archive has no files", uri).with_columns(number=np.arange(len(catalog)))


def of_manifest(
    path: str, parser: Callable[[BinaryIO], Iterable[tuple[str, str]]], base: str, access: Access
) -> Catalog:
    """Read a manifest, a local file or an object, and return the catalog of its objects, below ``base``."""
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
