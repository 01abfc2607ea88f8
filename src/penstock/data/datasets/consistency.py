"""Consistency of ranks: each compares its catalogs and orders with the first rank's, and waits for no other rank."""

from __future__ import annotations

import json
import weakref
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import torch.distributed

from penstock.data.ranks import GroupStore, torch_store
from penstock.errors import StateMismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.data.reading.iteration import Contents

_catalogs: weakref.WeakKeyDictionary[Contents, weakref.ref[Any]] = weakref.WeakKeyDictionary()  # to their store
_made: Counter[str] = Counter()  # catalogs compared so far, by URL
_orders: weakref.WeakKeyDictionary[Any, dict[str, list[Mapping[str, object]]]] = weakref.WeakKeyDictionary()  # by store


def check_same_catalog(catalog: Contents) -> None:
    """Compare the catalog's digest with those of the other ranks, once per catalog.

    This is not a collective operation, and no rank waits for another. The first rank writes its digest into the process
    group's store, and the others compare theirs with it: only ranks that differ from it raise ``StateMismatch``.
    ``TimedOut`` is a store that does not answer in time, and ``Unreachable`` one that is gone. Costs one request, and
    about 1 µs per object for the digest. The n-th catalog of a prefix is compared with the n-th catalog of this prefix
    on other ranks, so every rank has to make the catalogs of one prefix in the same order. Does nothing in a worker, in
    a process forked after the group was made, without a group of several ranks, or with a store that cannot compare
    (MPI's).
    """
    store = torch_store()
    seen = _catalogs.get(catalog)
    if store is None or (seen is not None and seen() is store):
        return
    name = catalog.root + catalog.base
    mine = {"digest": catalog.digest, "objects": len(catalog), "rank": torch.distributed.get_rank()}
    first = _first(store, f"catalog/{_hash_name(name)}/{_made[name]}", mine)
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


_SHARED = "the ranks of a process group share one order"


def check_same_order(data: str, arguments: Mapping[str, object], remedy: str = _SHARED) -> None:
    """Compare the arguments of an order with those of the other ranks, once for each set of different arguments.

    ``data`` identifies the ordered data, such as a catalog's digest. The n-th set for some data is compared with the
    n-th set for the same data on other ranks, so every rank has to make its orders of the same data in the same
    sequence. Costs one request; otherwise, and in its errors, like ``check_same_catalog``.
    """
    store = torch_store()
    if store is None:
        return
    compared = _orders.setdefault(store, {}).setdefault(data, [])
    if arguments in compared:
        return
    rank = torch.distributed.get_rank()
    first = _first(store, f"order/{_hash_name(data)}/{len(compared)}", {**arguments, "rank": rank})
    different = [name for name, value in arguments.items() if first.get(name) != value]
    if different:
        mine, other = (", ".join(f"{name}={each.get(name)}" for name in different) for each in (arguments, first))
        raise StateMismatch(
            f"rank {rank} has {mine}, rank {first['rank']} has {other}: {remedy}; "
            "pass place=ps.Place() to a loader that only one rank creates"
        )
    compared.append(arguments)


def _hash_name(name: str) -> str:
    return sha256(name.encode("utf-8", "surrogateescape")).hexdigest()


def _first(store: Any, key: str, mine: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401  torch's Store is untyped
    """Return the value that the first rank wrote under ``key``; ``mine`` if this rank is the first."""
    try:
        first: dict[str, Any] = json.loads(GroupStore(store).first(key, json.dumps(mine)))
    except NotImplementedError:
        return mine
    return first
