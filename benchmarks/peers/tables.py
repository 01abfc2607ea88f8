"""What the peers that read tables share: four of 40 columns, counted and summed."""

import pyarrow.dataset  # noqa: F401  read_table imports it, and pandas with it where that is installed: 0.3 s of one peer
import pyarrow.parquet as pq
from meter import BUCKET
from table import WANTED


def read(meter, filesystem):
    """Read the task's table once, inside the stopwatch."""
    (key,) = meter.keys
    with meter:
        table = pq.read_table(f"{BUCKET}/{key}", columns=WANTED, filesystem=filesystem)
        if table.column_names != WANTED or not table.num_rows:
            raise SystemExit(f"{key}: {table.num_rows} rows of {table.column_names}")
        meter.count(key)
