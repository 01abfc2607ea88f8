"""``ZarrPlan``: the estimated cost of an epoch of a dataset of arrays, by formulas and a simulation. Pure.

``simulate_reads`` replays the chunk reads of one training process without reading; ``picture`` draws the chunks of a
batch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from html import escape
from math import ceil, isfinite
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from penstock.data.order.schedule import Schedule
from penstock.data.reading.pool import BATCHES
from penstock.display import html_page, panel, size, table
from penstock.errors import Unusable
from penstock.values import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

Limit = Literal["bandwidth", "latency", "decoding"]
# Thresholds of advice: decoded bytes per delivered byte, and reads per chunk.
_WASTE, _AMPLIFIED = 1.5, 1.05
# Size of a stored chunk below which requests cost more than bytes.
_SMALL_BYTES = 64 << 10


@dataclass(frozen=True)
class TrainingSetting:
    """Assumptions about a training run.

    Attributes:
        batch: Samples of a batch, per rank.
        ranks: Number of training processes.
        workers: Worker processes per rank; 0: threads of the rank itself.
        latency_s: Seconds from a request to the first byte of its response.
        bandwidth: Bytes per second of one rank.
        threads: Decoding threads in each process.

    Raises:
        Unusable: A value is invalid: no rank, a negative latency.
    """

    batch: int
    ranks: int = 1
    workers: int = 0
    latency_s: float = 0.03
    bandwidth: float = 1.25e9
    threads: int = 4

    def __post_init__(self) -> None:
        for name, least in (("ranks", 1), ("workers", 0), ("threads", 1)):
            whole(getattr(self, name), name, least)
        if not _finite(self.latency_s) or self.latency_s < 0:
            raise Unusable(f"latency_s must be seconds, 0 or more, got {self.latency_s!r}")
        if not _finite(self.bandwidth) or self.bandwidth <= 0:
            raise Unusable(f"bandwidth must be bytes per second, more than 0, got {self.bandwidth!r}")


class Figures(NamedTuple):
    """Measured and known figures of a dataset, the input of the estimate.

    Attributes:
        batches: Batches of an epoch, per rank.
        chunk_bytes: Bytes of a decoded chunk, on average over the reads.
        stored_bytes: Bytes of a stored chunk, on average over the measured ones; an absent chunk counts 0.
        decode_s: Seconds of one thread to decode a chunk: the higher figure of touched and of kept chunks.
        indexes: Requests of one process for the indexes of shards, of ``index_bytes`` each.
        kept: Chunks of arrays that each process reads once and keeps; stored, ``kept_stored_bytes`` each on average.
        kept_bytes: Decoded bytes of the kept arrays.
        in_flight: Number of concurrent requests.
        url: URL of the first array.
        wish: Options of ``penstock zarr copy`` for chunks and shards that suit the samples better; may be empty.
    """

    samples: int
    batches: int
    sample_bytes: int
    chunk_bytes: float
    stored_bytes: float
    decode_s: float
    indexes: int
    index_bytes: int
    kept: int
    kept_stored_bytes: float
    kept_bytes: int
    in_flight: int
    url: str
    joined: tuple[str, ...]
    aligned: tuple[str, ...]
    normalized: tuple[str, ...]
    wish: str


@dataclass(frozen=True, repr=False)
class ZarrPlan:
    """Estimated cost of an epoch: ``print`` it, or call ``to_html()``.

    Attributes:
        samples: Samples of an epoch.
        batches: Batches of an epoch, per rank.
        chunks: Number of chunks that the samples need, including those of kept arrays.
        reads: Reads of chunks by all processes, from a simulation of the dataset's order of samples; chunks of kept
            arrays count once per process.
        amplification: ``reads / chunks``: 1 if each chunk is read once.
        requests: ``reads``, and one for the index of each shard in each process.
        read_bytes: ``reads`` times the mean size of stored chunks (of a few that were read), plus the indexes.
        waste: Decoded bytes per delivered byte.
        memory_bytes: Upper estimate for one process: decoded chunks that are held, concurrent requests times the size
            of a stored chunk, four batches, and the kept arrays.
        first_batch_s: Seconds until the first batch: one latency for each round of concurrent requests, and one more
            with shards, plus the transfer and decoding of its chunks.
        samples_per_s: Samples per second of all ranks: the least of bandwidth, ``in flight / latency``, and
            ``threads / decode_s``, each divided by the needs of a sample.
        epoch_s: ``samples / samples_per_s``.
        limit: The one of these three that limits the rate.
        joined: With ``along``, the stores that are joined, a line for each number of them.
        aligned: With ``align="coordinates"``, the common coordinates of the arrays, a line for each dimension.
        normalized: With ``normalize``, the statistics of each normalised array.
        advice: Changes that would be faster or cheaper.
        pictures: The chunks that the first batch touches, for each array.
        setting: The assumptions.
    """

    samples: int
    batches: int
    chunks: int
    reads: int
    amplification: float
    requests: int
    read_bytes: int
    waste: float
    memory_bytes: int
    first_batch_s: float
    samples_per_s: float
    epoch_s: float
    limit: Limit
    joined: tuple[str, ...]
    aligned: tuple[str, ...]
    normalized: tuple[str, ...]
    advice: tuple[str, ...]
    pictures: tuple[Picture, ...]
    setting: TrainingSetting

    def __repr__(self) -> str:
        """Return the figures, the advice and the pictures, for a terminal."""
        width = max(len(name) for name, _ in self._rows())
        lines = [f"{name:<{width}}  {value}" for name, value in self._rows()]
        lines += [f"advice: {each}" for each in self.advice]
        return "\n".join([*lines, "", "chunks of the first batch:", *map(render_picture, self.pictures)])

    def as_record(self) -> dict[str, object]:
        """Return the figures as JSON-compatible values, without pictures."""
        record = {name: value for name, value in asdict(self).items() if name not in ("pictures", "setting")}
        return {**record, **asdict(self.setting)}

    def to_html(self) -> str:
        """Return the plan as a self-contained HTML page."""
        return html_page("Plan of an epoch", self._shown())

    def _repr_html_(self) -> str:
        return panel("Plan of an epoch", self._shown())

    def _shown(self) -> str:
        advice = "".join(f"<li>{escape(each)}</li>" for each in self.advice)
        drawn = "".join(f"<p>{escape(each.title)}</p>{svg(each)}" for each in self.pictures)
        return f"{table(self._rows())}<ul>{advice}</ul>{drawn}"

    def _rows(self) -> list[tuple[str, str]]:
        setting = self.setting
        ranks = f"{setting.ranks} rank{'s' * (setting.ranks != 1)}"
        workers = f", {setting.workers} workers each" if setting.workers else ""
        return [
            ("samples", f"{self.samples:,}, {self.batches:,} batches of {setting.batch} on {ranks}{workers}"),
            *(("joined", each) for each in self.joined),
            *(("aligned", each) for each in self.aligned),
            *(("normalized", each) for each in self.normalized),
            ("chunks", f"{self.chunks:,}, read {self.reads:,} times: amplification {self.amplification:.3g}"),
            ("requests", f"{self.requests:,}"),
            ("bytes", f"{size(self.read_bytes)} read; {self.waste:.3g} decoded for each delivered"),
            ("memory", f"{size(self.memory_bytes)} per process"),
            ("first batch", f"{self.first_batch_s:.2g} s"),
            ("rate", f"{self.samples_per_s:,.0f} samples/s, an epoch in {self.epoch_s:,.3g} s; {self.limit} decides"),
            ("assumed", f"{1000 * setting.latency_s:g} ms latency, {size(int(setting.bandwidth))}/s per rank"),
        ]


def make_plan(
    setting: TrainingSetting, figures: Figures, runs: Sequence[Simulated], pictures: Sequence[Picture], *, sharded: bool
) -> ZarrPlan:
    """Return the plan; ``runs`` simulate some of the processes and are extrapolated to all."""
    processes = setting.ranks * max(setting.workers, 1)
    followed = sum(run.samples for run in runs) or 1
    moving = round(sum(len(run.chunks) for run in runs) * figures.samples / followed)
    distinct = len({chunk for run in runs for chunk in run.chunks})
    chunks = distinct if followed >= figures.samples else min(moving, round(distinct * figures.samples / followed))
    chunks, reads = chunks + figures.kept, moving + processes * figures.kept
    chunk_bytes = moving * figures.stored_bytes + processes * figures.kept * figures.kept_stored_bytes
    read_bytes = round(chunk_bytes + processes * figures.indexes * figures.index_bytes)
    needs, stored = reads / max(figures.samples, 1), chunk_bytes / max(reads, 1)
    costs: dict[Limit, float] = {
        "bandwidth": needs * stored / setting.bandwidth,
        "latency": needs * setting.latency_s / figures.in_flight,
        "decoding": needs * figures.decode_s / (setting.threads * max(setting.workers, 1)),
    }
    limit = max(costs, key=lambda name: costs[name])
    rate = setting.ranks / max(costs[limit], 1e-9)
    first = max((run.first for run in runs), default=0) + figures.kept
    waits = (ceil(first / figures.in_flight) + sharded) * setting.latency_s
    under_way = min(figures.in_flight, reads) * stored
    held = max((run.held_bytes for run in runs), default=0)
    delivered = max(figures.samples * figures.sample_bytes, 1)
    # Neither an order nor other chunks change what each process reads once and keeps.
    advice = _advice(
        setting, figures, moving / max(chunks - figures.kept, 1), moving * figures.chunk_bytes / delivered, limit
    )
    return ZarrPlan(
        samples=figures.samples,
        batches=figures.batches,
        chunks=chunks,
        reads=reads,
        amplification=reads / max(chunks, 1),
        requests=reads + processes * figures.indexes,
        read_bytes=read_bytes,
        waste=(moving * figures.chunk_bytes + processes * figures.kept_bytes) / delivered,
        memory_bytes=round(held + under_way + BATCHES * setting.batch * figures.sample_bytes + figures.kept_bytes),
        first_batch_s=waits + first * (stored / setting.bandwidth + figures.decode_s / setting.threads),
        samples_per_s=rate,
        epoch_s=figures.samples / rate,
        limit=limit,
        joined=figures.joined,
        aligned=figures.aligned,
        normalized=figures.normalized,
        advice=tuple(advice),
        pictures=tuple(pictures),
        setting=setting,
    )


def _advice(setting: TrainingSetting, figures: Figures, amplification: float, waste: float, limit: Limit) -> list[str]:
    found = []
    if amplification > _AMPLIFIED and setting.workers:
        found.append(
            f"each chunk is read {amplification:.3g} times: worker processes share none, and with num_workers=0 the "
            "threads of a rank decode"
        )
    elif amplification > _AMPLIFIED:
        found.append(
            f"each chunk is read {amplification:.3g} times: raise memory_bytes, or lower window_bytes, so that the "
            "chunks in use fit; over several ranks shuffle in lanes"
        )
    if waste > _WASTE and figures.wish:
        copy = f"penstock zarr copy {figures.url.rstrip('/')} DEST {figures.wish}"
        likewise = ", and the other stores likewise" * bool(figures.joined)
        words = "bytes are decoded for each that is delivered: smaller chunks need less, by"
        found.append(f"{waste:.3g} {words} {copy}{likewise}")
    if 0 < figures.stored_bytes < _SMALL_BYTES and limit == "latency":
        found.append("chunks are small and latency decides: larger chunks need fewer requests")
    if limit == "decoding":
        found.append("decoding decides: more CPU cores, or a lighter codec (penstock zarr copy --codec blosc-lz4)")
    return found


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


class Simulated(NamedTuple):
    """Simulated reads of one process: ``chunks`` in their order; one that is read twice is listed twice.

    ``first`` reads come before the first batch is complete, which needs the chunks ``touched``; ``held_bytes`` is the
    peak of decoded bytes.
    """

    samples: int
    chunks: list[int]
    first: int
    touched: tuple[int, ...]
    held_bytes: int


def simulate_reads(
    batches: Iterable[list[int]],
    uses: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    size_of: Callable[[int], int],
    bounds: tuple[int, int],
    most_samples: int,
) -> Simulated:
    """Return the reads of ``batches`` by a process that finishes each sample at its turn.

    ``bounds`` limit the look-ahead: decoded bytes, and samples. The simulation ends after ``most_samples`` samples.
    """
    rows: deque[NDArray[np.int64]] = deque()

    def used(samples: NDArray[np.int64]) -> NDArray[np.int64]:
        found = uses(samples)
        rows.extend(found)
        return found

    schedule = Schedule(batches, used, size_of, most_bytes=bounds[0], most_samples=bounds[1])
    chunks: list[int] = []
    positions: list[int] = []
    touched: dict[int, None] = {}
    held_bytes = first = 0
    while schedule.position < most_samples:
        while schedule.extend():
            pass
        if schedule.position == schedule.frontier and not schedule.extend(must=True):
            break
        held_bytes = max(held_bytes, schedule.held_bytes)
        chunks += [need.chunk for need in schedule.queue]
        positions += [need.position for need in schedule.queue]
        schedule.queue.clear()
        turn = schedule.turn()
        row = rows.popleft()
        for chunk in np.unique(row[row >= 0]).tolist():
            schedule.done(chunk)
            if turn.batch == 0:
                touched[chunk] = None
        if turn.batch == 0:
            first = turn.size
    within = sum(position < schedule.position for position in positions)
    return Simulated(
        schedule.position, chunks[:within], sum(position < first for position in positions), (*touched,), held_bytes
    )


# Most cells of a picture; beyond that, several chunks share a cell.
_COLUMNS, _ROWS = 64, 24
_CELL = 9  # pixels


class Picture(NamedTuple):
    """Picture of a grid of chunks: 1 for a touched chunk, 0 for another, -1 outside.

    A cell stands for ``share`` chunks along rows and columns.
    """

    title: str
    cells: NDArray[np.int8]
    share: tuple[int, int]


def picture(name: str, dims: Sequence[str], grid: Sequence[int], chunks: Iterable[tuple[int, ...]]) -> Picture:
    """Return the picture of one array: its first two dimensions with several chunks; a single one is wrapped into rows.

    ``grid`` is the number of chunks along each dimension, ``chunks`` are the coordinates of the touched ones.
    """
    several = [axis for axis, count in enumerate(grid) if count > 1][:2]
    title = name or "the array"
    if len(several) < 2:  # noqa: PLR2004  rows and columns
        axis = several[0] if several else 0
        count = grid[axis] if grid else 1
        columns = min(count, _COLUMNS)
        share = ceil(ceil(count / columns) / _ROWS)
        rows = ceil(ceil(count / share) / columns)
        flat = np.full(rows * columns, -1, dtype=np.int8)
        flat[: ceil(count / share)] = 0
        for chunk in chunks:
            flat[(chunk[axis] if chunk else 0) // share] = 1
        along = f": {dims[axis]}, row by row" if several else ""
        return Picture(f"{title}{along}", flat.reshape(rows, columns), (1, share))
    down, across = sorted(several, key=lambda axis: grid[axis])  # longer dimension across
    shares = ceil(grid[down] / _ROWS), ceil(grid[across] / _COLUMNS)
    cells = np.zeros((ceil(grid[down] / shares[0]), ceil(grid[across] / shares[1])), dtype=np.int8)
    for chunk in chunks:
        cells[chunk[down] // shares[0], chunk[across] // shares[1]] = 1
    return Picture(f"{title}: {dims[down]} down, {dims[across]} across", cells, shares)


def render_picture(drawn: Picture) -> str:
    """Return a picture as lines of blocks, with its title."""
    marks = {-1: " ", 0: "·", 1: "█"}
    return "\n".join([_title(drawn), *("".join(marks[int(cell)] for cell in row) for row in drawn.cells)])


def svg(drawn: Picture) -> str:
    """Return a picture as a self-contained SVG element."""
    rows, columns = drawn.cells.shape
    found = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * _CELL}" height="{rows * _CELL}" role="img">']
    found.append(f"<title>{escape(_title(drawn))}</title>")
    for (row, column), cell in np.ndenumerate(drawn.cells):
        if cell >= 0:
            at = f'x="{column * _CELL}" y="{row * _CELL}" width="{_CELL - 1}" height="{_CELL - 1}"'
            found.append(f'<rect {at} fill="{"#1f6feb" if cell else "#d0d7de"}"/>')
    return "".join([*found, "</svg>"])


def _title(drawn: Picture) -> str:
    each = drawn.share[0] * drawn.share[1]
    return drawn.title + (f" (a cell is {each} chunks)" if each > 1 else "")
