"""Writes a Parquet file of 40 columns of about so many bytes: ``python table.py PATH BYTES``. Not a peer itself."""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS, ROW_GROUP = 40, 1 << 17
WANTED = ["c03", "c11", "c12", "c37"]

if __name__ == "__main__":
    path, size = sys.argv[1], int(sys.argv[2])
    rows, generator = max(1, size // (8 * COLUMNS)), np.random.default_rng(0)
    schema = pa.schema([(f"c{number:02}", pa.float64()) for number in range(COLUMNS)])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for at in range(0, rows, ROW_GROUP):
            count = min(ROW_GROUP, rows - at)
            writer.write_table(pa.table([generator.random(count) for _ in schema], schema=schema))
    print(json.dumps({"rows": rows}))
