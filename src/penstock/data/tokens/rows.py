"""Rows of packed documents: which bytes a row or a block of rows needs, and how these become rows.

A block is read as a few runs of documents, and its pieces are copied into their rows where it is decoded. A row is then
a view of the block, as a window is one of its run.
"""

from __future__ import annotations

import hashlib
import json
from copy import copy
from functools import cached_property
from logging import getLogger
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from penstock.data.catalog.columns.column import pack
from penstock.data.tokens.batch import PackedRow
from penstock.data.tokens.packing import VERSION, BlockLayout, Pack, PackingPlan, lay_out, plan_packing
from penstock.data.tokens.windows import Shape, TokenPiece, Windows
from penstock.data.zarr.format.references import RecentValues
from penstock.errors import Damaged, Unusable, public_url
from penstock.values import Span

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.data.catalog.columns.column import Numbers
    from penstock.data.tokens.windows import TokenFiles

_LOG = getLogger("penstock")

Longer = Literal["cut", "leave-out", "refuse"]

# Bytes between two pieces of a file that are read and thrown away, at most.
_GAP_BYTES = 64 << 10
_LAYOUT_BYTES = 16 << 20  # of the blocks that were used last
# Share of padding that is worth a line in the log, unless there are hardly any rows.
_MUCH_PADDING, _FEW_ROWS = 0.01, 100
_LONGEST = 1 << 31  # tokens of a document, which is held as a whole


class RowShape(NamedTuple):
    """The rows that documents are packed into."""

    length: int  # tokens
    pack: Pack
    longer: Longer  # documents that fit no row


class DecodedRows:
    """Rows of a block that was read, in their order."""

    def __init__(
        self, tokens: NDArray[Any], loss: NDArray[np.uint8] | None, layout: BlockLayout, goes_on: NDArray[np.bool_]
    ) -> None:
        """Hold rows of ``tokens``; ``goes_on`` tells of each piece whether its document is cut after it."""
        self._tokens, self._width = tokens.reshape(-1).data, tokens.shape[1]
        self._loss = None if loss is None else loss.reshape(-1).data
        self._sizes = layout.sizes.tolist()
        firsts = np.flatnonzero(np.diff(layout.rows, prepend=-1))
        self._firsts = [*firsts.tolist(), len(layout.rows)]
        self._goes_on = goes_on[np.append(firsts[1:], len(goes_on)) - 1].tolist()

    def __getitem__(self, tokens: slice) -> PackedRow:
        """Return the row of these tokens."""
        row = tokens.start // self._width
        sizes = self._sizes[self._firsts[row] : self._firsts[row + 1]]
        loss = None if self._loss is None else self._loss[tokens]
        return PackedRow(self._tokens[tokens], sizes, self._goes_on[row], loss)


class PackedRows:
    """The rows of packed documents: the ``Contents`` of a dataset, in the place of ``Windows``.

    A row is stored as ``length`` tokens and one more: the token after a cut, which its labels need. Places of rows are
    counted in such rows, as if all were one file.
    """

    # Rows of a block are read together, also across wide gaps.
    joined = True

    def __init__(self, files: TokenFiles, shape: RowShape, plan: PackingPlan | None = None) -> None:
        """Plan the rows of the documents, unless ``plan`` is given; documents without tokens take no part."""
        self.source, self.base, self.dtype, self.keys = files.source, files.base, files.dtype, files.keys
        self.shape, item = shape, files.dtype.itemsize
        self.tokens = sum(int(sizes.sum()) for _, sizes in files.units) // item
        self._losses = _match_losses(files) if files.losses else {}
        longest = shape.length * item
        long = [sizes > longest for _, sizes in files.units]
        self.cut = int(sum(map(np.count_nonzero, long)))
        if self.cut and shape.longer == "refuse":
            raise _refuse_long(files, longest, self.cut)
        kept = [sizes > 0 for _, sizes in files.units]
        if shape.longer == "leave-out":
            kept, self.cut = [some & ~over for some, over in zip(kept, long, strict=True)], 0
        units = [(begins[some], sizes[some]) for (begins, sizes), some in zip(files.units, kept, strict=True)]
        self._documents = Windows(files._replace(units=units), Shape(0, 0, "documents"))
        self.left_out = self.tokens - self._documents.tokens
        lengths, borders = self._lengths(np.arange(len(self._documents))), self._documents.owners
        if len(lengths) and int(lengths.max()) >= _LONGEST:
            message = f"a document must have fewer than 2^31 tokens to be packed, got {lengths.max():,}"
            raise Unusable(message, url=self._documents.url_of(int(lengths.argmax())))
        if plan is None:
            plan = plan_packing(lengths, borders, shape.length, item, shape.pack)
        self._plan = pack([*plan])
        self._slice = 0, int(plan.starts[-1])
        self.mean_bytes = self._row_bytes = (shape.length + 1) * item
        total = self._slice[1] * shape.length
        self.padding = (total - self._documents.tokens) / max(total, 1)
        if self.padding > _MUCH_PADDING and len(self) >= _FEW_ROWS:
            _LOG.warning(
                "%.1f %% of %s is padding: pass a smaller length=, or add files with short documents",
                100 * self.padding,
                self.kind,
            )
        self._layouts: RecentValues[BlockLayout] = RecentValues(_LAYOUT_BYTES, attrgetter("nbytes"))

    def __len__(self) -> int:
        return self._slice[1] - self._slice[0]

    @property
    def root(self) -> str:
        return self.source.root

    @property
    def documents(self) -> int:
        """The number of documents that are packed."""
        return len(self._documents)

    @property
    def plan(self) -> PackingPlan:
        firsts, runs, bounds, starts = (each.values for each in self._plan)
        return PackingPlan(firsts, runs, bounds, starts)

    @property
    def kind(self) -> str:
        return f"packed rows of {self.shape.length:,} tokens"

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first row of each block, or of its part in a slice, and at the end the number of rows."""
        first, stop = self._slice
        return np.unique(np.clip(self._plan[3].values, first, stop)) - first

    @cached_property
    def stretches(self) -> Numbers:
        """The first row of each stretch: all rows are one."""
        return pack([np.zeros(min(len(self), 1), np.int64)])[0]

    # Cached: every state contains the digest.
    @cached_property
    def digest(self) -> str:
        """Digest of the documents, the shape of the rows, and the plan."""
        text = json.dumps([VERSION, self._documents.digest, self.shape, self._slice, *(["loss"] * bool(self._losses))])
        hashed = hashlib.sha256(text.encode())
        for each in self._plan:
            hashed.update(each.values.data)
        return hashed.hexdigest()[:32]

    def part(self, first: int, stop: int) -> PackedRows:
        """Return rows ``first`` to ``stop``; the plan is that of all."""
        found = copy(self)
        for name in ("digest", "starts", "stretches"):
            found.__dict__.pop(name, None)
        found._slice = self._slice[0] + first, self._slice[0] + stop  # noqa: SLF001  itself
        return found

    def places(self, samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first byte of each row among all rows, and the end."""
        starts = samples * self._row_bytes
        return starts, starts + self._row_bytes

    def piece(self, first: int, last: int) -> TokenPiece:
        """Return the bytes that rows ``first`` to ``last`` need, which are of one block."""
        spans, item = self._located(*self._sources(first, last + 1)[:3])[0], self.dtype.itemsize
        if self._losses:
            spans += [self._mask_span(each.key, each.start // item, (each.stop or 0) // item) for each in spans]
        return TokenPiece(first * self._row_bytes, (last + 1) * self._row_bytes, spans)

    def _mask_span(self, key: str, start: int, stop: int) -> Span:
        mask, etag = self._losses[key]
        return Span(mask, start, stop, etag)

    def decode(self, piece: TokenPiece, parts: list[bytes]) -> DecodedRows:
        """Return the rows of a piece, whose spans have the bytes ``parts``."""
        first, stop = piece.start // self._row_bytes, piece.stop // self._row_bytes
        documents, begins, ends, layout = self._sources(first, stop)
        owners, sources = self._located(documents, begins, ends)[1:]
        (block, begin, end), item, length = self._block(first, stop), self.dtype.itemsize, self.shape.length
        if layout is None:
            # A whole block: its documents were read, and the pieces are in them.
            layout = self._layout(block)
            owners, sources = owners[layout.documents], sources[layout.documents] + layout.firsts * item
        goes_on = self._go_on(block, layout)
        made, loss = np.empty((end - begin, length + 1), self.dtype), None
        targets, sizes = (layout.rows - begin) * (length + 1) + layout.places, layout.sizes + goes_on
        _copy_pieces(made, parts, owners, (targets * item, sources, sizes * item))
        if self._losses:
            loss = np.empty((end - begin, length + 1), np.uint8)
            _copy_pieces(loss, parts[len(parts) // 2 :], owners, (targets, sources // item, sizes))
        filled = (layout.places + layout.sizes)[np.append(np.flatnonzero(np.diff(layout.rows)), -1)]
        for row in np.flatnonzero(filled < length).tolist():
            made[row, filled[row] :] = 0
        return DecodedRows(made, loss, layout, goes_on)

    def url_of(self, sample: int) -> str:
        """Return the URL of the file in which the first document of a row is."""
        block, row, _ = self._block(sample, sample + 1)
        layout = self._layout(block)
        first = layout.documents[np.searchsorted(layout.rows, row)]
        return self._documents.url_of(int(self.plan.documents(block)[first]))

    def _block(self, first: int, stop: int) -> tuple[int, int, int]:
        """Return the block of some rows, and the numbers of the first and the one after the last in it."""
        begin = first + self._slice[0]
        starts = self._plan[3].values
        block = int(np.searchsorted(starts, begin, side="right")) - 1
        row = begin - int(starts[block])
        return block, row, row + stop - first

    def _layout(self, block: int) -> BlockLayout:
        found = self._layouts.get(block)
        if found is None:
            lengths = self._lengths(self.plan.documents(block))
            found = lay_out(lengths, self.shape.length, self.shape.pack, block)
            self._layouts.put(block, found)
        return found

    def _lengths(self, documents: NDArray[np.int64]) -> NDArray[np.int64]:
        begins, ends = self._documents.places(documents)
        found: NDArray[np.int64] = (ends - begins) // self.dtype.itemsize
        return found

    def _go_on(self, block: int, layout: BlockLayout) -> NDArray[np.bool_]:
        lengths = self._lengths(self.plan.documents(block)[layout.documents])
        found: NDArray[np.bool_] = layout.firsts + layout.sizes < lengths
        return found

    def _sources(
        self, first: int, stop: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], BlockLayout | None]:
        """Return documents, first bytes and ends of what some rows need, and their pieces.

        The pieces are None for a whole block, which needs all of each document.
        """
        block, begin, end = self._block(first, stop)
        documents, rows = self.plan.documents(block), self._plan[3].values
        if begin == 0 and end == rows[block + 1] - rows[block]:
            return documents, *self._documents.places(documents), None
        layout = self._layout(block)
        chosen = slice(*np.searchsorted(layout.rows, (begin, end)))
        layout = BlockLayout(*(each[chosen] for each in layout))
        documents, item = documents[layout.documents], self.dtype.itemsize
        begins = self._documents.places(documents)[0] + layout.firsts * item
        ends = begins + (layout.sizes + self._go_on(block, layout)) * item
        return documents, begins, ends, layout

    def _located(
        self, documents: NDArray[np.int64], begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[list[Span], NDArray[np.int64], NDArray[np.int64]]:
        """Return the spans that hold some ranges of bytes, and for each range the number of its span, and its place.

        Neighbours are read together, with what little lies between them.
        """
        order = np.lexsort((begins, documents))
        owners, low, high = self._documents.owners_of(documents[order]), begins[order], ends[order]
        new = np.append(True, (np.diff(owners) > 0) | (low[1:] - high[:-1] > _GAP_BYTES))
        firsts = np.flatnonzero(new)
        starts, stops = low[firsts], high[np.append(firsts[1:], len(new)) - 1]
        spans, places = np.empty_like(begins), np.empty_like(begins)
        spans[order] = np.cumsum(new) - 1
        places[order] = low - starts[spans[order]]
        found = zip(owners[firsts].tolist(), starts.tolist(), stops.tolist(), strict=True)
        return [self._documents.span(*each) for each in found], spans, places


def _copy_pieces(
    rows: NDArray[Any], parts: list[bytes], owners: NDArray[np.int64], pieces: tuple[NDArray[np.int64], ...]
) -> None:
    """Copy pieces from the parts that have them: where each begins in the rows and in its part, and its bytes."""
    into, given = rows.reshape(-1).view(np.uint8).data, [memoryview(each) for each in parts]
    for owner, target, source, size in zip(owners.tolist(), *(each.tolist() for each in pieces), strict=True):
        into[target : target + size] = given[owner][source : source + size]


def _match_losses(files: TokenFiles) -> dict[str, tuple[str, str]]:
    """Return key and ETag of the loss mask of each file; ``Damaged`` unless it has one byte a token."""
    found, item = {}, files.dtype.itemsize
    for key, (mask, size, etag), (begins, sizes) in zip(files.keys, files.losses, files.units, strict=True):
        tokens = int(begins[-1] + sizes[-1]) // item if len(begins) else 0
        if size != tokens:
            message = f"a loss mask must have one byte a token, got {size:,} bytes for {tokens:,} tokens"
            raise Damaged(message, url=files.source.url(mask))
        found[key] = mask, etag
    return found


def _refuse_long(files: TokenFiles, longest: int, count: int) -> Unusable:
    item = files.dtype.itemsize
    number, sizes = next((at, sizes) for at, (_, sizes) in enumerate(files.units) if (sizes > longest).any())
    most = max(int(each.max(initial=0)) for _, each in files.units) // item
    url = public_url(files.source.url(files.keys[number]))
    return Unusable(
        f"longer='refuse': {count:,} documents have more than length={longest // item:,} tokens, at most {most:,}; the "
        f"first is document {int(np.argmax(sizes > longest)):,} of {url}: pass a larger length=, or longer='leave-out' "
        "or 'cut'"
    )
