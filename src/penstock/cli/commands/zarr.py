"""``penstock zarr``: copy an array or group into other chunks, shards and codecs; estimate the cost of an epoch."""

from __future__ import annotations

import json
import os
import sys
from time import monotonic
from typing import TYPE_CHECKING

from penstock.cli.exits import INTERRUPTED, write
from penstock.cli.page import save
from penstock.cli.text import harmless, readable

if TYPE_CHECKING:
    from penstock.data.zarr.plan import ZarrPlan
    from penstock.interop.zarr.documents import Form
    from penstock.interop.zarr.rechunk import ArrayCopy, CopyOptions
    from penstock.options import StoreOptions

__all__ = ["copy", "plan"]


def copy(source: str, dest: str, options: CopyOptions, store: StoreOptions | str, *, as_json: bool) -> None:
    """Copy an array or group: see ``penstock.interop.zarr.copy``.

    A dry run or ``as_json`` prints a line for each array. Otherwise a summary goes to standard error.

    Raises:
        PenstockError: Errors of ``penstock.interop.zarr.copy``.

    """
    from penstock.interop.zarr.rechunk import Run

    began = monotonic()
    run = Run(source, dest, options, store)
    if options.dry_run:
        _lines(run.result.arrays, "planned", as_json=as_json)
        return
    try:
        run.execute()
    except KeyboardInterrupt:
        # The interpreter would wait for the threads of executors, which wait for a store that may not answer. Ending
        # now is safe: readers see only whole objects, and the journal is written.
        sys.stderr.flush()
        os._exit(INTERRUPTED)
    if as_json:
        _lines(run.result.arrays, "copied", as_json=True)
        return
    done, elapsed_s = run.result, monotonic() - began
    words = [f"copied {_count(len(done.arrays), 'array')}, {readable(done.size_bytes)} decoded, in {elapsed_s:.1f} s"]
    words += ["every region was read back and is equal"] if done.resumed < done.regions else []
    words += [f"{done.resumed:,} of {done.regions:,} regions were done before"] if done.resumed else []
    print("; ".join(words), file=sys.stderr)


def plan(found: ZarrPlan, html: str | None, *, as_json: bool) -> None:
    """Print a plan and, with ``html``, write it as a page. Raises ``Unusable`` if the file cannot be written."""
    if html is not None:
        save(html, found.to_html())
    write((json.dumps(found.as_record()) if as_json else repr(found)) + "\n")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _lines(arrays: tuple[ArrayCopy, ...], status: str, *, as_json: bool) -> None:
    for each in arrays:
        write((json.dumps(_record(each, status)) if as_json else harmless(_text(each))) + "\n")


def _text(array: ArrayCopy) -> str:
    shape = "x".join(map(str, array.shape)) or "scalar"
    regions = f"{_count(len(array.regions), 'region')} of {'x'.join(map(str, array.regions.box)) or '1'}"
    cost = f"{regions}, {readable(array.region_bytes)} of memory each, every source object read {array.reads:.3g} times"
    return f"{array.path or '/'} {shape} {array.dtype}: {_form(array.before)} -> {_form(array.after)}; {cost}"


def _form(form: Form) -> str:
    shards = f" in shards {'x'.join(map(str, form.shards))}" if form.shards else ""
    return f"chunks {'x'.join(map(str, form.chunks)) or '1'}{shards} {form.codecs}"


def _record(array: ArrayCopy, status: str) -> dict[str, object]:
    return {
        "array": array.path,
        "shape": array.shape,
        "dtype": array.dtype,
        "chunks": array.after.chunks,
        "shards": array.after.shards,
        "codecs": array.after.codecs,
        "size": array.size_bytes,
        "regions": len(array.regions),
        "reads": array.reads,
        "memory": array.region_bytes,
        "status": status,
    }
