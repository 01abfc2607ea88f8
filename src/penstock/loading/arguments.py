"""Arguments of the loader: refused where they cannot be meant, with what to write instead."""

from __future__ import annotations

import multiprocessing
import os
from typing import TYPE_CHECKING, Any

import torch

from penstock.datasets.batched import Batched
from penstock.errors import Unusable
from penstock.node.processors import processors as available
from penstock.values import whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.order.partition import Tail

__all__ = ["check_counts", "check_device", "check_words", "not_a_dataset", "processors", "tail_of", "worker_options"]

_MOST_THREADS = 16  # beyond that, decoders mostly wait for Python's own lock
_ORDERED = ": it shuffles and shards by itself; write shuffle=True and seed=…, or give shuffle= an order"
# PyTorch's arguments: the default, which says nothing and is accepted, and what to write in place of anything else.
_INSTEAD: dict[str, tuple[object, str]] = {
    "batch_sampler": (None, _ORDERED),
    "generator": (None, _ORDERED),
    "sampler": (None, _ORDERED),
    "prefetch_factor": (None, ": write prefetch={!r}"),
    "pin_memory_device": ("", ": write device={!r}"),
    "in_order": (True, ": batches always come in order"),
}
_FOR_WORKERS: dict[str, object] = {
    "persistent_workers": False,
    "worker_init_fn": None,
    "multiprocessing_context": None,
    "timeout": 0,
}


def check_counts(num_workers: int, prefetch: int, decode_threads: int | None) -> None:
    """Raise ``Unusable`` for numbers that no loader has."""
    whole(num_workers, "num_workers", 0)
    whole(prefetch, "prefetch", 1)
    if decode_threads is not None and whole(decode_threads, "decode_threads", 1) and num_workers:
        raise Unusable("decode_threads are for num_workers=0; workers transform in their own process")


def check_words(*, on_error: str, pin_memory: bool) -> None:
    """Raise ``Unusable`` for words that no loader knows."""
    if on_error not in ("raise", "skip"):
        raise Unusable(f"on_error must be 'raise' or 'skip', not {on_error!r}")
    if pin_memory not in (True, False):
        raise Unusable(f"pin_memory is True or False, not {pin_memory!r}")


def tail_of(tail: Tail, *, drop_last: bool) -> Tail:
    """Return what becomes of the incomplete last batch: ``drop_last`` is PyTorch's word for ``tail="drop"``."""
    if drop_last not in (True, False) or (drop_last and tail == "pad"):
        raise Unusable(f'drop_last is True or False, and True is tail="drop", not {drop_last!r} with tail={tail!r}')
    return "drop" if drop_last else tail


def check_device(device: torch.device | str | int | None) -> torch.device | None:
    """Return the device that batches are handed over on, if one is named; ``Unusable`` where there is no such one."""
    if device is None:
        return None
    try:
        made = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise Unusable(f'device is one of PyTorch\'s, such as "cuda" or "cuda:0", not {device!r}') from error
    if made.type == "cuda" and not torch.cuda.is_available():
        raise Unusable(f"device={str(made)!r}, and PyTorch finds no CUDA device here: leave device= out")
    return made


def worker_options(options: Mapping[str, Any], num_workers: int) -> dict[str, Any]:
    """Return those of PyTorch's own arguments that its loader of ``num_workers`` workers is to have.

    An argument that has PyTorch's own default is accepted anywhere.
    """
    for name, value in options.items():
        if name in _INSTEAD:
            default, instead = _INSTEAD[name]
            if value is not default and not (isinstance(value, str | bool) and value == default):
                raise Unusable(f"{name} is no argument of this loader{instead.format(value)}")
        elif name not in _FOR_WORKERS:
            raise Unusable(f"{name} is no argument of this loader")
        elif not num_workers and value != _FOR_WORKERS[name]:
            raise Unusable(f"{name} is for worker processes, and num_workers is 0: write num_workers=4, too")
    chosen = {name: value for name, value in options.items() if num_workers and name in _FOR_WORKERS}
    _check_workers(**chosen)
    return chosen


def _check_workers(
    *,
    persistent_workers: object = False,
    worker_init_fn: object = None,
    multiprocessing_context: object = None,
    timeout: object = 0,
) -> None:
    if persistent_workers not in (True, False):
        raise Unusable(f"persistent_workers is True or False, not {persistent_workers!r}")
    if worker_init_fn is not None and not callable(worker_init_fn):
        raise Unusable(f"worker_init_fn is a function that takes a worker's number, not {worker_init_fn!r}")
    methods = multiprocessing.get_all_start_methods()
    if isinstance(multiprocessing_context, str) and multiprocessing_context not in methods:
        raise Unusable(f"multiprocessing_context is one of {', '.join(methods)}, not {multiprocessing_context!r}")
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or timeout < 0:
        raise Unusable(f"timeout is a number of seconds, 0 for none, not {timeout!r}")


def not_a_dataset(dataset: object) -> Unusable:
    """Return the error for anything that the loader was given in place of a dataset."""
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
        f"a {name} is no dataset of Penstock's; any dataset with a length resumes under "
        "torch's DataLoader with batch_sampler=penstock.BatchSampler(…)"
    )


def processors() -> int:
    """Return how many threads decode by default: the processors that each of this machine's ranks may count on."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")  # as torchrun sets it
    share = available() // (int(ranks) if ranks.isdecimal() else 1)
    return max(1, min(share, _MOST_THREADS))
