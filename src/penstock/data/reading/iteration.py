"""Iterations over a dataset: the rank and worker of each, and the position at which it begins.

A dataset refuses wrappers that would shard or batch its samples again.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import struct
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

import torch.distributed
from torch.utils.data import get_worker_info

from penstock.data.order.sampling import Cursor
from penstock.data.region import Slot
from penstock.errors import Unusable
from penstock.values import Place, whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Literal

    from torch.distributed.device_mesh import DeviceMesh

    PlaceLike = Place | DeviceMesh | Literal["unsharded"] | None


class Contents(Protocol):
    """The identity of a dataset's data: a ``Catalog``, or an object with the same attributes.

    Instances must be hashable and weakly referenceable.
    """

    @property
    def root(self) -> str:
        """The URL of the store, ending in "/"."""

    @property
    def base(self) -> str:
        """The prefix of all the data within the store; ``root + base`` is the URL that errors name."""

    @property
    def digest(self) -> str:
        """A short text that is equal for equal samples."""

    def __len__(self) -> int:
        """Return the number of objects or samples."""


def has_process_group() -> bool:
    """Return whether this process now has a process group of several ranks."""
    group = torch.distributed
    return group.is_available() and group.is_initialized() and group.get_world_size() > 1


# Module -> its classes that keep one part of the samples they iterate over -> attribute with the number of parts.
_SHARDING = {
    "torch.utils.data.datapipes.iter.sharding": {"ShardingFilterIterDataPipe": "num_of_instances"},
    "accelerate.data_loader": {
        "BatchSamplerShard": "num_processes",
        "DataLoaderDispatcher": "state.num_processes",
        "IterableDatasetShard": "num_processes",
    },
    "lightning.fabric.utilities.distributed": {"DistributedSamplerWrapper": "num_replicas"},
    "lightning_fabric.utilities.distributed": {"DistributedSamplerWrapper": "num_replicas"},
    "transformers.trainer_pt_utils": {"IterableDatasetShard": "num_processes"},
}
_FETCHERS = "torch.utils.data._utils.fetch"


def check_sharding(place: Place) -> None:
    """Refuse to shard samples for ``place`` if the caller that iterates would shard them again, and lose some.

    A wrapper is found on the call stack: it iterates over the dataset, or starts a process that will. The dataset has
    no other way to detect it. Costs some microseconds, once per iteration.
    """
    if place.world * place.workers == 1:
        return
    for frame in _callers():
        names = _SHARDING.get(frame.f_globals.get("__name__", ""))
        wrapper = frame.f_locals.get("self") if names else None
        name = type(wrapper).__name__
        if names and name in names:
            _refuse_sharding(name, _read_part_count(wrapper, names[name], place.world), place)


def _refuse_sharding(name: str, parts: int, place: Place) -> None:
    if parts > 1 and place.world > 1:
        raise Unusable(
            f"{name} would shard again a dataset that is already sharded over {place.world} ranks, and keep only "
            f"1/{parts} of the samples: leave {name} out, or disable the dataset's sharding with "
            'place="unsharded"'
        )
    if parts > 1 and name == "ShardingFilterIterDataPipe" and place.workers > 1:
        raise Unusable(
            f"sharding_filter would shard again a dataset that is already sharded over {place.workers} workers, "
            f"and keep only 1/{parts} of the samples: leave sharding_filter out"
        )


def check_batching(dataset: object) -> None:
    """Refuse to pass the batches of ``dataset`` to a torch DataLoader that would batch them again.

    A wrapper between the two is accepted, because it may flatten the batches.
    """
    for frame in _callers():
        if frame.f_globals.get("__name__") == _FETCHERS and frame.f_code.co_name == "__init__":
            if frame.f_locals.get("auto_collation") and frame.f_locals.get("dataset") is dataset:
                raise Unusable("the DataLoader would make batches of batches: pass it batch_size=None")
            return


def _callers() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  no public function is as cheap
    while frame is not None:
        yield frame
        frame = frame.f_back


def _read_part_count(wrapper: object, path: str, ranks: int) -> int:
    for name in path.split("."):
        # Accelerate iterates over a dataset while it makes a stateful wrapper, which has no number of parts yet.
        wrapper = getattr(wrapper, name, ranks)
    return wrapper if isinstance(wrapper, int) else 1


class Iterations:
    """The rank and the epochs of a dataset's iterations.

    The rank is looked up in the parent process, and only when it is needed: a process group may be initialised after
    the dataset is made.
    """

    def __init__(self, place: PlaceLike) -> None:
        check_place(place)
        self._place = place
        # The process that spawned this one: its id and its place.
        self._found: tuple[int, Place] | None = None
        self.epochs = Epochs()  # shared by the parent and its workers
        # What ``apart`` has made: the epoch it begins at, and the counters that are alive.
        self._first = 0
        self._apart: WeakSet[Epochs] = WeakSet()

    def apart(self) -> Iterations:
        """Return iterations of the same rank with a separate count of epochs, from 0 or the value of ``set_epoch``.

        In a loader's worker, return these iterations: copies made there count for one iteration only.
        """
        if get_worker_info() is not None:
            return self
        made = Iterations(self._place)
        made._found = self._found
        made.set_epoch(self._first)
        self._apart.add(made.epochs)
        return made

    def set_epoch(self, epoch: int) -> None:
        self.epochs.set(epoch)
        self._first = epoch
        for epochs in list(self._apart):
            epochs.set(epoch)

    def check_replaced(self, place: PlaceLike, data: str, remedy: str) -> None:
        """Refuse a ``place`` that differs from that of ``data``: ranks would read other parts."""
        if self._place is not None and self._place != place:
            raise Unusable(f"{data} has place={self._place!r}, which has no effect here: {remedy}")

    def rank(self) -> Place:
        """Return this process's rank and the number of ranks; in a loader's worker, those of its parent process."""
        if self._found is not None and self._found[0] == rank_pid():
            return self._found[1]
        return resolve(self._place)

    def begin(self, key: int | None = None) -> tuple[Cursor, Place]:
        """Begin an iteration; return its cursor and its place, which in a loader's worker is the worker's.

        The workers of one iteration recognise each other by ``key``; without one, by the seed that their loader drew.
        """
        info, place = get_worker_info(), self.place()
        check_sharding(place)
        if info is None:
            return self.epochs.begin(), place
        # torch seeds each worker with the sum of the loader's random number and the worker's number.
        return self.epochs.join(info.id, info.num_workers, info.seed - info.id if key is None else key), place

    def place(self) -> Place:
        """Return this process's place: its rank and, in a loader's worker, the number of the worker."""
        info = get_worker_info()
        return self.rank() if info is None else replace(self.rank(), worker=info.id, workers=info.num_workers)

    def __getstate__(self) -> tuple[PlaceLike, tuple[int, Place] | None, Epochs, int]:
        """Return the state to pickle, which includes this process's place if a process is being spawned.

        A spawned process uses this place if it is a loader's worker, since that has no process group. In all other
        cases (a spawned rank, a queue, Ray), the receiving process looks up its place, which may be a different one.
        """
        if get_spawning_popen() is None:
            return self._place, None, self.epochs, self._first
        place = self.rank()
        # The caller that starts a worker is not on the worker's stack.
        check_sharding(place)
        given = self._place if isinstance(self._place, Place | str | None) else place  # a mesh cannot be pickled
        return given, (rank_pid(), place), self.epochs, self._first

    def __setstate__(self, state: tuple[PlaceLike, tuple[int, Place] | None, Epochs, int]) -> None:
        self._place, self._found, self.epochs, self._first = state
        self._apart = WeakSet()


class RankIterations(Iterations):
    """Iterations of a rank whose workers do not take part: its parent process forms the batches."""

    def begin(self, key: int | None = None) -> tuple[Cursor, Place]:  # noqa: ARG002  of workers
        place = self.rank()
        check_sharding(place)
        return self.epochs.begin(), place


# The next cursor, the latest cursor, and the number of noted iterations.
_HEAD = struct.Struct("qqqqqqqqq")
# An iteration: its key, the number of workers, its number in each worker; its cursor; a bit per worker in it.
_NOTE = struct.Struct("qqqqqqq64s")
_NOTES = 16
_MOST_WORKERS = 512
# The limit in both directions, so that later epochs also fit into 64 bits.
_MOST_EPOCHS = 1 << 62


class Epochs:
    """Cursors of the iterations over a dataset, in memory that a process shares with its loaders' workers.

    Each iteration gets the start of the next epoch, or the cursor that was set. A DataLoader calls ``iter(dataset)``
    once in every worker and does not notify the parent's dataset. The workers of one iteration recognise each other by
    a key (of torch's loader: the seed that it drew), by the number of workers, and by the number of iterations that
    each has begun: the first worker takes the next cursor, and the others join it. A worker that has already joined an
    iteration begins another, so torch may be seeded with the same value for each epoch. Persistent workers see a cursor
    that the parent sets, because the memory is shared.

    Only the workers of the process that owns the memory share it. Any other process that inherits the memory, or
    receives it while being spawned (a rank that is started after its dataset was made), owns a copy from its first use
    on.
    """

    def __init__(self) -> None:
        self._slot = Slot(_HEAD.size + _NOTES * _NOTE.size)
        self._owner = os.getpid()
        self._arrive()

    def _arrive(self) -> None:
        _alive.add(self)
        self._begun = 0
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def set(self, epoch: int) -> None:
        """Set the epoch of the next iteration, which keeps its position in an equal epoch; later iterations follow."""
        epoch = whole(epoch, "an epoch", 0)
        if not epoch < _MOST_EPOCHS:
            raise Unusable(f"epoch must be a whole number below 2^62, got {epoch!r}")
        with self._exclusive():
            coming = self._read()[0]
            cursor = coming if epoch == coming.epoch else _start(epoch, coming)
            # Also where nothing changes: an iteration that is given up later does not rewind what was set.
            self._write(cursor, cursor)

    def resume(self, cursor: Cursor) -> None:
        """Make ``cursor`` the start of the next iteration; later iterations are the epochs after it."""
        with self._exclusive():
            self._write(cursor, cursor)

    def restart(self, cursor: Cursor) -> None:
        """Make ``cursor``, a worker's own, the start of the iteration that has begun; the epochs after it follow."""
        with self._exclusive():
            self._write(_start(cursor.epoch + 1, cursor), cursor)

    def rewind(self, cursor: Cursor) -> bool:
        """Make ``cursor`` the start of the next iteration again; return False if another start was set since."""
        with self._exclusive():
            latest = self._read()[:2] == (_start(cursor.epoch + 1, cursor), cursor)
            if latest:
                self._write(cursor, cursor)
            return latest

    def next(self) -> Cursor:
        with self._exclusive():
            return self._read()[0]

    def latest(self) -> Cursor:
        """Return the cursor at which the latest iteration began, or that of the next one once it has been set."""
        with self._exclusive():
            return self._read()[1]

    def begin(self) -> Cursor:
        """Begin an iteration that no other process joins; return its cursor."""
        with self._exclusive():
            return self._begin()

    def join(self, worker: int, workers: int, seed: int) -> Cursor:
        """Begin or join the iteration of ``workers`` that have the key ``seed``; return its cursor."""
        if workers > _MOST_WORKERS:
            raise Unusable(f"workers of a dataset must be at most {_MOST_WORKERS}, got {workers}")
        with self._exclusive(worker=True):
            key = (seed, workers, self._begun)
            self._begun += 1
            return self._join(key, 1 << worker)

    @contextmanager
    def _exclusive(self, *, worker: bool = False) -> Iterator[None]:
        if self._pid != os.getpid():
            # After a fork, this process begins its own count, with a new lock.
            self._arrive()
        with self._lock:
            self._own(worker=worker)
            with self._slot.locked():
                yield

    def _own(self, *, worker: bool) -> None:
        """Copy the memory if neither this process nor this worker's rank owns it; in a worker, raise instead."""
        if self._owner == os.getpid() or self._owner == rank_pid(worker=worker):
            return
        if worker or get_worker_info() is not None:
            raise Unusable("this dataset was created before its ranks started: create it in each rank")
        with self._slot.locked():
            data = bytes(self._slot.view)
        self._slot = Slot(len(data))
        self._slot.view[:] = data
        self._owner = os.getpid()

    def settle(self) -> None:
        """Take ownership of the memory before a process is started that may be a worker; do nothing in a worker."""
        if self._owner != os.getpid() and get_worker_info() is None:
            with self._exclusive():
                pass

    def _read(self) -> tuple[Cursor, Cursor, int]:
        """Return the next cursor, the latest cursor, and the number of noted iterations."""
        *numbers, noted = _HEAD.unpack_from(self._slot.view)
        return Cursor(*numbers[:4]), Cursor(*numbers[4:]), noted

    def _write(self, following: Cursor, latest: Cursor, noted: int | None = None) -> None:
        _HEAD.pack_into(self._slot.view, 0, *following, *latest, self._read()[2] if noted is None else noted)

    def _begin(self, noted: int | None = None) -> Cursor:
        cursor = self._read()[0]
        self._write(_start(cursor.epoch + 1, cursor), cursor, noted)
        return cursor

    def _join(self, key: tuple[int, int, int], bit: int) -> Cursor:
        view = self._slot.view
        noted = self._read()[2]
        for number in range(noted - 1, max(-1, noted - 1 - _NOTES), -1):
            at = _place(number)
            *numbers, joined = _NOTE.unpack_from(view, at)
            bits = int.from_bytes(joined, "little")
            if tuple(numbers[:3]) == key and not bits & bit:
                _NOTE.pack_into(view, at, *numbers, (bits | bit).to_bytes(64, "little"))
                return Cursor(*numbers[3:])
        cursor = self._begin(noted + 1)
        _NOTE.pack_into(view, _place(noted), *key, *cursor, bit.to_bytes(64, "little"))
        return cursor

    def __getstate__(self) -> tuple[Slot, int | None]:
        """Return the shared memory and its owner for a process that is being spawned; otherwise, a copy is pickled."""
        if get_spawning_popen() is None:
            return self._slot, None
        self.settle()
        return self._slot, self._owner

    def __setstate__(self, state: tuple[Slot, int | None]) -> None:
        """Restore the pickled state, with a new count of the iterations of this process."""
        self._slot, owner = state
        self._owner = os.getpid() if owner is None else owner
        self._arrive()


def rank_pid(*, worker: bool = False) -> int:
    """Return the process id of the rank: in a loader's worker, the id of its parent; else that of this process."""
    parent = multiprocessing.parent_process() if worker or get_worker_info() is not None else None
    return os.getpid() if parent is None or parent.pid is None else parent.pid


_alive: WeakSet[Epochs] = WeakSet()


def _settle() -> None:
    for epochs in list(_alive):
        epochs.settle()


# A rank may pass an inherited dataset to a loader with forked workers without ever using the dataset itself.
os.register_at_fork(before=_settle)


def _start(epoch: int, run: Cursor) -> Cursor:
    """Return the start of ``epoch``, with the lanes and the stage of the cursor ``run``."""
    return run._replace(epoch=epoch, position=0)


def _place(number: int) -> int:
    return _HEAD.size + number % _NOTES * _NOTE.size


# Names of mesh dimensions in PyTorch, Lightning, torchtitan, Megatron and DeepSpeed.
_DATA = re.compile(r"(dp|ddp|data|fsdp|hsdp)|.*(replicate|shard)")
_OTHER = {"tp", "tensor", "pp", "pipe", "pipeline", "cp", "context", "sp", "sequence", "model"}


def check_place(place: PlaceLike) -> None:
    """Refuse an argument ``place`` that ``resolve`` does not take."""
    if place is None or isinstance(place, Place) or (isinstance(place, str) and place == "unsharded"):
        return
    from torch.distributed.device_mesh import DeviceMesh

    if not isinstance(place, DeviceMesh):
        raise Unusable(f'place must be a ps.Place(rank, world), a DeviceMesh or "unsharded", got {place!r}')


def resolve(place: PlaceLike) -> Place:
    """Return the rank whose data this process reads, and the number of ranks.

    A ``Place`` is returned unchanged. ``"unsharded"`` gives rank 0 of 1: each process reads everything, for a wrapper
    that shards the samples itself. A mesh gives the position among its data-parallel dimensions, numbered row by row.
    These are the only dimension of a mesh, else the dimensions whose names begin with ``dp``, ``ddp``, ``data``,
    ``fsdp`` or ``hsdp``, or contain ``replicate`` or ``shard``. So ranks that differ only in another dimension (tensor,
    pipeline, context) read the same data. None uses the process group if it is initialised; else ``RANK`` and
    ``WORLD_SIZE``; else a single rank.
    """
    if isinstance(place, Place):
        return place
    if isinstance(place, str):
        return Place()
    if place is not None:
        return _in_mesh(place)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Place(rank=torch.distributed.get_rank(), world=torch.distributed.get_world_size())
    return Place.from_environment()


def _in_mesh(mesh: DeviceMesh) -> Place:
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise Unusable(f"this rank is outside of the mesh of shape {mesh.shape}, so it has no data to read")
    rank, world = 0, 1
    for dimension in _data_dimensions(mesh.mesh_dim_names or (), mesh.ndim):
        size = mesh.size(dimension)
        rank, world = rank * size + coordinate[dimension], world * size
    return Place(rank=rank, world=world)


def _data_dimensions(names: tuple[str, ...], count: int) -> list[int]:
    """Return the data-parallel dimensions; a single one counts, unless its name is that of another parallelism."""
    kinds = [_classify_name(name) for name in names]
    if count == 1 and kinds != ["other"]:
        return [0]
    if "data" not in kinds or "both" in kinds:
        raise Unusable(
            f"cannot tell the data-parallel dimensions of a mesh with the names {names}: "
            'pass those alone, as in place=mesh["dp"], or place=ps.Place(rank=…, world=…)'
        )
    return [number for number, kind in enumerate(kinds) if kind == "data"]


def _classify_name(name: str) -> str:
    data = _DATA.match(name.lower()) is not None
    other = not _OTHER.isdisjoint(re.split(r"[^a-z]+", name.lower()))
    return "both" if data and other else "data" if data else "other" if other else ""
