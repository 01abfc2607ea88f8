"""``TokenDataset``: windows of tokens, or whole documents, from token files; neighbours are read in one request."""

from __future__ import annotations

from copy import copy
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex, get_args

import numpy as np
import torch

from penstock.data.datasets.concat import ConcatMap
from penstock.data.datasets.windows import WindowDataset
from penstock.data.order.sampling import sample_number
from penstock.data.tokens.batch import StackedRows, StackedWindows
from penstock.data.tokens.opening import Manner, open_files
from penstock.data.tokens.packing import Pack
from penstock.data.tokens.plans import open_rows
from penstock.data.tokens.rows import Longer, PackedRows, RowShape
from penstock.data.tokens.runs import TokenReading, fitted_order, runs_of
from penstock.data.tokens.windows import Shape, Windows
from penstock.errors import Unusable, kind_of
from penstock.values import check_choice, switch, whole

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import DTypeLike

    from penstock.data.order.protocol import Order
    from penstock.data.tokens.runs import TokenRuns
    from penstock.data.tokens.windows import TokenFiles
    from penstock.options import StoreOptions

Format = Literal["megatron", "raw", "llmc", "npy"]

_MOST_TOKENS = 1 << 48  # of a window or stride: bytes of them fit 64 bits
_LONGEST_ROW = (1 << 31) - 1
_TOGETHER = 16  # transformed samples that a thread makes at a time; others make the next ones meanwhile


class _DefaultLength(int):
    """The tokens of a window for which no length was given: a context of 2,048, which no packed row would have."""


_WINDOW = _DefaultLength(2049)


class TokenDataset(WindowDataset):
    """Windows of tokens, or whole documents, from files of tokens: ``dataset[i]`` is sample ``i``.

    ``from_shards`` makes one. The files stay as they are: Megatron's ``.bin`` and ``.idx``, headerless arrays (nanoGPT,
    OLMo, datatrove), llm.c's files with their header, and NumPy's ``.npy``. The place of a sample is computed: no table
    has an entry for each window, and memory does not grow with the number of tokens.

    ``ps.DataLoader(dataset, B, shuffle=ps.order.Lanes())`` reads neighbouring windows in one request of about 1 MiB,
    and mixes those of 160 such requests; each byte is read once per epoch. ``shuffle=True`` permutes all windows, and
    reads each in a separate request. Order, ranks, workers and exact resumption are those of any dataset of Penstock.

    A slice is a dataset of neighbours, such as ``dataset[:1000]`` for validation and ``dataset[1000:]`` for training.

    A sample is an int64 tensor of shape (length,), and a batch one of shape (B, length). With ``output="numpy"`` they
    are arrays of the stored type.

    Args:
        windows: The samples, as ``from_shards`` finds them.
        transform: Function from a sample to the value that is yielded; default: the sample itself.
        output: ``"torch"`` for int64 tensors, ``"numpy"`` for arrays of the stored type.

    Attributes:
        windows: The samples.

    Raises:
        Unusable: An argument is invalid.

    Example:
        >>> tokens = np.arange(10_000, dtype="uint16")
        >>> with ps.open("s3://bucket/tokens/a.bin", "wb") as file:
        ...     size = file.write(tokens.tobytes())
        >>> dataset = ps.TokenDataset.from_shards("s3://bucket/tokens/", length=2049, dtype="uint16")
        >>> len(dataset), dataset[1][:3], dataset.left_out
        (4, tensor([2049, 2050, 2051]), 1804)
        >>> next(iter(ps.DataLoader(dataset, 2, shuffle=ps.order.Lanes()))).shape
        torch.Size([2, 2049])
    """

    def __init__(
        self,
        windows: Windows | PackedRows,
        *,
        transform: Callable[[Any], Any] | None = None,
        output: Literal["torch", "numpy"] = "torch",
    ) -> None:
        if not isinstance(windows, (Windows, PackedRows)):
            raise Unusable(f"create a TokenDataset by TokenDataset.from_shards(urls, length=…), got {windows!r}")
        _check_arguments(transform, output)
        self.windows = windows
        self.transform = getattr(self, "transform", None) if transform is None else transform
        self._numpy = output == "numpy"
        # True: samples are copies. False: views of runs, for a collate function that copies them.
        self._own = True

    @classmethod
    def from_shards(  # noqa: PLR0913  see design/0020
        cls,
        urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        length: int | None = _WINDOW,
        stride: int | None = None,
        dtype: DTypeLike | None = None,
        documents: bool = False,
        across: bool = False,
        pack: Pack | None = None,
        longer: Longer = "cut",
        plan: str | os.PathLike[str] | None = None,
        loss: bool = False,
        format: Format | None = None,  # noqa: A002  the field's word
        transform: Callable[[Any], Any] | None = None,
        output: Literal["torch", "numpy"] = "torch",
        store: StoreOptions | str | None = None,
    ) -> Self:
        """Return a dataset of the tokens in files; nothing is copied or converted.

        With ``pack``, samples are rows of whole documents, and batches are ``ps.PackedBatch``: see below. Otherwise
        they are windows.

        Windows run within a file (with ``documents``, within a document; with ``across``, from file to file), and the
        tokens after the last whole window are left out: ``left_out`` counts them. By default, each token is in one
        window. ``stride=length - 1`` lets a window begin with the last token of the one before it, as in Megatron and
        llm.c, so that each token is predicted once.

        Costs the requests of a listing, or a HEAD for each file that is named (for a ``.bin`` also one for its index),
        and one small read for each file; up to three for an index that is larger than 256 KiB. ``format="raw"`` with a
        ``dtype`` needs no read. With ``documents``, or without a ``length``, the indexes are read whole.

        Args:
            urls: The files: a prefix, below which all ``.bin``, ``.npy`` and ``.ds`` files are taken; a glob; a pattern
                such as ``"s3://bucket/tokens-{000..127}.bin"``; or a list of URLs, in the order of the samples. An
                ``.idx`` stands for its pair.
            length: Tokens of a window. For next-token prediction that is the context and one more, hence 2,049. None:
                each sequence of Megatron's index is a sample (with ``documents``: each document), of any length. With
                ``pack``, which needs it: tokens of a row, the context itself, such as 8,192.
            stride: Tokens from the beginning of a window to that of the next; default: ``length``.
            dtype: Type of the tokens in files without a header, such as ``"uint16"``; default: as header or index say.
            documents: Whether no window crosses the border of a document of Megatron's ``.idx`` or datatrove's
                ``.ds.index``; documents shorter than ``length`` are left out.
            across: Whether the files are one stream of tokens, in the order of ``urls``: a window that begins in a file
                may end in a later one, and only the tokens after the last window of all are left out. It takes one more
                request for each border of files.
            pack: Pack the documents of the indexes into rows of ``length`` tokens. ``"best-fit"``: no document that
                fits a row is cut; ``padding`` is the share that rows lack. ``"cut"``: neighbours fill rows, and are cut
                where rows end, so that next to nothing is padding. The rows are planned from the indexes alone, in
                about 1 s of CPU for 10⁶ documents.
            longer: With ``pack="best-fit"``, documents of more than ``length`` tokens: ``"cut"`` to rows and a rest,
                ``"leave-out"`` (``left_out`` counts their tokens), or ``"refuse"``.
            plan: With ``pack``, a file that ``ps.index(urls, plan, format="packing", …)`` has written: indexes are not
                read, and nothing is planned. Files other than those of the plan raise ``Changed``.
            loss: With ``pack``, whether files have masks of tokens that shall not be predicted, such as prompts: one
                byte a token, 0 for such a token, whose label is -100. ``a.loss`` belongs to ``a.bin``, as ``ps.map``
                writes it, and ``a.ds.loss`` of datatrove to ``a.ds``. Costs a HEAD for each file.
            format: ``"megatron"``, ``"raw"`` (no header), ``"llmc"`` or ``"npy"``. Default: Megatron if there is an
                ``.idx`` next to the ``.bin``, otherwise by the first bytes of each file.
            transform: As for the class.
            output: As for the class.
            store: Options, or the name of a profile; default: environment and profile.

        Raises:
            NotFound: There is no file; or an index, or the ``.bin`` of one, is missing.
            Damaged: A file contradicts its header or index.
            Unsupported: A file has another version of its format, or tokens that are no integers.
            Unusable: An argument is invalid, the type of the tokens is not known, files have tokens of several types,
                or there is no whole window.

        Example:
            >>> with ps.open("s3://bucket/raw/b.bin", "wb") as file:
            ...     size = file.write(np.arange(600, dtype="uint32").tobytes())
            >>> dataset = ps.TokenDataset.from_shards("s3://bucket/raw/", length=257, stride=256, dtype="uint32")
            >>> [(int(each[0]), int(each[-1])) for each in dataset]
            [(0, 256), (256, 512)]
            >>> for name, array in (("", np.arange(90, dtype="u2")), (".index", np.array([30, 75, 90], "u8"))):
            ...     with ps.open(f"s3://bucket/packed/c.ds{name}", "wb") as file:
            ...         size = file.write(array.tobytes())
            >>> rows = ps.TokenDataset.from_shards("s3://bucket/packed/", length=50, pack="best-fit")
            >>> rows.padding, sorted(batch.seq_lens for batch in ps.DataLoader(rows, 1))
            (0.1, [[[30, 15]], [[45]]])
        """
        units: Literal["tokens", "sequences", "documents"] = "tokens"
        for name, value in (("documents", documents), ("across", across), ("loss", loss)):
            switch(value, name)
        _check_arguments(transform, output)
        if pack is not None or longer != "cut":
            given = None if isinstance(length, _DefaultLength) else length
            shape = check_packing(given, pack, longer, {"stride": stride, "documents": documents, "across": across})
            manner = Manner.checked(format, dtype, "documents")._replace(loss=loss)
            return cls(open_rows(urls, manner, shape, store, plan)[0], transform=transform, output=output)
        if plan is not None:
            raise Unusable("plan= is for packed rows: pass pack= and length= with it")
        if loss:
            raise Unusable("loss=True is for packed rows, whose batches have labels: pass pack= and length= with it")
        if length is None and stride is not None:
            raise Unusable("stride= needs length=: pass both")
        if documents or length is None:
            units = "documents" if documents else "sequences"
            if across:
                raise Unusable(
                    f"across=True makes one stream of the files, in which {units} have no borders: leave it out, or "
                    f"{'documents=' if documents else 'pass length='}"
                )
        size = 0 if length is None else whole(length, "length", 1)
        step = size if stride is None else whole(stride, "stride", 1)
        if max(size, step) > _MOST_TOKENS:
            raise Unusable(f"length and stride must be at most 2^48 tokens, got {size} and {step}")
        manner = Manner.checked(format, dtype, units)
        files = open_files(urls, manner, store)
        windows = Windows(files, Shape(size, step, "stream" if across else units))
        if not len(windows):
            raise Unusable(_why_none(windows, files))
        return cls(windows, transform=transform, output=output)

    def __repr__(self) -> str:
        files = f"{self.tokens:,} tokens in {len(self.windows.keys):,} files"
        padding = f" with {self.padding:.2%} padding" if isinstance(self.windows, PackedRows) else ""
        samples = f"{len(self):,} {self.windows.kind.removeprefix('whole ')}{padding}"
        return f"<TokenDataset of {samples}; {self.left_out:,} of {files} are left out>"

    @property
    def tokens(self) -> int:
        """The number of tokens of all files, also for a slice."""
        return self.windows.tokens

    @property
    def left_out(self) -> int:
        """The number of tokens in no sample of the whole dataset: at ends of files or documents, or between windows.

        With ``longer="leave-out"``, those of documents longer than a row.
        """
        return self.windows.left_out

    @property
    def padding(self) -> float:
        """The share of padding in the rows of the whole dataset, 0 to 1; 0 without ``pack``."""
        return self.windows.padding if isinstance(self.windows, PackedRows) else 0.0

    @property
    def cut(self) -> int:
        """The number of documents that are longer than a row, and are cut; 0 without ``pack``."""
        return self.windows.cut if isinstance(self.windows, PackedRows) else 0

    @property
    def dtype(self) -> np.dtype[np.integer]:
        """The type of the tokens as they are stored."""
        return self.windows.dtype

    @property
    def kinds(self) -> frozenset[str]:
        """The type and the length of the samples; with a transform, they are not known."""
        shape, dtype = self.windows.shape, self.dtype if self._numpy else "int64"
        samples = self.windows.kind
        if isinstance(self.windows, PackedRows):
            samples += f" as {dtype} arrays" if self._numpy else ""
        elif shape.length:
            samples = f"{dtype} {'arrays' if self._numpy else 'windows'} of {shape.length:,} tokens"
        return frozenset() if self.transform is not None else frozenset({samples})

    @property
    def contents(self) -> Windows | PackedRows:
        """The samples, whose digest is part of a state."""
        return self.windows

    def _select_part(self, first: int, stop: int) -> Self:
        part = copy(self)
        part.windows = self.windows.part(first, stop)
        return part

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Read samples with all requests in flight at once."""
        samples = [sample_number(index, len(self)) for index in indices]
        windows = self.windows
        pieces = [windows.piece(sample, sample) for sample in samples]
        bodies = iter(windows.source.read_many([*chain.from_iterable(each.spans for each in pieces)]))
        found = list[Any]()
        for sample, piece in zip(samples, pieces, strict=True):
            tokens = windows.decode(piece, [next(bodies) for _ in piece.spans])
            found.append(self._made(sample, tokens[0 : (piece.stop - piece.start) // self.dtype.itemsize]))
        return found

    # Public here: the reference lists what a class has itself.
    batched = WindowDataset.batched

    def _fit_order(self, shuffle: object) -> Order:
        return fitted_order(shuffle, self.windows)

    def _runs_of(self, order: Order) -> TokenRuns:
        return runs_of(self.windows, order)

    def collated(self, batch: int) -> tuple[Self, Callable[[list[Any]], Any] | None]:
        """Return this dataset in the form to collate, and the collate function; None: torch's.

        Args:
            batch: Most samples of a batch.
        """
        length = self.windows.shape.length
        if self.transform is not None:
            return self, None
        if not length:
            return self, list
        dataset = copy(self)
        dataset._own = False  # noqa: SLF001  itself
        stacked = StackedRows if isinstance(self.windows, PackedRows) else StackedWindows
        return dataset, stacked(self.dtype, batch, length, numpy=self._numpy)

    @property
    def end_to_end(self) -> type[ConcatTokens]:
        """The class of concatenated token datasets, as ``ps.concat`` makes them."""
        return ConcatTokens

    def reading(self, batches: Iterable[list[int]], workers: int) -> TokenReading:
        """Return the samples of ``batches``, cut from runs as these are read.

        Args:
            batches: Numbers of the samples of each batch.
            workers: Number of processes that read in parallel and share the read-ahead budget.
        """
        made = self._made if self._own or self.transform is not None else None
        together = _TOGETHER if self.transform is not None else len(self)
        return TokenReading(self._in_runs(), batches, workers, made, together, self._place)

    def _made(self, index: int, tokens: Any) -> Any:  # noqa: ANN401  the transform decides the type
        sample: Any
        if isinstance(self.windows, PackedRows):
            sample = StackedRows(self.dtype, 1, self.windows.shape.length, numpy=self._numpy)([tokens])
        else:
            sample = tokens.copy() if self._numpy else torch.from_numpy(tokens.astype(np.int64))
        return self._transform_sample(sample, index)


class ConcatTokens(ConcatMap):
    """Concatenated token datasets, as ``ps.concat`` makes them."""

    parts: tuple[TokenDataset, ...]

    def __init__(self, parts: Sequence[Any]) -> None:
        """Join ``parts``; read nothing."""
        for each in parts:
            if not isinstance(each, TokenDataset):
                raise Unusable(
                    f"concat joins a TokenDataset with others of its kind, got {kind_of(each)}: use ps.Mix "
                    "for datasets of different kinds"
                )
        self.join(parts, [*map(len, parts)])

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Read samples, those of each part with all requests in flight at once."""
        numbers, inner = self.split([sample_number(index, len(self)) for index in indices])
        found: dict[int, Iterator[Any]] = {}
        for number in {*numbers}:
            mine = [index for index, of in zip(inner, numbers, strict=True) if of == number]
            found[number] = iter(self.parts[number].__getitems__(mine))
        return [next(found[number]) for number in numbers]

    def _fit_order(self, shuffle: object) -> Order:
        return fitted_order(shuffle, *(part.windows for part in self.parts))


def _why_none(windows: Windows, files: TokenFiles) -> str:
    """Return the reason for a lack of samples, and advice."""
    (length, _, units), item = windows.shape, windows.dtype.itemsize
    if not length:
        return f"the indexes of {len(files.keys)} files have no {units}"
    longest = max((int(sizes.max(initial=0)) for _, sizes in files.units), default=0) // item
    found = f"there is no window of {length} tokens in {len(files.keys)} files of {windows.tokens} tokens"
    if windows.tokens < length:
        return f"{found}: pass a smaller length="
    kind, instead = ("file", "pass across=True") if units == "tokens" else ("document", "leave documents= out")
    return f"{found}: the longest {kind} has {longest}; {instead}, or a smaller length="


def check_packing(length: object, pack: object, longer: object, others: dict[str, Any]) -> RowShape:
    """Return the shape of packed rows; refuse arguments of windows."""
    if pack is None:
        raise Unusable(f"longer={longer!r} is for packed rows: pass pack='best-fit' with it")
    check_choice(pack, get_args(Pack), "pack")
    check_choice(longer, get_args(Longer), "longer")
    if pack == "cut" and longer != "cut":
        raise Unusable(f"pack='cut' cuts all documents where rows end, so that longer={longer!r} has no effect")
    if given := next((name for name, value in others.items() if value not in (None, False)), None):
        raise Unusable(f"{given}= is for windows, and cannot be combined with pack=: rows have whole documents")
    if length is None:
        raise Unusable("pack= needs length=, the tokens of a row, such as 8192")
    size = whole(length, "length", 1)
    if size > _LONGEST_ROW:
        raise Unusable(f"length must be below 2^31 tokens with pack=, got {size}")
    return RowShape(size, pack, longer)  # type: ignore[arg-type]  # checked


def _check_arguments(transform: object, output: object) -> None:
    if transform is not None and not callable(transform):
        raise Unusable(f"transform must be a function of a sample, got {transform!r}")
    check_choice(output, ("torch", "numpy"), "output")
