"""Large catalogs made of arrays, and how much memory a call takes at its peak."""

import hashlib
import tracemalloc

import numpy as np

from penstock.data.catalog.catalog import make_catalog
from penstock.data.catalog.columns.column import decode, pack_narrow
from penstock.data.catalog.columns.compact import Even
from penstock.data.catalog.columns.table import TableBuilder, gather_regions, ranges_of
from penstock.data.catalog.columns.units import UnitTable
from penstock.data.shards.registry import format_by
from penstock.engine.listing.names import PackedEntries

_PER_SHARD = 1000


def samples(count, form="tar"):
    """Return a catalog of samples in shards of a thousand each; of Parquet, in row groups of ten."""
    builder, shards = TableBuilder(), -(-count // _PER_SHARD)
    for shard in range(shards):
        builder.add(b"train/%06d.%s" % (shard, form.encode()), 0, f"{shard:032x}", None, 0)
    table, numbers = builder.freeze(), np.arange(count)
    objects, within = numbers // _PER_SHARD, numbers % _PER_SHARD
    units = None
    if form == "parquet":
        groups = np.arange(-(-count // 10))
        starts = 1000 * (groups % 100)
        columns = numbers // 10, 10 * (groups % 100), groups * 0 + 5000, groups + 1, starts, starts + 900
        units = UnitTable.of(columns)
    made = table.having(
        sizes=pack_narrow(1000 + numbers % 777),
        labels=Even(pack_narrow(np.zeros(0, np.int64)), count),
        ranges=ranges_of(objects, within if units else within * 2048),
        format=format_by(form, [], dict.fromkeys(("fields", "key", "missing", "skip"))),
        units=units,
    )
    return make_catalog("memory://bucket/", "train/", gather_regions(made))


def objects(count, end=".jpg", *, mixed=False):
    """Return a catalog of objects in folders of a thousand; with ``mixed``, keys of random letters and lengths."""
    builder = TableBuilder()
    keys = [b"train/%05d/%06d%s" % (at // 1000, at, end.encode()) for at in range(count)]
    if mixed:
        keys = [b"train/" + hashlib.sha256(key).hexdigest()[: 20 + at % 40].encode() for at, key in enumerate(keys)]
    etags = [f"{at * 7919:032x}" for at in range(count)]
    builder.add_all(PackedEntries.of(map(decode, keys), [1000 + at % 5000 for at in range(count)], etags))
    return make_catalog("memory://bucket/", "train/", builder.freeze())


def peak_of(call):
    """Return the result of a call, and the most bytes that Python and numpy held meanwhile, beyond those before."""
    tracemalloc.start()
    try:
        found = call()
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def added_bytes(make, call, small):
    """Return how many more bytes a call needs at its peak for each of the rows that ``make`` gives beyond ``small``."""
    rows, peaks = list[int](), list[int]()
    for count in (small, 3 * small):
        given = make(count)
        rows.append(sum(map(len, given)))
        peaks.append(peak_of(lambda given=given: call(*given))[1])
    return (peaks[1] - peaks[0]) / (rows[1] - rows[0])
