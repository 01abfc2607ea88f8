"""Saved plans of packed rows: a file by which rows are opened without the indexes of documents, and without planning.

The vectors of the file are the tokens of each document, and the four of the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.catalog.columns.column import narrow_type
from penstock.data.shards.tokens import token_dtype
from penstock.data.tokens.opening import open_files
from penstock.data.tokens.packing import VERSION, PackingPlan
from penstock.data.tokens.rows import PackedRows, RowShape
from penstock.data.vector_file import FileKind, has_file, read_vectors, write_vectors
from penstock.errors import Changed, Damaged, Unusable, public_url
from penstock.schema import COUNT
from penstock.stores.urls import parse

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from penstock.data.tokens.opening import Manner, Urls
    from penstock.data.tokens.windows import TokenFiles
    from penstock.options import StoreOptions

_AGAIN = "make it again, by ps.index(…, format='packing')"
_KIND = FileKind(
    b"pak",
    VERSION,
    {"dtype": str, "shape": [COUNT, str, str], "files": [[str, COUNT, str, str, COUNT, str, COUNT]]},
    _AGAIN,
)


class SavedPlan(NamedTuple):
    """A plan as it is saved, and the files that it is of."""

    url: str
    dtype: np.dtype[np.integer]
    shape: RowShape
    files: list[list[Any]]  # name, size and ETag of each file and of its index, and its number of documents
    lengths: NDArray[np.int64]  # tokens of each document
    plan: PackingPlan

    def rows(self, files: TokenFiles, shape: RowShape) -> PackedRows:
        """Return the rows of files that were found now, which must be those of the plan."""
        if shape != self.shape:
            raise Unusable(
                f"cannot open rows of {_describe(shape)}: the plan is of {_describe(self.shape)}", url=self.url
            )
        _check_same(_name_twins(files), [each[:-1] for each in self.files], self.url)
        item, units, first = self.dtype.itemsize, [], 0
        for name, size, *_, count in self.files:
            sizes = self.lengths[first : first + count] * item
            if int(sizes.sum()) != size or (sizes < 0).any():
                raise Damaged(f"the plan has other documents than {name}: {_AGAIN}", url=self.url)
            units.append((np.cumsum(sizes) - sizes, sizes))
            first += count
        rows = PackedRows(files._replace(dtype=self.dtype, units=units), shape, self.plan)
        firsts, runs, bounds, starts = self.plan
        borders = ((firsts, rows.documents), (bounds, len(runs)), (starts, int(starts[-1])))
        if (
            not all(each[0] == 0 and each[-1] == last and (np.diff(each) > 0).all() for each, last in borders)
            or (np.sort(runs) != np.arange(len(firsts) - 1)).any()
        ):
            raise Damaged(f"the runs and blocks of the plan contradict one another: {_AGAIN}", url=self.url)
        return rows


def open_rows(
    urls: Urls, manner: Manner, shape: RowShape, store: StoreOptions | str | None, plan: str | os.PathLike[str] | None
) -> tuple[PackedRows, TokenFiles]:
    """Return the rows of the documents in files, planned now or by a saved plan, and the files."""
    if plan is None:
        files = open_files(urls, manner, store)
        rows = PackedRows(files, shape)
    else:
        saved = read_plan(plan, store)
        files = open_files(urls, manner._replace(planned=True), store)
        if manner.dtype and manner.dtype != saved.dtype.str:
            raise Unusable(f"the plan is of {saved.dtype} tokens, not {np.dtype(manner.dtype)}: leave dtype= out")
        rows = saved.rows(files, shape)
    if not len(rows):
        raise Unusable(
            f"all documents have more than length={shape.length} tokens, and longer='leave-out' leaves them out"
            if rows.left_out
            else f"the indexes of {len(files.keys)} files have no documents with tokens"
        )
    return rows, files


def save_plan(
    files: TokenFiles, rows: PackedRows, dest: str | os.PathLike[str], store: StoreOptions | str | None
) -> None:
    """Write the plan of all ``rows`` of ``files``; replace an earlier plan, and no other file."""
    has_file(_KIND, dest, store)
    item = files.dtype.itemsize
    lengths = np.concatenate([sizes // item for _, sizes in files.units])
    counts = [len(sizes) for _, sizes in files.units]
    about = {
        "dtype": files.dtype.str,
        "shape": rows.shape,
        "files": [(*twin, count) for twin, count in zip(_name_twins(files), counts, strict=True)],
    }
    values = [lengths.astype(narrow_type(lengths)), *(each.astype("<i8") for each in rows.plan)]
    write_vectors(_KIND, dest, about, [values], store)


def read_plan(url: str | os.PathLike[str], store: StoreOptions | str | None) -> SavedPlan:
    """Read a saved plan whole."""
    found, [vectors] = read_vectors(_KIND, url, store)
    where = public_url(parse(url).url)
    lengths, *plan = (each.values for each in vectors)
    documents = sum(each[-1] for each in found["files"])
    if len(lengths) != documents or [each.dtype.str for each in plan if len(each)] != ["<i8"] * 4:
        raise Damaged(f"the plan has other vectors than those of its files: {_AGAIN}", url=where)
    shape = RowShape(*found["shape"])
    return SavedPlan(
        where, token_dtype(found["dtype"]), shape, found["files"], lengths.astype(np.int64), PackingPlan(*plan)
    )


def _name_twins(files: TokenFiles) -> list[list[Any]]:
    """Return key, size and ETag of each file and of its index, with keys below the base of all."""
    base = len(files.base)
    return [[a[base:], size, tag, b[base:], *rest] for a, size, tag, b, *rest in files.twins]


def _check_same(found: list[list[Any]], planned: list[list[Any]], url: str) -> None:
    """Raise ``Changed`` if other files are there than those of a plan."""
    if found == planned:
        return
    names, known = [each[0] for each in found], [each[0] for each in planned]
    if names != known:
        odd = next((name for name in (*names, *known) if (name in names) != (name in known)), names[0])
        cause = "is new" if odd not in known else "is gone" if odd not in names else "has another place in the order"
    else:
        [odd, *_] = next(now for now, before in zip(found, planned, strict=True) if now != before)
        cause = "or its index has another size or ETag"
    raise Changed(f"the plan is of other files: {odd} {cause}; {_AGAIN}", url=url)


def _describe(shape: RowShape) -> str:
    return f"length={shape.length:,}, pack={shape.pack!r}, longer={shape.longer!r}"
