"""``plan_of``: the plan of a dataset of arrays, from its order of samples and a few measured chunks."""

from __future__ import annotations

from contextlib import closing
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from penstock.data.order.sampling import Cursor, batch_indices
from penstock.data.zarr.chunks.contents import ShardIndexes
from penstock.data.zarr.format.layout import index_span
from penstock.data.zarr.plan import Figures, make_plan, picture, simulate_reads
from penstock.data.zarr.samples.arrangement import dims_of
from penstock.errors import Forbidden, NotFound
from penstock.values import Place

if TYPE_CHECKING:
    from penstock.data.order.sampling import SamplingPlan
    from penstock.data.zarr.arrays.stored import StoredArray
    from penstock.data.zarr.chunks.contents import ZarrContents
    from penstock.data.zarr.chunks.limits import Limits
    from penstock.data.zarr.plan import Picture, Simulated, TrainingSetting, ZarrPlan

_PROCESSES = 16  # simulated processes, spread over all
_SAMPLES = 1 << 18  # simulated samples in all; the rest is extrapolated
_SAMPLED = 8  # chunks that are read to measure them
_SHARD = 64  # chunks per recommended shard


def plan_of(contents: ZarrContents, sampling: SamplingPlan, limits: Limits, setting: TrainingSetting) -> ZarrPlan:
    """Return the estimated cost of an epoch; reads and decodes eight chunks, and the indexes of their shards."""
    runs = _runs(contents, sampling, limits, setting)
    reads = [chunk for run in runs for chunk in run.chunks]
    touched = sorted(set(reads))
    stored_bytes, decode_s = _measure_chunks(contents, touched)
    kept = contents.kept_chunks
    kept_stored_bytes, kept_decode_s = _measure_chunks(contents, kept)
    sharded = {shard for shard, _ in contents.chunks.shards([*touched, *kept])}
    source = contents.arrays[0].source
    options, most_bytes = source.options, max(array.layout.most_bytes for array in contents.arrays)
    ahead = options.read.ahead_bytes // limits.parts // most_bytes
    in_flight = max(1, min(options.transport.connections, options.read.ahead_items, ahead))
    arrangement = contents.arrangement
    index = next((index_span(each.layout, "") for each in contents.chunks.parts if each.layout.shards), None)
    figures = Figures(
        samples=sampling.total,
        batches=sum(1 for _ in sampling.batches(Cursor(), Place(0, setting.ranks))),
        sample_bytes=arrangement.sample_bytes,
        chunk_bytes=float(np.mean([contents.chunks.size_of(chunk) for chunk in reads])) if reads else 0.0,
        stored_bytes=stored_bytes,
        decode_s=max(decode_s, kept_decode_s),
        indexes=len(sharded),
        index_bytes=0 if index is None else abs(index.start) or (index.stop or 0),
        kept=len(kept),
        kept_stored_bytes=kept_stored_bytes,
        kept_bytes=arrangement.kept_bytes,
        in_flight=in_flight,
        url=contents.arrays[0].url,
        joined=(*dict.fromkeys(_describe_stores(array) for array in contents.arrays if array.stored),),
        aligned=arrangement.aligned.words if arrangement.aligned else (),
        normalized=tuple(array.normal.words for array in contents.arrays if array.normal is not None),
        wish=_wish(contents),
    )
    return make_plan(setting, figures, runs, _pictures(contents, runs), sharded=bool(sharded))


def _describe_stores(array: StoredArray) -> str:
    along = array.along
    lengths = [1 if array.stacked else each.layout.shape[along] for each in array.stored]
    each = " to ".join(f"{length:,}" for length in sorted({min(lengths), max(lengths)}))
    return f"{dims_of(array.layout)[along]}: {len(lengths)} store{'s' * (len(lengths) != 1)} of {each}"


def _runs(contents: ZarrContents, sampling: SamplingPlan, limits: Limits, setting: TrainingSetting) -> list[Simulated]:
    """Return simulations of the training processes, or of a subset spread evenly over all."""
    workers = max(setting.workers, 1)
    processes = range(setting.ranks * workers)
    chosen = processes[:: -(-len(processes) // _PROCESSES)]
    space = contents.arrangement.space
    found = []
    for process in chosen:
        place = Place(process // workers, setting.ranks, process % workers, workers)
        found.append(
            simulate_reads(
                batch_indices(sampling, Cursor(), place),
                lambda samples: contents.uses(space.positions(samples)),
                contents.chunks.size_of,
                (limits.chunk_bytes, limits.samples),
                _SAMPLES // len(chosen),
            )
        )
    return found


def _measure_chunks(contents: ZarrContents, touched: list[int]) -> tuple[float, float]:
    """Read and decode a few of the needed chunks, spread evenly; return mean stored size and thread seconds of one."""
    some = touched[:: -(-len(touched) // _SAMPLED) or 1]
    source, chunks = contents.source, contents.chunks
    sizes: list[int] = []
    seconds: list[float] = []
    with closing(ShardIndexes(chunks, source)) as indexes:
        chunks.expect(some, indexes)
        for chunk in some:
            span = chunks.span(chunk, indexes)
            try:
                data = source.read(span) if isinstance(span, tuple) else span or b""
            except (NotFound, Forbidden) as error:
                chunks.absent(chunk, error)
                data = b""
            sizes.append(len(data))
            if data:
                began = perf_counter()
                chunks.decode(chunk, data)
                seconds.append(perf_counter() - began)
    # The median, because the first chunk also loads the codec.
    decode_s = float(np.median(seconds)) * len(seconds) / len(some) if seconds else 0.0
    return float(np.mean(sizes)) if sizes else 0.0, decode_s


def _pictures(contents: ZarrContents, runs: list[Simulated]) -> list[Picture]:
    touched = runs[0].touched if runs else ()
    found = []
    for number, (name, array) in enumerate(zip(contents.names, contents.arrays, strict=True)):
        layout = array.layout
        first = contents.arrangement.extractions[number].first
        mine = [chunk - first for chunk in touched if first <= chunk < first + prod(layout.grid)]
        if contents.arrangement.kept[number]:
            mine = [*range(prod(layout.grid))]
        places = [tuple(int(at) for at in np.unravel_index(chunk, layout.grid)) for chunk in mine]
        found.append(picture(name, dims_of(layout), layout.grid, places))
    return found


def _wish(contents: ZarrContents) -> str:
    """Return options of ``zarr copy``: chunks of one sample of the first array, and shards of about 64 such chunks."""
    arrangement = contents.arrangement
    layout, cuts = contents.arrays[0].layout, arrangement.extractions[0].cuts
    sizes = [1 if cut.length is None or cut.axis == 0 else cut.length for cut in cuts]
    step = next((axis for axis, cut in enumerate(cuts) if cut.axis == 0), 0)
    shards = [*sizes]
    shards[step] = min(_SHARD, layout.shape[step])
    forms = [",".join(map(str, each)) for each in (sizes, shards)]
    path = f"{layout.name}:" if layout.name else ""
    old = layout.document.get("zarr_format") == 2  # noqa: PLR2004  zarr's
    return f"--chunks {path}{forms[0]} --shards {path}{forms[1]}{' --zarr-format 3' if old else ''}"
