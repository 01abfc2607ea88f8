"""Parsers of foreign text read it or refuse it, in seconds and little memory; no error is a bug or Python's own."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import zipfile
from base64 import b64encode
from itertools import count
from pathlib import Path
from time import thread_time

import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from safetensors.torch import save as to_safetensors

from penstock.checkpoint.dcp.torchmeta import decode as decode_dcp
from penstock.checkpoint.integrity import Manifest
from penstock.checkpoint.run.store import decode as decode_steps
from penstock.checkpoint.safetensors.header import parse, stop_of
from penstock.checkpoint.safetensors.verbs import Index
from penstock.checkpoint.torchfile.load import is_refusal
from penstock.checkpoint.torchfile.verbs import load as load_torch
from penstock.data.catalog.catalog import Catalog
from penstock.data.catalog.discovery.inventory import Inventory, parse_inventory_manifest, records
from penstock.data.catalog.discovery.manifest import read_manifest
from penstock.data.catalog.labels import label_of
from penstock.data.catalog.rows import Entry
from penstock.data.catalog.saved import load as load_catalog
from penstock.data.parquet import coded_columns
from penstock.engine.contracts.credentials import Credentials
from penstock.engine.contracts.exchange import Response
from penstock.engine.listing.listing import Listing, UploadListing
from penstock.errors import Bug, PenstockError
from penstock.stores.azure.driver import AzureDriver
from penstock.stores.azure.signing import AccountKey, Container
from penstock.stores.gcs.driver import GCSDriver, Google
from penstock.stores.oss import store as alibaba
from penstock.stores.oss.dialect import Alibaba
from penstock.stores.profiles.files import read_file
from penstock.stores.profiles.multistorage import _profiles, msc_mappings, rclone_profiles, translations
from penstock.stores.s3 import aws_files as shared
from penstock.stores.s3.dialect import BucketAddress
from penstock.stores.s3.driver import S3Driver
from penstock.stores.urls import parse as place_of
from penstock.stores.web import store as web
from penstock.stores.web.driver import WebDriver, read_index
from tests.amounts import examples
from tests.data.catalog.discovery.inventories import csv_of
from tests.hostile.mutations import mutated
from tests.servers.hostile import document, listing
from tests.stores.gcs.test_driver import Static

MOST_S = 5.0
MOST_BYTES = 1 << 30


_KEYS = Static(Credentials("id", "secret"))
_BUCKET = BucketAddress("bucket", "http://h", virtual=False)
DRIVERS = {
    "s3": lambda: S3Driver(_BUCKET, "us-east-1", _KEYS),
    "gcs": lambda: GCSDriver(_BUCKET, _KEYS, Google(keys=True)),
    "oss": lambda: S3Driver(_BUCKET, "cn-hangzhou", _KEYS, Alibaba()),
    "azure": lambda: AzureDriver(
        Container("c", "a", "http://h", "az://c/"), Static(AccountKey(b64encode(b"k").decode()))
    ),
    "web": lambda: WebDriver("http://h/"),
}
_BLOB = (
    "<Blob><Name{}>run/{}</Name><Properties><Content-Length>1</Content-Length><Etag>0x8</Etag><ResourceType>{}"
    "</ResourceType><Last-Modified>Sun, 06 Nov 1994 08:49:37 GMT</Last-Modified></Properties>"
    "<Metadata><a>b</a></Metadata></Blob>"
)
_UPLOAD = "<Upload><Key>run/a</Key><UploadId>u</UploadId><Initiated>2026-11-24T18:00:00.000Z</Initiated></Upload>"
ANSWERS = [
    listing([("run/a", 1), ("run/b", 2)], ["run/c/"], token="t"),
    listing([("run/a%2F+", 1)]).replace(b"<Contents>", b"<EncodingType>url</EncodingType><Contents>", 1),
    f"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>{_UPLOAD}</ListMultipartUploadsResult>".encode(),
    document("Error", Code="SlowDown", Message="a &lt; b", Endpoint="h", Region="eu-west-1"),
    document("CopyObjectResult", ETag='"e"'),
    document("InitiateMultipartUploadResult", UploadId="u"),
    document("CompleteMultipartUploadResult", ETag='"e"'),
    (
        "<?xml version='1.0' encoding='utf-8'?><EnumerationResults><Blobs>"
        + _BLOB.format("", "a", "file")
        + _BLOB.format(" Encoded='true'", "b%EF%BF%BE", "directory")
        + "<BlobPrefix><Name>run/c/</Name></BlobPrefix></Blobs><NextMarker>m</NextMarker></EnumerationResults>"
    ).encode(),
    (
        b'<html><title>Index of /run/</title><pre><a href="a">a</a> 22-Nov-2026 10:58 1234\n'
        b'<a href="b/">b/</a></pre></html>'
    ),
    (
        b'[{"name": "a", "type": "file", "mtime": "Sun, 22 Nov 2026 10:58:00 GMT", "size": 7},'
        b'{"name": "b", "type": "directory"}]'
    ),
    b'{"generation": "7", "error": {"code": 404}}',
]
_NAMES = [
    "etag",
    "last-modified",
    "content-range",
    "retry-after",
    "location",
    "x-goog-hash",
    "x-ms-error-code",
    "x-oss-err",
]


def _driver_verbs(driver):
    yield lambda: driver.list("run/"), Listing("run/").take
    yield lambda: driver.list("run/", delimiter="/"), Listing("run/", delimiter="/").take
    yield lambda: driver.head("run/a"), None
    yield lambda: driver.get("run/a", "e"), None
    if hasattr(driver, "uploads"):
        yield lambda: driver.uploads("run/"), UploadListing("run/").take
        yield lambda: driver.copy("run/a", "run/b"), None
        yield lambda: driver.delete("run/a"), None


def _answered(dialect):
    @st.composite
    def answer(draw):
        headers = {"content-type": draw(st.sampled_from(["text/html", "application/json", "application/xml"]))}
        for name in draw(st.lists(st.sampled_from(_NAMES), max_size=2)):
            headers[name] = draw(st.one_of(st.text(max_size=30), st.sampled_from(["9" * 5000, '"e"', "bytes 0-0/1"])))
        body = draw(mutated(ANSWERS))
        headers["content-length"] = str(len(body))
        status = draw(st.sampled_from([200, 200, 200, 200, 206, 301, 400, 403, 404, 412, 416, 503]))
        return draw(st.integers(0, 6)), Response(status, headers, body)

    def read(drawn):
        number, response = drawn
        verbs = [*_driver_verbs(DRIVERS[dialect]())]
        make, take = verbs[number % len(verbs)]
        found = make().parse(response)
        if take is not None:
            [*take(found).entries]

    return answer(), read


def _table(**columns):
    sink = io.BytesIO()
    parquet.write_table(pa.table(columns), sink)
    return sink.getvalue()


def _torch_file(value):
    sink = io.BytesIO()
    torch.save(value, sink)
    return sink.getvalue()


def _zipped(data):
    """Return a zip with its records changed one by one: a mutated pickle in a sane archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def _rezipped(records_):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, data in records_.items():
            archive.writestr(name, data)
    return sink.getvalue()


def _pickled(draw_from):
    return draw_from.map(lambda data: _rezipped(_RECORDS | {"archive/data.pkl": data}))


def _sealed(data):
    """Return a saved catalog whose header's digest is right."""
    at = 16 + 8 + 32
    length = int.from_bytes(data[16:24], "little")
    text = data[at : at + length]
    return data[:24] + hashlib.sha256(text).digest() + data[at:]


def _saved_catalog():
    sink = Path(_scratch("catalog"))
    Catalog.build("s3://bucket/", "", [Entry("a", 5, "x", "e"), Entry("b/c", 7, {"y": [1]}, "f")]).save(str(sink))
    return sink.read_bytes()


class _Readable(io.BytesIO):
    @property
    def size(self):
        return len(self.getvalue())


_numbers = count()
_folder = None


def _scratch(name, data=None):
    path = _folder / f"{next(_numbers)}-{name}"
    if data is not None:
        path.write_bytes(data)
    return str(path)


@pytest.fixture(scope="module", autouse=True)
def _files(tmp_path_factory):
    global _folder  # noqa: PLW0603  parsers of files need one, and hypothesis takes no fixtures of functions
    _folder = tmp_path_factory.mktemp("parsers")


_TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3, dtype=torch.int64), "c": [1, "x", None, 2.5]}
_TORCH = _torch_file(_TENSORS)
_RECORDS = _zipped(_TORCH)
_SAFETENSORS = to_safetensors({"a": torch.zeros(2, 3), "b": torch.ones(2)}, {"format": "pt"})
_HEADER = _SAFETENSORS[8 : 8 + int.from_bytes(_SAFETENSORS[:8], "little")]
_PARQUET = _table(key=["a", "b", "a"], size=[1, 2, 3], label=["x", None, "y"], etag=["e", "e", "e"])
_NESTED = _table(key=["a", "b"], label=[{"x": [1, 2]}, None], boxes=[[[1.0]], []])
_LINES = (
    b'{"key": "a", "size": 5, "label": {"x": [1]}, "etag": "e"}\n{"url": "s3://bucket/b", "offset": 3, "size": 2}\n'
)
_AMAZON = json.dumps(
    {
        "sourceBucket": "bucket",
        "fileFormat": "CSV",
        "fileSchema": "Bucket, Key, Size, ETag",
        "files": [{"key": "data/a.csv.gz", "size": 7, "MD5checksum": "0" * 32}],
    }
).encode()
_GOOGLE = json.dumps(
    {
        "report_config": {
            "csv_options": {"delimiter": ",", "header_required": False},
            "object_metadata_report_options": {"storage_filters": {"bucket": "b"}, "metadata_fields": ["name", "size"]},
        },
        "report_shards_file_names": ["a.csv"],
        "shard_count": 1,
        "records_processed": "7",
    }
).encode()
_TOML = b"""
[profiles.data]
url = "s3://bucket/x"
extends = "base"
[profiles.data.options]
endpoint = "http://h"  # a comment
[profiles.base]
retry = {patience_s = 5, attempts = 3}
text = '''
long'''
"""
_MSC = b"""
profiles:
  data: &x
    storage_provider: {type: s3, options: {base_path: bucket/x, region_name: us-east-1}}
    credentials_provider: {type: S3Credentials, options: {access_key: a, secret_key: b}}
  other: *x
path_mapping: {"s3://bucket/": "msc://data/"}
cache: {size: 5G, location: /tmp/x}
"""
_INVENTORY = Inventory("bucket", "csv", (), ("key", "size", "etag"), escaped=True)
_TABLES = Inventory("bucket", "parquet", ())
_AWS = (
    b"[default]\nregion = r\ns3 =\n  endpoint_url = http://h\n[profile work]\nservices = a\nrole_arn = x\n"
    b"[services a]\ns3 =\n endpoint_url = http://g\n"
)
_STEPS = b'{"penstock_steps": 1, "steps": {"7": ["e", 0.5, "a", "b"]}}'


def _toml(data):
    read_file(_scratch("penstock.toml", data), "user")


def _msc(data, suffix):
    path = _scratch(f"msc.{suffix}", data)
    environ = {"MSC_CONFIG": path, "HOME": str(_folder)}
    _profiles(environ)
    msc_mappings(environ)
    for make in translations(path).values():
        make()


def _aws(data):
    path = _scratch("config", data)
    environ = {"AWS_CONFIG_FILE": path, "AWS_SHARED_CREDENTIALS_FILE": path, "HOME": str(_folder)}
    for name in (None, "work"):
        shared.profile(name, environ)


def _catalog(data):
    saved = load_catalog(_Readable(data))
    for row in range(saved.table.rows):
        label_of(saved.table, row)


def _safetensors(data):
    stop = stop_of(data, len(data), "s3://b/k")
    parse(data[:stop], len(data), "s3://b/k")


def _of_header(text):
    return len(text).to_bytes(8, "little") + text + _SAFETENSORS[8 + len(_HEADER) :]


def _columns(data):
    coded_columns(data, "s3://b/k", ["key", "label"], ["size"])


def _described(data):
    parse_inventory_manifest(data, "s3://b/manifest.json")


def _manifest(name):
    return lambda data: [*read_manifest(data, name, place_of("s3://bucket/"))]


def _inventory(inventory):
    return lambda data: [*records(data, inventory, "s3://b/k")]


PARSERS = {
    **{f"{dialect}'s answers": _answered(dialect) for dialect in DRIVERS},
    "index page": (
        mutated(ANSWERS[8:10]),
        lambda data: (
            read_index(data, "text/html", "http://h/run/"),
            read_index(data, "application/json", "http://h/run/"),
        ),
    ),
    "manifest in lines": (mutated([b"a\nb label c\n", _LINES]), _manifest("m.txt")),
    "manifest in CSV": (mutated([b'key,size,label\na,5,"x,\n"\n']), _manifest("m.csv")),
    "manifest in JSON lines": (mutated([_LINES, _LINES.splitlines()[0]]), _manifest("m.jsonl")),
    "manifest in Parquet": (mutated([_PARQUET, _NESTED], texts=False), _manifest("m.parquet")),
    "Parquet columns": (mutated([_PARQUET, _NESTED], texts=False), _columns),
    "manifest of an inventory": (mutated([_AMAZON, _GOOGLE]), _described),
    "inventory in CSV": (mutated([csv_of([("a", 1, "e"), ("b", 2, "")])]), _inventory(_INVENTORY)),
    "inventory in gzip": (mutated([csv_of([("a", 1, "e")])]).map(gzip.compress), _inventory(_INVENTORY)),
    "damaged gzip": (mutated([gzip.compress(csv_of([("a", 1, "e")] * 99))], texts=False), _inventory(_INVENTORY)),
    "inventory in Parquet": (mutated([_PARQUET], texts=False), _inventory(_TABLES)),
    "saved catalog": (st.deferred(lambda: mutated([_saved_catalog()], texts=False)), _catalog),
    "saved catalog with a digest": (
        st.deferred(lambda: mutated([_saved_catalog()], texts=False).map(_sealed)),
        _catalog,
    ),
    "profiles in TOML": (mutated([_TOML]), _toml),
    "Multi-Storage Client's YAML": (mutated([_MSC]), lambda data: _msc(data, "yaml")),
    "Multi-Storage Client's JSON": (
        mutated(
            [
                json.dumps(
                    {
                        "profiles": {"data": {"storage_provider": {"type": "s3", "options": {"base_path": "b"}}}},
                        "path_mapping": {"/a/": "msc://data/"},
                    }
                ).encode()
            ]
        ),
        lambda data: _msc(data, "json"),
    ),
    "rclone's file": (
        mutated([b"[data]\ntype = s3\nprovider = AWS\nregion = r\n"]),
        lambda data: rclone_profiles(_scratch("rclone.conf", data)),
    ),
    "netrc": (
        mutated([b"machine h login a password b\ndefault login c password d\nmacdef x\n y\n\n"]),
        lambda data: web.login("h", {"NETRC": _scratch("netrc", data)}),
    ),
    "AWS files": (mutated([_AWS]), _aws),
    "Alibaba's credentials": (
        mutated(
            [b"[default]\nAccessKeyId = a\nAccessKeySecret = b\n", b'{"AccessKeyId": "a", "AccessKeySecret": "b"}']
        ),
        lambda data: alibaba.read_credentials(Path(_scratch("credentials", data))),
    ),
    "safetensors": (mutated([_SAFETENSORS], texts=False), _safetensors),
    "header of safetensors": (mutated([_HEADER]).map(_of_header), _safetensors),
    "index of safetensors": (
        mutated(
            [
                Index({"a": "model-00001-of-00001.safetensors"}, {}, 7).encode(),
                b'{"metadata": {}, "weight_map": {"a": "x.safetensors"}}',
            ]
        ),
        lambda data: Index.decode(data, "s3://b/k"),
    ),
    "manifest of a checkpoint": (
        mutated([Manifest("save", "dcp", {}, {"x": 1}).encode()]),
        lambda data: Manifest.decode(data, "s3://b/k"),
    ),
    "index of steps": (mutated([_STEPS]), decode_steps),
    "torch file": (mutated([_TORCH], texts=False), lambda data: load_torch(_scratch("state.pt", data))),
    "lazy torch file": (mutated([_TORCH], texts=False), lambda data: load_torch(_scratch("state.pt", data), lazy=True)),
    "pickle in a torch file": (
        _pickled(mutated([_RECORDS["archive/data.pkl"]], texts=False)),
        lambda data: load_torch(_scratch("state.pt", data)),
    ),
    "torch's metadata": (
        st.deferred(lambda: mutated([_metadata()], texts=False)),
        lambda data: decode_dcp(data, "s3://b/.metadata", weights_only=True),
    ),
}


def _metadata():
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        MetadataIndex,
        TensorProperties,
        TensorStorageMetadata,
    )

    from penstock.checkpoint.dcp.records import ItemLocation
    from penstock.checkpoint.dcp.torchmeta import encode

    chunk = ChunkStorageMetadata(torch.Size([0]), torch.Size([6]))
    tensor = TensorStorageMetadata(TensorProperties(dtype=torch.float32), torch.Size([6]), [chunk])
    return encode(Metadata({"a": tensor}), {MetadataIndex("a", torch.Size([0])): ItemLocation("__0_0.distcp", 0, 24)})


def _resident(field):
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(field)]
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("parser", PARSERS)
def test_foreign_text_is_read_or_refused_in_bounds(parser):
    strategy, read = PARSERS[parser]

    @settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
    @given(strategy)
    def check(data):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: proc(5)
        before, began = _resident("VmRSS"), thread_time()
        try:
            read(data)
        except Bug as error:
            raise AssertionError("a bug") from error
        except PenstockError as error:
            str(error)
        except pickle.UnpicklingError as error:
            if not is_refusal(error):  # torch names what it would not make
                raise
        assert thread_time() - began < MOST_S
        assert _resident("VmHWM") - before < MOST_BYTES

    check()
