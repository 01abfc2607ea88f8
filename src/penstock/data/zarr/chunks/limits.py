"""Limits of the look-ahead of a process that cuts samples from chunks, within ``memory_bytes``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.data.reading.pool import BATCHES
from penstock.errors import Unusable

if TYPE_CHECKING:
    from penstock.data.zarr.samples.arrangement import Arrangement

_MIB = 1 << 20
# Compressed chunks read ahead take at most this fraction (1 / 4) of memory_bytes.
_COMPRESSED = 4
_MARGIN = 4096  # chunks that are known beyond a window, if samples take one of each array


class Limits(NamedTuple):
    """Limits of the look-ahead of a reading, in decoded bytes of held and next chunks, and in samples.

    Read-ahead takes at most 1 / ``parts`` of the store's own limit. ``batch_bytes`` are those of the batches that are
    made, wait, or are in training.
    """

    chunk_bytes: int
    samples: int
    parts: int
    batch_bytes: int


def limits_of(
    arrangement: Arrangement, blocks: int, batch: int, *, memory_bytes: int, ahead_bytes: int, block_samples: int = 0
) -> Limits:
    """Return the look-ahead limits of a process that mixes ``blocks`` blocks of samples with one another.

    ``ahead_bytes`` is the read-ahead of the store's own options; ``block_samples`` the most samples of a block, if the
    order repeats some (0: those of the arrangement).
    """
    compressed = min(ahead_bytes, memory_bytes // _COMPRESSED)
    batches = BATCHES * batch * arrangement.sample_bytes
    left = memory_bytes - compressed - batches - arrangement.kept_bytes
    window = max(blocks * arrangement.block_bytes, arrangement.chunk_bytes)
    if left < window:
        needs = f"{blocks} blocks of chunks that are mixed" if blocks > 1 else "the chunks of one block of samples"
        raise Unusable(
            f"memory_bytes={memory_bytes} leaves {_mib(max(left, 0))} for decoded chunks, and {needs} "
            f"({_mib(arrangement.block_bytes)} each) need {_mib(window)}; besides, {_mib(compressed)} are for chunks "
            f"read ahead, {_mib(batches)} for {BATCHES} batches of {batch}, {_mib(arrangement.kept_bytes)} for arrays "
            "and coordinates that are kept. Raise memory_bytes, lower window_bytes or the batch size, take patches "
            "that are in fewer chunks, or store the array in smaller chunks (penstock zarr copy --chunks)"
        )
    samples = max(_samples(arrangement, blocks, block_samples), 2 * batch)
    return Limits(left, samples, -(-ahead_bytes // compressed), batches)


def with_blocks(limits: Limits, arrangement: Arrangement, blocks: int) -> tuple[Limits, str]:
    """Return the limits of a reading that mixes ``blocks`` blocks in the same memory, and a warning.

    The warning is "" if the chunks of the blocks fit. If not, the chunks that do not fit are read again.
    """
    found = limits._replace(samples=max(limits.samples, _samples(arrangement, blocks)))
    needed = blocks * arrangement.block_bytes
    if needed <= limits.chunk_bytes:
        return found, ""
    return found, (
        f"this epoch mixes {blocks} blocks of chunks on this rank, which need {_mib(needed)}, and memory_bytes leaves "
        f"{_mib(limits.chunk_bytes)} for them: the samples are the same, and chunks that do not fit are read again. "
        f"Raise memory_bytes by {_mib(needed - limits.chunk_bytes)}, or resume on as many ranks as the state has lanes"
    )


def _samples(arrangement: Arrangement, blocks: int, block_samples: int = 0) -> int:
    most = max(block_samples, arrangement.space.most)
    return min(1 << 20, 2 * blocks * most + _MARGIN // max(1, arrangement.kept.count(False)))


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:.1f} MiB" if size_bytes >= _MIB // 10 or not size_bytes else f"{size_bytes:,} bytes"
