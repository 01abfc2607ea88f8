"""The loader: batches in a guaranteed order, decoded ahead in threads or workers, with state and counters."""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import sys
import threading
from collections import deque
from contextlib import contextmanager, suppress
from itertools import count
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, Never, TypeVar, cast, get_args
from weakref import WeakKeyDictionary, ref

import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset as TorchIterableDataset
from torch.utils.data import get_worker_info

from penstock.data.datasets.map import without_subsets
from penstock.data.loading.arguments import (
    OTHERS_ARGUMENTS,
    batches_of,
    check_counts,
    check_device,
    check_others,
    processors,
    tail_of,
    worker_options,
)
from penstock.data.loading.decoding import (
    DecodeOptions,
    DecodePool,
    chained,
    mover,
    pin_batch,
    place_transform,
    to_device,
)
from penstock.data.loading.sendable import ByValue, ended_worker, travel_by_value
from penstock.data.loading.stats import LoaderStats, Meter, Stopwatch, TraceSlot, WorkTime, profile_waits
from penstock.data.order.orders import CatalogOrder
from penstock.data.reading.reading import OnError
from penstock.data.reading.sharing import BlockBoard, enter_board
from penstock.display import counted
from penstock.engine.node.live import Live
from penstock.errors import Unusable, public_url
from penstock.values import check_choice, switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from multiprocessing.context import BaseContext

    from penstock.data.datasets.batched import BatchableDataset, Batched
    from penstock.data.datasets.inspection import PlannedSample, SeenBatches
    from penstock.data.loading.report import LoaderReport
    from penstock.data.loading.stats import Counters, Requests
    from penstock.data.loading.summary import Prices
    from penstock.data.order.mixture import Weights
    from penstock.data.order.protocol import Order
    from penstock.data.order.sampling import Cursor, SamplingPlan, Tail
    from penstock.data.reading.iteration import PlaceLike
    from penstock.data.reading.reading import Delivery, Skipped
    from penstock.source import Source
    from penstock.values import Span

T = TypeVar("T")

_LOG = logging.getLogger("penstock")
_AHEAD = 2  # batches, as torch's prefetch_factor
_REMEMBERED = 1000
_MOST_LOOKS = 3


class _Wrapped(Unusable, AttributeError):
    """Refusal to be wrapped in another loader; for ``hasattr``, which Lightning calls, a missing attribute.

    Ray's wrapper takes a batch before the training loop asks for it: a state saved then would leave that batch out.
    """

    def __init__(self) -> None:
        super().__init__(
            "cannot wrap a ps.DataLoader: it gives each rank its own samples, and a wrapper that reads ahead would "
            "lose a batch at a resume; leave out prepare_data_loader, and pass device= to ps.DataLoader"
        )


class _ReadOnlyArgument(Unusable, AttributeError, ValueError):
    """Refusal of another value for an argument; PyTorch's loader raises ``ValueError``."""

    def __init__(self, name: str) -> None:
        super().__init__(f"cannot set {name} of a loader that exists: make a new one with {name}=…")


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
        dataset: A ``MapDataset``, an ``IterableDataset``, a ``ZarrDataset``, or torch's ``Subset`` of the first or
            last, as ``random_split`` makes them. The state is that of the subset: pass ``random_split`` a seeded
            generator, or split the catalog.
        batch_size: Samples per batch and rank.
        shuffle: Permute all samples in each epoch; or an order, such as ``ps.order.BlockShuffle(…)``. Give an
            ``IterableDataset`` its ``shuffle``, ``seed`` and ``place`` directly instead.
        seed: Seed of the order; default 0.
        num_workers: Processes that read, transform and collate; 0: threads of this process.
        collate_fn: Function from a list of samples to a batch; default: torch's own, and the plain list for samples
            that are bare ``Sample`` objects.
        tail: Controls the incomplete last batch: ``"short"``, ``"pad"`` or ``"drop"`` (see
            ``IterableDataset.batched``).
        drop_last: The same as ``tail="drop"``.
        place: This process's rank, or the device mesh that gives it; ``"unsharded"``: every rank reads all samples.
        on_error: ``"raise"``, or ``"skip"``: a sample that cannot be read or transformed is left out of its batch,
            logged, and counted in ``skipped``. An empty batch raises ``Damaged``, because this rank would be out of
            step with the others.
        decode_threads: Threads that decode and transform, with ``num_workers=0``. Default: one for each processor that
            this rank may use, at most 16; one if there is nothing to decode and no transform.
        prefetch: Most batches that are being made or wait for the training loop; with workers, per worker.
        pin_memory: Copy batches into page-locked memory, if there is a CUDA device.
        device: Move batches to this device; to CUDA one step ahead.
        device_transform: Function from a batch to the batch that is yielded, called where the batch is: for CUDA on the
            stream of the copies, one batch ahead of the training loop; for the CPU in the thread or process that
            collated it. For example conversion, normalisation, augmentation, decoding.
        persistent_workers: Keep worker processes from one epoch to the next.
        worker_init_fn: Function that each worker process calls first, with its number.
        multiprocessing_context: Start method of worker processes, or its context; default: Python's.
        timeout: Seconds after which a batch of the workers is given up; 0: none. Torch's other arguments are accepted
            with their default only.

    Attributes:
        skipped_count: Number of all samples that were left out.

    Raises:
        Unusable: Arguments that do not fit together.
        StateMismatch: Another rank has a different catalog or order (at construction, if there is a process group).

    Example:
        >>> def label(sample):
        ...     return torch.tensor(int(sample.key.split("/")[1]))
        >>> dataset = ps.MapDataset.from_prefix("s3://bucket/train/", transform=label)
        >>> loader = ps.DataLoader(dataset, batch_size=8, shuffle=True)
        >>> next(iter(loader)).shape, len(loader)
        (torch.Size([8]), 75)
    """

    # None as in torch's loader when that does not form the batches; Lightning reads it.
    batch_sampler = None

    @check_others
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
        device_transform: Callable[[Any], Any] | None = None,
        persistent_workers: bool = False,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        timeout: float = 0,
    ) -> None:
        check_counts(num_workers, prefetch, decode_threads)
        check_choice(on_error, get_args(OnError), "on_error")
        switch(pin_memory, "pin_memory")
        tail = tail_of(tail, drop_last=drop_last)
        self._given, dataset = dataset, without_subsets(dataset)
        own = {"shuffle": shuffle, "seed": seed, "place": place}
        given = {name: value for name, value in own.items() if value is not None}
        self._batches = batches_of(dataset, batch_size, collate_fn, tail, given)
        self._trainer = _TrainerSampler(self._batches)
        self.dataset = dataset
        self.batch_size = self._batches.batch_size
        self.num_workers = num_workers
        self.pin_memory = pin_memory and torch.cuda.is_available()
        self.device = check_device(device)
        self.device_transform = device_transform
        self._made, self._moved = place_transform(device_transform, self.device)
        self._skipped: deque[Skipped] = deque(maxlen=_REMEMBERED)
        self.skipped_count = 0
        self._on_error = on_error
        self._threads = decode_threads or (processors() if dataset.decodes else 1)
        self._prefetch = prefetch
        self._meters: dict[int, Meter] = {}
        self._worker_batches = _WorkerBatches(self._batches, on_error, self._made)
        options = worker_options(num_workers, persistent_workers, worker_init_fn, multiprocessing_context, timeout)
        self._workers = self._processes(options)
        # Start of the current iteration and the batches received of it: one value, because any thread may ask for it.
        self._at: tuple[Cursor, int] | None = None
        self._open = 0  # iterations that have begun and not ended
        self._latest = 0  # number of the latest of those
        self._looks = 0  # iterations in a row that were given up after their first batch
        self._live: Live | None = None
        self._read_only = _SETTINGS

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse to change an argument, which has no effect on an existing loader."""
        if name in vars(self).get("_read_only", ()):
            raise _ReadOnlyArgument(name)
        super().__setattr__(name, value)

    def _processes(self, options: dict[str, Any]) -> TorchDataLoader[Any] | None:
        if not self.num_workers:
            return None
        functions = {**self.dataset.transforms, "collate_fn": self._batches.collate_fn, "device_transform": self._made}
        context, initial = options["multiprocessing_context"], options["worker_init_fn"]
        self._worker_batches.by_value = travel_by_value(functions, self.num_workers, context)
        if travel_by_value({"worker_init_fn": initial}, self.num_workers, context):
            options["worker_init_fn"] = ByValue(initial)
        return TorchDataLoader(
            self._worker_batches,
            batch_size=None,
            num_workers=self.num_workers,
            prefetch_factor=self._prefetch,
            pin_memory=self.pin_memory,
            collate_fn=_itself,
            # Otherwise each iteration would draw from torch's own, and what the training loop draws would depend on it.
            generator=torch.Generator(),
            **options,
        )

    @property
    def worker_init_fn(self) -> Never:
        """Refuse to be rebuilt: ``prepare_data_loader`` of Ray Train reads this to make another loader."""
        raise _Wrapped

    @property
    def pin_memory_device(self) -> Never:
        """Refuse to be rebuilt: Accelerate's ``skip_first_batches`` and ``prepare_data_loader`` read this."""
        raise Unusable(
            "cannot rebuild a ps.DataLoader to skip batches or to prepare it: it shards by itself and takes device=; "
            "to resume, pass loader.load_state_dict() the saved state, and a Trainer ignore_data_skip=True"
        )

    @property
    def sampler(self) -> Batched:
        """The batches, under the name where trainers (Lightning) look for ``set_epoch`` in each of their epochs."""
        return cast("Batched", self._trainer)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration. See ``Batched.set_epoch``.

        Args:
            epoch: Number of the epoch, from 0; default without a call: the next epoch.
        """
        self._batches.set_epoch(epoch)
        self._trainer.epoch = None

    def reads(self) -> Iterator[tuple[Source, Iterator[Span]]]:
        """Yield each store with the spans that this rank reads of it next epoch, in order; ``ps.warm`` reads them."""
        return self._batches.reads()

    def __repr__(self) -> str:
        batches = repr(self._batches).removeprefix("<Batched").removesuffix(">")
        return f"<{type(self).__name__}{batches}, {counted(self.num_workers, 'worker')}>"

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch, on every rank; an iteration that resumes has fewer."""
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of the next epoch, or resume at the position that ``load_state_dict`` set.

        The iteration begins with the first ``next``: Lightning makes an iterator first, and sets the epoch then.
        """
        # Not its local variables: the frame would keep them alive.
        caller = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001  the documented way
        if caller.startswith("ray.train."):
            raise _Wrapped
        deliveries = self._decoded() if self._workers is None else self._from_workers(self._workers)
        if self.device is not None:
            deliveries = to_device(deliveries, self.device, self._metering().moving)
        yield from self._receive(deliveries)

    def _decoded(self) -> Iterator[Delivery]:
        row, batches = self._metering().counters.claim(0), self._batches
        # First: another thread must not see the epoch after it.
        self._at = batches.coming(), 0
        cursor, reading = batches.reading()
        self._at = cursor, 0
        collate, pin = Stopwatch(batches.collate_fn), Stopwatch(pin_batch)
        made = Stopwatch(self._made) if self._made is not None else None
        after = chained(made, pin if self.pin_memory else None)
        functions = collate, batches.explain, after
        options = DecodeOptions(self._threads, self._prefetch, self._on_error, *functions, self._metering().gil)
        pool = DecodePool(reading, cursor, options)

        def work() -> WorkTime:
            collated_s = collate.seconds + (made.seconds if made is not None else 0.0)
            return WorkTime(pool.working_s, collated_s, pin.seconds, pool.demanded_s)

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
        # Until a worker reports where the iteration began.
        self._at = self._batches.coming(), 0
        self._worker_batches.counters = self._metering().counters
        self._worker_batches.requests = self._metering().requests
        self._worker_batches.trace.write()
        if self._worker_batches.board is None and self.num_workers > 1:
            self._worker_batches.board = BlockBoard()
        self._worker_batches.key = int.from_bytes(os.urandom(7))
        received, mine = None, self._latest
        try:
            with _turn() as turn:
                workers.generator.manual_seed(self._workers_seed(turn))
                received = iter(workers)
                for delivery in received:
                    yield delivery
                    if workers.persistent_workers and mine != self._latest:
                        raise Unusable(
                            "cannot continue this iteration: a later one has taken the persistent workers; "
                            "iterate one after the other, or pass persistent_workers=False"
                        )
        except Exception as error:
            # Otherwise torch's frames would keep the workers alive as long as the error exists.
            clear_frames(error.__traceback__)
            if hint := ended_worker(error, workers.multiprocessing_context):
                error.add_note(hint)
                self._renew_workers()
            raise
        finally:
            del received

    def _workers_seed(self, turn: int) -> int:
        """Return the seed from which torch seeds the workers: the same for the same program, epoch and position.

        Draws nothing from torch's generator. ``turn`` tells iterations apart that run at the same time.
        """
        cursor = self._batches.coming()
        numbers = (torch.initial_seed(), self._batches.plan.seed, cursor.epoch, cursor.position, turn)
        return int.from_bytes(hashlib.sha256(f"penstock workers 1: {numbers}".encode()).digest()[:8])

    def _receive(self, deliveries: Iterable[Delivery]) -> Iterator[Any]:
        if self._live is None or self._live.inherited:
            # Through a strong reference, the loader would live as long as the process.
            this = ref(self)
            self._live = Live(lambda: {} if (own := this()) is None else own.report().values())
        before, self._open = self._at if self._open else None, self._open + 1
        self._latest += 1
        number = 0
        try:
            for number, delivery in enumerate(profile_waits(self._metering().metered(deliveries)), 1):
                self._at = delivery.cursor, number
                for skipped in delivery.skipped:
                    self.skipped_count += 1
                    self._skipped.append(skipped)
                    _LOG.warning("left out of its batch: %s (%s)", public_url(skipped.url), skipped.error)
                self._live.note()
                self._looks = self._looks if number == 1 else 0
                yield delivery.batch
                if number == 1:
                    self._looks = 0
                    self._go_on(delivery.cursor)
            self._at = None
            if not number and not len(self):
                _warn_of_none(self._given, self._batches.plan)
            if number and delivery.cursor[:2] == (0, 0):
                _note_order(self._given, self._batches.plan)
        except GeneratorExit:
            # Trainers that count close an iteration after the last batch of an epoch: that is no look.
            if number == 1 and self._batches.remaining(delivery.cursor) > 1:
                self._look(delivery.cursor, before)
            raise
        finally:
            self._open -= 1

    def _go_on(self, cursor: Cursor) -> None:
        """Check the position of an iteration at its second batch; ranks may look at first batches differently often."""
        self._batches.check_position(cursor)
        if cursor[:2] == (0, 0):
            _check_order(self._given, self._batches.plan)

    def _look(self, cursor: Cursor, before: tuple[Cursor, int] | None) -> None:
        """Start the next iteration where this one, abandoned after its first batch, began.

        Programs look at a batch before they train, or while they do, ``before``. Where each step begins an iteration of
        its own, every look would show the same batch: after a few in a row, each counts as an epoch.
        """
        if self._looks < _MOST_LOOKS:
            # At the interpreter's end, the memory of the epochs is closed already.
            with suppress(OSError):
                self._looks += self._batches.rewind(cursor)
        elif self._looks == _MOST_LOOKS:
            self._looks += 1
            _LOG.warning(
                "%d iterations in a row ended after their first batch: from here on each counts as an epoch; to take "
                "one batch after the other, keep the iterator: batches = iter(loader), then next(batches)",
                self._looks,
            )
        if before is not None:
            self._at = before

    def _metering(self) -> Meter:
        """Return the meter of this process; a process that was forked later begins at zero."""
        found = self._meters.get(pid := os.getpid())
        # Threads may come here at once, before the first batch: setdefault gives all of them the same meter.
        return found or self._meters.setdefault(pid, Meter(self.num_workers, chained(mover(self.device), self._moved)))

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """The latest 1,000 samples that were left out: ``url`` and ``error`` of each, as a copy."""
        return tuple(self._skipped)

    def stats(self) -> LoaderStats:
        """Return the counts since the loader was made, over all epochs; makes no request and waits for no worker.

        Any thread may call it, also while batches are made. The counts of a worker are updated with each batch that it
        makes, and when its iteration ends; if a worker is killed, the counts of its batches are kept.
        """
        return self._metering().stats()

    def inspect(self, batch: int, *, epoch: int | None = None, rank: int | None = None) -> tuple[PlannedSample, ...]:
        """Return which samples a batch holds, in order, whether or not it has been delivered; reads nothing.

        Asks no worker or other rank, and costs the same for any batch of any epoch. With ``on_error="skip"``, the
        samples that were left out are included.

        Args:
            batch: Number of the batch on its rank, from 0. With ``epoch``, counted from the start of that epoch;
                without it, from where the latest iteration began.
            epoch: Number of the epoch; default: the epoch of the latest iteration.
            rank: Rank of the batch, among the present number of ranks; default: this process's rank.

        Raises:
            Unusable: The batch, epoch or rank does not exist.
        """
        return self._batches.inspect(batch, epoch=epoch, rank=rank)

    def seen(
        self, until: Mapping[str, Any], since: Mapping[str, Any] | None = None, *, ranks: int | None = None
    ) -> SeenBatches:
        """Return the global batches that a run received up to a state, such as that of a checkpoint; reads nothing.

        The loader must have the catalog, order, seed and ``tail`` of the run; its ranks, workers, batch size and
        position do not matter. Takes less than a second at any position of 10⁹ samples.

        Args:
            until: The later ``state_dict()``.
            since: The earlier one; default: the beginning of the run. If weights or sources of a mixture changed in
                between, or the global batch, the state from which the run resumed with them.
            ranks: Number of ranks that received them, which ``inspect(rank=…)`` and repeats depend on; default:
                as many as share these global batches at this loader's batch size.

        Returns:
            The batches as arrays of sample numbers, with ``notes`` that name what the states cannot prove.

        Raises:
            StateMismatch: A state belongs to another catalog or order, or the two are not of one run.
            Unusable: ``since`` is later than ``until``, or ``ranks`` do not divide the global batch.
        """
        seen = self._batches.seen(until, since, ranks=ranks)
        if self._on_error == "skip" or self._batches.dataset.skips:
            seen.notes += ('samples that on_error="skip" left out are included',)
        return seen

    def report(self, prices: Prices | None = None) -> LoaderReport:
        """Return a report on why the training loop waits for batches, with one recommendation.

        Makes no request and waits for no worker. The report covers all epochs since the loader was made. Under a
        process group, each rank reports on itself: ``save`` and ``merge_reports`` join their reports. Without worker
        processes, ``hosts`` and ``slowest`` include all other requests of this process since then, such as those for
        checkpoints.

        Args:
            prices: The store's prices, to add the cost of the requests; default: no cost.
        """
        from penstock.data.loading.report import is_scattered, report
        from penstock.data.loading.summary import Setup

        single = is_scattered(self._batches.dataset)
        setup = Setup(self.num_workers, self._threads, processors(), self._prefetch, self.batch_size, single)
        sources = self._batches.sources(*self._where())
        return report(self._metering(), setup, self.dataset, prices, sources)

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the batches that the training loop has received: see ``Batched.state_at``.

        Once an iteration has ended normally, the state is the start of the next epoch. After the last batch and before
        that, the state is the end of the epoch: an iteration that resumes there has no batch.
        """
        state, epoch = self._batches.state(*self._where()), self._trainer.epoch
        return state if epoch is None or epoch == state["epoch"] else state | {"trainer_epoch": epoch}

    def _where(self) -> tuple[Cursor, int]:
        """Return the start of the current iteration, or else of the next one, and the batches received of it."""
        if (at := self._at) is None:
            coming = self._batches.coming()
            # Another thread may have begun that one meanwhile.
            at = self._at or (coming, 0)
        return at

    def load_state_dict(
        self,
        state: Mapping[str, Any],
        *,
        allow_new_global_batch: bool = False,
        allow_rereads: bool = False,
        new_weights: Weights | bool | None = None,
    ) -> None:
        """Make the next iteration resume where ``state`` was taken, with any number of ranks and workers.

        Args:
            state: The result of ``state_dict``.
            allow_new_global_batch: Accept a different global batch (batch size times ranks): no sample is lost or
                repeated, but batches combine other samples.
            allow_rereads: Accept a number of ranks that cannot share the lanes of the current epoch
                (``penstock.order.Lanes``): several ranks then read the same blocks until that epoch ends, and a warning
                reports it.
            new_weights: Weights of a ``ps.Mix`` from here on, a mapping or a ``ps.order.Schedule``; True: those of the
                mixture, which differ from those in the state, or whose sources do. Each source continues where it was.
                None or False: those of the state.

        Raises:
            StateMismatch: The state belongs to another catalog, order, version or global batch, or has lanes that the
                ranks cannot share; or another rank has a different catalog or order. Nothing has changed then.
            Unusable: ``new_weights`` are invalid, or the dataset is no ``ps.Mix``.
        """
        allowed = {"allow_new_global_batch": allow_new_global_batch, "allow_rereads": allow_rereads}
        stage = self._batches.plan.stage
        self._batches.load_state_dict(state, new_weights=new_weights, **allowed)
        self._trainer.resume(state)
        self._at, self._looks = None, 0
        if stage != self._batches.plan.stage:
            # Persistent workers have the weights of before.
            self._renew_workers()

    def _renew_workers(self) -> None:
        """Let the next iteration start new workers, even if they are persistent."""
        if self._workers is not None:
            self._workers._iterator = None  # noqa: SLF001  torch has no public way to end them


class _TrainerSampler:
    """The batches of a loader for a trainer, which sets the epoch before each of its epochs, and after a resume.

    With several loaders, a shorter one has more epochs than the trainer (Lightning's ``max_size_cycle``), or has ended
    its epoch and waits for the others (``max_size``). So a state notes the trainer's epoch, where it is another one.
    """

    def __init__(self, batches: Batched) -> None:
        self._batches = batches
        self._resumed: Cursor | None = None  # where the latest state was taken
        self.epoch: int | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  any attribute of the batches
        if name.startswith("__") or "_batches" not in vars(self):
            # While it is copied or unpickled.
            raise AttributeError(name)
        return getattr(self._batches, name)

    def resume(self, state: Mapping[str, Any]) -> None:
        self._resumed = self._batches.coming()
        self.epoch = state.get("trainer_epoch", self._resumed.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, unless the trainer resumes the epoch in which it was stopped."""
        coming, before = self._batches.coming(), self.epoch
        self._batches.set_epoch(epoch)
        self.epoch = int(epoch)
        if coming != self._resumed:
            return
        if epoch != before:
            self._resumed = None
            self._batches.go_to(coming._replace(epoch=self.epoch, position=0))
        elif coming.position or coming.epoch <= epoch:
            self._batches.go_to(coming)
        else:
            # The loader has ended in this epoch of the trainer: it has no more batches until the next.
            self._resumed = coming._replace(epoch=coming.epoch - 1, position=self._batches.plan.total)
            self._batches.go_to(self._resumed)


_SETTINGS = frozenset((*inspect.signature(DataLoader).parameters, *OTHERS_ARGUMENTS))


class _WorkerBatches(TorchIterableDataset[Any]):
    """Dataset of the batches that a worker sends to its loader."""

    def __init__(self, batches: Batched, on_error: OnError, after: Callable[[Any], Any] | None) -> None:
        self.batches = batches
        self.on_error = on_error
        self.after = after  # function of a batch
        self.by_value = False  # functions that other processes cannot import travel as values
        self.counters: Counters | None = None  # shared with the loader once that iterates
        self.requests: Requests | None = None  # the same
        self.trace = TraceSlot()
        self.board: BlockBoard | None = None  # of blocks that several workers share
        # Key of the iteration for which worker processes start: persistent ones keep the key of their first.
        self.key: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        if not self.by_value:
            return vars(self)
        return {**vars(self), "batches": ByValue(self.batches), "after": self.after and ByValue(self.after)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if isinstance(self.batches, ByValue):
            self.batches = self.batches.value

    def __iter__(self) -> Iterator[Delivery]:
        self.trace.enter()
        if get_worker_info() is not None:
            enter_board(self.board)
        collate = Stopwatch(self.batches.collate_fn)
        deliveries, counts = self.batches.deliveries(self.on_error, collate, self.key)
        if self.after is not None:
            deliveries = _apply(self.after, deliveries)
        worker = get_worker_info()
        if self.counters is None or self.requests is None or worker is None:
            return deliveries
        counted = self.counters.claim(worker.id).counted(deliveries, counts, collate)
        return self.requests.claim(worker.id).followed(counted)


def _apply(after: Callable[[Any], Any], deliveries: Iterator[Delivery]) -> Iterator[Delivery]:
    return (delivery._replace(batch=after(delivery.batch)) for delivery in deliveries)


# Orders of the loaders that have ended epoch 0 of a dataset; None after a warning.
_ended: WeakKeyDictionary[Any, set[str] | None] = WeakKeyDictionary()


def _warn_of_none(dataset: object, plan: SamplingPlan) -> None:
    if plan.samples and _ended.setdefault(dataset, set()) is not None:
        _ended[dataset] = None
        _LOG.warning("an epoch has no batch, since tail='drop' leaves out the only one: pass a smaller batch_size")


def _note_order(dataset: object, plan: SamplingPlan) -> None:
    """Record that a loader has ended epoch 0 of ``dataset`` in the order of ``plan``."""
    if plan.order.identity != CatalogOrder.identity and (known := _ended.setdefault(dataset, set())) is not None:
        known.add(str(plan.arguments()))


def _check_order(dataset: object, plan: SamplingPlan) -> None:
    """Warn, once per dataset, if a loader repeats the order of an earlier loader."""
    known = _ended.get(dataset)
    if known and str(plan.arguments()) in known:
        _ended[dataset] = None
        _LOG.warning(
            "a new loader begins at epoch 0 again, with the order of an earlier loader: for another order in each "
            "epoch, iterate over one loader, or call set_epoch(epoch)"
        )


_turns: set[int] = set()  # numbers of this process's iterations in worker processes that have not ended
_turns_lock = threading.Lock()


@contextmanager
def _turn() -> Iterator[int]:
    """Give an iteration the smallest unused number, from 0."""
    with _turns_lock:
        number = next(each for each in count() if each not in _turns)
        _turns.add(number)
    try:
        yield number
    finally:
        _turns.discard(number)


def _itself(delivery: T) -> T:
    return delivery
