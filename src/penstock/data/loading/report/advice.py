"""Recommendations for the causes of waiting, each with the option to change. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.data.loading.report.causes import Cause

__all__ = ["Setup", "advice", "common_prefix"]

_MOST: Final = 0.7  # share of the slowest requests whose common prefix is named


@dataclass(frozen=True, slots=True)
class Setup:
    """Options of a loader, and the processors that it may use.

    Attributes:
        num_workers: Worker processes.
        decode_threads: Decoding threads, without worker processes.
        processors: Processors that this rank may use.
        prefetch: Batches ahead.
        batch_size: Samples per batch.

    """

    num_workers: int
    decode_threads: int
    processors: int
    prefetch: int
    batch_size: int


def advice(cause: Cause | None, setup: Setup, slowest: Sequence[str] = ()) -> str:
    """Return one or two sentences of advice on ``cause``; ``slowest`` are the URLs of the slowest requests."""
    if cause is None:
        return "The loader keeps up with the training loop: nothing is to be changed."
    if cause == "decode":
        return _decode(setup)
    if cause == "python":
        return _python(setup)
    if cause == "first byte":
        prefix = common_prefix(slowest)
        return _FIRST_BYTE + (
            f" Most of the slowest reads are under {prefix}: see how these are stored." if prefix else ""
        )
    return _OTHERS[cause]


_FIRST_BYTE: Final = (
    "The store takes long to begin its answers: raise TransportOptions(connections=…), so that more reads are under "
    "way at once."
)
_OTHERS: Final[dict[Cause, str]] = {
    "disk": (
        "Local files, or those of a cache, are read slowly: put them on a faster disk, or read several at once from "
        "more processes, with num_workers=."
    ),
    "bandwidth": (
        "The network is the limit: store smaller or compressed objects, or keep them on local disk after the first "
        "epoch, with StoreOptions(cache=CacheOptions(…))."
    ),
    "throttled": (
        "The store refuses requests because they come too fast: spread keys over more prefixes, or lower "
        "TransportOptions(connections=…) until throttling ends."
    ),
    "paced": (
        "Requests wait for their turn, at the rate that the store was seen to take: spread keys over more prefixes, or "
        "ask for fewer of them: larger objects, or a cache, StoreOptions(cache=CacheOptions(…))."
    ),
    "retries": (
        "Requests fail and are made again: see the warnings in the log, and lower "
        "TransportOptions(stall_timeout_s=…) if connections hang."
    ),
    "memory budget": (
        "The budget for reading ahead holds requests back: raise ReadOptions(ahead_bytes=…), or ahead_items=… where "
        "objects are small. Worker processes share the budget equally."
    ),
    "opening": (
        "Worker processes take long to open the store, each in every epoch: pass persistent_workers=True, or "
        "num_workers=0; `penstock doctor` shows whether credentials are what takes long."
    ),
    "collate": (
        "collate_fn is the limit: pass a faster collate_fn= (tensors of one shape, one torch.stack), or raise "
        "prefetch= so that several batches are collated at once."
    ),
    "device": (
        "Moving batches to the device is the limit: pass pin_memory=True together with device=, and return smaller "
        "types (uint8 instead of float32) from the transform."
    ),
}


def _decode(setup: Setup) -> str:
    if setup.num_workers and setup.num_workers < setup.processors:
        count = f"num_workers= (now {setup.num_workers})"
        return f"Transforms are the limit: raise {count} up to {setup.processors} processors."
    if not setup.num_workers and setup.decode_threads < setup.processors:
        return (
            f"Transforms are the limit: raise decode_threads= (now {setup.decode_threads}) up to {setup.processors} "
            "processors."
        )
    if not setup.num_workers and setup.processors > 1:
        return (
            "Transforms are the limit, and all processors have a thread: pass a cheaper transform=, or, if it is pure "
            f"Python, num_workers={setup.processors}."
        )
    return (
        "Transforms are the limit, and all processors are in use: pass a cheaper transform=, or store smaller samples."
    )


def _python(setup: Setup) -> str:
    if setup.num_workers:
        return (
            "Workers are not the limit, but starting them, pickling and passing batches on: pass "
            "persistent_workers=True, and make batches larger or of tensors only."
        )
    return (
        "Transforms wait for one another, because they are pure Python and hold its lock (the GIL): pass "
        f"num_workers={max(2, setup.processors)}, which transform in processes."
    )


def common_prefix(urls: Sequence[str]) -> str:
    """Return the longest folder that at least 70 % of the URLs have in common below their bucket, or an empty text."""
    folders = [url.rpartition("/")[0].split("/") for url in urls if "://" in url]
    if len(folders) < 3:  # noqa: PLR2004  two are no pattern
        return ""
    needed = -(-len(folders) * _MOST // 1)
    best: list[str] = []
    for folder in folders:
        for depth in range(4, len(folder) + 1):  # scheme, nothing, bucket, and one folder
            alike = sum(each[:depth] == folder[:depth] for each in folders)
            if alike >= needed and depth > len(best):
                best = folder[:depth]
    return "/".join(best) + "/" if best else ""
