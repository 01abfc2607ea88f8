"""The iterable data set: reads ahead, in the order of seed and epoch, each sample once over ranks and workers."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import chain
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any

import torch.distributed
from torch.utils.data import IterableDataset as TorchIterableDataset
from torch.utils.data import default_collate, get_worker_info

from penstock.datasets.opening import Opening
from penstock.datasets.rounds import Rounds
from penstock.datasets.sample import Sample
from penstock.datasets.walk import walk
from penstock.errors import Unusable
from penstock.order.partition import Partition
from penstock.order.shuffle import Permutation
from penstock.values import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.catalog.table import Catalog
    from penstock.options import StoreOptions
    from penstock.values import Span

__all__ = ["Batched", "IterableDataset"]


class IterableDataset(Opening, TorchIterableDataset[Any]):
    """Yields every sample of the catalog once per epoch, shared out over ranks and workers, read ahead.

    ``shuffle=True`` permutes the whole catalog anew each epoch, by ``seed`` and epoch alone: any number of workers sees
    the same order. Nobody needs to call ``set_epoch``; without it each iteration is the next epoch, in every process.

    A DataLoader that forms batches itself (``batch_size=B``) delivers each sample once per epoch and promises no more:
    how many batches there are depends on its workers, so this has no length (Lightning would stop at a wrong one).
    ``batched(B)`` under ``DataLoader(batch_size=None)`` also keeps the same batches for any number of workers.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        transform: Callable[[Sample], Any] | None = None,
        shuffle: bool = False,
        seed: int = 0,
        place: Place | None = None,
        store: StoreOptions | None = None,
    ) -> None:
        """Yield the catalog's objects, or what ``transform(sample)`` makes of them.

        ``place`` says which rank of how many this process is; default: the process group's, when it is initialised,
        else ``RANK`` and ``WORLD_SIZE``, else alone.
        """
        super().__init__(catalog, transform=transform, store=store)
        self._shuffle = shuffle
        self._seed = seed
        self._place = place
        self._rounds = Rounds()

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration epoch ``epoch``, also in persistent workers; later iterations count on from it."""
        self._rounds.set(epoch)

    def batched(self, batch_size: int, collate_fn: Callable[[list[Any]], Any] | None = None) -> Batched:
        """Return this data set as batches of ``batch_size`` per rank, formed here, for ``DataLoader(batch_size=None)``.

        ``collate_fn`` takes a list; default: torch's own, and the plain list where there is no ``transform``. The last
        batch may be short, and a rank may have one batch less than others (they become equal in a later version).
        """
        return Batched(self, batch_size, collate_fn)

    def __iter__(self) -> Iterator[Any]:
        """Begin the next epoch, here and now; reads begin with the first ``next``."""
        return (sample for batch in self.batches(1) for sample in batch)

    def batches(self, batch_size: int) -> Iterator[list[Any]]:
        """Begin the next epoch and yield this worker's batches as lists."""
        info = get_worker_info()
        if info is None:
            epoch, place = self._rounds.begin(), self._rank()
        else:  # torch seeds each worker with the loader's draw and the worker's number
            epoch = self._rounds.join(info.id, info.num_workers, info.seed - info.id)
            place = replace(self._rank(), worker=info.id, workers=info.num_workers)
        batches = Partition(total=len(self.catalog), batch=batch_size, place=place)
        order = Permutation(len(self.catalog), self._seed, epoch) if self._shuffle else None
        return self._read(walk(batches, order), place.workers)

    def _read(self, batches: Iterator[list[int]], workers: int) -> Iterator[list[Any]]:
        pending: deque[tuple[list[int], list[Span]]] = deque()

        def drawn() -> Iterator[Span]:
            for batch in batches:
                spans = [self.catalog.span(index) for index in batch]
                pending.append((batch, spans))
                yield from spans

        with self._source.lookahead(drawn(), workers) as bodies:
            for data in bodies:
                batch, spans = pending.popleft()
                yield list(map(self._sample, batch, spans, chain((data,), bodies)))

    def _rank(self) -> Place:
        if self._place is not None:
            return self._place
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return Place(rank=torch.distributed.get_rank(), world=torch.distributed.get_world_size())
        try:
            return Place.from_environment()
        except ValueError as error:
            raise Unusable(str(error)) from None

    def __getstate__(self) -> dict[str, Any]:
        """Travel with the parent's place to a process it spawns, which has no process group to ask.

        Anywhere else (a queue, Ray) the place is found where the data set arrives: it may be another rank.
        """
        return {**self.__dict__, "_place": self._place if get_spawning_popen() is None else self._rank()}


class Batched(TorchIterableDataset[Any]):
    """An iterable data set's batches, formed where the order is known."""

    def __init__(
        self, dataset: IterableDataset, batch_size: int, collate_fn: Callable[[list[Any]], Any] | None
    ) -> None:
        """Form batches of ``batch_size`` of ``dataset``'s samples."""
        if batch_size < 1:
            raise Unusable(f"a batch has at least one sample, not {batch_size}")
        self.dataset = dataset
        self.batch_size = batch_size
        self.collate_fn = collate_fn or _collate

    def __len__(self) -> int:
        """Return how many batches this rank yields in an epoch, over all its workers."""
        return len(Partition(total=len(self.dataset.catalog), batch=self.batch_size, place=self.dataset._rank()))  # noqa: SLF001  one file, one subject

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration epoch ``epoch``."""
        self.dataset.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        """Begin the next epoch."""
        return map(self.collate_fn, self.dataset.batches(self.batch_size))


def _collate(samples: list[Any]) -> Any:  # noqa: ANN401  whatever torch makes of it
    return samples if isinstance(samples[0], Sample) else default_collate(samples)
