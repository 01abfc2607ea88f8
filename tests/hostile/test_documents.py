"""JSON documents that are damaged anywhere are read, or are an error of ours; never Python's error, and never a bug."""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import zarr

import penstock as ps
from penstock.checkpoint.run import store as steps
from penstock.data.catalog import saved
from penstock.data.catalog.discovery import inventory
from penstock.data.shards.extensions import extension_of
from penstock.data.shards.litdata import LitDataFormat, described_chunks
from penstock.data.shards.mds import _parse_columns, stated_shards
from penstock.data.shards.side import wids_shards
from penstock.data.zarr.statistics import record as statistics
from penstock.errors import Damaged, Unusable
from penstock.jobs.parts import records
from penstock.observe import board
from penstock.ray.train import reported

VALUES = [None, True, -1, 1.5, 10**40, -(10**400), float("nan"), float("inf"), "", "\ud800", "9" * 5000, [], [[]], {}]
ALLOWED = (Damaged, Unusable)
SHARD = {
    "column_encodings": ["int", "str", "ndarray:uint8:2,3"],
    "column_names": ["a", "b", "c"],
    "column_sizes": [8, None, 6],
    "compression": "zstd",
    "format": "mds",
    "raw_data": {"basename": "shard.00000.mds", "bytes": 100, "hashes": {"sha1": "abc"}},
    "samples": 3,
    "version": 2,
    "zip_data": {"basename": "shard.00000.mds.zstd", "bytes": 50, "hashes": {}},
}
LEAF = {"type": None, "context": None, "children_spec": []}
SPEC = [1, {"type": "builtins.dict", "context": '["image", "label"]', "children_spec": [LEAF, LEAF]}]
CONFIG = {"compression": None, "data_format": ["bytes", "int"], "data_spec": json.dumps(SPEC), "encryption": None}
CHUNKS = {"chunks": [{"chunk_bytes": 100, "chunk_size": 5, "filename": "chunk-0-0.bin"}], "config": CONFIG}
AMAZON = {
    "sourceBucket": "b",
    "fileFormat": "CSV",
    "fileSchema": "Bucket, Key, Size",
    "files": [{"key": "k.csv.gz", "size": 10, "MD5checksum": "f" * 32}],
}
OPTIONS = {"metadata_fields": ["name", "size"], "storage_filters": {"bucket": "b"}}
GOOGLE = {
    "report_config": {"csv_options": {"header_required": False}, "object_metadata_report_options": OPTIONS},
    "report_shards_file_names": ["a.csv"],
    "shard_count": 1,
    "records_processed": "10",
}
REPORT = {"rank": 0, "world": 2, "batches": 4, "samples": 5, "waiting_s": 1.0, "computing_s": 2.0}
PLAN = records.JobPlan("sync", {"source": "a"}, ((0, 1, 10),), 1, 10, "", {"s3://a/": "here"})
TALLY = {"hosts": {"h": [0] * board.HOST_WORDS}, "caches": {"c": [1] * 7}, "jobs": {"sync": [1] * 7}}


def described(document, _folder):
    described_chunks(document, LitDataFormat())


def written(name, read):
    """Return a reader of the document as a file of this name."""

    def reader(document, folder):
        (folder / name).write_bytes(document)
        return read(folder)

    return reader


def typed(name):
    """Return a reader of the document as the description of an extension type of Arrow."""

    def reader(document, _folder):
        about = {"ARROW:extension:name": name, "ARROW:extension:metadata": document}
        extension_of(pa.field("x", pa.list_(pa.float32()), metadata=about))

    return reader


# By name: the document, what reads it from its bytes and a folder, and how its text lies in the bytes.
DOCUMENTS = {
    "index of MDS": ({"version": 2, "shards": [SHARD]}, lambda document, _: stated_shards(document)),
    "header of MDS": (SHARD, lambda document, _: _parse_columns(memoryview(document))),
    "index of LitData": (CHUNKS, described),
    "samples of LitData": (
        SPEC,
        lambda document, folder: described(
            json.dumps(CHUNKS | {"config": CONFIG | {"data_spec": document.decode("latin-1")}}).encode(), folder
        ),
    ),
    "index of wids": ({"shardlist": [{"url": "a/0.tar", "nsamples": 4}]}, lambda document, _: wids_shards(document)),
    "inventory of Amazon": (AMAZON, lambda document, _: inventory.parse_inventory_manifest(document, "s3://b/m.json")),
    "inventory of Google": (GOOGLE, lambda document, _: inventory.parse_inventory_manifest(document, "gs://b/m.json")),
    "report of a loader": (
        REPORT | {"recommendation": "x", "cause": None},
        written("r.json", lambda folder: repr(ps.observe.merge_reports(folder / "r.json"))),
    ),
    "checkpoint of Ray": (
        {"penstock checkpoint": 1, "url": "s3://b/run/", "step": 100},
        written("penstock.json", lambda folder: reported(SimpleNamespace(as_directory=lambda: nullcontext(folder)))),
    ),
    "steps of a run": (
        json.loads(steps.encode({1: steps.StepEntry("e", 0.5, ("a/b",))})),
        lambda text, _: steps.decode(text),
    ),
    "counts of a process": (
        TALLY,
        written("b.json", lambda folder: board._serialize_tally(board._read_tally(folder / "b.json"))),
    ),
    "tensors of Arrow": ({"shape": [2, 3], "permutation": [1, 0]}, typed("arrow.fixed_shape_tensor")),
    "tensors of any shape": ({"permutation": [1, 0]}, typed("arrow.variable_shape_tensor")),
    "tensors of Ray": ([2, 3], typed("ray.data.arrow_tensor")),
    "arrays of Hugging Face": ([[2, None], "f4"], typed("datasets.features.features.Array2DExtensionType")),
    "plan of a job": (json.loads(PLAN.encoded()), lambda document, _: records.JobPlan.decoded(document, "")),
}


def at(value, path):
    for name in path:
        value = value[name]
    return value


def places(value, path=()):
    yield path
    for name in value if isinstance(value, dict) else range(len(value))[:2] if isinstance(value, list) else ():
        yield from places(value[name], (*path, name))


def changed(document):
    """Yield the document with each value at each place, without each place, and with each place twice."""
    yield from VALUES
    for path in filter(None, places(document)):
        for value in VALUES:
            other = deepcopy(document)
            at(other, path[:-1])[path[-1]] = value
            yield other
        other = deepcopy(document)
        del at(other, path[:-1])[path[-1]]
        yield other
        other = deepcopy(document)
        if isinstance(path[-1], int):
            at(other, path[:-1]).append(at(document, path))
            yield other


def damaged(text):
    yield from (b"", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b"NaN", b'"\\ud800"', b'{"\xff": 1}')
    yield from (text[:-1], text + b"x", text[:1] + b"\xff" + text[1:], "{}".encode("utf-16"))
    # Each name twice.
    yield text[:-1] + b"," + text[1:]


def check(document, read):
    """Read the document whole and damaged; return what came of it."""
    text = json.dumps(document).encode()
    read(text)
    found = Counter()
    for each in [*(json.dumps(other).encode() for other in changed(document)), *damaged(text)]:
        try:
            read(each)
            found["read"] += 1
        except ALLOWED:
            found["refused"] += 1
    return found


@pytest.mark.parametrize("name", DOCUMENTS)
def test_damaged_documents_are_errors_of_ours(tmp_path, name):
    document, read = DOCUMENTS[name]
    found = check(document, lambda text: read(text, tmp_path))
    # The last two are read anew where they are damaged.
    assert found["refused"] > found["read"] or name in ("steps of a run", "counts of a process")


def test_damaged_statistics_are_errors_of_ours(tmp_path):
    array = zarr.create_array(f"{tmp_path}/z.zarr", shape=(12, 4), chunks=(3, 4), dtype="f4")
    array[:] = np.arange(48).reshape(12, 4)
    record = ps.ZarrDataset(f"{tmp_path}/z.zarr").statistics().as_record()

    def read(text):
        try:
            values = json.loads(text)
            text = json.dumps({**values, "digest": statistics._digest_record(values)}).encode()
        except (ValueError, TypeError, RecursionError):
            pass
        (tmp_path / "s.json").write_bytes(text)
        found = ps.ZarrStatistics.load(tmp_path / "s.json")
        assert found.as_record()["kind"] == record["kind"]
        assert isinstance(repr(found), str)

    found = check(record, read)
    assert found["refused"] > found["read"]


@pytest.fixture(params=["objects", "groups"])
def header(request, tmp_path):
    """Return the header of a catalog, and what reads a catalog with another one."""
    for name in ("a.jpg", "a.txt", "b.jpg", "b.txt"):
        Path(tmp_path, name).write_bytes(b"x")
    how = {"group": "stem"} if request.param == "groups" else {}
    ps.Catalog.scan(f"{tmp_path}/", **how).save(tmp_path / "x.catalog")
    whole = (tmp_path / "x.catalog").read_bytes()
    magic, length, _ = saved._START.unpack_from(whole)
    start = saved._START.size

    def read(text):
        text += b" " * (-(start + len(text)) % 64)
        head = saved._START.pack(magic, len(text), hashlib.sha256(text).digest())
        file = io.BytesIO(head + text + whole[start + length :])
        file.size = len(file.getvalue())
        assert len(saved.load(file).table.keys) >= 0

    return json.loads(whole[start : start + length]), read


def test_damaged_headers_of_catalogs_are_errors_of_ours(header):
    found = check(*header)
    assert found["refused"] > found["read"]
