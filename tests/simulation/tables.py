"""Operations of Parquet shards: rows are of the version of their shard that was indexed, once an epoch, or an error."""

from __future__ import annotations

import io
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet as pq

import penstock as ps
from penstock.data.catalog.columns import units
from penstock.data.shards import parquet
from penstock.errors import Conflict, NotFound
from tests.simulation.scenario import LIES, Run, Wrong, watched
from tests.simulation.world import _replace

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

SHARDS, ROWS = 2, 5
# Rows of a row group, in one version or another.
_GROUPS = (2, 2, 3)
# Its first use imports pandas, whose C code must not be made over the dates of a simulation.
pa.array([0])
KEYS = tuple(f"tables/{shard}.parquet" for shard in range(SHARDS))


@dataclass(slots=True)
class Indexed:
    """A dataset that the process under test keeps, and the versions that each of its shards may be of: numbers."""

    dataset: Any
    versions: dict[str, set[int]]
    since: float


@lru_cache(1 << 10)
def _file(shard: int, version: int, group: int, pad: int) -> bytes:
    """Return a shard of a version: a row tells both, and its number."""
    rows = range(ROWS)
    table = pa.table(
        {
            "row": pa.array([shard * ROWS + row for row in rows], pa.int64()),
            "text": pa.array(["." * pad] * ROWS, pa.string()),
            "version": pa.array([version] * ROWS, pa.int64()),
            # As long as "version", and another value, so that a shifted place is seen.
            "check": pa.array([-version * 100 - row for row in rows], pa.int64()),
        }
    )
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=group, compression="none", use_dictionary=False)
    return out.getvalue()


def write_shard(run: Run, key: str, dice: Random) -> None:
    """Write a shard anew: the same rows with new values, in row groups as before or others, of the same size or not."""
    run.made += 1
    shard, version = KEYS.index(key), run.made
    data = _file(shard, version, dice.choice(_GROUPS), dice.choice((0, 0, 3, 40)))
    stored = run.world.store.put(key, data)
    run.shards.setdefault(key, {})[run.world.store.version(stored)] = version  # type: ignore[assignment]


def _rewrite(run: Run, dice: Random) -> None:
    """Let another writer write shards anew soon."""
    when = run.world.clock.now
    for _ in range(dice.choice((0, 1, 1, 2)) if run.writer else 0):
        when += run.world.store.weather.usual_s * dice.choice((1, 3, 6, 30)) * dice.random()

        def write(key: str = dice.choice(KEYS)) -> None:
            write_shard(run, key, dice)
            run.world.trace(f"another writer: new {key}")

        run.world.wire.at(when, write)


def _row(sample: Any) -> tuple[int, str, int, int]:
    return sample["row"], sample["text"], sample["version"], sample["check"]


def _honest(run: Run, seen: watched, since: float) -> None:
    if seen.error is None or seen.world.store.happened & {*LIES}:
        return
    changed = any(len(run.world.store.alive(key, since, seen.until)) > 1 for key in KEYS)
    if isinstance(seen.error, (Conflict, NotFound)) and not changed:
        raise Wrong(f"nothing had changed: {seen.error!r}") from seen.error


def _index(run: Run) -> None:
    """Index the shards; keep the dataset."""
    since = run.world.clock.now
    with watched(run) as seen:
        seen.reads = KEYS
        made = ps.MapDataset.from_shards(run.url("tables/"), transform=_row, store=run.world.options)
        versions: dict[str, set[int]] = {}
        for key in KEYS:
            alive = [each for each in run.world.store.alive(key, since, run.world.clock.now) if each is not None]
            versions[key] = {run.shards[key][run.world.store.version(each)] for each in alive}  # type: ignore[misc]
        run.kept["tables"] = Indexed(made, versions, since)
        if len(made) != SHARDS * ROWS:
            raise Wrong(f"{len(made)} rows are indexed, and there are {SHARDS * ROWS}")
    _honest(run, seen, since)


def _check(found: list[tuple[int, str, int, int]], indexed: Indexed) -> None:
    """Require that rows are whole, and that all rows of a shard are of one version that was there when indexed."""
    for row, _, version, check in found:
        key = KEYS[row // ROWS] if 0 <= row < SHARDS * ROWS else "none"
        if check != -version * 100 - row % ROWS:
            raise Wrong(f"row {row} has the version {version}, and {check} beside it")
        if version not in indexed.versions.get(key, ()):
            raise Wrong(f"row {row} is of version {version}, and was indexed in {indexed.versions.get(key)}")
        # From here on, the others of its shard must be.
        indexed.versions[key] = {version}


def tables(run: Run, dice: Random) -> None:
    """Index Parquet shards, or use an earlier index; read some rows, or an epoch."""
    for key in KEYS:
        if key not in run.world.store.objects:
            write_shard(run, key, dice)
    with ExitStack() as stack:
        if dice.random() < 0.7:
            # Such small files are one request otherwise.
            stack.enter_context(_replace(units, "_GAP_BYTES", 8))
            stack.enter_context(_replace(parquet, "_TAIL_BYTES", dice.choice((200, 3000))))
        _rewrite(run, dice)
        if "tables" not in run.kept or dice.random() < 0.3:
            _index(run)
            _rewrite(run, dice)
        indexed: Indexed | None = run.kept.get("tables")
        if indexed is not None:
            _read(run, indexed, dice)


def _read(run: Run, indexed: Indexed, dice: Random) -> None:
    order = dice.choice((False, ps.order.Lanes(lanes=2), ps.order.BlockShuffle(block_bytes=200, window_blocks=2)))
    found: list[tuple[int, str, int, int]] = []
    with watched(run) as seen:
        seen.reads = KEYS
        if dice.random() < 0.4:
            wanted = [dice.randrange(SHARDS * ROWS) for _ in range(dice.randint(1, 5))]
            found = indexed.dataset.__getitems__(wanted)
            if [row for row, *_ in found] != wanted:
                raise Wrong(f"rows {wanted} were asked for: {found}")
        else:
            epoch = ps.IterableDataset(
                indexed.dataset.catalog,
                transform=_row,
                shuffle=order,
                seed=dice.randrange(99),
                store=run.world.options,
            )
            for sample in epoch:
                found.append(sample)
                if dice.random() < 0.1:
                    _rewrite(run, dice)
            twice = Counter(row for row, *_ in found)
            if twice != Counter(range(SHARDS * ROWS)):
                raise Wrong(f"an epoch gave the rows {sorted(twice.elements())}")
    _check(found, indexed)
    _honest(run, seen, indexed.since)


OPERATIONS: dict[str, Callable[[Run, Random], None]] = {"tables": tables}
