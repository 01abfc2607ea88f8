"""``osstorchconnector`` (Alibaba's OSS Connector for AI/ML, 1.2) over Penstock: change the import, and nothing else.

Differences from the original:

- Errors are Penstock's: a missing object raises ``NotFound`` (a ``FileNotFoundError``). The original skips it in an
  iterable dataset and calls ``transform(None)`` in a batch. A prefix that matches nothing raises ``NotFound``, too.
- A dataset is listed once, when it is created; an iterable dataset is not listed again in each epoch. Its objects come
  in the order of the listing, for any number of workers. As in the original, every rank reads all objects:
  ``penstock.IterableDataset`` shards across ranks.
- ``from_objects`` and ``from_manifest_file`` take objects of one bucket.
- Writes are atomic: if a ``with`` block raises an exception, the old object stays; the original deletes it first.
  Readers and writers are Penstock's files, without the attributes ``key`` and ``label``.
- ``config_path`` is accepted and ignored: Penstock chooses its concurrency at run time, and logs with ``logging``.
- Default credentials and region come from Alibaba's environment variables and files (``ps.OSSOptions``).
- Safetensors files contain digests of their bytes, which every reader of the format skips, and their names end in
  ``.safetensors``. Distributed checkpoints are in Penstock's own format; those of the original can be read.
- Tar archives with the connector's index (``from_tar``, ``generate_tar_archive``) and its internal client
  (``OssClient``, ``new_data_object``) are left out: these names exist and raise ``Unsupported``.
"""

from __future__ import annotations

import io
import os
import pathlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

from penstock.errors import ConfigError, InvalidURL, NotFound, Unsupported, Unusable, needing

with needing("penstock.compat.osstorchconnector needs torch", torch="torch"):
    from torch.utils.data import Dataset
    from torch.utils.data import IterableDataset as TorchIterableDataset

from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.checkpoint.safetensors.verbs import load_safetensors, open_safetensors, save_safetensors
from penstock.checkpoint.torchfile.archive import Checkpoint
from penstock.compat.arguments import UNUSED, WrongArgument
from penstock.compat.filesystem import CheckpointsOf, ObjectFileSystem
from penstock.data.catalog.catalog import Catalog
from penstock.data.catalog.manifest import read_manifest
from penstock.data.datasets.dataset import listed
from penstock.data.datasets.iterable import IterableDataset
from penstock.data.datasets.map import MapDataset
from penstock.engine.contracts.credentials import Credentials
from penstock.stores.oss.options import OSSOptions
from penstock.stores.urls import parse
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType
    from typing import BinaryIO

    from torch import Tensor

    from penstock.checkpoint.safetensors.verbs import Safetensors, Slice
    from penstock.data.datasets.sample import Sample
    from penstock.options import StoreOptions
    from penstock.source import Reader, Writer

    Path = str | os.PathLike[str]

__all__ = [
    "DataObject",
    "OssCheckpoint",
    "OssClient",
    "OssDCPFileSystem",
    "OssIterableDataset",
    "OssMapDataset",
    "OssSafetensor",
    "OssStorageReader",
    "OssStorageWriter",
    "generate_tar_archive",
    "imagenet_manifest_parser",
    "new_data_object",
]


@dataclass(frozen=True, slots=True)
class Access:
    """Arguments shared by all of the connector's classes. Without an endpoint, objects are local files.

    Attributes:
        endpoint: Base URL of the service; empty for local files.
        cred_path: Path of a JSON file with credentials.
        config_path: Accepted and ignored.
        cred_provider: An object whose ``get_credentials()`` returns credentials, as Alibaba's SDKs have them.
        region: The bucket's region; default: the region that the endpoint names.

    """

    endpoint: str
    cred_path: str | None = ""
    config_path: str | None = ""
    cred_provider: Any = None
    region: str | None = ""

    def url(self, uri: str) -> str:
        """Return the URL of ``oss://bucket/key`` or ``/bucket/key``; without an endpoint, the path of a local file.

        Raises:
            InvalidURL: ``uri`` has neither form.

        """
        rest = uri.removeprefix("oss://") if uri.startswith("oss://") else uri.removeprefix("/")
        if rest == uri or not rest.partition("/")[0]:
            raise InvalidURL(f"write oss://bucket/key or /bucket/key, not {uri!r}")
        return f"oss://{rest}" if self.endpoint else f"/{rest}"

    @property
    def store(self) -> OSSOptions | None:
        """The options of the store; None for local files."""
        if not self.endpoint:
            return None
        provided = None if self.cred_provider is None else _Provided(self.cred_provider)
        return OSSOptions(
            endpoint=self.endpoint,
            region=self.region or None,
            credentials_file=self.cred_path or None,
            credentials=provided,
        )


class Connected:
    """Base of classes that open objects by URI, with the connector's arguments."""

    def __init__(
        self,
        endpoint: str,
        cred_path: str = "",
        config_path: str = "",
        cred_provider: Any = None,  # noqa: ANN401  any SDK's
        region: str = "",
    ) -> None:
        """Use these options for every URI: see ``OssMapDataset.from_prefix``.

        Raises:
            ValueError: ``endpoint`` is empty.

        """
        if not endpoint:
            raise WrongArgument("the endpoint is empty: pass one such as https://oss-cn-beijing.aliyuncs.com")
        self.access = Access(endpoint, cred_path, config_path, cred_provider, region)
        # Not None: there is an endpoint.
        self._store = cast("StoreOptions", self.access.store)


@dataclass(frozen=True, slots=True)
class _Provided:
    """Adapter of a credentials provider of Alibaba's SDKs: a function that returns ``ps.Credentials``."""

    provider: Any

    def __call__(self) -> Credentials:
        found = self.provider.get_credentials()
        expires = _field(found, "expiration")
        if isinstance(expires, datetime):
            expires = (expires if expires.tzinfo else expires.replace(tzinfo=UTC)).timestamp()
        access_key, secret_key = _field(found, "access_key_id"), _field(found, "access_key_secret")
        if not access_key or not secret_key:
            raise ConfigError(f"cred_provider={type(self.provider).__name__} gave no access_key_id and secret")
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


TAR = "read single objects by from_prefix, or the archive with ps.open and tarfile"


def _refuse(name: str, instead: str) -> NoReturn:
    raise Unsupported(f"{name} is not a part of penstock.compat.osstorchconnector: {instead}")


class OssClient:
    """The connector's internal client, not implemented; use Penstock's functions."""

    def __init__(self, *_args: object, **_options: object) -> None:
        """Raise ``Unsupported``."""
        _refuse("OssClient", "use ps.open, ps.list, ps.stat, ps.copy and ps.delete with store=ps.OSSOptions(…)")


def new_data_object(*_args: object, **_options: object) -> NoReturn:
    """Raise ``Unsupported``: datasets create their items themselves."""
    _refuse("new_data_object", "make a DataObject(key, data, label)")


def generate_tar_archive(*_args: object, **_options: object) -> NoReturn:
    """Raise ``Unsupported``: the index of an archive is the connector's own format."""
    _refuse("generate_tar_archive", TAR)


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


class OssCheckpoint(Connected):
    """Checkpoints, and any other objects, as files for ``torch.load`` and ``torch.save``."""

    def reader(self, oss_uri: str) -> Reader:
        """Open an object for reading: one HEAD. Raise ``NotFound`` if it does not exist."""
        return Checkpoint(self.access.store).reader(self.access.url(oss_uri))

    def writer(self, oss_uri: str) -> Writer:
        """Open an object for writing; the complete object appears if the ``with`` block succeeds, never otherwise."""
        return Checkpoint(self.access.store).writer(self.access.url(oss_uri))


class OssSafetensor(Connected):
    """Safetensors files by URI, which must end in ``.safetensors``."""

    def safe_open(self, oss_uri: str, device: str | int = "cpu") -> _Opened:
        """Open a file to read single tensors. Raise ``NotFound`` if it does not exist."""
        return _Opened(open_safetensors(self.access.url(oss_uri), device=device, store=self.access.store))

    def load_file(self, oss_uri: str, device: str | int = "cpu") -> dict[str, Tensor]:
        """Load all tensors. Raise the errors of ``ps.load_safetensors``."""
        return load_safetensors(self.access.url(oss_uri), device=device, store=self.access.store)

    def save_file(self, tensors: dict[str, Tensor], oss_uri: str, metadata: dict[str, str] | None = None) -> None:
        """Save tensors, and replace an existing file. Raise the errors of ``ps.save_safetensors``."""
        save_safetensors(tensors, self.access.url(oss_uri), metadata=metadata, overwrite=True, store=self.access.store)


class _Opened:
    """Tensors of a file by name, with the connector's methods."""

    def __init__(self, tensors: Safetensors) -> None:
        self._tensors = tensors

    def keys(self) -> list[str]:
        """Return the names in the order of their bytes in the file."""
        return self._tensors.keys()

    offset_keys = keys

    def metadata(self) -> dict[str, str]:
        """Return the metadata saved with the tensors."""
        return self._tensors.metadata()

    def get_tensor(self, name: str) -> Tensor:
        """Read a tensor. Raise ``NotFound`` for an unknown name."""
        return self._tensors.get_tensor(name)

    def get_slice(self, name: str) -> Slice:
        """Return an object that reads parts of a tensor when it is indexed."""
        return self._tensors.get_slice(name)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self._tensors.__exit__(kind, error, trace)


_ANY = Access("https://")  # checks and converts URIs
_UNUSED = {*UNUSED, "serialization_format"}


class OssDCPFileSystem(Connected, ObjectFileSystem):
    """Objects of OSS as files for torch, and factory of checkpoint readers and writers for one store.

    ``dcp.save(state, storage_writer=fs.writer(uri))``.
    """

    @classmethod
    def url(cls, path: Path) -> str:
        """Return the URL of ``oss://bucket/key`` or ``/bucket/key``. Raise ``InvalidURL``, a ``ValueError``, else."""
        return _ANY.url(os.fspath(path))

    def init_path(self, path: Path) -> Path:
        """Return the path unchanged."""
        return path

    def rename(self, old_path: Path, new_path: Path) -> None:
        """Copy an object to its new name, and delete it under the old name."""
        super().rename(old_path, new_path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Return whether ``checkpoint_id`` is a URI of OSS; True for any ``pathlib.Path``, as in the connector."""
        try:
            return isinstance(checkpoint_id, pathlib.Path) or bool(cls.url(checkpoint_id))
        except (InvalidURL, TypeError):
            return False

    def writer(self, path: str, **kwargs: Any) -> OssStorageWriter:  # noqa: ANN401  torch's options
        """Return a writer for ``dcp.save``."""
        return OssStorageWriter(self, path, **kwargs)

    def reader(self, path: str) -> OssStorageReader:
        """Return a reader for ``dcp.load``."""
        return OssStorageReader(self, path)


class OssStorageWriter(CheckpointsOf, StorageWriter):
    """Checkpoint writer below ``path``, in Penstock's format."""

    _files = OssDCPFileSystem

    def __init__(self, fs: OssDCPFileSystem, path: str, **kwargs: Any) -> None:  # noqa: ANN401  torch's options
        """Write below ``path`` with the options of ``fs``.

        ``overwrite`` (default True, as in torch) replaces an existing checkpoint. Torch's options for files and threads
        are accepted and ignored.

        Raises:
            Unusable: An option is unknown.

        """
        overwrite = bool(kwargs.pop("overwrite", True))
        if strange := sorted(kwargs.keys() - _UNUSED):
            raise Unusable(
                f"OssStorageWriter takes no {', '.join(strange)}: penstock.checkpoint.dcp has its own writer"
            )
        super().__init__(fs.access.url(path), overwrite=overwrite, store=fs.access.store)
        self.fs = fs
        self.path = path


class OssStorageReader(CheckpointsOf, StorageReader):
    """Checkpoint reader below ``path``, for checkpoints of Penstock or of the connector."""

    _files = OssDCPFileSystem

    def __init__(self, fs: OssDCPFileSystem, path: str) -> None:
        """Read below ``path`` with the options of ``fs``."""
        super().__init__(fs.access.url(path), store=fs.access.store)
        self.fs = fs
        self.path = path
