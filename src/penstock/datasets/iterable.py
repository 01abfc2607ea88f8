"""The iterable data set: reads ahead, in the order of seed and epoch, each sample once over ranks and workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset as TorchIterableDataset

from penstock.datasets.batched import Batched
from penstock.datasets.opening import Opening
from penstock.datasets.reading import singles
from penstock.datasets.standing import Standing
from penstock.datasets.walk import stroll
from penstock.order.course import Course

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.distributed.device_mesh import DeviceMesh

    from penstock.catalog.table import Catalog
    from penstock.datasets.sample import Sample
    from penstock.options import StoreOptions
    from penstock.order.partition import Tail
    from penstock.values import Place

__all__ = ["IterableDataset"]


class IterableDataset(Opening, TorchIterableDataset[Any]):
    """Yields every sample of the catalog once per epoch, shared out over ranks and workers, read ahead.

    ``shuffle=True`` permutes the whole catalog anew each epoch, by ``seed`` and epoch alone: any number of workers sees
    the same order. Nobody needs to call ``set_epoch``; without it each iteration is the next epoch, in every process.

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
        shuffle: bool = False,
        seed: int = 0,
        place: Place | DeviceMesh | None = None,
        store: StoreOptions | None = None,
    ) -> None:
        """Yield the catalog's objects, or what ``transform(sample)`` makes of them.

        ``place`` says which rank of how many this process is; a mesh of devices says it by its data-parallel dimensions
        (tensor- and pipeline-parallel ranks read the same). Default: the process group's, when it is initialised, else
        ``RANK`` and ``WORLD_SIZE``, else alone.
        """
        super().__init__(catalog, transform=transform, store=store)
        self._shuffle = shuffle
        self._seed = seed
        self._standing = Standing(place)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration epoch ``epoch``, also in persistent workers; later iterations count on from it."""
        self._standing.rounds.set(epoch)

    def batched(
        self, batch_size: int, collate_fn: Callable[[list[Any]], Any] | None = None, *, tail: Tail = "short"
    ) -> Batched:
        """Return this data set as batches of ``batch_size`` per rank, formed here, for ``DataLoader(batch_size=None)``.

        ``collate_fn`` takes a list; default: torch's own, and the plain list where there is no ``transform``. ``tail``
        says what becomes of the last samples where they fill no global batch: ``"short"`` shares them out evenly (and
        repeats some, marked ``Sample.repeat``, where there are fewer than ranks), ``"pad"`` fills up with repeats,
        ``"drop"`` leaves them out. Every rank has as many batches as the others.
        """
        return Batched(self, self._course(batch_size, tail), self._standing, collate_fn)

    def __iter__(self) -> Iterator[Any]:
        """Begin the next epoch, here and now; reads begin with the first ``next``."""
        cursor, place = self._standing.begin()
        return singles(self, stroll(self._course(1), cursor, place), place.workers)

    def _course(self, batch_size: int, tail: Tail = "short") -> Course:
        return Course(total=len(self.catalog), batch=batch_size, shuffle=self._shuffle, seed=self._seed, tail=tail)
