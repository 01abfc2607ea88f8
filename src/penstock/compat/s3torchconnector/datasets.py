"""The S3 connector's two datasets, over Penstock's own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.compat.s3torchconnector.config import s3_url, store_options
from penstock.compat.s3torchconnector.s3reader import SampleReader, reader_kind
from penstock.data.catalog.catalog import Catalog, scan_all
from penstock.data.datasets.batched import Batched
from penstock.data.datasets.dataset import make_url_catalog
from penstock.data.datasets.iterable import IterableDataset
from penstock.data.datasets.map import MapDataset
from penstock.data.reading.objects import singles
from penstock.errors import Unusable
from penstock.values import ObjectMeta, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Self, SupportsIndex

    from penstock.compat.s3torchconnector.config import S3ClientConfig
    from penstock.compat.s3torchconnector.s3reader import ReaderKind, S3Reader
    from penstock.data.order.sampling import Tail
    from penstock.data.reading.iteration import PlaceLike
    from penstock.data.reading.sample import Sample
    from penstock.stores.s3.options import S3Options

    Objects = Callable[[S3Options], Catalog]


def identity(obj: S3Reader) -> S3Reader:
    return obj


def _transform_sample(transform: Callable[[Any], Any], sample: Sample) -> Any:
    return transform(SampleReader(sample))


def _find_objects(get_dataset_objects: Objects, store: S3Options) -> Catalog:
    found = get_dataset_objects(store)
    if not isinstance(found, Catalog):
        raise Unusable("cannot list objects with a custom function: use from_prefix or from_objects")
    return found


class _Connected:
    """Mixin of both datasets: the region, the endpoint, the constructors and range-based reads."""

    region: str | None
    endpoint: str | None
    _kind: ReaderKind
    _given: Callable[[Any], Any]
    catalog: Catalog
    _source: Any

    def _keep(
        self,
        region: str | None,
        endpoint: str | None,
        transform: Callable[[Any], Any] | None,
        reader: ReaderKind | None,
    ) -> None:
        self.region, self.endpoint = region, endpoint
        self._kind, self._given = reader_kind(reader), transform or identity

    @classmethod
    def from_objects(
        cls,
        object_uris: str | Iterable[str],
        *,
        region: str | None,
        endpoint: str | None = None,
        transform: Callable[[Any], Any] | None = identity,
        s3client_config: S3ClientConfig | None = None,
        reader_constructor: ReaderKind | None = None,
        **sharding: bool,
    ) -> Self:
        """Return a dataset of objects of one bucket by URL, in the given order, without a request.

        ``S3IterableDataset`` also takes ``enable_sharding=``.
        """
        uris = [s3_url(each) for each in ([object_uris] if isinstance(object_uris, str) else object_uris)]
        return cls(  # type: ignore[call-arg]
            region,
            lambda _store: make_url_catalog(uris, labels=None, allow_empty=True),
            endpoint,
            transform,
            s3client_config,
            reader_constructor=reader_constructor,
            **sharding,
        )

    @classmethod
    def from_prefix(
        cls,
        s3_uri: str,
        *,
        region: str | None,
        endpoint: str | None = None,
        transform: Callable[[Any], Any] | None = identity,
        s3client_config: S3ClientConfig | None = None,
        reader_constructor: ReaderKind | None = None,
        **sharding: bool,
    ) -> Self:
        """Return a dataset of all objects whose key begins with the URL's, listed here: one LIST for each 1,000.

        ``S3IterableDataset`` also takes ``enable_sharding=``.
        """
        return cls(  # type: ignore[call-arg]
            region,
            partial(scan_all, s3_url(s3_uri)),
            endpoint,
            transform,
            s3client_config,
            reader_constructor=reader_constructor,
            **sharding,
        )

    @classmethod
    def from_manifest(cls, *_: object, **__: object) -> Any:
        raise Unusable(f"{cls.__name__} has no from_manifest: use that of ps.MapDataset or ps.IterableDataset")

    @classmethod
    def from_catalog(cls, *_: object, **__: object) -> Any:
        raise Unusable(f"{cls.__name__} has no from_catalog: use that of ps.MapDataset or ps.IterableDataset")

    def _ranged(self, index: SupportsIndex) -> Any:
        """Return the transform's result for an object that the transform reads in ranges."""
        span = self.catalog.span(index.__index__())
        known = span.stop is not None and span.etag
        meta = ObjectMeta(span.key, span.stop or 0, span.etag) if known else None
        return self._given(self._kind.open(self._source, span.key, meta))


class S3MapDataset(_Connected, MapDataset):  # type: ignore[misc]  # the original's constructors
    """Map-style dataset: ``dataset[i]`` is an ``S3Reader`` of object ``i``, or ``transform(reader)``.

    A DataLoader's batch is read with all its requests in flight. ``penstock.DataLoader`` accepts this dataset, too.
    """

    def __init__(
        self,
        region: str | None,
        get_dataset_objects: Objects,
        endpoint: str | None = None,
        transform: Callable[[Any], Any] | None = identity,
        s3client_config: S3ClientConfig | None = None,
        reader_constructor: ReaderKind | None = None,
    ) -> None:
        """Create a dataset; programs call ``from_prefix`` or ``from_objects`` instead."""
        store = store_options(region, endpoint, s3client_config)
        self._check_arguments(transform=transform)
        self._keep(region, endpoint, transform, reader_constructor)
        super().__init__(
            _find_objects(get_dataset_objects, store), transform=partial(_transform_sample, self._given), store=store
        )

    @property
    def overrides(self) -> str:
        """The name of the method that reads: ``__getitems__`` with a range-based reader, else as in ``MapDataset``."""
        return "__getitems__" if self._kind.ranges else super().overrides

    def _read(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        return [self._ranged(each) for each in indices] if self._kind.ranges else super()._read(indices)


class S3IterableDataset(_Connected, IterableDataset):  # type: ignore[misc]  # the original's constructors
    """Iterable dataset: yields an ``S3Reader`` per object in order, or ``transform(reader)``, reading ahead.

    The order is that of the keys, or for ``from_objects`` the given one. With ``enable_sharding`` the objects are
    distributed round-robin over ranks and a loader's workers; without it, each worker yields all objects.
    ``penstock.DataLoader`` accepts it, too: its workers always share the objects, and an epoch can be resumed.
    """

    def __init__(
        self,
        region: str | None,
        get_dataset_objects: Objects,
        endpoint: str | None = None,
        transform: Callable[[Any], Any] | None = identity,
        s3client_config: S3ClientConfig | None = None,
        enable_sharding: bool = False,
        reader_constructor: ReaderKind | None = None,
    ) -> None:
        """Create a dataset; programs call ``from_prefix`` or ``from_objects`` instead."""
        store = store_options(region, endpoint, s3client_config)
        self._check_arguments(transform=transform)
        self._keep(region, endpoint, transform, reader_constructor)
        self._sharded = enable_sharding
        place: PlaceLike = None if enable_sharding else "unsharded"
        catalog = _find_objects(get_dataset_objects, store)
        super().__init__(catalog, transform=partial(_transform_sample, self._given), place=place, store=store)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # stateful only with sharding
        """Return an iterator from the first object."""
        if self._sharded and not self._kind.ranges:
            return super().__iter__()
        here = self._iterations.place()
        place = here if self._sharded else Place()
        rows = range(place.rank + place.world * place.worker, len(self.catalog), place.world * place.workers)
        return map(self._ranged, rows) if self._kind.ranges else singles(self, rows, here.workers)

    def batched(
        self, batch_size: int, collate_fn: Callable[[list[Any]], Any] | None = None, *, tail: Tail = "short"
    ) -> Batched:
        if self._kind.ranges:
            raise Unusable(
                "cannot form batches: a range-based reader reads on demand in transform; use torch's DataLoader"
            )
        return Batched(self, self._plan(batch_size, tail), self._iterations.apart(), collate_fn)
