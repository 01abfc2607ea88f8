"""``PackedBatch``: rows of packed documents with their labels and borders, from which masks and positions follow."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import torch
from torch.utils.data._utils.collate import default_collate_fn_map

from penstock.data.reading.pool import BATCHES, MemoryPool
from penstock.errors import Unusable
from penstock.tree import tree_map

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

# The label that losses of PyTorch leave out.
IGNORED = -100
_MOST = 1 << 31


class PackedRow(NamedTuple):
    """A row as it is cut from a decoded block."""

    tokens: memoryview  # ``length`` tokens, and one more: the next of a document that goes on beyond the row
    seq_lens: list[int]  # tokens of each piece; padding is the rest
    goes_on: bool  # whether the last piece is not the end of its document; it fills the row then
    loss: memoryview | None = None  # of each token, 0 if it is not to be predicted; None: all are


class PackedBatch(NamedTuple):
    """Rows of packed documents: tokens, labels, and the length of each document in each row.

    ``seq_lens`` is the single source of borders: everything else is computed from it, when asked for. Padding is known
    by its place, not by its tokens, which are 0. A document of more tokens than a row is several pieces, each a
    sequence for the attention; the label of the last token of a piece is the token that follows in the document.

    Computed values are on the device of ``tokens``; with ``output="numpy"``, all are arrays.

    Attributes:
        tokens: int64, shape (rows, length); with ``output="numpy"`` of the stored type.
        labels: The token that follows each, int64, shape (rows, length); -100 at the end of a document, in padding, and
            where the loss mask of the token that follows is 0.
        seq_lens: For each row, the tokens of each of its documents.

    Example:
        >>> batch = ps.PackedBatch(torch.tensor([[5, 6, 7, 8, 0]]), torch.tensor([[6, -100, 8, -100, -100]]), [[2, 2]])
        >>> batch.document_ids.tolist(), batch.position_ids.tolist(), batch.cu_seqlens.tolist()
        ([[0, 0, 1, 1, -1]], [[0, 1, 0, 1, 0]], [0, 2, 4, 5])
    """

    tokens: Any
    labels: Any
    seq_lens: list[list[int]]

    @property
    def cu_seqlens(self) -> Any:  # noqa: ANN401  a tensor or an array
        """The borders of all sequences of the flattened batch, from 0 on: int32, for attention of variable lengths.

        The padding of a row is a sequence by itself, so that no sequence crosses rows.
        """
        if self.labels.shape[0] * self.labels.shape[1] >= _MOST:
            raise Unusable("cu_seqlens must have borders below 2^31 tokens: make smaller batches")
        borders = [*accumulate((size for row in self._sequences() for size in row), initial=0)]
        return self._placed(np.array(borders, np.int32))

    @property
    def max_seqlen(self) -> int:
        """The tokens of the longest sequence of ``cu_seqlens``."""
        return max((size for row in self._sequences() for size in row), default=0)

    @property
    def position_ids(self) -> Any:  # noqa: ANN401  as above
        """The place of each token in its sequence, from 0 on: int64, shape (rows, length)."""
        sizes = np.array([size for row in self._sequences() for size in row], np.int64)
        found = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self._placed(found.reshape(self.labels.shape))

    @property
    def document_ids(self) -> Any:  # noqa: ANN401  as above
        """The number of each token's document in its row: int32, shape (rows, length); -1 in padding.

        A token sees those before it with the same number: ``ids[row, i] == ids[row, j]`` for FlexAttention.
        """
        found = np.full(tuple(self.labels.shape), -1, np.int32)
        for row, sizes in zip(found, self.seq_lens, strict=True):
            row[: sum(sizes)] = np.repeat(np.arange(len(sizes)), sizes)
        return self._placed(found)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """Return this batch with its tensors on a device, as ``torch.Tensor.to``; ``ps.DataLoader(device=…)`` does it.

        Args:
            device: The device.
            non_blocking: Whether a copy from pinned memory is asynchronous.

        Raises:
            Unusable: The batch has arrays (``output="numpy"``).
        """
        self._require_tensors()
        moved: Self = tree_map(lambda each: each.to(device, non_blocking=non_blocking), self, torch.Tensor)
        return moved

    def pin_memory(self) -> Self:
        """Return this batch with its tensors in page-locked memory; ``ps.DataLoader(pin_memory=True)`` does it."""
        self._require_tensors()
        pinned: Self = tree_map(torch.Tensor.pin_memory, self, torch.Tensor)
        return pinned

    def _require_tensors(self) -> None:
        if not isinstance(self.tokens, torch.Tensor):
            raise Unusable("cannot move or pin arrays: leave output='numpy' out of from_shards")

    def _sequences(self) -> Iterator[list[int]]:
        length = self.labels.shape[1]
        for sizes in self.seq_lens:
            rest = length - sum(sizes)
            yield [*sizes, rest] if rest else sizes

    def _placed(self, found: Any) -> Any:  # noqa: ANN401  as above
        if not isinstance(self.tokens, torch.Tensor):
            return found
        tensor, device = torch.from_numpy(found), self.tokens.device
        # From memory that is not pinned, a copy would wait for all work of the device.
        return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class StackedWindows:
    """Collate function that copies windows into one array; reuses the memory of batches that nothing refers to."""

    label_bytes = 0  # of a token

    def __init__(self, stored: np.dtype[Any], batch: int, length: int, *, numpy: bool) -> None:
        self._stored, self._length, self._numpy = stored, length, numpy
        self._dtype = stored if numpy else np.dtype(np.int64)
        self._pool = MemoryPool(BATCHES * batch * length * (self._dtype.itemsize + self.label_bytes))

    def __eq__(self, other: object) -> bool:
        """Return whether the other function makes the same batches of the same samples."""
        return isinstance(other, StackedWindows) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        return type(self), self._stored, self._length, self._numpy

    def __call__(self, samples: Sequence[Any]) -> Any:  # noqa: ANN401  an array or a tensor
        """Return the batch, of shape (samples, length)."""
        stored = self._join(samples)
        batch = self._pool.empty(stored.shape, self._dtype)
        batch[...] = stored
        return batch if self._numpy else torch.from_numpy(batch)

    def _join(self, samples: Sequence[memoryview]) -> NDArray[Any]:
        # One copy into memory that stays in the processor's cache, and one conversion of the whole batch: for windows
        # of 4 KiB a quarter less time than numpy.concatenate, which converts and checks each array by itself.
        return np.frombuffer(b"".join(samples), self._stored).reshape(len(samples), -1)


class StackedRows(StackedWindows):
    """Collate function of packed rows."""

    label_bytes = 8

    def __call__(self, rows: Sequence[PackedRow]) -> PackedBatch:
        """Return the batch of rows."""
        shape = len(rows), self._length
        stored = self._join([row.tokens for row in rows])
        tokens = self._pool.empty(shape, self._dtype)
        labels = self._pool.empty(shape, np.dtype(np.int64))
        tokens[...], labels[...] = stored[:, :-1], stored[:, 1:]
        last = list[int]()
        for number, row in enumerate(rows):
            first = number * self._length - 1
            last += [first + end for end in accumulate(row.seq_lens)]
            if row.goes_on:
                last.pop()
            elif (end := last[-1] - first) < self._length:
                labels[number, end:] = IGNORED
            if row.loss is not None:
                labels[number, np.frombuffer(row.loss, np.uint8)[1:] == 0] = IGNORED
        labels.reshape(-1)[last] = IGNORED
        lens = [row.seq_lens for row in rows]
        if self._numpy:
            return PackedBatch(tokens, labels, lens)
        return PackedBatch(torch.from_numpy(tokens), torch.from_numpy(labels), lens)


def join_batches(batches: Sequence[PackedBatch], *, collate_fn_map: object = None) -> PackedBatch:  # noqa: ARG001  torch's signature
    """Return one batch of the rows of several, which have one length."""
    if len({each.labels.shape[1] for each in batches}) > 1:
        raise Unusable("rows of one batch must have the same length")
    tokens, labels, lens = zip(*batches, strict=True)
    join: Any = torch.cat if isinstance(tokens[0], torch.Tensor) else np.concatenate
    return PackedBatch(join(tokens), join(labels), [row for each in lens for row in each])


# So that torch's collate function, which transformed samples go through, takes rows that a transform returns.
default_collate_fn_map[PackedBatch] = join_batches
