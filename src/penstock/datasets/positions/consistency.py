"""Ranks that train together have the same catalog and the same order, or an error says which differs."""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

import torch.distributed

from penstock.errors import StateMismatch, TimedOut, Unreachable
from penstock.waiting import Wakeup

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Contents", "check_same_catalog", "check_same_order", "grouped"]


class Contents(Protocol):
    """What tells the data of one dataset from those of another: a ``Catalog``, or what says as much.

    It can be hashed and weakly referenced.
    """

    @property
    def root(self) -> str:
        """The URL of the store, ending in "/"."""

    @property
    def base(self) -> str:
        """What all of it lies below, within the store; ``root + base`` is the URL that errors name."""

    @property
    def digest(self) -> str:
        """A short text, equal wherever the samples are."""

    def __len__(self) -> int:
        """Return how many objects, or samples, there are."""


_catalogs: weakref.WeakKeyDictionary[Contents, weakref.ref[Any]] = weakref.WeakKeyDictionary()  # in which store
_made: Counter[str] = Counter()  # catalogs compared so far, by what they are of
_orders: weakref.WeakKeyDictionary[Any, dict[str, list[Mapping[str, object]]]] = weakref.WeakKeyDictionary()  # by store


def check_same_catalog(catalog: Contents) -> None:
    """Compare the catalog's digest with the other ranks', once per catalog; no collective, no rank waits for another.

    The first rank to come writes its digest into the process group's store, and the others compare theirs: one request,
    and the digest at about 1 µs per object. The n-th catalog of a prefix is compared with the n-th of it on other
    ranks, so every rank has to make those of one prefix in the same order. Nothing happens in a worker, in a process
    forked after the group was made, without a group of several, or with a store that cannot compare (MPI's).

    Raises:
        StateMismatch: Another rank came first, with another catalog. Only the ranks that differ from it raise.
        TimedOut: The store did not answer within its own timeout.
        Unreachable: The store is gone.

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
    _made[name] += 1  # here: after a refusal the next attempt is compared with the same one of the other ranks
    _catalogs[catalog] = weakref.ref(store)


def check_same_order(data: str, arguments: Mapping[str, object]) -> None:
    """Compare the arguments that an order is made of with the other ranks', once for each set of different arguments.

    The n-th set over the same data is compared with the n-th over them on other ranks, so every rank has to order the
    same data in turn. One request; otherwise as ``check_same_catalog``.

    Args:
        data: What the order is of: a catalog's digest.
        arguments: Names and values, which JSON can hold.

    Raises:
        StateMismatch: Another rank came first, with other arguments: the text names those that differ.
        TimedOut: The store did not answer within its own timeout.
        Unreachable: The store is gone.

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
    """Return whether this process has a group of several ranks, so far."""
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
    """Return what the first rank wrote under ``key``: this one's when it is first."""
    from torch.distributed.distributed_c10d import PrefixStore

    ours = PrefixStore("penstock", store)
    answers: list[bytes | Exception] = []
    answered = Wakeup()

    def ask() -> None:
        try:
            answers.append(ours.compare_set(key, "", json.dumps(mine)))
        except Exception as error:  # noqa: BLE001  it reaches the caller
            answers.append(error)
        answered.set()

    # A thread, since a store that is stopped, not dead, would hold the call beyond the timeout and Ctrl-C.
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


_inherited: object = None  # the store of a parent's group: its connection is the parent's


def _disown() -> None:
    global _inherited  # noqa: PLW0603  a process has one
    _inherited = _store()


os.register_at_fork(after_in_child=_disown)
