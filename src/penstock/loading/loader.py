"""The loader: batches in a guaranteed order, decoded ahead in threads or workers, with state and counters."""

from __future__ import annotations

import logging
from collections import deque
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset as TorchIterableDataset
from torch.utils.data import get_worker_info

from penstock.datasets.batched import BatchableDataset
from penstock.datasets.iterable import IterableDataset
from penstock.datasets.map import MapDataset
from penstock.datasets.subsets import without_subsets
from penstock.errors import Unusable, public_url
from penstock.loading.arguments import (
    check_counts,
    check_device,
    check_words,
    not_a_dataset,
    processors,
    tail_of,
    worker_options,
)
from penstock.loading.decoding import DecodeOptions, DecodePool
from penstock.loading.device import mover, pinned, to_device
from penstock.loading.sendable import check_sendable
from penstock.loading.stats import LoaderStats, Meter, Work
from penstock.loading.stopwatch import Stopwatch
from penstock.loading.tracing import TraceSlot, ranged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.datasets.batched import Batched
    from penstock.datasets.planning.inspection import PlannedSample
    from penstock.datasets.policy import Delivery, OnError, Skipped
    from penstock.datasets.positions.place import PlaceLike
    from penstock.loading.report.loaderreport import LoaderReport
    from penstock.loading.report.summary import Prices
    from penstock.loading.requests import Requests
    from penstock.loading.stats import Counters
    from penstock.order.partition import Tail
    from penstock.order.sampling import Cursor
    from penstock.protocols.order import Order
    from penstock.source import Source
    from penstock.values import Span

__all__ = ["DataLoader"]

T = TypeVar("T")

_LOG = logging.getLogger("penstock")
_AHEAD = 2  # batches: torch's own prefetch_factor
_REMEMBERED = 1000


class DataLoader:
    """Batches of a Penstock dataset: each sample exactly once per epoch over ranks, workers, stops and restarts.

    The incomplete last batch is the one exception. ``tail="short"``, the default, repeats samples only where fewer are
    left than there are ranks; ``"pad"`` repeats samples to fill the batch; ``"drop"`` leaves the samples out.
    ``Sample.repeat`` marks repeated samples.

    The batches are the same for any ``num_workers``. The global batches are the same for any number of ranks with the
    same global batch size (``batch_size`` is per rank). Every rank has the same number of batches. ``state_dict()``
    is the position of the training loop, not of the prefetching; any number of ranks and workers may continue from it
    (``load_state_dict``). ``stats()`` has counters.

    With ``num_workers=0`` the I/O thread reads objects while ``decode_threads`` transform and collate in this process,
    ``prefetch`` batches ahead. Nothing is pickled, and no thread is left when the iteration ends, also by ``break`` or
    an exception. Pillow, numpy and torch release Python's lock (the GIL) while they work. A transform in pure Python
    does not: use worker processes for it.

    Args:
        dataset: A ``MapDataset``, an ``IterableDataset``, or torch's ``Subset`` of the former, as ``random_split``
            makes them. The state is a subset's own: pass ``random_split`` a seeded generator, or split the catalog.
        batch_size: Samples per batch and rank.
        shuffle: Permute all samples anew each epoch; or an order, such as ``ps.BlockShuffle(…)``. Of an
            ``IterableDataset`` it is the dataset's own, as are ``seed`` and ``place``.
        seed: Of the order; default 0.
        num_workers: Processes that read, transform and collate; 0: threads of this one.
        collate_fn: Makes a batch of a list; default: torch's own, and the plain list of bare ``Sample``s.
        tail: Controls the incomplete last batch: ``"short"``, ``"pad"`` or ``"drop"`` (see
            ``IterableDataset.batched``).
        drop_last: The same as ``tail="drop"``.
        place: This process's rank, or the mesh of devices that says it; ``"unsharded"``: every rank reads all.
        on_error: ``"raise"``, or ``"skip"``: a sample that cannot be read or transformed is left out of its batch,
            logged, and counted in ``skipped``. An empty batch raises ``Damaged``, because this rank would be out of
            step with the others.
        decode_threads: Threads that decode and transform, with ``num_workers=0``. Default: one for each processor that
            this rank may use, at most 16; one where there is nothing to decode and no transform.
        prefetch: Most batches that are being made or wait for the training loop; with workers, for each worker.
        pin_memory: Copy batches into page-locked memory, if there is a CUDA device.
        device: Move batches to this device; to CUDA one step ahead.
        **workers: Arguments of torch's own loader for worker processes: ``persistent_workers``, ``worker_init_fn``,
            ``multiprocessing_context``, ``timeout``. Torch's other arguments are accepted with their default only.

    Attributes:
        skipped: The latest 1,000 samples that were left out: ``url`` and ``error``.
        skipped_count: Number of all samples that were left out.

    Raises:
        Unusable: Arguments that do not fit together.
        StateMismatch: Another rank has another catalog or order (at construction, where there is a process group).

    """

    batch_sampler = None  # nor has a loader of torch's that does not form the batches; Lightning looks

    def __init__(  # noqa: PLR0913  torch's own signature, and see design/0008
        self,
        dataset: BatchableDataset,
        batch_size: int = 1,
        *,
        shuffle: bool | Order | None = None,
        seed: int | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        tail: Tail = "short",
        drop_last: bool = False,
        place: PlaceLike = None,
        on_error: OnError = "raise",
        decode_threads: int | None = None,
        prefetch: int = _AHEAD,
        pin_memory: bool = False,
        device: torch.device | str | None = None,
        **workers: Any,  # noqa: ANN401  torch's own
    ) -> None:
        """Open nothing yet; see the class."""
        check_counts(num_workers, prefetch, decode_threads)
        check_words(on_error=on_error, pin_memory=pin_memory)
        tail = tail_of(tail, drop_last=drop_last)
        dataset = without_subsets(dataset)
        own = {"shuffle": shuffle, "seed": seed, "place": place}
        given = {name: value for name, value in own.items() if value is not None}
        self._batches = _batches(dataset, batch_size, collate_fn, tail, given)
        self.dataset = dataset
        self.batch_size = self._batches.batch_size
        self.num_workers = num_workers
        self.pin_memory = pin_memory and torch.cuda.is_available()
        self.device = check_device(device)
        self.skipped: deque[Skipped] = deque(maxlen=_REMEMBERED)
        self.skipped_count = 0
        self._on_error = on_error
        self._threads = decode_threads or (processors() if dataset.decodes else 1)
        self._prefetch = prefetch
        self._meter: Meter | None = None
        self._worker_batches = _WorkerBatches(self._batches, on_error)
        self._workers = self._processes(worker_options(workers, num_workers))
        self._began: Cursor | None = None  # of the iteration under way
        self._received = 0

    def _processes(self, options: dict[str, Any]) -> TorchDataLoader[Any] | None:
        if not self.num_workers:
            return None
        functions = {"transform": self.dataset.transform, "collate_fn": self._batches.collate_fn}
        check_sendable(functions, self.num_workers, options.get("multiprocessing_context"))
        return TorchDataLoader(
            self._worker_batches,
            batch_size=None,
            num_workers=self.num_workers,
            prefetch_factor=self._prefetch,
            pin_memory=self.pin_memory,
            collate_fn=_itself,
            **options,
        )

    @property
    def sampler(self) -> Batched:
        """What has ``set_epoch``, where Lightning and others look for it."""
        return self._batches

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration epoch ``epoch``; without it, each is the next one. See ``Batched.set_epoch``."""
        self._batches.set_epoch(epoch)

    def spans(self) -> tuple[Source, Iterator[Span]]:
        """Return the store and what this rank reads of it in the next epoch, in order: for ``ps.warm``. No request."""
        return self._batches.spans()

    def __len__(self) -> int:
        """Return how many batches a whole epoch has, on every rank; an iteration that resumes has fewer."""
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of the next epoch, or resume where ``load_state_dict`` said.

        It begins with the first ``next``, not here and now: Lightning makes an iterator, and sets the epoch then.
        """
        deliveries = self._decoded() if self._workers is None else self._from_workers(self._workers)
        if self.device is not None:
            deliveries = to_device(deliveries, self.device, self._metering().moving)
        yield from self._receive(deliveries)

    def _decoded(self) -> Iterator[Delivery]:
        row, batches = self._metering().counters.claim(0), self._batches
        cursor, reading = batches.reading()
        self._note(cursor, 0)
        collate, pin = Stopwatch(batches.collate_fn), Stopwatch(pinned)
        finish = _then(collate, pin) if self.pin_memory else collate
        options = DecodeOptions(self._threads, self._prefetch, self._on_error, finish)
        pool = DecodePool(reading, cursor, options)

        def work() -> Work:
            return Work(pool.working_s, collate.seconds, pin.seconds, pool.demanded_s)

        try:
            for delivery in pool:
                row.add(delivery)
                row.write(reading.counts, work())
                yield delivery
        finally:
            pool.close()
            row.write(reading.counts, work())
            row.leave()

    def _from_workers(self, workers: TorchDataLoader[Any]) -> Iterator[Delivery]:
        self._note(self._batches.coming(), 0)  # until a worker says where it has begun
        self._worker_batches.counters = self._metering().counters
        self._worker_batches.requests = self._metering().requests
        self._worker_batches.trace.write()
        received = iter(workers)
        try:
            yield from received
        except Exception as error:
            clear_frames(error.__traceback__)  # torch's frames would keep the workers alive as long as the error is
            raise
        finally:
            del received

    def _receive(self, deliveries: Iterable[Delivery]) -> Iterator[Any]:
        for number, delivery in enumerate(ranged(self._metering().metered(deliveries)), 1):
            self._note(delivery.cursor, number)
            for skipped in delivery.skipped:
                self._leave_out(skipped)
            yield delivery.batch
        self._began = None

    def _metering(self) -> Meter:
        """Return what counts in this process; one that was forked since begins at zero."""
        if self._meter is None or self._meter.inherited:
            self._meter = Meter(self.num_workers, mover(self.device))
        return self._meter

    def stats(self) -> LoaderStats:
        """Return what was counted since the loader was made, over all epochs: no request, and no wait for workers.

        Any thread may ask, also while batches are made. Counts of workers are updated with each batch that one of them
        makes, and when its iteration ends; a worker that is killed keeps the counts of its batches.
        """
        return self._metering().stats()

    def inspect(self, batch: int, *, epoch: int | None = None, rank: int | None = None) -> tuple[PlannedSample, ...]:
        """Return which samples a batch holds, without reading them: see ``Batched.inspect``.

        With ``on_error="skip"`` the samples that were left out are among them.
        """
        return self._batches.inspect(batch, epoch=epoch, rank=rank)

    def report(self, prices: Prices | None = None) -> LoaderReport:
        """Return why the training loop waits for batches, with one recommendation: no request, no wait for workers.

        It covers all epochs since the loader was made. ``prices`` add what the requests cost. Under a process group,
        each rank reports on itself: ``save`` and ``merge_reports`` join their reports. Without worker processes,
        ``hosts`` and ``slowest`` include what else this process has requested since: checkpoints, say.
        """
        from penstock.datasets.positions.place import resolve
        from penstock.loading.report.advice import Setup
        from penstock.loading.report.loaderreport import report

        meter, threads = self._metering(), self._threads
        setup = Setup(self.num_workers, threads, processors(), self._prefetch, self.batch_size)
        return report(meter.stats(), meter.requests, setup, prices, resolve(None))

    def _note(self, cursor: Cursor, received: int) -> None:
        self._began, self._received = cursor, received

    def _leave_out(self, skipped: Skipped) -> None:
        self.skipped_count += 1
        self.skipped.append(skipped)
        _LOG.warning("left out of its batch: %s (%s)", public_url(skipped.url), skipped.error)

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the batches that the training loop has received: see ``Batched.state_at``.

        Once an iteration has ended by itself, it is the next epoch's start. After its last batch and before that, it is
        the end of the epoch: an iteration that resumes there has no batch.
        """
        if self._began is None:
            return self._batches.state(self._batches.coming())
        return self._batches.state(self._began, self._received)

    def load_state_dict(
        self, state: Mapping[str, Any], *, allow_new_global_batch: bool = False, allow_rereads: bool = False
    ) -> None:
        """Make the next iteration resume where ``state`` was taken, with any number of ranks and workers.

        Raises:
            StateMismatch: See ``Batched.load_state_dict``.

        """
        allowed = {"allow_new_global_batch": allow_new_global_batch, "allow_rereads": allow_rereads}
        self._batches.load_state_dict(state, **allowed)
        self._began = None


class _WorkerBatches(TorchIterableDataset[Any]):
    """Batches as a worker sends them to its loader."""

    def __init__(self, batches: Batched, on_error: OnError) -> None:
        self.batches = batches
        self.on_error = on_error
        self.counters: Counters | None = None  # shared with the loader, once it iterates
        self.requests: Requests | None = None  # the same
        self.trace = TraceSlot()

    def __iter__(self) -> Iterator[Delivery]:
        self.trace.enter()
        collate = Stopwatch(self.batches.collate_fn)
        deliveries, counts = self.batches.deliveries(self.on_error, collate)
        worker = get_worker_info()
        if self.counters is None or self.requests is None or worker is None:
            return deliveries
        counted = self.counters.claim(worker.id).counted(deliveries, counts, collate)
        return self.requests.claim(worker.id).followed(counted)


def _batches(
    dataset: object, size: int, collate_fn: Callable[[list[Any]], Any] | None, tail: Tail, order: dict[str, Any]
) -> Batched:
    """Return a dataset as batches; ``order`` has those of shuffle, seed and place that were given."""
    if isinstance(dataset, MapDataset):
        return dataset.batched(size, collate_fn, tail=tail, **order)
    if not isinstance(dataset, BatchableDataset):
        raise not_a_dataset(dataset)
    if order:
        ours = isinstance(dataset, IterableDataset)
        kind, made = ("IterableDataset", ".from_prefix(url, ") if ours else (type(dataset).__name__, "(…, ")
        article = "an" if kind[0] in "AEIO" else "a"
        raise Unusable(
            f"{article} {kind} has shuffle, seed and place of its own: write {kind}{made}shuffle=True, seed=…)"
        )
    return dataset.batched(size, collate_fn, tail=tail)


def _itself(delivery: T) -> T:
    return delivery


def _then(first: Callable[[list[Any]], Any], second: Callable[[Any], Any]) -> Callable[[list[Any]], Any]:
    return lambda samples: second(first(samples))
