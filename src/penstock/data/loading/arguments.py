"""Checks of a loader's arguments: its own, and those of PyTorch's loader."""

from __future__ import annotations

import inspect
import multiprocessing
import os
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

import torch

from penstock.data.datasets.batched import BatchableDataset, Batched
from penstock.data.datasets.iterable import IterableDataset
from penstock.data.order.lanes import Lanes
from penstock.data.order.orders import CatalogOrder, FullShuffle, order_of
from penstock.engine.node.member import processors as available
from penstock.errors import Unusable, add_article
from penstock.options.typed import suggest_word
from penstock.values import switch, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.data.order.sampling import Tail

_MOST_THREADS = 16  # more would mostly wait for the GIL
_MOST_AT_ONCE = 4096  # threads or processes, if given; a larger number is a mistake
_ORDERED = ": it shuffles and shards by itself; write shuffle=True and seed=…, or give shuffle= an order"
_PLACED = ": a process finds its rank by itself; to give it, write place=ps.Place(rank=…, world=…)"
_WEIGHTED = ": write shuffle=ps.order.WeightedShuffle(…)"
# Arguments of PyTorch and of others: the default value, which is accepted, and the hint for any other value.
OTHERS_ARGUMENTS: dict[str, tuple[object, str]] = {
    "batch_sampler": (None, _ORDERED),
    "generator": (None, _ORDERED),
    "order": (None, ": write shuffle=True, or give shuffle= an order such as ps.order.BlockShuffle()"),
    "block_bytes": (None, ": write shuffle=ps.order.BlockShuffle(block_bytes={!r})"),
    "sampler": (None, _ORDERED),
    "prefetch_factor": (None, ": write prefetch={!r}"),
    "pin_memory_device": ("", ": write device={!r}"),
    "in_order": (True, ": batches always come in order"),
    "num_replicas": (None, _PLACED),
    "rank": (None, _PLACED),
    "world_size": (None, _PLACED),
    "num_shards": (None, _PLACED),
    "weights": (None, _WEIGHTED),
    "replacement": (None, _WEIGHTED),
    "buffer_size": (None, ": shuffle=True permutes all samples without a buffer"),
    "shuffle_buffer_size": (None, ": shuffle=True permutes all samples without a buffer"),
    "snapshot_every_n_steps": (1, ": state_dict() is exact after any batch"),
    "epoch": (None, ": call set_epoch({!r}) of the loader"),
    **dict.fromkeys(("epochs", "num_epochs"), (None, ": write `for epoch in range({!r}):` around the loop")),
    "transform": (None, ": pass it to the dataset"),
}

P = ParamSpec("P")


def check_counts(num_workers: int, prefetch: int, decode_threads: int | None) -> None:
    whole(prefetch, "prefetch", 1)
    threads = 1 if decode_threads is None else decode_threads
    for name, count, least in (("num_workers", num_workers, 0), ("decode_threads", threads, 1)):
        if whole(count, name, least) > _MOST_AT_ONCE:
            raise Unusable(f"{name} must be {least} to {_MOST_AT_ONCE:,}, got {count:,}")
    if decode_threads is not None and num_workers:
        raise Unusable("decode_threads needs num_workers=0; worker processes do not use it")


def tail_of(tail: Tail, *, drop_last: bool) -> Tail:
    """Return the ``tail`` that both arguments give: ``drop_last`` is PyTorch's name for ``tail="drop"``."""
    given: object = tail
    if switch(drop_last, "drop_last") and isinstance(given, str) and given == "pad":
        raise Unusable('drop_last=True means tail="drop", got it with tail="pad"')
    return "drop" if drop_last else tail


def check_device(device: torch.device | str | int | None) -> torch.device | None:
    """Return the device for batches, None if not given; raises ``Unusable`` for a device that does not exist."""
    if device is None:
        return None
    try:
        made = torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise Unusable(f'device must be one of PyTorch\'s, such as "cuda" or "cuda:0", got {device!r}') from error
    if made.type == "cuda" and not torch.cuda.is_available():
        raise Unusable(f"device={str(made)!r}, but PyTorch finds no CUDA device here: leave device= out")
    return made


def check_others(construct: Callable[P, None]) -> Callable[P, None]:
    """Make a constructor refuse arguments of other loaders, and name replacements; accept PyTorch's defaults."""
    own = inspect.signature(construct).parameters

    @wraps(construct)
    def checked(*args: P.args, **options: P.kwargs) -> None:
        for name in [name for name in options if name not in own]:
            _check_other(name, options.pop(name), own)
        construct(*args, **options)

    return checked


def _check_other(name: str, value: object, own: Iterable[str]) -> None:
    if name not in OTHERS_ARGUMENTS:
        raise Unusable(f"{name} is not an argument of this loader{suggest_word(name, own)}")
    default, instead = OTHERS_ARGUMENTS[name]
    if value is not default and not (isinstance(value, str | bool) and value == default):
        raise Unusable(f"{name} is not an argument of this loader{instead.format(value)}")


def worker_options(
    workers: int, persistent_workers: object, worker_init_fn: object, multiprocessing_context: object, timeout: object
) -> dict[str, Any]:
    """Check and return the arguments of PyTorch's loader for worker processes."""
    options = {
        "persistent_workers": persistent_workers,
        "timeout": timeout,
        "worker_init_fn": worker_init_fn,
        "multiprocessing_context": multiprocessing_context,
    }
    if not workers:
        for (name, value), default in zip(options.items(), (False, 0, None, None), strict=True):
            if value != default:
                raise Unusable(f"{name} is for worker processes, but num_workers is 0: pass num_workers=4 as well")
        return options
    switch(persistent_workers, "persistent_workers")
    if worker_init_fn is not None and not callable(worker_init_fn):
        raise Unusable(f"worker_init_fn must be a function that takes a worker's number, got {worker_init_fn!r}")
    methods = multiprocessing.get_all_start_methods()
    if isinstance(multiprocessing_context, str) and multiprocessing_context not in methods:
        raise Unusable(f"multiprocessing_context must be one of {', '.join(methods)}, got {multiprocessing_context!r}")
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or timeout < 0:
        raise Unusable(f"timeout must be a number of seconds, 0 for none, got {timeout!r}")
    return options


def batches_of(
    dataset: object, size: int, collate_fn: Callable[[list[Any]], Any] | None, tail: Tail, order: dict[str, Any]
) -> Batched:
    """Return the batches of a dataset; ``order`` holds shuffle, seed and place, if given."""
    if not isinstance(dataset, BatchableDataset):
        raise _not_a_dataset(dataset)
    if dataset.takes_order:
        return dataset.batched(size, collate_fn, tail=tail, **order)
    batches = dataset.batched(size, collate_fn, tail=tail)
    own, seed = batches.plan.order, batches.plan.seed
    given = order_of(order.get("shuffle", own))
    # Arrays have lanes also without a shuffle.
    kinds = {True: FullShuffle(), False: CatalogOrder()}
    same = given in (own, kinds[own.shuffle] if isinstance(own, Lanes) else own)
    if not same or whole(order.get("seed", seed), "seed") != seed or "place" in order:
        ours = isinstance(dataset, IterableDataset)
        kind, made = ("IterableDataset", ".from_prefix(url, ") if ours else (type(dataset).__name__, "(…, ")
        article = "an" if kind[0] in "AEIO" else "a"
        raise Unusable(
            f"{article} {kind} has its own shuffle, seed and place, and this loader was given another "
            f"{' and '.join(order)}: write {kind}{made}shuffle=True, seed=…)"
        )
    return batches


def _not_a_dataset(dataset: object) -> Unusable:
    name = type(dataset).__name__
    if isinstance(dataset, Batched):
        return Unusable(
            "this loader forms the batches itself: give it the dataset, or give these batches to torch's DataLoader "
            "with batch_size=None"
        )
    if isinstance(dataset, type):
        kind = dataset.__name__
        return Unusable(f"this is the class {kind}, not a dataset: write {kind}.from_prefix(url)")
    if isinstance(dataset, str | os.PathLike):
        return Unusable("a loader takes a dataset, not a URL: write penstock.MapDataset.from_prefix(url)")
    if hasattr(dataset, "batch_sampler") and hasattr(dataset, "dataset"):
        return Unusable(f"this {name} is a loader already: iterate over it, or give its dataset here")
    return Unusable(
        f"dataset must be one of Penstock's, got {add_article(name)}; any dataset with a length resumes under "
        "torch's DataLoader with batch_sampler=penstock.BatchSampler(…)"
    )


def processors() -> int:
    """Return the default number of decoding threads: this rank's share of the processors, from 1 to 16."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")  # as torchrun sets it
    share = available() // (int(ranks) if ranks.isdecimal() else 1)
    return max(1, min(share, _MOST_THREADS))
