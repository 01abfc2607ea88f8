"""The map-style dataset: a sample by index, a batch of them in one go."""

from __future__ import annotations

import operator
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from torch.utils.data import Dataset

from penstock.catalog.catalog import Catalog
from penstock.datasets.batched import Batched
from penstock.datasets.constructors import constructor, listed, named, saved
from penstock.datasets.dataset import CatalogDataset
from penstock.datasets.objects import singles
from penstock.datasets.positions.iteration import Iterations
from penstock.order.orders import order_of
from penstock.order.partition import Repeat
from penstock.order.sampling import SamplingPlan

if TYPE_CHECKING:
    import os
    import re
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.datasets.constructors import D, Parser
    from penstock.datasets.positions.place import PlaceLike
    from penstock.datasets.sample import Sample
    from penstock.options import StoreOptions
    from penstock.order.partition import Tail
    from penstock.protocols.order import Order

__all__ = ["MapDataset"]


class _OneByOne:
    """The ``__getitems__`` of a class that overrides ``__getitem__`` alone: calls that for each index."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read

    def __get__(self, dataset: MapDataset | None, kind: type) -> Any:  # noqa: ANN401  itself, or a bound method
        return self if dataset is None else partial(self._batch, dataset)

    def _batch(self, dataset: MapDataset, indices: Sequence[SupportsIndex]) -> list[Any]:
        return [self._read(dataset, index) for index in indices]


class MapDataset(CatalogDataset, Dataset[Any]):
    """``dataset[i]`` reads object ``i`` of the catalog; a DataLoader's batch is read with all its requests in flight.

    Negative indices count from the end; a slice is a dataset over the same catalog. Engines are opened in whichever
    process reads, so it works under fork, forkserver and spawn, also after the parent has read from it.

    A subclass may override ``__getitem__`` (which every loader then calls for each sample, one object in flight per
    thread or worker) or ``__getitems__`` (for each batch); a ``transform`` keeps many in flight, so prefer that.
    This class's own ``__getitem__`` and ``__getitems__`` always read and never call an override, so either may be
    overridden in terms of the other.
    """

    def __init_subclass__(cls, **options: Any) -> None:  # noqa: ANN401  another base's
        """Where only ``__getitem__`` is overridden, make ``__getitems__``, which loaders prefer, call it."""
        super().__init_subclass__(**options)
        batch = cls.__getitems__
        if cls.__getitem__ is not MapDataset.__getitem__ and (
            batch is MapDataset.__getitems__ or isinstance(batch, _OneByOne)
        ):
            cls.__getitems__ = _OneByOne(cls.__getitem__)  # type: ignore[method-assign,assignment]

    @classmethod
    @constructor
    def from_prefix(  # noqa: PLR0913  see design/0020
        cls: type[D],
        url: str | os.PathLike[str],
        *,
        transform: Callable[[Sample], Any] | None = None,
        include: str | Iterable[str] = (),
        exclude: str | Iterable[str] = (),
        labels: str | re.Pattern[str] | Callable[[str], str | None] | None = None,
        allow_empty: bool = False,
        progress: bool | None = None,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        """Make a dataset of every object whose key begins with the URL's; one LIST request for each 1,000 objects.

        ``include`` and ``exclude`` are globs over the key below the prefix. ``labels``: see ``Catalog.with_labels``.
        ``progress``: see ``Catalog.scan``. The other arguments are those of the class. All are checked before the first
        request.

        Raises:
            NotFound: Nothing is there, and ``allow_empty`` is not set.
            Unusable: An argument that cannot be meant, or an object without a label.

        """
        return Catalog.scan(
            url,
            include=include,
            exclude=exclude,
            labels=labels,
            allow_empty=allow_empty,
            progress=progress,
            store=store,
        )

    @classmethod
    @constructor
    def from_objects(
        cls: type[D],
        urls: Iterable[str | os.PathLike[str]],
        *,
        transform: Callable[[Sample], Any] | None = None,
        labels: str | re.Pattern[str] | Callable[[str], str | None] | None = None,
        allow_empty: bool = False,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        """Make a dataset of objects of one bucket by URL, in the order given; no request: sizes are not known.

        ``labels``: see ``Catalog.with_labels``; the key of an object begins after the bucket.
        The other arguments are those of the class.

        Raises:
            NotFound: No URL, and ``allow_empty`` is not set.
            InvalidURL: Not a list of URLs, or not of one bucket.
            Unusable: An argument that cannot be meant, or an object without a label.

        """
        return listed(urls, labels=labels, allow_empty=allow_empty)

    @classmethod
    @constructor
    def from_manifest(  # noqa: PLR0913  see design/0020
        cls: type[D],
        manifest: str | os.PathLike[str],
        *,
        transform: Callable[[Sample], Any] | None = None,
        parser: Parser | None = None,
        base: str | os.PathLike[str] | None = None,
        labels: str | re.Pattern[str] | Callable[[str], str | None] | None = None,
        allow_empty: bool = False,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        """Make a dataset of the objects a manifest names: "key" or "key label" lines, CSV, JSON lines or Parquet.

        ``parser`` reads any other format. Keys are relative to ``base`` (default: the manifest's own folder) or full
        URLs of the same bucket. One or two requests read a manifest that lies in a store.
        ``labels`` replaces the manifest's own labels: see ``Catalog.with_labels``; keys are those below ``base``.
        The other arguments are those of the class.

        Raises:
            ManifestError: A line that does not parse, with its number; a key outside the bucket.
            NotFound: No manifest, or an empty one without ``allow_empty``.
            Unusable: An argument that cannot be meant, or an object without a label.

        """
        return named(manifest, parser=parser, base=base, labels=labels, allow_empty=allow_empty, store=store)

    @classmethod
    @constructor
    def from_catalog(
        cls: type[D],
        catalog: Catalog | str | os.PathLike[str],
        *,
        transform: Callable[[Sample], Any] | None = None,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        """Make a dataset of a catalog, without a request; or of the URL of a saved one, which is read and verified.

        The other arguments are those of the class; ``store`` also says how to reach the file. Where the two differ, or
        lie in different buckets, ``Catalog.open`` the file first.

        Raises:
            NotFound: No such file.
            ManifestError: It is no catalog, a newer one, cut short, or its objects lie in another bucket.
            ChecksumMismatch: It has changed since it was written.
            Unusable: An argument that cannot be meant.

        """
        return saved(catalog, store=store)

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self.catalog)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...  # noqa: ANN401  whatever the transform returns
    @overload
    def __getitem__(self, index: slice) -> MapDataset: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        """Read one object, or return a dataset of some without reading."""
        if isinstance(index, slice):
            part = copy(self)  # a subclass's own attributes come with it
            part.catalog = self.catalog[index]
            return part
        return self._read((index,))[0]

    def __iter__(self) -> Iterator[Any]:
        """Read all objects in order, reading ahead within ``options.read``'s budget."""
        indices = range(len(self))
        if not self.overrides:
            return singles(self, indices, 1)
        if type(self).__getitem__ is MapDataset.__getitem__:
            return (self.__getitems__([index])[0] for index in indices)
        return (self[index] for index in indices)

    @property
    def overrides(self) -> str:
        """The method of a subclass that reads instead of this class's: "__getitems__", "__getitem__" or ""."""
        kind = type(self)
        if kind.__getitems__ is not MapDataset.__getitems__ and not isinstance(kind.__getitems__, _OneByOne):
            return "__getitems__"
        return "" if kind.__getitem__ is MapDataset.__getitem__ else "__getitem__"

    def batched(
        self,
        batch_size: int,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        *,
        shuffle: bool | Order = False,
        seed: int = 0,
        tail: Tail = "short",
        place: PlaceLike = None,
    ) -> Batched:
        """Return this dataset as batches of ``batch_size`` per rank: see ``IterableDataset.batched``."""
        plan = SamplingPlan(samples=len(self), batch=batch_size, order=order_of(shuffle), seed=seed, tail=tail)
        return Batched(self, plan, Iterations(place), collate_fn)

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Read a batch, all requests in flight together; the transform runs on them in order."""
        return self._read(indices)

    def _read(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        rows = [index if isinstance(index, Repeat) else operator.index(index) for index in indices]
        spans = [*self.catalog.spans(rows)]
        return list(map(self._sample, rows, spans, self._source.read_many(spans)))
