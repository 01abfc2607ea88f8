"""A create-only write makes an object or says that there is one, whole or not at all, also when answers get lost."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

import penstock as ps
from penstock.errors import AlreadyExists
from penstock.testing.faults import FAULTS, FaultServer, Match

PARTS = ps.WriteOptions(part_bytes=5 << 20, buffer_bytes=10 << 20)
SIZES = [0, 10, 6 << 20]


@pytest.fixture(params=["moto", pytest.param("ceph", marks=pytest.mark.ceph), "local", "memory"])
def place(request, tmp_path):
    if request.param in ("moto", "ceph"):
        server, name = request.getfixturevalue(f"{request.param}_server"), f"test-{uuid.uuid4().hex}"
        server.client().create_bucket(Bucket=name)
        return f"s3://{name}/", replace(server.store, write=PARTS)
    url = f"{tmp_path}/" if request.param == "local" else f"memory://{tmp_path.name}/"
    return url, ps.StoreOptions(write=PARTS)


@pytest.mark.parametrize("size", SIZES)
def test_second_exclusive_create_raises_already_exists(place, size):
    url, store = place
    with ps.open(f"{url}new", "xb", store=store) as file:
        file.write(b"1" * size)
    second = ps.open(f"{url}new", "xb", store=store)
    second.write(b"2" * size)
    with pytest.raises(AlreadyExists):
        second.close()
    assert ps.open(f"{url}new", store=store).read() == b"1" * size
    with ps.open(f"{url}new", "wb", store=store) as file:
        file.write(b"3")
    assert ps.open(f"{url}new", store=store).read() == b"3"


def test_nothing_is_left_of_the_loser(place, tmp_path):
    url, store = place
    for expected in (None, AlreadyExists):
        file = ps.open(f"{url}new", "xb", store=store)
        file.write(b"x" * (6 << 20))
        if expected is None:
            file.close()
        else:
            with pytest.raises(expected):
                file.close()
    assert [entry.key.rpartition("/")[2] for entry in ps.list(url, store=store)] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] in ([], ["new"])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("verb", ["put", "complete"])
def test_a_lost_answer_is_not_someone_else(size, verb):
    """The write took effect, its answer was lost, and a second attempt meets our own object: 412, or no such upload."""
    with FaultServer.start() as server:
        server.make("bucket")
        server.fail(FAULTS["lost"], when=Match(verb=verb, key="new"))
        store = replace(server.store, write=PARTS)
        with ps.open("s3://bucket/new", "xb", store=store) as file:
            file.write(b"1" * size)
        assert server.objects("bucket") == {"new": b"1" * size}


def test_metadata_goes_with_the_object(bucket):
    for size in SIZES:
        store = replace(bucket.store, write=PARTS)
        with ps.open(f"{bucket.url}m", "wb", metadata={"Run": "7 a"}, store=store) as file:
            file.write(b"x" * size)
        assert ps.stat(f"{bucket.url}m", store=store).metadata["run"] == "7 a"
        assert bucket.client.head_object(Bucket=bucket.name, Key="m")["Metadata"]["run"] == "7 a"
