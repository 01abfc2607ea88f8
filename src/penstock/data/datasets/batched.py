"""Batches formed from a sampling plan: the same for any number of workers, ranks and restarts.

``Resumable`` is the state of all classes that form batches, and how they resume. ``BatchSampler`` gives the batches of
a map-style dataset as indices, to the DataLoaders of torch and torchdata.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Mapping
from dataclasses import replace
from functools import partial, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, ParamSpec, Self, SupportsIndex

import torch.distributed
from torch.utils.data import IterableDataset as TorchIterableDataset
from torch.utils.data import Sampler, get_worker_info

from penstock.data.catalog.catalog import Catalog
from penstock.data.datasets.collation import collate_samples, find_misfit
from penstock.data.datasets.consistency import check_same_catalog, check_same_order
from penstock.data.datasets.inspection import PlannedSample, SeenBatches, plan_batch
from penstock.data.datasets.stateful import Progress, StatefulIterator
from penstock.data.order.orders import order_of
from penstock.data.order.sampling import Cursor, SamplingPlan, batch_indices
from penstock.data.reading.iteration import Iterations, RankIterations, check_batching, has_process_group
from penstock.data.reading.reading import Delivery, OnError, SampleDataset, in_lists, remaining
from penstock.data.reading.runs import fitted_order
from penstock.errors import StateMismatch, Unusable, kind_of, public_url
from penstock.values import Place, switch, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence, Sized

    import numpy as np
    from numpy.typing import NDArray

    from penstock.data.order.mixture import Weights
    from penstock.data.order.protocol import Order
    from penstock.data.order.sampling import Tail
    from penstock.data.reading.iteration import Contents, PlaceLike
    from penstock.data.reading.reading import Reading, Reads
    from penstock.engine.contracts.fetching import ReadCounts

P = ParamSpec("P")


class Resumable:
    """Resumable batches: the same for any number of workers, and the same global batches for any number of ranks.

    A state is a dict of a few numbers (below 1 KB as JSON). It records the samples that the training loop has received,
    and the catalog, the order and the global batch. At the same batch every rank has the same state, and any of them
    restores all ranks.

    Attributes:
        plan: The sampling plan, which assigns samples to batches.
    """

    # Of ``adopted``, for a state whose weights a run changed when it resumed.
    _new_weights: ClassVar[object] = None

    def __init__(self, plan: SamplingPlan, catalog: Contents | None, iterations: Iterations) -> None:
        """Follow ``plan`` over ``catalog``; None: a state cannot detect a different catalog."""
        self.plan = plan
        self._catalog = catalog
        self._iterations = iterations
        # Whether the ranks have compared where they begin.
        self._compared = False
        self._check_ranks()

    def __len__(self) -> int:
        """Return this rank's number of batches in a whole epoch, over all its workers; it is equal on all ranks."""
        return len(self.plan.batches(Cursor(), self._iterations.rank()))

    @property
    def batch_size(self) -> int:
        return self.plan.batch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, also in persistent workers; later iterations continue from it.

        Directly after ``load_state_dict``, setting the epoch of the state changes nothing.
        """
        self._iterations.set_epoch(epoch)

    def state_at(self, batches: int, *, epoch: int | None = None) -> dict[str, Any]:
        """Return the state after this rank's training loop has received ``batches`` batches of the latest iteration.

        Asks no worker, so their read-ahead does not matter. With ``epoch``, ``batches`` are counted from the start of
        that epoch. The first call computes the catalog's digest, at about 0.1 µs per object.

        Raises:
            Unusable: That iteration has fewer batches.
        """
        latest = self._iterations.epochs.latest()
        begun = latest if epoch is None else latest._replace(epoch=whole(epoch, "an epoch"), position=0)
        most = self.remaining(begun)
        if whole(batches, "the number of received batches", 0) > most:
            raise Unusable(
                f"the number of received batches must be 0 to {most:,}, as many as epoch {begun.epoch} has from "
                f"position {begun.position:,} on, got {batches!r:.40}; count from 0 in each epoch, or pass epoch="
            )
        return self.state(begun, batches)

    def load_state_dict(
        self,
        state: Mapping[str, Any],
        *,
        allow_new_global_batch: bool = False,
        allow_rereads: bool = False,
        new_weights: Weights | bool | None = None,
    ) -> None:
        """Make the next iteration resume where ``state`` was taken: each remaining sample comes once.

        Any number of ranks and workers may resume. Arguments and errors are those of ``DataLoader.load_state_dict``.
        """
        allowed = {"allow_new_global_batch": allow_new_global_batch, "allow_rereads": allow_rereads}
        allowed = {name: switch(each, name) for name, each in allowed.items()}
        plan, cursor = self._resumed(state, None if new_weights is False else new_weights, **allowed)
        if why := plan.rereads(cursor, self._iterations.rank().world):
            warnings.warn(why, stacklevel=2)
        # Only now: what was refused changes nothing.
        self.plan, self._compared = plan, False
        self._iterations.epochs.resume(cursor)

    def check_replaced(self, place: PlaceLike, data: str, remedy: str) -> None:
        self._iterations.check_replaced(place, data, remedy)

    def coming(self) -> Cursor:
        return self._iterations.epochs.next()

    def remaining(self, cursor: Cursor) -> int:
        """Return how many batches this rank has from ``cursor`` to the end of its epoch."""
        return len(self.plan.batches(cursor, self._iterations.rank()))

    def rewind(self, cursor: Cursor) -> bool:
        """Make ``cursor`` the start of the next iteration again, unless another start was set since."""
        return self._iterations.epochs.rewind(cursor)

    def go_to(self, cursor: Cursor) -> None:
        self._iterations.epochs.resume(cursor)

    def check_position(self, cursor: Cursor) -> None:
        """Compare where an iteration began with other ranks: the first time, and after a state was loaded."""
        if (
            not self._compared
            and has_process_group()
            and self._iterations.rank().world == torch.distributed.get_world_size()
        ):
            where = {"epoch": int(cursor.epoch), "position": int(cursor.position)}
            check_same_order(f"position {self._ordered()}", where, "load the same state on every rank")
        self._compared = True

    def begin(self, key: int | None = None) -> tuple[Cursor, Place]:
        """Begin the next iteration; return its cursor and its place: see ``Iterations.begin``."""
        self._check_ranks()
        cursor, place = self._iterations.begin(key)
        self.plan.check_lanes(cursor, place.world)
        return cursor, place

    def _check_stage(self, cursor: Cursor) -> None:
        """Refuse an iteration whose weights this process does not know; called where torch passes errors on."""
        if cursor.stage != self.plan.stage:
            raise Unusable(
                "load_state_dict has changed the weights of this mixture, and the worker processes still have the "
                "old ones: create a new loader, or pass persistent_workers=False"
            )

    def restart(self, state: Mapping[str, Any]) -> tuple[Cursor, Place]:
        """Restart an iteration where ``state`` was taken; the next iteration is the epoch after it.

        The state of a worker already points to the next batch of this worker, so the returned place is worker 0.
        """
        self.plan, cursor = self._resumed(state)
        self._iterations.epochs.restart(cursor)
        return cursor, replace(self._iterations.place(), worker=0)

    def state(self, cursor: Cursor, batches: int = 0) -> dict[str, Any]:
        """Return the state ``batches`` batches after ``cursor``."""
        world = self._iterations.rank().world
        return self.plan.state(self.plan.after(cursor, batches, world), world, self._digest())

    def seen(
        self, until: Mapping[str, Any], since: Mapping[str, Any] | None = None, *, ranks: int | None = None
    ) -> SeenBatches:
        """Return the global batches that a run received from the state ``since`` to the state ``until``.

        See ``DataLoader.seen``.
        """
        plan, last = self._state_at_end(until)
        earlier, first = (
            (plan, last._replace(epoch=0, position=0))
            if since is None
            else self._state_at_end(since, self._new_weights)
        )
        if first.position == plan.total and last.epoch > first.epoch:
            first = first._replace(epoch=first.epoch + 1, position=0)
        if first[:2] > last[:2]:
            raise Unusable(f"since= must not be later than the state of epoch {last.epoch}, position {last.position}")
        if plan.begins > first[:2]:
            raise StateMismatch(
                f"the weights, the sources or the global batch of this mixture changed at epoch {plan.begins[0]}, "
                f"position {plan.begins[1]}: pass a state from there as since="
            )
        notes = _note_changes(earlier, first, plan, last)
        other = plan.begins not in (first[:2], earlier.begins)
        if other or (first.position and first.epoch == last.epoch and first.lanes != last.lanes):
            raise StateMismatch("these states are of different runs: the later one did not resume from the earlier one")
        if not first.position or first.epoch == last.epoch:
            first = first._replace(lanes=last.lanes)
        own, batch = self._iterations.rank().world, plan.batch
        if ranks is None:
            ranks = batch // self.plan.batch if batch % self.plan.batch == 0 else 1
            ended = last.epoch > first.epoch or last.position == plan.total
            if ranks != own and ended and plan.tail == "short" and plan.total % batch:
                notes.append("an incomplete batch repeats samples if it has fewer than ranks: pass ranks= for these")
        elif batch % whole(ranks, "ranks", 1):
            raise Unusable(f"ranks must divide the global batch of {batch}, got {ranks}")
        return SeenBatches(plan, (first, last), ranks, self._describe, tuple(notes))

    def _state_at_end(self, state: object, new_weights: object = None) -> tuple[SamplingPlan, Cursor]:
        """Return the plan of global batches that led to a state, and where that is."""
        batch = state.get("global_batch") if isinstance(state, Mapping) else None
        plan = replace(self.plan, batch=batch) if type(batch) is int and batch > 0 else self.plan
        return self._understand(plan, state, 1, new_weights, allow_rereads=True)

    def _describe(self, index: int, repeat: bool) -> PlannedSample:  # noqa: FBT001  called by position
        return PlannedSample(index, "", repeat)

    def _resumed(
        self, state: Mapping[str, Any], new_weights: object = None, **allowed: bool
    ) -> tuple[SamplingPlan, Cursor]:
        """Return the plan and the cursor that resume from ``state``; changes nothing."""
        plan, cursor = self._understand(self.plan, state, self._iterations.rank().world, new_weights, **allowed)
        self._check_ranks(plan)
        return plan, cursor

    def _understand(
        self, plan: SamplingPlan, state: object, world: int, new_weights: object, **allowed: bool
    ) -> tuple[SamplingPlan, Cursor]:
        """Return the plan that a state of ``plan`` continues, and its cursor."""
        digest = self._digest()
        try:
            plan, given = plan.adopted(state, world, new_weights)
            return plan, plan.resume(given, world, digest, **allowed)
        except StateMismatch as error:
            if not (isinstance(self._catalog, Catalog) and error.message.startswith("the catalog")):
                raise
            raise StateMismatch(
                f"{error.message}; objects were added, removed or replaced since, or the prefix, filter or split "
                "differs: save the catalog once (dataset.catalog.save(url)), and open it in every run "
                "(MapDataset.from_catalog(url))"
            ) from None

    def _digest(self) -> str:
        return "" if self._catalog is None else self._catalog.digest

    def _check_ranks(self, plan: SamplingPlan | None = None) -> None:
        # Look up the rank only in a process group: ranks of Lightning make their loaders before the group exists, and
        # do not know their number then. A dataset for a single rank is not compared.
        if not has_process_group():
            return
        world = self._iterations.rank().world
        if self._catalog is not None and world > 1:
            check_same_catalog(self._catalog)
        # Otherwise the ranks form several sets, whose orders may differ.
        if world == torch.distributed.get_world_size():
            check_same_order(self._ordered(), (plan or self.plan).arguments())

    def _ordered(self) -> str:
        """Return the identity of the data whose order the ranks compare."""
        return self._digest() or f"{self.plan.samples} samples"


def _note_changes(earlier: SamplingPlan, first: Cursor, plan: SamplingPlan, last: Cursor) -> list[str]:
    """Return why batches between two states may differ from those that their plans have."""
    notes, apart = [], last.epoch - first.epoch
    if apart:
        ended = f"epoch {first.epoch} is" if apart == 1 else f"epochs {first.epoch} to {last.epoch - 1} are"
        notes.append(f"{ended} assumed to have been iterated to the end")
    if earlier.batch != plan.batch and plan.begins == (0, 0):
        notes.append(
            f"the global batch is {plan.batch} after one of {earlier.batch}: it is assumed to have changed at since="
        )
    if first.lanes != last.lanes and (apart > 1 or (apart and not first.position)):
        notes.append(f"the number of lanes changed from {first.lanes} to {last.lanes} in an unknown epoch")
    return notes


class BatchableDataset(SampleDataset):
    """Base class of the datasets that ``penstock.DataLoader`` takes: their samples come in batches of a plan."""

    # Whether ``batched`` takes shuffle, seed and place; otherwise the constructor has.
    takes_order = False

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401  of subclasses with samples by index
        """Raise ``Unusable``: libraries that take a dataset by its indices meet iterable ones here."""
        raise Unusable(
            f"{kind_of(self)} has no samples by index, got {index!r:.40}: use a ps.MapDataset, a "
            "ps.TokenDataset, ps.concat of these, or as_map() of a ps.ZarrDataset"
        )

    def planned(self, index: int, *, repeat: bool) -> PlannedSample:
        return PlannedSample(index, self.url_of(index), repeat)

    def subset(self, indices: NDArray[np.int64]) -> BatchableDataset | None:  # noqa: ARG002  of the contract
        """Return a dataset of the samples at ``indices``, for torch's ``Subset``; None if there is no such dataset."""
        return None

    def batched(
        self, batch_size: int, collate_fn: Callable[[list[Any]], Any] | None = None, *, tail: Tail = "short"
    ) -> Batched:
        """Return this dataset's batches of ``batch_size`` per rank: see ``IterableDataset.batched``."""
        raise NotImplementedError

    @property
    def kinds(self) -> frozenset[str]:
        """Descriptions of the samples, which stack with others of the same description; empty: not known."""
        return frozenset()

    def collated(self, batch: int) -> tuple[Self, Callable[[list[Any]], Any] | None]:  # noqa: ARG002  of the contract
        """Return this dataset in the form to collate to batches of ``batch``, and the collate function.

        The function is equal to those of other datasets whose samples it takes, too; None: torch's ``default_collate``.
        """
        return self, None

    @property
    def end_to_end(self) -> Callable[[Sequence[Any]], Any] | None:
        """The function with which ``ps.concat`` joins datasets of this kind; None: catalogs are joined."""
        return None


class IndexedDataset(BatchableDataset):
    """Base class of map-style datasets, whose samples the loader orders."""

    takes_order = True

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Read some samples, with all their requests in flight at once."""
        raise NotImplementedError

    def _getitems(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Read some samples for grain: its ``SupportsBatchedReadRandomAccessDataSource``."""
        return self.__getitems__(indices)

    def ordered(self, order: Order, iterations: Iterations | None = None) -> Self:
        """Return this dataset, prepared to be read in ``order``: neighbouring samples in one request.

        ``iterations`` know the rank; None: a single rank reads.
        """
        raise NotImplementedError

    def _fit_order(self, shuffle: object) -> Order:
        """Return the order for ``shuffle=``, with blocks cut by the bytes of the samples."""
        raise NotImplementedError

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
        """Return this dataset as batches, for ``DataLoader(batch_size=None)``: see ``IterableDataset.batched``.

        Args:
            batch_size: Samples per batch and rank.
            collate_fn: Function from a list of samples to a batch; default: as for ``IterableDataset.batched``; windows
                of tokens are stacked, and whole documents stay a list.
            shuffle: Permute all samples in each epoch; or an order, such as ``ps.order.BlockShuffle(…)``.
            seed: Seed of the order.
            tail: Controls the incomplete last batch: see ``IterableDataset.batched``.
            place: This process's rank, as for ``IterableDataset``.
        """
        order, iterations = self._fit_order(shuffle), Iterations(place)
        plan = SamplingPlan(samples=len(self), batch=batch_size, order=order, seed=seed, tail=tail)
        dataset, collate_fn = self.collated(plan.batch) if collate_fn is None else (self, collate_fn)
        return Batched(dataset.ordered(order, iterations), plan, iterations, collate_fn)


class SourceShare(NamedTuple):
    """Counts of a source of a ``ps.Mix``, over all processes of this rank, since its loader was made.

    Attributes:
        name: Name of the source.
        wanted: Its share of the samples by the present weights, 0 to 1.
        samples: Samples that it has delivered, those included that are ready and not yet taken.
        waited_s: Seconds that reading waited for its bytes.
    """

    name: str
    wanted: float
    samples: int
    waited_s: float


class Batched(Resumable, TorchIterableDataset[Any]):
    """Collated batches of a dataset, for ``DataLoader(batch_size=None)``.

    Attributes:
        dataset: The dataset whose samples are batched.
        collate_fn: Function that makes a batch of a list of samples; default: torch's ``default_collate``, except that
            bare ``Sample``s stay a list.
    """

    def __init__(
        self,
        dataset: BatchableDataset,
        plan: SamplingPlan,
        iterations: Iterations,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        super().__init__(plan, dataset.contents, iterations)
        if collate_fn is not None and not callable(collate_fn):
            raise Unusable(f"collate_fn must be a function from a list to a batch, got {collate_fn!r}")
        self.dataset = dataset
        self.collate_fn = collate_fn or collate_samples
        self._latest: Progress | None = None

    def __repr__(self) -> str:
        return f"<Batched of {self.dataset!r} in batches of {self.batch_size:,}, {type(self.plan.order).__name__}>"

    def __iter__(self) -> StatefulIterator:
        """Begin the next epoch immediately; reads begin with the first ``next``. See ``StatefulIterator``."""
        check_batching(self)
        batches = StatefulIterator(self, self._collated)
        self._latest = batches.begin()
        return batches

    def _collated(self, cursor: Cursor, place: Place) -> Iterator[Any]:
        self._check_stage(cursor)
        lists, _ = self.dataset.lists(batch_indices(self.plan, cursor, place), place.workers)
        return (each.batch for each in self._delivered(lists, cursor, place, self.collate_fn))

    def inspect(self, batch: int, *, epoch: int | None = None, rank: int | None = None) -> tuple[PlannedSample, ...]:
        """Return the samples of batch ``batch`` (from 0) in order, whether or not it has been delivered.

        The arguments are those of ``DataLoader.inspect``; the cost is the same for any batch of any epoch.
        """
        latest, place = self._iterations.epochs.latest(), self._iterations.rank()
        cursor = latest if epoch is None else latest._replace(epoch=whole(epoch, "an epoch", 0), position=0)
        if rank is not None:
            number = whole(rank, "a rank", 0)
            if number >= place.world:
                raise Unusable(f"rank must be 0 to {place.world - 1}, got {number}")
            place = replace(place, rank=number)
        return tuple(self._describe(*each) for each in plan_batch(self.plan, cursor, place, batch))

    def _describe(self, index: int, repeat: bool) -> PlannedSample:  # noqa: FBT001  called by position
        return self.dataset.planned(index, repeat=repeat)

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the batches that the latest iteration of this object has delivered.

        Pass the state to ``load_state_dict``. Iterations over the dataset itself, or over other batches of it, do not
        change the state.

        After the last batch, the state is the start of the next epoch. Under torch's DataLoader with workers, this
        object does not know how many batches were received: use ``state_at(received)``. In a worker, the state is that
        of the worker's iterator.

        Raises:
            Unusable: The latest iteration began in another process.
        """
        begun, coming, latest = self._iterations.epochs.latest(), self.coming(), self._latest
        here = latest is not None and (begun == latest.cursor or get_worker_info() is not None)
        if latest is not None and here and begun != coming and not latest.ended:
            return self.state(latest.cursor, latest.batches)
        if here or begun == coming:
            return self.state(coming)
        raise Unusable(
            "cannot tell how many batches the training loop has received: this iteration runs elsewhere, for example "
            "in a loader's workers; count the batches, and call state_at(received)"
        )

    def deliveries(
        self, on_error: OnError, collate: Callable[[list[Any]], Any] | None = None, key: int | None = None
    ) -> tuple[Iterator[Delivery], ReadCounts]:
        """Begin the next epoch immediately; return its batches for a loader, and the counts of their reads so far.

        ``collate`` replaces ``collate_fn``; ``key`` is for ``begin``.
        """
        collate = collate or self.collate_fn
        cursor, place = self.begin(key)
        batches = batch_indices(self.plan, cursor, place)
        if on_error == "raise" and not self.dataset.skips:
            lists, counts = self.dataset.lists(batches, place.workers)
        else:
            reading = self.dataset.reading(batches, place.workers)
            lists, counts = in_lists(reading, on_error), reading.counts
        return self._delivered(lists, cursor, place, collate), counts

    def _delivered(
        self, lists: Iterator[list[Any]], cursor: Cursor, place: Place, collate: Callable[[list[Any]], Any]
    ) -> Iterator[Delivery]:
        # Not map(): a StopIteration raised by collate_fn would end the epoch.
        for number, made in enumerate(lists):
            samples, skipped = remaining(made)
            try:
                batch = collate(samples)
            except Exception as error:
                self.explain(error, made, cursor, place.worker + number * place.workers)
                raise
            yield Delivery(batch, cursor, skipped, len(samples))

    def explain(self, error: BaseException, made: list[Any], cursor: Cursor, batch: int) -> None:
        """Add a note to an error of torch's ``default_collate``: the first sample that does not fit, and its field.

        ``batch`` is the number of the batch on this rank, counted from ``cursor``, where the iteration began.
        """
        if self.collate_fn is not collate_samples:
            return
        if any(isinstance(each, Generator) for each in made):
            error.add_note("transform yields its value, and makes a generator: return the value instead")
            return
        if (found := find_misfit(made)) is None:
            error.add_note("torch collates batches: let transform return tensors of one shape, or pass collate_fn=list")
            return
        row, what = found
        sample = self._describe(*plan_batch(self.plan, cursor, self._iterations.rank(), batch)[row])
        error.add_note(
            f"cannot collate row {row} of the batch, sample {sample.index}, {public_url(sample.url)}: {what}; return "
            'another value in transform, raise an error there with on_error="skip" to leave the sample out, or pass '
            "collate_fn=list"
        )

    def reading(self) -> tuple[Cursor, Reading]:
        """Begin the next epoch; return its cursor, and the ``Reading`` of this process's samples."""
        cursor, place = self.begin()
        return cursor, self.dataset.reading(batch_indices(self.plan, cursor, place), place.workers)

    def sources(self, begun: Cursor, received: int) -> tuple[SourceShare, ...]:  # noqa: ARG002  of a mixture
        """Return the counts of each source of a mixture, ``received`` batches after ``begun``; () for other data."""
        return ()

    def reads(self) -> Iterator[Reads]:
        """Yield each store with the byte spans of this rank's next epoch, which does not begin."""
        yield from self.dataset.reads(lambda: batch_indices(self.plan, self.coming(), self._iterations.rank()))


# Arguments of torch's samplers, with what to write here.
_INSTEAD = {
    **dict.fromkeys(
        ("num_replicas", "rank", "world_size"),
        ": a process finds its rank by itself; to give it, write place=ps.Place(rank=…, world=…)",
    ),
    **dict.fromkeys(("replacement", "num_samples", "weights"), ": write shuffle=ps.order.WeightedShuffle(…)"),
    "drop_last": ': write tail="drop"',
    "generator": ": the order depends on seed= and the epoch alone",
    "sampler": ": it orders the dataset itself; write shuffle=True, or give shuffle= an order",
}


def _hint_arguments(function: Callable[P, None]) -> Callable[P, None]:
    """Make a constructor refuse torch's arguments, with a replacement in the error."""
    known = signature(function).parameters

    @wraps(function)
    def construct(*args: P.args, **arguments: P.kwargs) -> None:
        for name in arguments:
            if name not in known and name in _INSTEAD:
                kind = function.__qualname__.partition(".")[0]
                raise TypeError(f"{kind}() got an unexpected keyword argument {name!r}{_INSTEAD[name]}")
        function(*args, **arguments)

    return construct


class BatchSampler(Resumable, Sampler[list[int]]):
    """A ``batch_sampler`` for torch's DataLoader, which yields each batch of this rank as a list of indices.

    The order and the global batches are those of ``penstock.DataLoader``. Indices that fill up the last batch are
    ``Repeat``. Under torch's DataLoader, which draws batches ahead, use the state ``state_at(batches received)``. The
    state of torchdata's StatefulDataLoader resumes with the same number of workers; ``elastic_state`` converts it for
    any number of workers. Batches are formed in the parent, for any number of workers.

    Args:
        data_source: Any dataset with a length. A Penstock dataset also adds its catalog's digest to the state.
        batch_size: Samples per batch and rank.
        shuffle: True, False or an order such as ``ps.order.BlockShuffle``.
        seed: Seed of the order.
        tail: Controls the incomplete last batch, as for ``penstock.DataLoader``.
        place: This process's rank, as for ``IterableDataset``.

    Attributes:
        batch_size: Samples per batch and rank. (``drop_last`` is missing on purpose: Lightning would take a sampler
            with both attributes for torch's own, and construct a new one by its signature.)

    Raises:
        Unusable: An argument is invalid.

    Example:
        >>> dataset = ps.MapDataset.from_prefix("s3://bucket/train/3/")
        >>> sampler = ps.BatchSampler(dataset, batch_size=8, shuffle=True)
        >>> loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler, collate_fn=list)
        >>> len(next(iter(loader))), len(loader)
        (8, 8)
    """

    @_hint_arguments
    def __init__(
        self,
        data_source: Sized,
        batch_size: int,
        *,
        shuffle: bool | Order = False,
        seed: int = 0,
        tail: Tail = "short",
        place: PlaceLike = None,
    ) -> None:
        if isinstance(data_source, (Sampler, TorchIterableDataset)) or not hasattr(data_source, "__len__"):
            raise Unusable(
                f"{kind_of(data_source)} has no samples by index: give the BatchSampler the dataset itself, "
                "which it orders and shards over ranks; batches of an IterableDataset are formed by batched(…)"
            )
        catalog = getattr(data_source, "catalog", None)
        if isinstance(data_source, IndexedDataset):
            # As the dataset fits blocks to its shards, files or parts.
            order = data_source._fit_order(shuffle)  # noqa: SLF001  of the base class
        else:
            order = fitted_order(shuffle, catalog) if isinstance(catalog, Catalog) else order_of(shuffle)
        plan = SamplingPlan(samples=len(data_source), batch=batch_size, order=order, seed=seed, tail=tail)
        contents = data_source.contents if isinstance(data_source, BatchableDataset) else catalog
        super().__init__(plan, contents, RankIterations(place))

    @property
    def sampler(self) -> Self:
        """Return this object: Lightning and others look for ``set_epoch`` on the attribute ``sampler``."""
        return self

    def __iter__(self) -> StatefulIterator:
        """Return an iterator over the next epoch, which begins with its first batch: DataLoader asks for two."""
        return StatefulIterator(self, partial(batch_indices, self.plan))
