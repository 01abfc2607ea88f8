"""Distributed checkpoints in one process: every kind of tensor, every kind of damage, old or new, and little memory."""

from __future__ import annotations

import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.metadata import MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

import penstock as ps
from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.checkpoint.dcp.reader import Marker, fetch_manifest, find_checkpoints
from penstock.checkpoint.integrity import Manifest
from penstock.errors import Changed, CheckpointError, NotFound, PenstockError, Unusable
from penstock.source import open_source
from tests.checkpoint.dcp.saves import LAYOUTS, load, save, save_as_ranks, two_ranks
from tests.children import PEAK_KIB, python
from tests.edges.launch import ranks, torchrun

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def _kinds():
    torch.manual_seed(1)
    line = torch.rand(1000)
    return {
        "plain": torch.rand(300, 40),
        "view": torch.rand(300, 40)[::2, 3:30],
        "turned": torch.rand(30, 40).t(),
        "wide": torch.rand(1).expand(5, 6),
        "zero": torch.tensor(7.5),
        "none": torch.empty(0, 3),
        "bool": line > 0.5,
        "bf16": line.bfloat16(),
        "half": line.half(),
        "f8": line.to(torch.float8_e4m3fn),
        "complex": torch.rand(50, dtype=torch.complex64).conj(),
        "i64": torch.arange(10),
        "u16": torch.arange(10).to(torch.uint16),
        "parameter": torch.nn.Parameter(torch.rand(4, 4)),
        "nest": {"list": [torch.rand(3), 5, None], "é": "text", "tuple": (1, 2.5)},
        "empty": {},
    }


def _blank(state):
    if isinstance(state, dict):
        return {key: _blank(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_blank(each) for each in state)
    return torch.zeros(state.shape, dtype=state.dtype) if isinstance(state, torch.Tensor) else -1


def _same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, torch.Tensor):
        one, other = (each.detach().resolve_conj().contiguous() for each in (one, other))
        return one.dtype == other.dtype and one.shape == other.shape and _bytes(one) == _bytes(other)
    return one == other


def _bytes(tensor):
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_kind_of_tensor_comes_back_bit_for_bit(tmp_path, layout):
    state = _kinds()
    save(state, tmp_path / "saved", layout=layout, spread=256)
    assert _same(load(_blank(state), tmp_path / "saved"), state)
    found = {}
    planner = _EmptyStateDictLoadPlanner()
    _load_state_dict(found, StorageReader(tmp_path / "saved"), planner=planner, no_dist=True)
    assert _same(found["nest"]["list"], state["nest"]["list"])


@pytest.mark.parametrize("spread", [0, 3])
def test_torch_layout_is_readable_by_torch_and_torch_files_by_penstock(tmp_path, spread):
    state = _kinds()
    save_as_ranks([state, {"other": torch.rand(5)}], tmp_path / "ours", layout="torch", spread=spread)
    found = _blank(state)
    dcp.load(found, storage_reader=dcp.FileSystemReader(tmp_path / "ours"), no_dist=True)
    assert _same(found, state)
    writer = dcp.FileSystemWriter(tmp_path / "theirs", thread_count=3)
    dcp.save(state, storage_writer=writer, no_dist=True)
    assert _same(load(_blank(state), tmp_path / "theirs"), state)
    dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path / "alone"), use_collectives=False, no_dist=True)
    assert (tmp_path / "alone/__0.metadata").exists()
    assert _same(load(_blank(state), tmp_path / "alone"), state)


def test_concurrent_reader_gets_old_or_new_version_or_an_error(bucket):
    url, stop, seen = f"{bucket.url}run", threading.Event(), []
    save({"a": torch.zeros(3000), "b": torch.zeros(3000), "n": 0}, url, store=bucket.store)

    def read():
        while not stop.is_set():
            try:
                state = load({"a": torch.zeros(3000), "b": torch.zeros(3000), "n": -1}, url, store=bucket.store)
                seen.append({*state["a"].tolist(), *state["b"].tolist(), state["n"]})
            except CheckpointException as error:
                seen.append({type(error.failures[0][0])})

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for number in range(1, 9):
                full = torch.full((3000,), float(number))
                save({"a": full, "b": full, "n": number}, url, store=bucket.store, overwrite=True)
        finally:
            stop.set()
        for reader in readers:
            reader.result(60)
    assert all(len(each) == 1 for each in seen), "one version at a time"
    found = set().union(*seen)
    assert found <= {*range(9), Changed}
    assert len(found) >= 3
    objects = bucket.client.list_objects_v2(Bucket=bucket.name)["Contents"]
    assert len(objects) == 3


def test_run_manager_handles_distributed_checkpoints_saved_as_its_steps(tmp_path):
    run = ps.CheckpointManager(tmp_path / "run")
    for step in (10, 20):
        save_as_ranks(two_ranks(step), tmp_path / f"run/{step:012d}")
    assert (run.steps(), run.latest()) == ([10, 20], 20)
    assert len(list(run.verify(20))) == 3
    assert (run.describe(20).objects, run.describe(20).size) == (
        3,
        sum(path.stat().st_size for path in tmp_path.glob(f"run/{20:012d}/*/*")),
    )
    run.delete(10)
    assert run.steps() == [20]
    orphan = tmp_path / f"run/{20:012d}/{'ab' * 16}/0.data"
    orphan.parent.mkdir()
    orphan.write_bytes(b"half")
    assert run.clean(older_than_s=-5) == [f"file://{orphan}"]
    assert len(list(run.verify(20))) == 3
    with pytest.raises(CheckpointError, match="a dcp"):
        run.restore()
    run.save(30, {"n": 1})
    with pytest.raises(CheckpointException, match="a distributed one, got a state"):
        load({"n": 0}, tmp_path / "run/000000000030")


def test_another_place_is_taken_for_each_checkpoint_and_urls_are_known(tmp_path):
    writer, reader = StorageWriter(tmp_path / "unused"), StorageReader(tmp_path / "unused")
    for step in (1, 2):
        dcp.save({"n": step}, checkpoint_id=tmp_path / str(step), storage_writer=writer, no_dist=True)
    for step in (1, 2):
        state = {"n": 0}
        dcp.load(state, checkpoint_id=tmp_path / str(step), storage_reader=reader, no_dist=True)
        assert state["n"] == step
    assert reader.checkpoint_id == writer.checkpoint_id == str(tmp_path / "2")
    for kind in (StorageReader, StorageWriter):
        assert kind.validate_checkpoint_id("s3://bucket/x")
        assert kind.validate_checkpoint_id(tmp_path)
        assert not kind.validate_checkpoint_id("nothing://x")
    for wrong in ({"layout": "mine"}, {"spread": 257}, {"spread": -1}):
        with pytest.raises(Unusable):
            StorageWriter(tmp_path, **wrong)
    with pytest.raises(PenstockError, match="read_metadata"):
        StorageReader(tmp_path).read_data(dcp.LoadPlan([]), None)


PEAK = (
    """
import ctypes, sys, warnings, torch, torch.distributed.checkpoint as dcp
from penstock.checkpoint.dcp import StorageReader, StorageWriter
"""
    + PEAK_KIB
    + """
warnings.simplefilter("ignore")
ctypes.CDLL(None).mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD: glibc keeps some of what was freed, by chance, else

def given(verb):
    if verb == "reshape":
        return {"large": torch.zeros(48 << 20, dtype=torch.float64), "cut": torch.zeros(2, 12 << 20).t()}
    make = torch.ones if verb == "save" else torch.zeros
    large, bf = make(48 << 20), make(24 << 20, dtype=torch.bfloat16)
    return {"cut": make(12 << 20, 4)[:, :2], "large": large, "bf": bf, "n": 1}

for verb in ("save", "load", "reshape", "save torchs", "load torchs"):
    verb, _, layout = verb.partition(" ")
    made = given(verb)
    forget_peak()
    before = peak_kib()
    if verb == "save":
        writer = StorageWriter(sys.argv[1] + layout, layout=layout[:-1] or "penstock")
        dcp.save(made, storage_writer=writer, no_dist=True)
    else:
        dcp.load(made, storage_reader=StorageReader(sys.argv[1] + layout), no_dist=True)
        assert all(bool((each == 1).all()) for each in made.values() if isinstance(each, torch.Tensor))
    print(verb + layout, (peak_kib() - before) >> 10)
    del made
"""
)


def test_a_third_of_a_gibibyte_takes_little_more_memory(tmp_path):
    """Which is more than may be on its way: what holds a state twice is found."""
    ended = python(PEAK, str(tmp_path / "it"), limit_s=280)  # 12 s of CPU, and a busy machine has others to serve
    assert ended.returncode == 0, ended.stderr
    beyond = {verb: int(mib) for verb, mib in map(str.split, ended.stdout.splitlines())}
    assert list(beyond) == ["save", "load", "reshape", "savetorchs", "loadtorchs"]
    assert beyond.pop("loadtorchs") <= 128 + 192 + 16, "the largest item, and what is on its way"
    assert max(beyond.values()) <= 256, beyond


# Distributed checkpoints by real ranks: saved by four, loaded by as many or fewer, and by ranks that fail.


SHARDED = Path(__file__).with_name("sharded.py")


def _run(count, verb, url, last, **environment):
    ended = ranks(count, SHARDED, verb, url, last, **environment)
    assert ended.returncode == 0, ended.stdout


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Save everything once, on disk."""
    folder = tmp_path_factory.mktemp("saved")
    _run(4, "save", f"{folder}/", folder)
    return folder


def test_four_ranks_save_and_two_load_every_state_on_every_server(bucket, tmp_path):
    environment = bucket.server.environment
    _run(4, "save", bucket.url, tmp_path, **environment)
    _run(2, "load", bucket.url, tmp_path, **environment)


def test_separate_processes_save_for_two_ranks(moto_server, tmp_path):
    """Each is an interpreter that imports everything, so one server is enough: ranks save to the others themselves."""
    bucket = f"test-{uuid.uuid4().hex}"
    moto_server.client().create_bucket(Bucket=bucket)
    _run(2, "apart", f"s3://{bucket}/", tmp_path, **moto_server.environment)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_checkpoint_of_four_ranks_loads_with_other_shardings(saved, count):
    _run(count, "load", f"{saved}/", saved)


def test_metadata_of_each_rank_s_own_is_loaded_as_torch_loads_it(tmp_path):
    _run(2, "local", tmp_path / "saved", tmp_path)
    assert sorted(path.name for path in (tmp_path / "saved").glob("*.metadata")) == ["__0.metadata", "__1.metadata"]


def test_replicated_tensors_are_saved_once(saved):
    for kind in ("ddp", "fsdp"):
        model, optimizer = torch.load(saved / f"{kind}.pt")
        state = [*model.values(), *(each for moments in optimizer["state"].values() for each in moments.values())]
        manifest = json.loads((saved / kind / "checkpoint.json").read_text("utf-8"))
        source, folder = open_source(f"{saved}/{kind}/")
        items = Marker.first(source, folder, ["checkpoint.json"], weights_only=True).metadata.storage_data
        tensors = [each for each in items.state.values() if isinstance(each, TensorStorageMetadata)]
        bytes_each = manifest["indexed"]
        others = sum(
            items.find([MetadataIndex(name)])[0].location.length
            for name, each in items.state.items()
            if not isinstance(each, TensorStorageMetadata)
        )
        assert len(bytes_each) == 4
        assert sum(bytes_each.values()) == sum(each.nbytes for each in state) + others
        assert len(tensors) == len(state)


def test_spread_puts_the_ranks_under_as_many_prefixes(saved):
    manifest = json.loads((saved / "tensors/checkpoint.json").read_text("utf-8"))
    assert sorted(name.partition("/")[2] for name in manifest["indexed"]) == [
        "00/0.data",
        "00/2.data",
        "01/1.data",
        "01/3.data",
    ]


# One of the three under torchrun itself: in interpreters of their own, and it is torchrun that ends the other.
@pytest.mark.parametrize(
    ("how", "launched"), [("raised", ranks), ("killed writing", torchrun), ("killed finishing", ranks)]
)
def test_a_rank_that_fails_ends_all_and_leaves_the_older_checkpoint(saved, how, launched):
    before = sorted(path for path in (saved / "tensors").rglob("*") if path.is_file())
    ended = launched(2, SHARDED, "fail", f"{saved}/tensors", how)
    if how == "raised":
        assert ended.returncode == 0, ended.stdout
        for rank in (0, 1):
            assert ended.stdout.count(f"rank {rank} heard of RuntimeError('the GPU fell off')") == 2
            assert f"rank {rank} is refused: AlreadyExists" in ended.stdout
            assert f"rank {rank} is refused: use_collectives" in ended.stdout
    else:
        assert ended.returncode != 0
    assert set(before) <= set((saved / "tensors").rglob("*"))
    assert not (saved / "tensors-other").exists()
    state = {"tensors": {"rows": torch.zeros(10, 6)}, "list": [0, {"deep": torch.zeros(2)}]}
    dcp.load(state, storage_reader=StorageReader(saved / "tensors"), no_dist=True)
    assert state["list"][0] == 1
    assert state["list"][1]["deep"].tolist() == [1, 1]
    generator = torch.Generator().manual_seed(1 + sum(map(ord, "rows")))
    assert torch.equal(state["tensors"]["rows"], torch.rand(10, 6, generator=generator))


def test_ranks_with_different_urls_all_raise_and_commit_nothing(tmp_path):
    url = f"{tmp_path}/step"
    dcp.save({"old": torch.ones(2)}, storage_writer=StorageWriter(url), no_dist=True)
    ended = ranks(2, SHARDED, "astray", url, tmp_path)
    assert ended.returncode == 0, ended.stdout
    for rank in (0, 1):
        assert f"rank {rank} heard of Unusable(" in ended.stdout
    assert f"a rank saved to file://{url}-1/; all ranks must save to the same URL" in ended.stdout
    state = {"old": torch.zeros(2)}
    dcp.load(state, storage_reader=StorageReader(url), no_dist=True)
    assert state["old"].tolist() == [1, 1], "the older checkpoint is as it was"


# The checkpoint in a folder: Penstock's before torch's, and none where there is none.


def test_a_damaged_manifest_is_not_passed_over_for_a_ranks_own(tmp_path):
    state = {"w": torch.ones(3)}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path), use_collectives=False, no_dist=True)
    (tmp_path / "checkpoint.json").write_text("{}")
    with pytest.raises(CheckpointException, match="cannot read the manifest of the checkpoint"):
        load({"w": torch.zeros(3)}, tmp_path)


def test_existing_checkpoints_are_found_by_their_markers_with_named_objects(tmp_path):
    save({"w": torch.ones(3)}, tmp_path)
    dcp.save({"w": torch.ones(3)}, storage_writer=dcp.FileSystemWriter(tmp_path), no_dist=True)
    source, folder = open_source(f"{tmp_path}/")
    found = find_checkpoints(source, folder, look=True)
    assert found.etags.keys() == {f"{folder}checkpoint.json", f"{folder}.metadata"}
    assert {key.rpartition("/")[2] for key in found.objects} == {"0.data", "penstock.index", "__0_0.distcp"}
    assert find_checkpoints(source, folder, look=False).objects == set()


def test_damaged_markers_are_listed_without_any_objects(tmp_path):
    (tmp_path / "checkpoint.json").write_text("{}")
    (tmp_path / ".metadata").write_bytes(b"\x80")
    source, folder = open_source(f"{tmp_path}/")
    found = find_checkpoints(source, folder, look=True)
    assert (len(found.etags), found.objects) == (2, set())


def test_a_marker_that_was_written_again_or_is_gone_is_replaced(tmp_path):
    source, folder = open_source(f"{tmp_path}/")
    with pytest.raises(NotFound, match=r"no checkpoint.json and no .metadata"):
        Marker.first(source, folder, ["checkpoint.json", ".metadata"], weights_only=True)
    save({"w": torch.ones(3)}, tmp_path)
    marker = Marker.first(source, folder, ["checkpoint.json"], weights_only=True)
    assert not marker.replaced(source)
    save({"w": torch.ones(3)}, tmp_path, overwrite=True)
    assert marker.replaced(source)
    source.delete([marker.key])
    assert marker.replaced(source)


def test_a_manifest_of_another_rank_whose_checkpoint_was_replaced_is_read_again(tmp_path):
    save({"w": torch.ones(3)}, tmp_path)
    reader = StorageReader(tmp_path)
    reader.current = fetch_manifest(reader)
    save({"w": torch.ones(3)}, tmp_path, overwrite=True)
    metadata = reader.read_metadata()
    assert metadata.storage_meta.save_id == Manifest.decode((tmp_path / "checkpoint.json").read_bytes(), "").save
    assert fetch_manifest(StorageReader(tmp_path / "none")) is None


def test_another_kind_s_checkpoint_is_refused_by_its_name(tmp_path):
    ps.CheckpointManager(tmp_path).save(1, {"a": 1})
    source, folder = open_source(f"{tmp_path}/000000000001/")
    with pytest.raises(CheckpointError, match="must be a distributed one, got a state"):
        Marker.first(source, folder, ["checkpoint.json"], weights_only=True)
