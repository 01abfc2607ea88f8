"""Checks that all ranks of a process group have the same catalog and the same order.

Checks against wrappers that would shard or batch the samples of a dataset a second time.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import weakref
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

import torch.distributed

from penstock.engine.waiting import Wakeup
from penstock.errors import StateMismatch, TimedOut, Unreachable, Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

    from penstock.values import Place


__all__ = ["Contents", "check_batching", "check_same_catalog", "check_same_order", "check_sharding", "grouped"]


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


_catalogs: weakref.WeakKeyDictionary[Contents, weakref.ref[Any]] = weakref.WeakKeyDictionary()  # to their store
_made: Counter[str] = Counter()  # catalogs compared so far, by URL
_orders: weakref.WeakKeyDictionary[Any, dict[str, list[Mapping[str, object]]]] = weakref.WeakKeyDictionary()  # by store


def check_same_catalog(catalog: Contents) -> None:
    """Compare the catalog's digest with those of the other ranks, once per catalog.

    This is not a collective operation, and no rank waits for another. The first rank writes its digest into the process
    group's store, and the others compare theirs with it. Costs one request, and about 1 µs per object for the digest.
    The n-th catalog of a prefix is compared with the n-th catalog of this prefix on other ranks, so every rank has to
    make the catalogs of one prefix in the same order. Does nothing in a worker, in a process forked after the group was
    made, without a group of several ranks, or with a store that cannot compare (MPI's).

    Raises:
        StateMismatch: This rank's catalog differs from that of the first rank. Only ranks that differ from it raise.
        TimedOut: The store did not answer within its own timeout.
        Unreachable: The store can no longer be reached.

    """
    store = _store()
    if store is None or store is _inherited or _is_compared(catalog, store):
        return
    name = catalog.root + catalog.base
    mine = {"digest": catalog.digest, "objects": len(catalog), "rank": torch.distributed.get_rank()}
    first = _first(store, f"catalog/{_hashed(name)}/{_made[name]}", mine)
    if first["digest"] != mine["digest"]:
        raise StateMismatch(
            f"rank {mine['rank']} has {mine['objects']} objects (digest {mine['digest']}), "
            f"rank {first['rank']} has {first['objects']} (digest {first['digest']}): the prefix has changed between "
            "their listings, or they made its datasets in another order; save one catalog and open it on every rank",
            url=name,
        )
    # Counted only now: after a refusal, the next attempt is compared with the same catalog of the other ranks.
    _made[name] += 1
    _catalogs[catalog] = weakref.ref(store)


def check_same_order(data: str, arguments: Mapping[str, object]) -> None:
    """Compare the arguments of an order with those of the other ranks, once for each set of different arguments.

    The n-th set for some data is compared with the n-th set for the same data on other ranks, so every rank has to make
    its orders of the same data in the same sequence. Costs one request; otherwise like ``check_same_catalog``.

    Args:
        data: Identity of the ordered data, such as a catalog's digest.
        arguments: Names and values; JSON must be able to represent them.

    Raises:
        StateMismatch: The arguments differ from those of the first rank; the text names those that differ.
        TimedOut: The store did not answer within its own timeout.
        Unreachable: The store can no longer be reached.

    """
    store = _store()
    if store is None or store is _inherited:
        return
    compared = _orders.setdefault(store, {}).setdefault(data, [])
    if arguments in compared:
        return
    rank = torch.distributed.get_rank()
    first = _first(store, f"order/{_hashed(data)}/{len(compared)}", {**arguments, "rank": rank})
    different = [name for name, value in arguments.items() if first.get(name) != value]
    if different:
        mine, other = (", ".join(f"{name}={each.get(name)}" for name in different) for each in (arguments, first))
        raise StateMismatch(
            f"rank {rank} has {mine}, rank {first['rank']} has {other}: the ranks of a process group share one order; "
            "a loader that one rank alone makes gets place=ps.Place()"
        )
    compared.append(arguments)


def grouped() -> bool:
    """Return whether this process now has a process group of several ranks."""
    group = torch.distributed
    return group.is_available() and group.is_initialized() and group.get_world_size() > 1


def _store() -> Any:  # noqa: ANN401  torch's Store is untyped
    """Return the default group's store; None without a group of several ranks."""
    if not grouped():
        return None
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()


def _is_compared(catalog: Contents, store: object) -> bool:
    seen = _catalogs.get(catalog)
    return seen is not None and seen() is store


def _hashed(name: str) -> str:
    return sha256(name.encode("utf-8", "surrogateescape")).hexdigest()


def _first(store: Any, key: str, mine: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401  see _store
    """Return the value that the first rank wrote under ``key``; ``mine`` if this rank is the first."""
    from torch.distributed.distributed_c10d import PrefixStore

    ours = PrefixStore("penstock", store)
    answers: list[bytes | Exception] = []
    answered = Wakeup()

    def ask() -> None:
        try:
            answers.append(ours.compare_set(key, "", json.dumps(mine)))
        except Exception as error:  # noqa: BLE001  passed to the caller
            answers.append(error)
        answered.set()

    # On a thread: a store that is stopped, but not dead, would block the call beyond the timeout and Ctrl-C.
    threading.Thread(target=ask, name="penstock-consistency", daemon=True).start()
    limit_s = store.timeout.total_seconds()
    if not answered.wait(limit_s):
        raise TimedOut(f"the process group's store did not answer within {limit_s:.0f} s")
    answer = answers[0]
    if isinstance(answer, RuntimeError):
        if "Not implemented" in str(answer):
            return mine
        raise Unreachable(f"the process group's store is gone: {answer}") from answer
    if isinstance(answer, Exception):
        raise answer
    first: dict[str, Any] = json.loads(answer)
    return first


# The store of the parent's group: its connection belongs to the parent.
_inherited: object = None


def _disown() -> None:
    global _inherited  # noqa: PLW0603  one per process
    _inherited = _store()


os.register_at_fork(after_in_child=_disown)


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
    """Refuse to shard samples for ``place`` if the caller that iterates would shard them again.

    A wrapper is found on the call stack: it iterates over the dataset, or starts a process that will. The dataset has
    no other way to detect it. Costs some microseconds, once per iteration.

    Raises:
        Unusable: Both would shard, and samples would be lost silently.

    """
    if place.world * place.workers == 1:
        return
    for frame in _callers():
        names = _SHARDING.get(frame.f_globals.get("__name__", ""))
        wrapper = frame.f_locals.get("self") if names else None
        name = type(wrapper).__name__
        if names and name in names:
            _refuse(name, _parts(wrapper, names[name]), place)


def _refuse(name: str, parts: int, place: Place) -> None:
    if parts > 1 and place.world > 1:
        raise Unusable(
            f"{name} keeps one of {parts} parts of what this dataset has shared out over {place.world} ranks already, "
            f"and the others would be lost: leave {name} out, or switch the dataset's own sharding off with "
            'place="unsharded"'
        )
    if parts > 1 and name == "ShardingFilterIterDataPipe" and place.workers > 1:
        raise Unusable(
            f"sharding_filter keeps one of {parts} parts of what this dataset has shared out over {place.workers} "
            "workers already, and the others would be lost: leave sharding_filter out"
        )


def check_batching(dataset: object) -> None:
    """Refuse to pass the batches of ``dataset`` to a torch DataLoader that would batch them again.

    A wrapper between the two is accepted, because it may flatten the batches.

    Raises:
        Unusable: The loader's ``batch_size`` is not None.

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


def _parts(wrapper: object, path: str) -> int:
    for name in path.split("."):
        wrapper = getattr(wrapper, name, 1)
    return wrapper if isinstance(wrapper, int) else 1
