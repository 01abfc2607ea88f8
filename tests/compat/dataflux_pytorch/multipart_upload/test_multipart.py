from __future__ import annotations

import io
import random
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

import penstock as ps
from penstock.compat.dataflux_pytorch.listing import store_options
from penstock.compat.dataflux_pytorch.multipart_upload.multipart import (
    upload_chunks_concurrently_from_bytesio as upload,
)
from penstock.errors import Unsupported

KMS = "projects/p/locations/l/keyRings/r/cryptoKeys/k"
NOT_SENT = {
    "storage_class": "NEARLINE",
    "cache_control": "no-store",
    "content_encoding": "gzip",
    "content_disposition": "attachment",
    "content_language": "en",
    "custom_time": datetime(2026, 1, 1, tzinfo=UTC),
    "md5_hash": "CY9rzUYh03PK3k6DJie09g==",
    "crc32c": "AAAAAA==",
    "event_based_hold": True,
    "temporary_hold": True,
}
SMALL, PARTS = b"small", bytes(6 << 20)


def test_a_buffer_becomes_an_object(gcs, client):
    data = random.Random(0).randbytes(12 << 20)
    blob = client.bucket(gcs.name).blob("dir/a b.ckpt")
    buffer = io.BytesIO(data)
    buffer.seek(100)  # all of it is sent, as in the original
    upload(buffer, blob, chunk_size=5 << 20, max_workers=2)
    assert gcs.objects == {"dir/a b.ckpt": data}
    upload(io.BytesIO(SMALL), blob, content_type="text/plain")
    assert gcs.objects == {"dir/a b.ckpt": SMALL}
    assert gcs.server.uploads(gcs.name) == []


@pytest.mark.parametrize("data", [SMALL, PARTS], ids=["one request", "parts"])
def test_metadata_and_content_type_of_a_blob_are_written(gcs, client, data):
    blob = client.bucket(gcs.name).blob("key")
    blob.metadata = {"run": "7", "owner": "Jürgen"}
    blob.content_type = "application/x-tar"
    upload(io.BytesIO(data), blob, chunk_size=5 << 20)
    found = ps.stat(f"gs://{gcs.name}/key", store=store_options(client))
    assert found.metadata | {"run": "7", "owner": "Jürgen"} == found.metadata
    assert found.content_type == "application/x-tar"
    upload(io.BytesIO(data), blob, content_type="text/plain", chunk_size=5 << 20)
    assert ps.stat(f"gs://{gcs.name}/key", store=store_options(client)).content_type == "text/plain"


@pytest.mark.parametrize("data", [SMALL, PARTS], ids=["one request", "parts"])
def test_user_project_of_the_bucket_pays_for_each_request(gcs, client, data):
    blob = client.bucket(gcs.name, user_project="payer").blob("key")
    upload(io.BytesIO(data), blob, chunk_size=5 << 20)
    assert {each.headers.get("x-goog-user-project") for each in gcs.server.seen(bucket=gcs.name)} == {"payer"}


def refused(gcs, blob, name):
    with pytest.raises(Unsupported) as caught:
        upload(io.BytesIO(SMALL), blob)
    assert str(caught.value).startswith(f"cannot upload gs://{gcs.name}/key: blob.{name} is set, and ")
    assert gcs.server.seen(bucket=gcs.name) == []
    return str(caught.value)


@pytest.mark.parametrize("name", NOT_SENT)
def test_property_that_cannot_be_written_is_refused(gcs, client, name):
    blob = client.bucket(gcs.name).blob("key")
    setattr(blob, name, NOT_SENT[name])
    refused(gcs, blob, name)
    setattr(blob, name, None)
    upload(io.BytesIO(SMALL), blob)
    assert gcs.objects == {"key": SMALL}


def test_retention_is_refused(gcs, client):
    blob = client.bucket(gcs.name).blob("key")
    blob.retention.mode = "Unlocked"
    refused(gcs, blob, "retention")


def test_keys_of_encryption_are_refused_without_being_shown(gcs, client):
    bucket = client.bucket(gcs.name)
    refused(gcs, bucket.blob("key", kms_key_name=KMS), "kms_key_name")
    assert "0123456789" not in refused(
        gcs, bucket.blob("key", encryption_key=b"0123456789" * 3 + b"ab"), "encryption_key"
    )


def test_properties_of_an_object_like_a_blob_are_refused_too(gcs, client):
    like = SimpleNamespace(client=client, bucket=SimpleNamespace(name=gcs.name), name="key", storage_class="NEARLINE")
    refused(gcs, like, "storage_class")
    like.storage_class, like.metadata = None, {"run": "7"}
    upload(io.BytesIO(SMALL), like)
    assert ps.stat(f"gs://{gcs.name}/key", store=store_options(client)).metadata["run"] == "7"


def test_loaded_properties_of_the_replaced_object_are_not_refused(gcs, client):
    blob = client.bucket(gcs.name).blob("key")
    blob._set_properties({"storageClass": "STANDARD", "kmsKeyName": f"{KMS}/cryptoKeyVersions/1", "crc32c": "AAAAAA=="})
    upload(io.BytesIO(SMALL), blob)
    assert gcs.objects == {"key": SMALL}
