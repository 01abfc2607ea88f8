"""Inventories as the stores write them, in a memory store: the manifest, and its files."""

import csv
import gzip
import hashlib
import io
import json
import uuid
from urllib.parse import quote_plus

import pytest

import penstock as ps

COLUMNS = ("Bucket", "Key", "VersionId", "IsLatest", "IsDeleteMarker", "Size", "LastModifiedDate", "ETag")
FIELDS = ("project", "bucket", "name", "size", "generation", "updated")
PARQUET = ("bucket", "key", "version_id", "is_latest", "is_delete_marker", "size", "last_modified_date", "e_tag")


def rows_of(objects):
    """Rows of an inventory of Amazon's; an object is (key, size, etag) and perhaps what makes it another version."""
    for key, size, etag, *other in objects:
        yield ["bucket", key, "", other != ["old"], other == ["marker"], size, "2026-01-02T03:04:05.000Z", etag]


def parquet_of(columns, rows):
    import pyarrow as pa
    from pyarrow import parquet

    sink = io.BytesIO()
    parquet.write_table(
        pa.table({name: list(cells) for name, cells in zip(columns, zip(*rows, strict=True), strict=True)}), sink
    )
    return sink.getvalue()


def csv_of(rows, header=(), **options):
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n", **options)
    writer.writerows([header] if header else [])
    writer.writerows([str(cell).lower() if isinstance(cell, bool) else cell for cell in row] for row in rows)
    return text.getvalue().encode()


class Written:
    """One inventory in a place of its own."""

    def __init__(self):
        self.place = f"memory://inventories-{uuid.uuid4().hex}/daily/2026/"

    def put(self, name, data):
        with ps.open(self.place + name, "wb") as file:
            file.write(data)
        return self.place + name

    def amazon(self, parts, form="CSV", **changes):
        """Write one whose files list these objects; ``changes`` are made to the manifest."""
        files = []
        for number, objects in enumerate(parts):
            rows = list(rows_of(objects))
            if form == "CSV":
                data = gzip.compress(csv_of([[*row[:1], quote_plus(row[1]), *row[2:]] for row in rows]))
            else:
                data = parquet_of(PARQUET, rows)
            key = f"daily/2026/data/{number}"
            self.put(f"data/{number}", data)
            files.append(
                {"key": key, "size": len(data), "MD5checksum": hashlib.md5(data, usedforsecurity=False).hexdigest()}
            )
        schema = ", ".join(COLUMNS) if form == "CSV" else "message s3.inventory { required binary key (UTF8); }"
        manifest = {"sourceBucket": "bucket", "destinationBucket": "arn:aws:s3:::inventories", "version": "2016-11-30"}
        manifest |= {"fileFormat": form, "fileSchema": schema, "files": files, **changes}
        data = json.dumps(manifest).encode()
        self.put("manifest.checksum", f"{hashlib.md5(data, usedforsecurity=False).hexdigest()}\n".encode())
        return self.put("manifest.json", data)

    def google(self, parts, form="csv", **options):
        """Write a report of Storage Insights."""
        names = []
        for number, objects in enumerate(parts):
            rows = [["p", "bucket", key, size, version, "2026-01-02T03:04:05Z"] for key, size, version in objects]
            names.append(f"a_2026-01-02T00:00_{number}.{form}")
            if form == "csv":
                header = FIELDS if options.get("header_required") else ()
                self.put(names[-1], csv_of(rows, header, delimiter=options.get("delimiter", ",")))
            else:
                self.put(names[-1], parquet_of(FIELDS, rows))
        config = {f"{form}_options": options, "display_name": "objects"}
        config["object_metadata_report_options"] = {
            "metadata_fields": FIELDS,
            "storage_filters": {"bucket": "bucket"},
            "storage_destination_options": {"bucket": "inventories"},
        }
        told = {"report_config": config, "records_processed": sum(map(len, parts)), "shard_count": len(parts)}
        told |= {"snapshot_time": "2026-01-02T00:00:00Z", "report_shards_file_names": names}
        return self.put("a_2026-01-02T00:00_manifest.json", json.dumps(told).encode())


@pytest.fixture
def inventory():
    """Return a place for one inventory."""
    return Written()
