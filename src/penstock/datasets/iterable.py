"""The iterable dataset: samples in the order of seed and epoch, read ahead, sharded across ranks and workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset as TorchIterableDataset

from penstock.catalog.catalog import Catalog
from penstock.datasets.batched import Batched
from penstock.datasets.constructors import constructor, listed, named, saved
from penstock.datasets.dataset import CatalogDataset
from penstock.datasets.objects import singles
from penstock.datasets.positions.iteration import Iterations
from penstock.datasets.positions.place import check
from penstock.datasets.positions.resumable import Resumable
from penstock.datasets.positions.stateful import StatefulIterator
from penstock.errors import StateMismatch, Unusable
from penstock.order.indices import sample_indices
from penstock.order.orders import order_of
from penstock.order.sampling import SamplingPlan

if TYPE_CHECKING:
    import os
    import re
    from collections.abc import Callable, Iterable, Iterator

    from penstock.datasets.constructors import D, Parser
    from penstock.datasets.positions.place import PlaceLike
    from penstock.datasets.sample import Sample
    from penstock.options import StoreOptions
    from penstock.order.partition import Tail
    from penstock.order.sampling import Cursor
    from penstock.protocols.order import Order
    from penstock.values import Place

__all__ = ["IterableDataset", "ResumableSamples"]


class IterableDataset(CatalogDataset, TorchIterableDataset[Any]):
    """Yields every sample of the catalog once per epoch, sharded across ranks and workers, read ahead.

    ``shuffle=True`` permutes all samples in each epoch, by ``seed`` and epoch alone; ``shuffle`` also takes an order,
    such as ``ps.BlockShuffle``. The order is the same for any number of workers. You do not need to call ``set_epoch``:
    each iteration is the next epoch, in every process.

    A DataLoader that forms batches itself (``batch_size=B``) delivers each sample once per epoch and promises no more:
    how many batches there are depends on its workers, so this has no length (Lightning would stop at a wrong one).
    ``penstock.DataLoader(dataset, B)``, or ``batched(B)`` under ``DataLoader(batch_size=None)``, also keeps the same
    batches for any number of workers, as many for every rank, and resumes.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        transform: Callable[[Sample], Any] | None = None,
        shuffle: bool | Order = False,
        seed: int = 0,
        place: PlaceLike = None,
        store: StoreOptions | str | None = None,
    ) -> None:
        """Yield the catalog's objects, or what ``transform(sample)`` makes of them.

        ``place`` is this process's rank and the number of ranks. A device mesh gives both by its data-parallel
        dimensions (tensor- and pipeline-parallel ranks read the same samples). ``"unsharded"`` makes every rank read
        all samples, for a wrapper that shards by itself; a loader's workers still share them. Default: the initialised
        process group, else ``RANK`` and ``WORLD_SIZE``, else a single rank.

        Raises:
            Unusable: An argument that cannot be meant; an order that does not fit the catalog.

        """
        super().__init__(catalog, transform=transform, store=store)
        self._order = order_of(shuffle)
        self._seed = seed
        self._iterations = Iterations(place)
        self._plan(1)  # an order that does not fit this catalog is refused here and now

    @classmethod
    def check_arguments(
        cls,
        *,
        transform: object = None,
        shuffle: bool | Order = False,
        seed: int = 0,
        place: PlaceLike = None,
        store: StoreOptions | str | None = None,
    ) -> None:
        """Refuse what the constructor would refuse, before a catalog is listed or read.

        Raises:
            Unusable: ``transform`` is no plain function, ``seed`` no whole number, ``place`` no place, or ``shuffle``
                neither True nor False nor an order.

        """
        super().check_arguments(transform=transform, store=store)
        order_of(shuffle)
        SamplingPlan(samples=0, batch=1, seed=seed)
        check(place)

    @classmethod
    @constructor
    def from_prefix(  # noqa: PLR0913  see design/0020
        cls: type[D],
        url: str | os.PathLike[str],
        *,
        transform: Callable[[Sample], Any] | None = None,
        shuffle: bool | Order = False,
        seed: int = 0,
        place: PlaceLike = None,
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
    def from_objects(  # noqa: PLR0913  see design/0020
        cls: type[D],
        urls: Iterable[str | os.PathLike[str]],
        *,
        transform: Callable[[Sample], Any] | None = None,
        shuffle: bool | Order = False,
        seed: int = 0,
        place: PlaceLike = None,
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
        shuffle: bool | Order = False,
        seed: int = 0,
        place: PlaceLike = None,
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
        shuffle: bool | Order = False,
        seed: int = 0,
        place: PlaceLike = None,
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

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration epoch ``epoch``, also in persistent workers; later iterations count on from it."""
        self._iterations.epochs.set(epoch)

    def batched(
        self, batch_size: int, collate_fn: Callable[[list[Any]], Any] | None = None, *, tail: Tail = "short"
    ) -> Batched:
        """Return this dataset as batches of ``batch_size`` per rank, formed here, for ``DataLoader(batch_size=None)``.

        ``collate_fn`` takes a list; default: torch's own, and the plain list where there is no ``transform``. ``tail``
        controls the incomplete last global batch (``batch_size`` times the number of ranks): ``"short"`` splits the
        last samples evenly, and repeats samples only for ranks that would have none; ``"pad"`` fills the batch up with
        repeats; ``"drop"`` leaves the last samples out. Repeats are the epoch's first samples, marked
        ``Sample.repeat``. Every rank has the same number of batches.
        """
        if type(self).__iter__ is not IterableDataset.__iter__:
            raise Unusable(
                f"{type(self).__name__} overrides __iter__, which has no part in batches that are formed here: do it "
                "in transform=, or iterate under torch's DataLoader(batch_size=…)"
            )
        return Batched(self, self._plan(batch_size, tail), self._iterations, collate_fn)

    def __iter__(self) -> StatefulIterator:
        """Begin the next epoch, here and now; reads begin with the first ``next``."""
        plan = self._plan(1)

        def samples(cursor: Cursor, place: Place) -> Iterator[Any]:
            return singles(self, sample_indices(plan, cursor, place), place.workers)

        iterator = StatefulIterator(ResumableSamples(plan, self.catalog, self._iterations), samples)
        iterator.begin()
        return iterator

    def _plan(self, batch_size: int, tail: Tail = "short") -> SamplingPlan:
        return SamplingPlan(samples=len(self.catalog), batch=batch_size, order=self._order, seed=self._seed, tail=tail)


class ResumableSamples(Resumable):
    """Single samples, of which a loader makes batches in each worker: only the same number of workers may resume."""

    def _check_ranks(self) -> None:
        """Compare nothing: ranks need not read the same number of samples."""

    def restart(self, state: object) -> tuple[Cursor, Place]:
        """Refuse another number of workers; otherwise as ``Resumable.restart``."""
        workers = self._iterations.place().workers
        if isinstance(state, Mapping) and state.get("workers") == workers:
            return super().restart({name: state[name] for name in state if name != "workers"})
        raise StateMismatch(
            f"this is no state of an iterable dataset in {workers} workers, whose batches the loader forms: "
            "dataset.batched(…) resumes with any number of them"
        )

    def state(self, cursor: Cursor, batches: int = 0) -> dict[str, Any]:
        """Return the state, which includes the number of workers."""
        return super().state(cursor, batches) | {"workers": self._iterations.place().workers}
