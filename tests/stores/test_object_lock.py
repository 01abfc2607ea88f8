"""Buckets whose objects are locked (Object Lock, with a default retention) take every kind of write, and lose nothing.

Such a bucket refuses a body without a checksum of its own; a deleted object leaves its version behind a marker.
"""

import threading
import uuid
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
import torch

import penstock as ps
from penstock.cli import main
from penstock.stores.s3 import checksums

PART = 5 << 20


@pytest.fixture
def locked(moto_server):
    """A bucket of moto's that keeps each version for a day."""
    client, name = moto_server.client(), f"locked-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
    configuration = {"ObjectLockEnabled": "Enabled", "Rule": rule}
    client.put_object_lock_configuration(Bucket=name, ObjectLockConfiguration=configuration)

    def until(key):
        return client.head_object(Bucket=name, Key=key)["ObjectLockRetainUntilDate"]

    def versions():
        return [each["Key"] for each in client.list_object_versions(Bucket=name).get("Versions", [])]

    return SimpleNamespace(url=f"s3://{name}/", server=moto_server, until=until, versions=versions)


@pytest.fixture
def store(locked):
    """Options of a store that no other test has written to: what a bucket wants is learned anew."""
    return locked.server.store


def test_objects_are_written_in_one_request_and_in_parts(locked, store):
    url, parts = locked.url, bytes(2 * PART + 7)
    with ps.open(f"{url}small", "wb", store=store) as file:
        file.write(b"some bytes")
    with ps.open(f"{url}large", "wb", store=store) as file:
        file.write(parts)
    for key, data in (("small", b"some bytes"), ("large", parts)):
        assert ps.open(url + key, store=store).read() == data
        assert locked.until(key) > datetime.now(UTC)
    ps.delete(f"{url}small", store=store)
    assert [each.key for each in ps.list(url, store=store)] == ["large"]
    assert sorted(locked.versions()) == ["large", "small"], "a deleted object's version is kept"


def test_md5_after_first_refusal_is_computed_outside_the_io_thread(locked, store, monkeypatch):
    computed = []

    class Seen(checksums.WithMD5):
        def update(self, data, /):
            computed.append((threading.current_thread().name, len(data)))
            super().update(data)

    monkeypatch.setattr("penstock.stores.s3.driver.WithMD5", Seen)
    late = []
    md5_of = checksums.md5
    monkeypatch.setattr(
        checksums, "md5", lambda *data, **how: late.append(len(data and data[0])) or md5_of(*data, **how)
    )
    for number in range(3):
        with ps.open(f"{locked.url}{number}", "wb", store=store) as file:
            file.write(bytes(1000))
    assert [size for size in late if size] == [1000], "that of the first, which was refused"
    assert computed == [(threading.current_thread().name, 1000)] * 2


def test_a_run_saves_restores_and_deletes_its_steps(locked, store):
    run = ps.CheckpointManager(f"{locked.url}run/", keep_last=2, store=store)
    for step in (1, 2, 3):
        run.save(step, {"w": torch.full((1000,), step)})
    assert run.steps() == [2, 3]
    assert torch.equal(run.restore()["w"], torch.full((1000,), 3))
    run.save(3, {"w": torch.zeros(3)}, overwrite=True)
    assert torch.equal(run.restore()["w"], torch.zeros(3))
    run.delete(2, 3)
    assert run.steps() == []
    assert all(locked.until(each) > datetime.now(UTC) for each in ("run/penstock-steps.json",))


def test_trees_are_copied_there_and_back(locked, tmp_path, monkeypatch):
    """Not within the bucket: of that, too, moto wants an MD5, though S3's CopyObject knows none."""
    for name, value in locked.server.environment.items():
        monkeypatch.setenv(name, value)
    for name, size in (("a", 10), ("b/c", PART + 1)):
        (tmp_path / "from" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "from" / name).write_bytes(bytes(size))
    for words in (
        ("cp", "-r", f"{tmp_path}/from/", f"{locked.url}tree/"),
        ("sync", f"{locked.url}tree/", f"{tmp_path}/back/"),
        ("sync", f"{tmp_path}/back/", f"{locked.url}copy/"),
    ):
        monkeypatch.setattr("sys.argv", ["penstock", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (0, None), words
    assert (tmp_path / "back" / "b" / "c").stat().st_size == PART + 1
    assert (tmp_path / "back" / "a").read_bytes() == bytes(10)
