"""The iterable dataset: samples in the order of seed and epoch, read ahead, sharded across ranks and workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from torch.utils.data import IterableDataset as TorchIterableDataset

from penstock.data.datasets.batched import BatchableDataset, Batched, Resumable
from penstock.data.datasets.dataset import CatalogDataset, repeat_constructor
from penstock.data.datasets.stateful import StatefulIterator
from penstock.data.order.orders import order_of
from penstock.data.order.sampling import SamplingPlan, sample_indices
from penstock.data.reading.iteration import Iterations, check_place
from penstock.data.reading.runs import fitted_order
from penstock.errors import StateMismatch, Unusable

if TYPE_CHECKING:
    import os
    import re
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.data.catalog.catalog import Catalog
    from penstock.data.catalog.groups import GroupRule
    from penstock.data.datasets.dataset import D, Parser, Stores
    from penstock.data.order.protocol import Order
    from penstock.data.order.sampling import Cursor, Tail
    from penstock.data.reading.iteration import PlaceLike
    from penstock.data.reading.sample import Sample
    from penstock.data.shards.format import ShardFormat
    from penstock.data.shards.keys import KeyRule, Missing
    from penstock.options import StoreOptions
    from penstock.values import Place


class OrderedIterable(BatchableDataset, TorchIterableDataset[Any]):
    """Base class of iterable datasets, which have their order, seed, place and epochs."""

    _order: Order
    _seed: int
    _iterations: Iterations

    def ordered(self, order: Order, iterations: Iterations | None = None) -> Self:
        """Return this dataset, prepared to be read in ``order``: neighbouring samples of shards in one request."""
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, also in persistent workers; later iterations continue from it.

        The loaders and ``batched`` batches of this dataset take it, too: those that exist, and those made later, which
        otherwise begin at epoch 0.

        Args:
            epoch: Number of the epoch, from 0.
        """
        self._iterations.set_epoch(epoch)

    def batched(
        self, batch_size: int, collate_fn: Callable[[list[Any]], Any] | None = None, *, tail: Tail = "short"
    ) -> Batched:
        """Return batches, for ``DataLoader(batch_size=None)``; every rank has the same number of them.

        Args:
            batch_size: Samples per batch and rank.
            collate_fn: Function from a list of samples to a batch; default: torch's ``default_collate``, or the plain
                list without a ``transform``.
            tail: Controls the incomplete last global batch (``batch_size`` times the number of ranks). ``"short"``
                splits the last samples evenly, and repeats samples only for ranks that would have none; ``"pad"`` fills
                up the batch with repeats; ``"drop"`` leaves the last samples out. Repeats are the epoch's first
                samples, marked ``Sample.repeat``.
        """
        if type(self).__iter__ is not OrderedIterable.__iter__:
            raise Unusable(
                f"{type(self).__name__} overrides __iter__, which is not used for batches that Penstock forms: do it "
                "in transform=, or iterate under torch's DataLoader(batch_size=…)"
            )
        iterations = self._iterations.apart()
        dataset = self.ordered(self._order, iterations)
        return Batched(dataset, self._plan(batch_size, tail), iterations, collate_fn)

    def __iter__(self) -> StatefulIterator:
        """Begin the next epoch immediately; reads begin with the first ``next``."""
        plan, dataset = self._plan(1), self.ordered(self._order, self._iterations)

        def samples(cursor: Cursor, place: Place) -> Iterator[Any]:
            return dataset.samples(sample_indices(plan, cursor, place), place.workers)

        iterator = StatefulIterator(ResumableSamples(plan, self.contents, self._iterations), samples)
        iterator.begin()
        return iterator

    def _plan(self, batch_size: int, tail: Tail = "short") -> SamplingPlan:
        samples = 0 if self.contents is None else len(self.contents)
        return SamplingPlan(samples=samples, batch=batch_size, order=self._order, seed=self._seed, tail=tail)


class IterableDataset(CatalogDataset, OrderedIterable):
    """An iterable dataset: each sample of the catalog once per epoch, read ahead, sharded across ranks and workers.

    The order is the same for any number of workers. You do not need to call ``set_epoch``: each iteration is the next
    epoch, in every process.

    A DataLoader that forms batches itself (``batch_size=B``) delivers each sample once per epoch and guarantees nothing
    else. The number of its batches depends on its workers, so this dataset has no length (Lightning would stop at a
    wrong one). ``penstock.DataLoader(dataset, B)``, or ``batched(B)`` under ``DataLoader(batch_size=None)``, also forms
    the same batches for any number of workers, gives every rank the same number of batches, and can resume.

    Args:
        catalog: The objects.
        transform: Function from a ``Sample`` to the value that is yielded; default: the ``Sample`` itself.
        shuffle: Permute all samples in each epoch, depending only on ``seed`` and epoch; or an order, such as
            ``ps.order.BlockShuffle``.
        seed: Seed of the order.
        place: This process's rank and the number of ranks. A device mesh gives both through its data-parallel
            dimensions (tensor- and pipeline-parallel ranks read the same samples). ``"unsharded"`` makes every rank
            read all samples, for a wrapper that shards itself; a loader's workers still share them. Default: the
            initialised process group, else ``RANK`` and ``WORLD_SIZE``, else a single rank.
        store: Options, or the name of a profile; default: environment and profile. For samples of several objects in
            different stores, also a mapping from fields to the options of each.

    Raises:
        Unusable: An argument is invalid, or the order does not fit the catalog.

    Example:
        >>> dataset = ps.IterableDataset.from_prefix("s3://bucket/train/3/", shuffle=True, seed=1)
        >>> sum(1 for sample in dataset)
        60
    """

    # Public here: the reference lists what a class has itself.
    batched, set_epoch = OrderedIterable.batched, OrderedIterable.set_epoch

    def __init__(
        self,
        catalog: Catalog,
        *,
        transform: Callable[[Sample], Any] | None = None,
        shuffle: bool | Order = False,
        seed: int = 0,
        place: PlaceLike = None,
        store: Stores = None,
    ) -> None:
        super().__init__(catalog, transform=transform, store=store)
        self._order = fitted_order(shuffle, catalog)
        self._seed = seed
        self._iterations = Iterations(place)
        # Refuses an order that does not fit this catalog.
        self._plan(1)

    @classmethod
    def _check_arguments(
        cls,
        *,
        transform: object = None,
        shuffle: object = False,
        seed: int = 0,
        place: PlaceLike = None,
        store: object = None,
    ) -> None:
        super()._check_arguments(transform=transform, store=store)
        order_of(shuffle)
        SamplingPlan(samples=0, batch=1, seed=seed)
        check_place(place)

    # The base class documents these constructors; here they have the arguments of this class, too (design/0020).
    @classmethod
    @repeat_constructor
    def from_prefix(  # noqa: PLR0913
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
        group: GroupRule | None = None,
        fields: Sequence[str] | None = None,
        missing: Missing = "error",
        allow_empty: bool = False,
        progress: bool | None = None,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        raise NotImplementedError

    @classmethod
    @repeat_constructor
    def from_objects(  # noqa: PLR0913
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
        raise NotImplementedError

    @classmethod
    @repeat_constructor
    def from_manifest(  # noqa: PLR0913
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
        fields: Sequence[str] | None = None,
        missing: Missing = "error",
        allow_empty: bool = False,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        raise NotImplementedError

    @classmethod
    @repeat_constructor
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
        raise NotImplementedError

    @classmethod
    @repeat_constructor
    def from_shards(  # noqa: PLR0913
        cls: type[D],
        urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        transform: Callable[[Sample], Any] | None = None,
        shuffle: bool | Order = False,
        seed: int = 0,
        place: PlaceLike = None,
        format: str | ShardFormat | None = None,  # noqa: A002  the field's word
        fields: str | Sequence[str] | None = None,
        key: KeyRule | None = None,
        missing: Missing | None = None,
        skip: str | Sequence[str] | None = None,
        labels: str | re.Pattern[str] | Callable[[str], str | None] | None = None,
        index: str | None = None,
        allow_empty: bool = False,
        progress: bool | None = None,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        raise NotImplementedError


class ResumableSamples(Resumable):
    """Single samples that a loader batches in each worker: only the same number of workers may resume."""

    def _check_ranks(self, plan: SamplingPlan | None = None) -> None:
        """Do nothing: ranks need not read the same number of samples."""

    def restart(self, state: object) -> tuple[Cursor, Place]:
        """Restart as ``Resumable.restart`` does, but refuse a different number of workers."""
        workers = self._iterations.place().workers
        if isinstance(state, Mapping) and state.get("workers") == workers:
            return super().restart({name: state[name] for name in state if name != "workers"})
        raise StateMismatch(
            f"not a state of an iterable dataset in {workers} workers, whose batches the loader forms: "
            "dataset.batched(…) resumes with any number of them"
        )

    def state(self, cursor: Cursor, batches: int = 0) -> dict[str, Any]:
        return super().state(cursor, batches) | {"workers": self._iterations.place().workers}
