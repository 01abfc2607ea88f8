"""Writes samples as plain objects and as rows of Parquet files: ``rows.py FOLDER NAME SIZE COUNT EACH``; prints sizes.

The files are as Hugging Face writes images: a struct of bytes and path, its features in the metadata, 100 rows a group.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from bodies import bodies

ROW_GROUP = 100
FEATURES = {"image": {"_type": "Image"}, "number": {"dtype": "int64", "_type": "Value"}}

folder, name, size, count, each = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:6])
image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
metadata = {"huggingface": json.dumps({"info": {"features": FEATURES}})}
schema = pa.schema([("image", image), ("number", pa.int64())], metadata=metadata)
made = bodies(size, count)
(folder / name / "parquet").mkdir(parents=True)
sizes = []
for first in range(0, count, each):
    stop = min(count, first + each)
    with pq.ParquetWriter(folder / name / "parquet" / f"{first // each:05d}.parquet", schema) as out:
        for at in range(first, stop, ROW_GROUP):
            rows = []
            for number in range(at, min(stop, at + ROW_GROUP)):
                key, body = f"{number:06d}.bin", next(made)
                (folder / name / key).write_bytes(body)
                sizes.append(len(body))
                rows.append({"image": {"bytes": body, "path": key}, "number": number})
            out.write_table(pa.Table.from_pylist(rows, schema))
print(json.dumps(sizes))
