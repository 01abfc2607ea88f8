"""Objects that are rewritten between their index and their data: ``Changed``, or the data of one version, never mixed.

The two versions have equal sizes, and places in one are not those in the other, wherever a format allows that.
"""

import asyncio
import gzip
import hashlib
import io
import json
import uuid
from dataclasses import replace
from pathlib import Path
from struct import pack
from tempfile import TemporaryDirectory
from warnings import catch_warnings

import numpy as np
import pyarrow as pa
import pytest
import torch
import torch.distributed.checkpoint as dcp
import zarr
from pyarrow import parquet
from safetensors.numpy import save as safetensors
from torch.distributed.checkpoint.api import CheckpointException

import penstock as ps
from penstock.checkpoint.dcp import StorageReader
from penstock.errors import Changed, CheckpointError, ChecksumMismatch, PenstockError
from penstock.interop import obspec
from penstock.interop.arrow import RandomFile, filesystem
from penstock.interop.fsspec import PenstockFileSystem
from penstock.interop.zarr import Store
from penstock.testing.servers import Scripted, reply
from tests.data.catalog.discovery.inventories import FIELDS, csv_of
from tests.data.shards import mosaic
from tests.data.shards.archives import tar, tfrecord, zipped
from tests.data.shards.lightning import GOLDEN
from tests.data.tokens.files import megatron
from tests.servers import Bucket

SIZES = (700, 900, 1500) * 3, (900, 1500, 700) * 3


class _Server:
    """A web server whose index pages state sizes and no versions; after ``left`` requests, its objects are replaced."""

    def __init__(self, before, after, *, heads=True):
        self.data, self._after, self._heads = before, after, heads
        self.left = self.stated = None
        self.requests = 0

    def replace(self):
        self.data = self._after

    def __call__(self, received, send):
        send(self._answer(received, received.path.lstrip("/")))
        self.requests += 1
        if self.requests == self.left:
            self.replace()
        return True

    def _answer(self, received, key):
        if key.endswith("/"):
            sizes = {each.removeprefix(key): self.stated or len(body) for each, body in self.data.items()}
            rows = [{"name": name, "type": "file", "size": size} for name, size in sizes.items()]
            return reply(200, json.dumps(rows).encode(), content_type="application/json")
        if (body := self.data.get(key)) is None:
            return reply(404)
        tag = {"etag": f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'}
        if received.headers.get("if-match", tag["etag"]) != tag["etag"]:
            return reply(412)
        if received.method == "HEAD":
            return reply(200, content_length=str(len(body)), **(tag if self._heads else {}))
        if received.range is None:
            return reply(200, body, **tag)
        start, stop = received.within(len(body))
        part = body[start:stop]
        return reply(206, part, content_range=f"bytes {start}-{start + len(part) - 1}/{len(body)}", **tag)


def _plain(value):
    if hasattr(value, "keys"):
        return {name: _plain(value[name]) for name in value.keys()}  # noqa: SIM118  of a Sample, too
    if hasattr(value, "read"):
        return value.read()
    return value.tolist() if hasattr(value, "tolist") else value


# -- readers: a generator of two steps, the index and what it locates ------------------------------------------------


def _shards(name="", **how):
    def read(base, store):
        dataset = ps.MapDataset.from_shards(base + name, store=store, **how)
        yield
        return [_plain(each) for each in dataset]

    return read


def _tokens(name, **how):
    def read(base, store):
        dataset = ps.TokenDataset.from_shards(base + name, length=8, store=store, **how)
        yield
        return [_plain(each) for each in dataset]

    return read


def _file(base, store):
    with ps.open(f"{base}a.bin", store=store) as file:
        yield
        return [file.seek(at) and file.read(1) for at in PLACES]


def _fsspec_file(base, store):
    files = PenstockFileSystem(store=store, skip_instance_cache=True)
    files.ls(base)
    with files.open(f"{base}a.bin", block_size=4096) as file:
        yield
        return [file.seek(at) and file.read(1) for at in PLACES]


def _fsspec_ranges(base, store):
    files = PenstockFileSystem(store=store, skip_instance_cache=True)
    yield
    ends = [*(at + 1 for at in PLACES), None, 1 << 30]
    return files.cat_ranges([f"{base}a.bin"] * 5, [*PLACES, -1, PLACES[1]], ends, max_gap=0, on_error="raise")


def _obspec_ranges(base, store):
    files = obspec.Store(base, store=store)
    yield
    return [bytes(each) for each in files.get_ranges("a.bin", starts=PLACES, lengths=[1] * len(PLACES))]


def _obspec_object(base, store):
    found = obspec.Store(base, store=store).get("a.bin")
    yield
    return [sorted({*each}) for each in found]


def _fsspec_async(base, store):
    files = PenstockFileSystem(store=store, skip_instance_cache=True, asynchronous=True)

    async def opened():
        return await files.open_async(f"{base}a.bin", "rb")

    async def read(file):
        found = []
        for at in PLACES:
            file.seek(at)
            found.append(await file.read(1))
        return found

    loop = asyncio.new_event_loop()
    try:
        file = loop.run_until_complete(opened())
        yield
        return loop.run_until_complete(read(file))
    finally:
        loop.close()


def _dcp(base, store):
    reader = StorageReader(base, store=store)
    state = {name: torch.zeros(500) for name in "abc"}
    yield
    with catch_warnings(action="ignore"):
        try:
            dcp.load(state, storage_reader=reader, no_dist=True)
        except CheckpointException as error:
            raise error.failures[0][0] from None
    return [state[name].tolist() for name in sorted(state)]


def _sharded_safetensors(base, store):
    yield
    found = ps.load_safetensors(base, store=store)
    return [found[name].tolist() for name in sorted(found)]


def _catalog(base, store):
    yield
    return [each.key[-1] for each in ps.Catalog.open(f"{base}a.catalog", root=base, store=store)]


def _pyarrow(base, store):
    scheme, _, path = base.partition("://")
    files = filesystem(scheme, store=store)
    (found,) = files.get_file_info(pa.fs.FileSelector(path))
    file = parquet.ParquetFile(found.path, filesystem=files)
    yield
    return [file.read_row_group(number)["x"].to_pylist() for number in range(file.num_row_groups)]


def _zarr(base, store):
    array = zarr.open_array(Store(base, store=store, read_only=True))
    yield
    # One read of zarr's, which is an index and then chunks.
    return array[2:5].tolist()


def _zarr_dataset(base, store):
    dataset = ps.ZarrDataset(base, output="numpy", store=store)
    yield
    return [_plain(each) for each in dataset][2:5]


def _references(base, store):
    array = {"zarr_format": 2, "shape": [6], "chunks": [1], "dtype": "|u1", "order": "C"}
    array |= dict.fromkeys(("compressor", "filters", "fill_value"))
    chunks = {f"a/{number}": [f"{base}a.bin", at, 1] for number, at in enumerate((*PLACES, *PLACES))}
    document = {"version": 1, "refs": {".zgroup": '{"zarr_format":2}', "a/.zarray": json.dumps(array), **chunks}}
    with TemporaryDirectory() as folder:
        Path(folder, "r.json").write_text(json.dumps(document))
        dataset = ps.ZarrDataset(f"{folder}/r.json/a", output="numpy", store=store).as_map()
        _ = dataset[0]
        yield
        return [_plain(each) for each in dataset]


def _torch(base, store):
    found = ps.load(f"{base}a.pt", lazy=True, store=store)
    yield
    return [found[name].load().tolist() for name in found]


def _safetensors(base, store):
    with ps.open_safetensors(f"{base}a.safetensors", store=store) as file:
        yield
        return [file.get_tensor(name).tolist() for name in sorted(file.keys())]


def _inventory(base, store):
    yield
    return [each.key for each in ps.Catalog.from_inventory(f"{base}a_manifest.json", "memory://bucket/", store=store)]


def _copy(base, store):
    to = f"memory://copies-{id(store)}-{len(base)}/"
    yield
    ps.sync(base, to, store=store, progress=False)
    with ps.open(f"{to}a.bin") as file:
        return sorted({*file.read()})


# -- the files before and after ----------------------------------------------------------------------------------------


def _members(sizes, fill):
    return [(f"{number}.bin", bytes([fill]) * size) for number, size in enumerate(sizes)]


def _table(first):
    file = io.BytesIO()
    values = {"x": np.arange(first, first + 24)}
    parquet.write_table(pa.table(values), file, row_group_size=4, compression=None, use_dictionary=False)
    return file.getvalue()


def _litdata(sizes, fill):
    bodies = [pack("<I", size) + bytes([fill]) * size for size in sizes]
    ends = np.cumsum([4 * (len(bodies) + 2), *map(len, bodies)]).tolist()
    chunk = pack(f"<{len(ends) + 1}I", len(bodies), *ends) + b"".join(bodies)
    index = json.loads((GOLDEN / "bytes" / "index.json").read_text())
    index["chunks"][0] |= {"chunk_bytes": len(chunk), "chunk_size": len(bodies)}
    return {"index.json": json.dumps(index).encode(), index["chunks"][0]["filename"]: chunk}


def _litdata_numbers(kind, code, first):
    """Return chunks of which only the index says whether they hold integers or floats."""
    bodies = [pack(f"<I{code}", 8, first + number) for number in range(8)]
    ends = [4 * (len(bodies) + 2) + 12 * number for number in range(len(bodies) + 1)]
    chunk = pack(f"<{len(ends) + 1}I", len(bodies), *ends) + b"".join(bodies)
    index = json.loads((GOLDEN / "bytes" / "index.json").read_text())
    index["chunks"][0] |= {"chunk_bytes": len(chunk), "chunk_size": len(bodies)}
    index["config"]["data_format"] = [kind]
    return {"index.json": json.dumps(index).encode(), index["chunks"][0]["filename"]: chunk}


def _catalog_file(*keys):
    with TemporaryDirectory() as folder:
        for key in keys:
            Path(folder, key).write_bytes(b"x")
        catalog = ps.Catalog.scan(f"{folder}/", progress=False)
        file = f"memory://catalogs-{keys[0]}/a"
        catalog.save(file)
    with ps.open(file) as opened:
        return {"a.catalog": opened.read()}


def _saved_dcp(value):
    with TemporaryDirectory() as folder, catch_warnings(action="ignore"):
        dcp.save(
            {name: torch.full((500,), value) for name in "abc"},
            storage_writer=dcp.FileSystemWriter(folder),
            no_dist=True,
        )
        return {str(each.relative_to(folder)): each.read_bytes() for each in Path(folder).rglob("*") if each.is_file()}


def _safetensors_files(value):
    with TemporaryDirectory() as folder:
        state = {name: torch.full((500,), value) for name in "abc"}
        ps.save_safetensors(state, f"{folder}/", max_shard_bytes=2500)
        return {each.name: each.read_bytes() for each in Path(folder).iterdir()}


def _mds(sizes, fill, *, indexed=False):
    shard = mosaic.shard({"x": ("bytes", None)}, [{"x": bytes([fill]) * size} for size in sizes])
    index = {"version": 2, "shards": [mosaic.described("a.mds", shard)]}
    return {"a.mds": shard} | ({"index.json": json.dumps(index).encode()} if indexed else {})


def _npy(first):
    file = io.BytesIO()
    np.save(file, np.arange(first, first + 48, dtype="u2"))
    return file.getvalue()


def _megatron(first, lengths):
    tokens = iter(range(first, 1 << 16))
    data, index = megatron([[[next(tokens) for _ in range(length)]] for length in lengths])
    return {"a.bin": data, "a.idx": index}


def _sharded(first, absent):
    values = np.repeat(np.arange(first, first + 12, dtype="f4")[:, None], 2, axis=1)
    values[absent] = 0
    store = zarr.storage.MemoryStore()
    how = {"shape": (12, 2), "chunks": (1, 2), "shards": (12, 2), "compressors": None}
    zarr.create_array(store, dtype="f4", fill_value=0, **how)[:] = values
    return {key: value.to_bytes() for key, value in store._store_dict.items()}


def _report(*keys):
    """Return an inventory of Google's, which has neither sizes nor sums of its files."""
    names = {"storage_destination_options": {"bucket": "b"}, "metadata_fields": FIELDS}
    names["storage_filters"] = {"bucket": "bucket"}
    config = {"csv_options": {}, "object_metadata_report_options": names}
    manifest = {"report_config": config, "records_processed": 2, "shard_count": 1}
    manifest |= {"snapshot_time": "2026-01-02T00:00:00Z", "report_shards_file_names": ["a_0.csv"]}
    rows = [["p", "bucket", key, 1, "1", "2026-01-02T03:04:05Z"] for key in keys]
    return {"a_manifest.json": json.dumps(manifest).encode(), "a_0.csv": csv_of(rows)}


def _saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    return file.getvalue()


def _lines(sizes, fill):
    return b"".join(json.dumps(fill * size).encode() + b"\n" for size in sizes)


PLACES = 1, 30_000, 60_000
BLOBS = {"a.bin": bytes([1]) * 70_000}, {"a.bin": bytes([2]) * 70_000}
MODELS = [{name: np.full(500, value, "f4") for name in "abc"} for value in (1, 2)]
ARCHIVES = [_members(sizes, fill) for fill, sizes in enumerate(SIZES, 1)]
SHARDED = _sharded(1, 0), _sharded(100, 11)
CASES = {
    "tar": (_shards(), *({"a.tar": tar(each)} for each in ARCHIVES)),
    "tar.gz": (_shards(), *({"a.tar.gz": gzip.compress(tar(each))} for each in ARCHIVES)),
    "zip": (_shards(), *({"a.zip": zipped(each)} for each in ARCHIVES)),
    "jsonl": (_shards(), {"a.jsonl": _lines(SIZES[0], "a")}, {"a.jsonl": _lines(SIZES[1], "b")}),
    "tfrecord": (_shards(), *({"a.tfrecord": tfrecord([data for _, data in each])} for each in ARCHIVES)),
    "parquet": (_shards(), {"a.parquet": _table(0)}, {"a.parquet": _table(100)}),
    "mds": (_shards(), *(_mds(sizes, fill) for fill, sizes in enumerate(SIZES, 1))),
    "mds with an index": (_shards(), *(_mds(sizes, fill, indexed=True) for fill, sizes in enumerate(SIZES, 1))),
    "litdata": (_shards(format="litdata"), *(_litdata(sizes, fill) for fill, sizes in enumerate(SIZES, 1))),
    "litdata, other columns": (
        _shards(format="litdata"),
        _litdata_numbers("int", "q", 1),
        _litdata_numbers("float", "d", 10),
    ),
    "npy": (_tokens(""), {"a.npy": _npy(0)}, {"a.npy": _npy(100)}),
    "megatron": (_tokens("", documents=True), _megatron(0, (24, 16, 8)), _megatron(100, (8, 16, 24))),
    "file": (_file, *BLOBS),
    "fsspec, a file": (_fsspec_file, *BLOBS),
    "fsspec, ranges": (_fsspec_ranges, *BLOBS),
    "obspec, ranges": (_obspec_ranges, *BLOBS),
    "obspec, an object": (_obspec_object, *BLOBS),
    "fsspec, async": (_fsspec_async, *BLOBS),
    "catalog": (_catalog, _catalog_file("a", "b"), _catalog_file("c", "d", "e")),
    "dcp of torch": (_dcp, _saved_dcp(1.0), _saved_dcp(2.0)),
    "safetensors, files": (_sharded_safetensors, _safetensors_files(1.0), _safetensors_files(2.0)),
    "pyarrow": (_pyarrow, {"a.parquet": _table(0)}, {"a.parquet": _table(100)}),
    "zarr": (_zarr, *SHARDED),
    "zarr, our own": (_zarr_dataset, *SHARDED),
    "references": (_references, *BLOBS),
    "torch": (_torch, *({"a.pt": _saved({name: torch.from_numpy(each) for name, each in m.items()})} for m in MODELS)),
    "safetensors": (_safetensors, *({"a.safetensors": safetensors(each)} for each in MODELS)),
    "sync": (_copy, *BLOBS),
    "inventory": (_inventory, _report("a", "b"), _report("c", "d", "e")),
}


def _outcome(case, base, store, between=lambda: None):
    """Return what a reader reads, or the name of its error; ``between`` its two steps the files are replaced."""
    steps = case[0](base, store)
    try:
        next(steps)
        between()
        next(steps)
    except StopIteration as end:
        return end.value
    except PenstockError as error:
        # obspec has names of its own, and checkpoints have sums, or names of their saves.
        if isinstance(error, (Changed, ChecksumMismatch)) or isinstance(error.__cause__, Changed):
            return "Changed"
        if isinstance(error, CheckpointError) and "different saves" in error.message:
            return "Changed"
        raise
    raise AssertionError


@pytest.fixture
def moto_bucket(moto_server):
    """Return an empty bucket."""
    bucket = Bucket(moto_server, f"test-{uuid.uuid4().hex}", moto_server.client())
    bucket.client.create_bucket(Bucket=bucket.name)
    return bucket


@pytest.fixture
def _small_steps(monkeypatch):
    """Let small files take several requests, as large ones do."""
    monkeypatch.setattr("penstock.engine.read.reader._BLOCK_BYTES", 4096)
    monkeypatch.setattr("penstock.interop.obspec._PIECE_BYTES", 20_000)
    monkeypatch.setattr("penstock.interop.arrow._ASKED_BYTES", 0)
    monkeypatch.setattr("penstock.interop.arrow._TAIL_BYTES", 600)
    monkeypatch.setitem(RandomFile.__init__.__kwdefaults__, "whole_bytes", 600)
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_BYTES", 0)


@pytest.mark.usefixtures("_small_steps")
@pytest.mark.parametrize(
    ("name", "heads"),
    [(name, True) for name in CASES]
    # Only HEADs show that an index and a chunk are both of before, and bind parts that are read at once.
    + [(name, False) for name in CASES if name not in ("litdata, other columns", "obspec, an object")],
)
def test_readers_of_a_web_server_whose_objects_are_replaced_give_one_version_or_changed(name, heads):
    case = CASES[name]
    before, after = ({f"d/{key}": data for key, data in files.items()} for files in case[1:])

    def run(server, left=None, between=lambda: None):
        server.left = left
        with Scripted(server) as running:
            return _outcome(case, f"{running.url}/d/", None, between)

    first = _Server(before, after, heads=heads)
    whole = run(first), run(_Server(after, after, heads=heads))
    assert whole[0] != whole[1]
    assert "Changed" not in whole
    outcomes = [run(_Server(before, after, heads=heads), left) for left in range(1, min(first.requests, 8))]
    server = _Server(before, after, heads=heads)
    outcomes.append(run(server, between=server.replace))
    assert [each for each in outcomes if each != "Changed" and each not in whole] == []


@pytest.mark.usefixtures("_small_steps")
@pytest.mark.parametrize("mode", ["off", "ttl"])
@pytest.mark.parametrize("name", CASES)
def test_readers_of_a_bucket_whose_objects_are_replaced_after_their_index_give_one_version_or_changed(
    name, mode, moto_bucket, tmp_path
):
    case = CASES[name]
    store = replace(moto_bucket.store, cache=ps.CacheOptions(path=str(tmp_path), mode=mode))

    def put(folder, files):
        for key, data in files.items():
            moto_bucket.client.put_object(Bucket=moto_bucket.name, Key=f"{folder}/{key}", Body=data)

    for folder, files in (("before", case[1]), ("after", case[2]), ("d", case[1])):
        put(folder, files)
    whole = [_outcome(case, f"{moto_bucket.url}{folder}/", store) for folder in ("before", "after")]
    assert whole[0] != whole[1]
    found = _outcome(case, f"{moto_bucket.url}d/", store, lambda: put("d", case[2]))
    assert found == "Changed" or found in whole


@pytest.mark.usefixtures("_small_steps")
@pytest.mark.parametrize("name", CASES)
def test_readers_of_a_folder_whose_files_are_replaced_after_their_index_give_one_version_or_changed(name, tmp_path):
    case = CASES[name]

    def put(folder, files):
        for key, data in files.items():
            path = tmp_path / folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".new").write_bytes(data)
            path.with_suffix(".new").replace(path)

    for folder, files in (("before", case[1]), ("after", case[2]), ("d", case[1])):
        put(folder, files)
    whole = [_outcome(case, f"file://{tmp_path}/{folder}/", None) for folder in ("before", "after")]
    assert whole[0] != whole[1]
    found = _outcome(case, f"file://{tmp_path}/d/", None, lambda: put("d", case[2]))
    assert found == "Changed" or found in whole


def test_a_listing_with_a_smaller_size_than_the_object_has_does_not_cut_its_last_line():
    lines = b"".join(b'{"n":%d}\n' % number for number in range(10, 20))
    server = _Server({"d/a.jsonl": lines}, {})
    server.stated = len(lines) - len(b'{"n":19}\n')
    with Scripted(server) as running, pytest.raises(Changed, match="has 90 bytes, but was listed with 81"):
        ps.MapDataset.from_shards(f"{running.url}/d/")
