"""``penstock zarr copy``: lines, codes, and what a copy that is interrupted leaves."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest
import zarr

from penstock.interop.zarr import Store
from penstock.testing.faults import FAULTS, FaultServer, Match

VALUES = np.arange(60 * 8, dtype="f4").reshape(60, 8)


@pytest.fixture(scope="module")
def server():
    with FaultServer.start() as running:
        running.make("bucket")
        store = Store("s3://bucket/in", store=running.store)
        array = zarr.create_array(store, shape=VALUES.shape, chunks=(20, 8), dtype="f4", dimension_names=("time", "x"))
        array[:] = VALUES
        yield running


def found(server, name):
    return zarr.open_array(Store(f"s3://bucket/{name}", store=server.store), mode="r")


def test_a_plan_and_a_copy(penstock, server):
    words = ("zarr", "copy", "s3://bucket/in", "s3://bucket/out", "--chunks", "time=1", "--shards", "time=15")
    planned = penstock(*words, "--dry-run", **server.environment)
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.startswith("/ 60x8 <f4: chunks 20x8 bytes+zstd:0 -> chunks 1x8 in shards 15x8 bytes+zstd:0; ")
    assert "every source object read 1 times" in planned.stdout
    assert not [key for key in server.objects("bucket") if key.startswith("out")]
    done = penstock(*words, "--json", **server.environment)
    line = json.loads(done.stdout)
    assert (line["status"], line["chunks"], line["shards"]) == ("copied", [1, 8], [15, 8])
    assert (done.returncode, done.stderr) == (0, "")
    assert np.array_equal(found(server, "out")[:], VALUES)
    assert found(server, "out").shards == (15, 8)


def test_a_job_is_shared_and_continued_with_its_arguments(penstock, server):
    words = ("zarr", "copy", "s3://bucket/in", "s3://bucket/parts", "--chunks", "time=1", "--part", "2/2")
    done = penstock(*words, "--job", "s3://bucket/job", **server.environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "other parts are left" in done.stderr
    assert "parts/zarr.json" not in server.objects("bucket")
    done = penstock("jobs", "resume", "s3://bucket/job", "--json", **server.environment)
    assert json.loads(done.stdout)["chunks"] == [1, 8]
    assert np.array_equal(found(server, "parts")[:], VALUES)


def test_interrupted_copy_writes_no_metadata_and_resume_completes_it(start, penstock, server, monkeypatch):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.fail(FAULTS["stall"], when=Match(verb="put", key="part/c/50/0", times=None))
    words = ("zarr", "copy", "s3://bucket/in", "s3://bucket/part", "--chunks", "1,8", "--memory", "20k")
    process = start(*words)
    while not any(each.fault == "stall" for each in server.seen("put", "bucket")):
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    server.heal()
    assert process.returncode == 130, told
    assert "part/zarr.json" not in server.objects("bucket")
    assert "part/.zarr-copy/plan.json" in server.objects("bucket")
    done = penstock(*words, "--resume")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("copied 1 array, ")
    assert "read back and is equal" in done.stderr
    assert np.array_equal(found(server, "part")[:], VALUES)
    assert not [key for key in server.objects("bucket") if ".zarr-copy" in key]


def test_a_plan_of_an_epoch_is_text_json_and_a_page(penstock, server, tmp_path):
    words = ("zarr", "plan", "s3://bucket/in", "--dims", "time", "--batch", "4", "--html", str(tmp_path / "plan.html"))
    done = penstock(*words, "--offsets", "-1,0", "--json", **server.environment)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["samples"], record["chunks"], record["amplification"]) == (59, 3, 1)
    assert "<svg" in (tmp_path / "plan.html").read_text("utf-8")
