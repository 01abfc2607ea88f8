"""The storage of torch_checkpointing: its table of renames on every store, kills in the commit, and its own savers."""

from __future__ import annotations

import errno
import os
import pickle
import random
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch_checkpointing import CheckpointManager
from torch_checkpointing.config import AsyncCheckpointSaverConfig, SyncCheckpointSaverConfig
from torch_checkpointing.default_resharder import DefaultResharder
from torch_checkpointing.metadata_manager import DefaultMetadataManager
from torch_checkpointing.schema import ItemSpec
from torch_checkpointing.staging import CheckpointStagerConfig
from torch_checkpointing.storage.base_storage import ReadArgs

import penstock as ps
from penstock.checkpoint.torch_checkpointing import Storage, StorageConfig
from penstock.checkpoint.torch_checkpointing import storage as module
from penstock.errors import (
    AlreadyExists,
    CheckpointError,
    ChecksumMismatch,
    Forbidden,
    InvalidURL,
    NotFound,
    Truncated,
    Unreachable,
    Unusable,
)
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from tests.amounts import SOAK
from tests.children import forked
from tests.emulators import names

TABLE = ".penstock/directories.json"
CARELESS = ("s3-careless", "s3-unable", "oss")
PLACES = names(without=CARELESS)


@pytest.fixture
def storage(place):
    return Storage(f"{place.url}run", store=place.store)


@pytest.fixture
def memory():
    return Storage(f"memory://{uuid4().hex}/run/")


def _fill(storage, name, text=b"new"):
    storage.mkdir(name)
    storage.write(f"{name}/payload", text)


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_renames_follow_the_table_on_every_store(storage, place):
    _fill(storage, "tmp")
    storage.rename(Path("tmp"), Path("absent"), is_directory=True)
    assert (storage.ls(""), storage.ls("absent"), storage.exists("tmp")) == (["absent"], ["payload"], False)

    _fill(storage, "tmp")
    storage.mkdir("empty")
    storage.rename("tmp", "empty", is_directory=True)
    assert storage.read("empty/payload") == b"new"

    _fill(storage, "tmp", b"other")
    storage.write("file", b"a file")
    for dest, code in (("absent", errno.ENOTEMPTY), ("file", errno.ENOTDIR)):
        with pytest.raises(OSError, match="occupies") as caught:
            storage.rename("tmp", dest, is_directory=True)
        assert caught.value.errno == code
    assert (storage.read("absent/payload"), storage.read("file"), storage.ls("tmp")) == (b"new", b"a file", ["payload"])

    storage.rename("file", "moved")
    storage.write("second", b"a second")
    storage.rename("second", "moved")
    assert (storage.read("moved"), storage.exists("file"), storage.exists("second")) == (b"a second", False, False)
    storage.mkdir("hollow")
    for dest in ("hollow", "absent"):
        with pytest.raises(OSError, match="occupies"):
            storage.rename("moved", dest)
    assert storage.ls("") == ["absent", "empty", "hollow", "moved", "tmp"]
    for name in ("absent", "empty", "hollow", "tmp"):
        storage.rmdir(name)
    storage.delete("moved")
    assert {key.removeprefix("run/") for key in place.objects()} <= {TABLE, ".penstock/conditions"}


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_every_file_of_a_renamed_directory_has_digests_on_every_store(storage):
    for name, size in (("a", 0), ("é/b", 3), ("c", 2_500_000)):
        storage.mkdir(f"tmp/{name}".rpartition("/")[0])
        storage.write(f"tmp/{name}", bytes(size))
    storage.rename("tmp", "step", is_directory=True)
    again = Storage(storage.remap_path(""), store=storage._source.options)
    listing = again._read_listing(again._read_table().directories["step"])
    assert listing.indexed == {"a": 0, "é/b": 3, "c": 2_500_000}
    assert listing.content["digests"].keys() == listing.indexed.keys()
    assert [again.read(f"step/{name}") for name in listing.indexed] == [bytes(n) for n in listing.indexed.values()]


@pytest.mark.parametrize("place", ["s3-careless", "s3-unable", "oss"], indirect=True)
def test_a_store_without_conditional_writes_is_refused_by_name(storage, place):
    _fill(storage, "tmp")
    with pytest.raises(Unusable, match=r"the store has no conditional writes.*penstock.checkpoint.dcp") as caught:
        storage.rename("tmp", "step", is_directory=True)
    assert place.url in str(caught.value)
    assert storage.ls("") == ["tmp"]


def test_a_flipped_byte_is_an_error_in_whole_and_in_ranged_reads(memory):
    _fill(memory, "tmp", bytes(3 << 20))
    memory.rename("tmp", "step")
    url = memory.remap_path("step/payload")
    damaged = bytearray(3 << 20)
    damaged[2_500_000] = 1
    with ps.open(url, "wb") as file:
        file.write(damaged)
    with pytest.raises(ChecksumMismatch, match="bytes 2097152 to 3145728"):
        memory.read("step/payload")
    with memory.stream_read("step/payload", ReadArgs(pre_read_full_file=False)) as file:
        part = bytearray(1 << 20)
        assert file.seek(100) == 100
        assert file.readinto(part) == len(part)
        file.seek(2_499_999)
        with pytest.raises(ChecksumMismatch):
            file.readinto(memoryview(part)[:2])
    with ps.open(url, "wb") as file:
        file.write(damaged[:-1])
    with pytest.raises(Truncated):
        memory.read("step/payload")


def test_damaged_digests_and_another_size_than_the_callers_are_errors(memory):
    _fill(memory, "tmp", b"12345")
    with pytest.raises(Truncated, match="must have 6 bytes, got 5"):
        memory.stream_read("tmp/payload", ReadArgs(known_size_bytes=6))
    memory.rename("tmp", "step")
    (name,) = memory._read_listing(memory._read_table().directories["step"]).content["digests"].values()
    key = memory.remap_path("step") + f"/.penstock/{name}"
    with ps.open(key, "wb") as file:
        file.write(b"12345678")
    with pytest.raises(CheckpointError, match="digests of the file are damaged"):
        memory.read("step/payload")


def test_files_of_a_renamed_directory_are_final_and_new_ones_may_be_added(memory):
    memory.mkdir("tmp/inner")
    memory.write("tmp/inner/a", b"1")
    memory.rename("tmp", "step")
    memory.write("step/added", b"2")
    memory.mkdir("spare")
    for refused in (
        lambda: memory.write("step/inner/a", b"3"),
        lambda: memory.delete("step/inner/a"),
        lambda: memory.rename("step/inner/a", "b"),
        lambda: memory.rename("step/added", "step/inner/a"),
        lambda: memory.rename("step/inner", "spare"),
        lambda: memory.rmdir("step/inner"),
    ):
        with pytest.raises(Forbidden, match="renamed directory: they are final"):
            refused()
    assert (memory.ls("step"), memory.read("step/inner/a"), memory.read("step/added")) == (
        ["added", "inner"],
        b"1",
        b"2",
    )
    memory.rename("step", "best")
    assert (memory.read("best/inner/a"), memory.read("best/added")) == (b"1", b"2")


def test_the_old_name_is_free_for_a_new_directory_that_shares_nothing(memory):
    for step in range(3):
        _fill(memory, "tmp", b"%d" % step)
        memory.rename("tmp", f"step-{step}")
    assert [memory.read(f"step-{step}/payload") for step in range(3)] == [b"0", b"1", b"2"]
    memory.rmdir("step-0")
    assert memory.ls("") == ["step-1", "step-2"]
    _fill(memory, "tmp", b"4")
    memory.mkdir("runs")
    memory.rename("step-1", "runs/one")
    memory.rename("runs", "older")
    assert (memory.read("older/one/payload"), memory.read("tmp/payload")) == (b"1", b"4")
    memory.rmdir("older")
    assert memory.ls("") == ["step-2", "tmp"]
    assert memory.glob("step-*") == ["step-2"]
    assert memory.glob("none/*") == []


@pytest.mark.parametrize(
    "path", ["../x", "a/../b", ".penstock/x", "a/.penstock", "s3://other/run/x", "s3:/other/x", "\udcff"]
)
def test_paths_that_lead_elsewhere_are_refused(memory, path):
    with pytest.raises(InvalidURL):
        memory.exists(path)


def test_paths_are_relative_absolute_or_urls_also_as_pathlib_writes_them(tmp_path):
    storage = Storage("memory://paths/run/")
    storage.mkdir("a")
    storage.write("a/ü #?%.pt", b"1")
    for path in ("a/ü #?%.pt", "/a/ü #?%.pt", "./a//ü #?%.pt", Path("memory://paths/run/a/ü #?%.pt")):
        assert storage.read(path) == b"1"
    local = Storage(tmp_path)
    local.mkdir(tmp_path / "a")
    local.write(tmp_path / "a" / "b", b"2")
    assert (tmp_path / "a" / "b").read_bytes() == local.read(f"file://{tmp_path}/a/b") == b"2"
    with pytest.raises(InvalidURL, match="must be below"):
        local.exists("/elsewhere")


def test_missing_paths_raise_what_torch_checkpointing_and_python_expect(memory):
    with pytest.raises(RuntimeError, match="make it first"):
        memory.write("none/file", b"")
    for missing in (
        lambda: memory.read("none"),
        lambda: memory.getsize("none"),
        lambda: memory.delete("none"),
        lambda: memory.ls("none"),
        lambda: memory.rmdir("none"),
        lambda: memory.rename("none", "other"),
        lambda: memory.mkdir("none/inner", recursive=False),
    ):
        with pytest.raises(FileNotFoundError):
            missing()
    memory.mkdir("there")
    memory.mkdir("there")
    memory.write("file", b"12")
    with pytest.raises(FileExistsError):
        memory.mkdir("there", recursive=False)
    with pytest.raises(FileExistsError):
        memory.mkdir("file")
    with pytest.raises(InvalidURL, match="below the old one"):
        memory.rename("there", "there/inner")
    with pytest.raises(FileNotFoundError):
        memory.rename("file", "none/file")
    memory.rename("file", "file")
    found = [(memory.exists(path), memory.isdir(path), memory.isfile(path)) for path in ("there", "file", "none", "")]
    assert found == [(True, True, False), (True, False, True), (False, False, False), (True, True, False)]
    assert (memory.getsize("file"), memory.listdir("")) == (2, ["file", "there"])
    memory.remove("there")
    assert memory.ls(".") == ["file"]


def test_a_copy_of_a_run_in_another_store_is_verified_as_well(memory, tmp_path):
    _fill(memory, "tmp", bytes(2 << 20))
    memory.rename("tmp", "step")
    ps.sync(memory.remap_path(""), f"{tmp_path}/copy/")
    copied = Storage(tmp_path / "copy")
    assert (copied.ls(""), copied.read("step/payload")) == (["step"], bytes(2 << 20))
    (tmp_path / "copy/tmp/payload").write_bytes(bytes(1 << 20) + b"1" + bytes((1 << 20) - 1))
    with pytest.raises(ChecksumMismatch, match="bytes 1048576 to 2097152"):
        copied.read("step/payload")


def test_an_error_in_the_block_publishes_nothing(memory):
    memory.mkdir("tmp")
    with suppress(KeyError), memory.stream_write("tmp/a") as file:
        file.write(b"half")
        raise KeyError
    assert memory.ls("tmp") == []


def test_of_many_savers_to_one_name_one_succeeds(memory):
    for number in range(8):
        _fill(memory, f"tmp-{number}", b"%d" % number)
    apart = [Storage(memory.remap_path("")) for _ in range(8)]
    start = threading.Barrier(8)

    def save(number):
        start.wait()
        try:
            apart[number].rename(f"tmp-{number}", "step")
        except AlreadyExists:
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        won = [each for each in pool.map(save, range(8)) if each is not None]
    assert len(won) == 1
    assert memory.read("step/payload") == b"%d" % won[0]
    assert memory.ls("") == sorted({"step", *(f"tmp-{number}" for number in range(8) if number not in won)})


def test_many_renames_to_many_names_all_succeed(memory):
    for number in range(8):
        _fill(memory, f"tmp-{number}", b"%d" % number)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: Storage(memory.remap_path("")).rename(f"tmp-{n}", f"step-{n}"), range(8)))
    assert [memory.read(f"step-{number}/payload") for number in range(8)] == [b"%d" % number for number in range(8)]


@pytest.fixture
def server():
    with FaultServer.start(Settings()) as server:
        server.make("bucket")
        yield server


def test_a_commit_whose_answer_is_lost_succeeds_and_costs_no_second_directory(server):
    storage = Storage("s3://bucket/run/", store=server.store)
    _fill(storage, "tmp")
    server.fail(FAULTS["503-after"], when=Match(verb="put", key=f"run/{TABLE}"))
    storage.rename("tmp", "step", is_directory=True)
    assert (storage.ls(""), storage.read("step/payload")) == (["step"], b"new")


def test_a_rename_with_an_unknown_outcome_can_be_called_again(memory, monkeypatch):
    publish = module.publish

    def lose(*words):
        publish(*words)
        raise Unreachable("the answer is lost")

    _fill(memory, "tmp")
    monkeypatch.setattr(module, "publish", lose)
    with pytest.raises(Unreachable):
        memory.rename("tmp", "step")
    monkeypatch.undo()
    memory.rename("tmp", "step")
    assert (memory.ls(""), memory.read("step/payload")) == (["step"], b"new")
    with pytest.raises(NotFound):
        memory.rename("tmp", "step")


def test_a_commit_is_one_put_for_any_number_of_files_and_moves_none(server):
    storage = Storage("s3://bucket/run/", store=server.store)
    storage.mkdir("tmp")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: storage.write(f"tmp/{number}", b"x"), range(60)))
    before = server.objects("bucket")
    storage.rename("tmp", "step", is_directory=True)
    after = server.objects("bucket")
    assert {key for key in after if before.get(key) != after[key]} - {f"run/{TABLE}", "run/.penstock/conditions"} == {
        key for key in after if key.endswith(".json") and "tmp/.penstock/" in key
    }
    assert before.keys() <= after.keys()


def test_a_reader_answers_from_one_listing_without_requests(server):
    storage = Storage("s3://bucket/run/", store=server.store)
    storage.mkdir("tmp")
    for number in range(20):
        storage.write(f"tmp/{number}", b"x" * number)
    storage.rename("tmp", "step", is_directory=True)
    reader = Storage("s3://bucket/run/", store=server.store)
    assert reader.exists("step")
    assert reader.exists("step/0")
    before = len(server.seen())
    assert all(reader.exists(f"step/{number}") for number in range(20))
    assert [reader.getsize(f"step/{number}") for number in range(20)] == list(range(20))
    assert len(server.seen()) == before


def test_a_reader_with_an_old_table_finds_the_new_checkpoint_of_a_name(memory):
    _fill(memory, "tmp", b"old")
    memory.rename("tmp", "step")
    reader = Storage(memory.remap_path(""))
    assert reader.read("step/payload") == b"old"
    _fill(memory, "tmp", b"newer")
    memory.rmdir("step")
    memory.rename("tmp", "step")
    assert reader.read("step/payload") == b"newer"


def test_an_interrupted_removal_is_invisible_and_swept_with_old_half_written_directories(server, monkeypatch):
    storage = Storage("s3://bucket/run/", store=server.store)
    _fill(storage, "tmp_a")
    storage.rename("tmp_a", "step-a")
    monkeypatch.setattr(Storage, "_delete_prefixes", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        storage.rmdir("step-a")
    monkeypatch.undo()
    assert storage.ls("") == []
    _fill(storage, "tmp_a", b"again")
    _fill(storage, "tmp_b")
    assert storage.sweep() == []
    assert storage.ls("") == ["tmp_a", "tmp_b"]
    assert storage._table.removed == ()
    assert storage.read("tmp_a/payload") == b"again"
    assert storage.sweep(older_than_s=-5) == ["tmp_a", "tmp_b"]
    assert {*server.objects("bucket")} == {f"run/{TABLE}", "run/.penstock/conditions"}


def _rename_in_child(url, source):
    pid = os.fork()
    if not pid:
        with suppress(BaseException):
            Storage(url).rename(source, "step", is_directory=True)
        os._exit(0)
    return pid


def _wait_for_fault(server, pid, faults):
    """Return whether the child's request was held; otherwise the child has ended."""
    while sum(bool(each.fault) for each in server.seen()) == faults:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return False
        threading.Event().wait(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_kill_at_any_request_of_a_rename_leaves_the_old_name_or_the_new_one(server, done, monkeypatch):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    fault, url, found = replace(FAULTS["stall"], name="held", undone=not done), "s3://bucket/run/", []
    for nth in count(1):
        server.put("bucket", "run/tmp/0", b"0")
        server.put("bucket", "run/tmp/1", b"1")
        server.fail(fault, when=Match(bucket="bucket", nth=nth))
        held = _wait_for_fault(server, _rename_in_child(url, "tmp"), nth - 1)
        server.heal()
        storage = Storage(url)
        (name,) = storage.ls("")
        found.append(name)
        assert storage.ls(name) == ["0", "1"]
        assert [storage.read(f"{name}/{file}") for file in "01"] == [b"0", b"1"]
        if name == "tmp":
            storage.rename("tmp", "step", is_directory=True)
        storage.rmdir("step")
        if not held:
            break
    # The PUT of the table decides: before it the old name, after it the new one.
    changes = [nth for nth in range(1, len(found)) if found[nth] != found[nth - 1]]
    assert (found[0], found[-1], len(changes)) == ("tmp", "step", 1), found
    assert 8 < changes[0] < len(found) - 1


def test_kills_at_random_moments_leave_the_old_name_or_the_new_one(server, seed, monkeypatch):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    url, draw, found = "s3://bucket/run/", random.Random(seed), Counter()
    for _ in range(100 if SOAK else 10):
        server.put("bucket", "run/tmp/0", b"0")
        server.put("bucket", "run/tmp/1", b"1")
        pid = _rename_in_child(url, "tmp")
        threading.Event().wait(draw.uniform(0, 0.6))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        storage = Storage(url)
        (name,) = storage.ls("")
        found[name] += 1
        assert [storage.read(f"{name}/{file}") for file in "01"] == [b"0", b"1"]
        storage.rmdir(name)
    print(found)


def _manage(config, **options):
    return CheckpointManager(CheckpointManager.Config(storage_config=config, **options))


def test_their_manager_saves_and_loads_through_it(memory):
    config = StorageConfig(memory.remap_path(""))
    weights, step = {"w": torch.arange(1_000_000.0), "b": torch.ones(3)}, {"step": 7}
    manager = _manage(config, save=SyncCheckpointSaverConfig())
    manager.save("step-7", {"model": weights, "step": step})
    assert (memory.ls(""), memory.ls("step-7")) == (["step-7"], ["model_0.pt", "step_0.pt"])
    with pytest.raises(OSError, match="occupies"):
        manager.save("step-7", {"model": weights, "step": step})
    found = {"w": torch.zeros(1_000_000), "b": torch.zeros(3)}
    assert manager.load("step-7", into={"model": found, "step": {"step": 0}})["step"] == step
    assert all(torch.equal(found[name], weights[name]) for name in weights)
    with memory.stream_read("step-7/model_0.pt", ReadArgs(pre_read_full_file=False)) as file:
        assert torch.equal(torch.load(file, weights_only=True)["b"], torch.ones(3))
    manager.close()


def test_their_process_in_the_background_saves_with_secret_options(server):
    config = StorageConfig("s3://bucket/run/", store=server.store)
    staging = CheckpointStagerConfig(use_pinned_memory=False, use_non_blocking_copy=False)
    manager = _manage(config, save=AsyncCheckpointSaverConfig(staging_config=staging))
    manager.save("step-1", {"model": {"w": torch.ones(5)}}).result()
    manager.close()
    assert config.create_storage().ls("step-1") == ["model_0.pt"]


def _gather(_manager, data, process_group=None):
    """Gather as their method does, which needs CUDA."""
    found = [None] * dist.get_world_size(process_group)
    dist.all_gather_object(found, data, group=process_group)
    return dict(enumerate(found))


def _run_rank(config, work, rank, world, store):
    torch.set_num_threads(1)
    DefaultMetadataManager._all_gather_pickled_data = _gather
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    whole = torch.arange(7 * 40_000.0).reshape(7, 40_000)
    item = ItemSpec(resharder=DefaultResharder())
    manager = _manage(config, save=SyncCheckpointSaverConfig(), items={"model": item})
    model = {"w": distribute_tensor(whole if work == "save" else torch.zeros_like(whole), mesh, [Shard(0)])}
    if work == "save":
        manager.save("step-1", {"model": model})
    else:
        manager.load("step-1", into={"model": model})
        assert torch.equal(model["w"].to_local(), distribute_tensor(whole, mesh, [Shard(0)]).to_local())
    manager.close()
    dist.barrier()
    dist.destroy_process_group()


def test_ranks_save_together_and_other_numbers_of_ranks_load(server, tmp_path):
    config = StorageConfig("s3://bucket/run/", store=server.store)
    for work, world in (("save", 2), ("load", 1), *([("load", 3)] if SOAK else [])):
        store = tmp_path / f"{work}-{world}"
        with ExitStack() as stack:
            ranks = [
                stack.enter_context(forked(partial(_run_rank, config, work, rank, world, store)))
                for rank in range(world)
            ]
            assert [status() for status in ranks] == [0] * world
    assert config.create_storage().ls("step-1") == ["metadata.pkl", "model_0.pt", "model_1.pt"]


def test_a_configuration_with_secrets_shows_and_pickles_none():
    config = StorageConfig("s3://bucket/run/", store=ps.S3Options(access_key="AK", secret_key="hidden"))
    assert "hidden" not in repr(config)
    with pytest.raises(Unusable):
        pickle.dumps(config)
    assert pickle.loads(pickle.dumps(StorageConfig("memory://x/"))).create_storage().ls("") == []
