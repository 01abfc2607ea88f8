"""A save: refused before anything is there, or one checkpoint and nothing else, whatever fails or races."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
import xxhash
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

from penstock.checkpoint.dcp import StorageWriter
from penstock.errors import AlreadyExists, Denied, Unusable
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from tests.checkpoint.dcp.saves import LAYOUTS, cause, load, save, save_as_ranks, two_ranks

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Mine:
    pass


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("kind", ["sparse", "quantized", "dtype", "planner"])
def test_unsupported_state_is_refused_and_no_manifest_is_written(tmp_path, kind):
    planner = None
    if kind == "sparse":
        state = {"w": torch.eye(3).to_sparse()}
    elif kind == "quantized":
        state = {"w": torch.quantize_per_tensor(torch.rand(3), 0.1, 0, torch.qint8)}
    else:
        state, planner = {"w": torch.rand(3)}, DefaultSavePlanner()
        if kind == "dtype":
            planner.resolve_data = lambda item: state[item.index.fqn].half()
        else:
            whole = planner.create_global_plan

            def foreign(plans):
                made, metadata = whole(plans)
                metadata.planner_data = {"w": Mine}
                return made, metadata

            planner.create_global_plan = foreign
    with pytest.raises(CheckpointException) as raised:
        save(state, tmp_path / "refused", planner)
    assert isinstance(cause(raised), Unusable)
    assert "'w'" in str(raised.value) or 'layout="torch"' in str(raised.value)
    assert not (tmp_path / "refused/checkpoint.json").exists()
    if kind != "dtype":
        assert 'layout="torch"' in str(raised.value)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_loser_of_a_save_race_leaves_no_objects(tmp_path, monkeypatch, layout):
    finish = StorageWriter.finish

    def raced(*args, **named):
        monkeypatch.setattr(StorageWriter, "finish", finish)
        save({"by": "second"}, tmp_path, layout=layout)
        finish(*args, **named)

    monkeypatch.setattr(StorageWriter, "finish", raced)
    with pytest.raises(CheckpointException) as raised:
        save({"by": "first"}, tmp_path, layout=layout)
    assert isinstance(cause(raised), AlreadyExists)
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == 2 + (layout == "penstock")
    assert load({"by": ""}, tmp_path) == {"by": "second"}


@pytest.mark.parametrize("layouts", [(one, other) for one in LAYOUTS for other in LAYOUTS])
def test_replacing_leaves_one_checkpoint_and_nothing_else(tmp_path, layouts):
    for seed, layout in enumerate(layouts, 1):
        save_as_ranks(two_ranks(seed), tmp_path, layout=layout, overwrite=True)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 3 + (layouts[1] == "penstock")
    assert load({"n0": 0, "w1": torch.zeros(900, 1000)}, tmp_path)["n0"] == 2
    with pytest.raises(CheckpointException, match="overwrite=True to replace it"):
        save({"n": 3}, tmp_path)


def test_a_checkpoint_of_torchs_is_replaced_with_its_files(tmp_path):
    dcp.save(two_ranks(1)[0], storage_writer=dcp.FileSystemWriter(tmp_path), no_dist=True)
    (tmp_path / "notes.txt").write_text("mine")
    save({"n": 5}, tmp_path, overwrite=True)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [
        "0.data",
        "checkpoint.json",
        "notes.txt",
        "penstock.index",
    ]


@pytest.mark.parametrize("times", [1, None], ids=["once", "from then on"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_request_of_a_save_is_refused_in_turn_and_the_old_or_the_new_is_there(monkeypatch, layout, times):
    with FaultServer.start(Settings()) as server:
        server.make("bucket")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        save({"n": 0, "w": torch.zeros(10)}, "s3://bucket/x", layout=layout)
        newest, refused = 0, 0
        for number in range(1, 100):
            server.fail(FAULTS["denied"], when=Match(nth=number, times=times))
            ended = _saves({"n": number, "w": torch.full((10,), float(number))}, "s3://bucket/x", layout)
            server.heal()
            refused += not ended
            found = load({"n": -1, "w": torch.zeros(10)}, "s3://bucket/x")
            assert found["n"] in ((number,) if ended else (newest, number))
            assert found["w"].tolist() == [found["n"]] * 10
            newest = found["n"]
            if ended:
                break
        assert refused >= 8, "looks, the old manifest, an object, the new manifest, a deletion"


def _saves(state, url, layout):
    """Say whether a save succeeds; what it raises is told by its own name."""
    try:
        save(state, url, layout=layout, overwrite=True)
    except CheckpointException as error:
        return not isinstance(error.failures[0][0], Denied)
    return True


class Caching(DefaultSavePlanner):
    """A planner of its own name, by which torch keeps cached plans."""


def test_cached_plans_of_an_earlier_save_never_write_over_its_objects(tmp_path):
    kept, state = [], {"w": torch.ones(3), "n": 1}
    for _ in range(3):
        save(state, tmp_path, Caching(enable_plan_caching=True), overwrite=True)
        kept += tmp_path.rglob("*.data")
    assert len(set(kept)) == 3
    assert load({"w": torch.zeros(3)}, tmp_path)["w"].sum() == 3


def test_a_failed_background_save_is_raised_where_it_is_waited_for(tmp_path):
    save({"n": 1}, tmp_path)
    saving = dcp.async_save({"n": torch.ones(2)}, storage_writer=StorageWriter(tmp_path), no_dist=True)
    with pytest.raises(CheckpointException, match="overwrite=True"):
        saving.result(30)


def test_manifest_matches_the_documented_format(tmp_path):
    writer = StorageWriter(tmp_path)
    writer.extra = {"step": 7}
    dcp.save({"w": torch.rand(2, 3), "n": {"m": 1}}, storage_writer=writer, no_dist=True)
    manifest = json.loads((tmp_path / "checkpoint.json").read_text("utf-8"))
    content, (name,), (data,) = manifest["content"], manifest["objects"], manifest["indexed"]
    assert (manifest["kind"], f"{manifest['save']}/penstock.index") == ("dcp", name)
    assert (content["index"]["object"], content["step"], data) == (name, 7, f"{manifest['save']}/0.data")
    lengths, rest, columns = content["index"]["columns"], (tmp_path / name).read_bytes(), {}
    layout = {"text": "u1", "kinds": "u1", "dimensions": "u1", "boxed": "<i8", "sizes": "<i8", "steps": "<i8"}
    for column, dtype in {**layout, "boxes": "<i8", "rows": "<u4,<u8", "digests": "S8"}.items():
        size = np.dtype(dtype).itemsize * lengths[column]
        columns[column], rest = np.frombuffer(rest[:size], dtype), rest[size:]
    assert rest == b""
    text = {"dtypes": ["float32"], "names": ["w", "n.m"], "paths": {"w": ["w"], "n.m": ["n", "m"]}}
    assert json.loads(columns["text"].tobytes()) == text
    length = manifest["indexed"][data] - 24
    assert columns["kinds"].tolist() == [0, 255]
    assert columns["dimensions"].tolist() == [2, 1]
    assert columns["sizes"].tolist() == [2, 3, length]
    assert columns["steps"].tolist() == [2, 3, 1]
    assert sorted(columns["rows"].tolist()) in ([(0, 0), (0, 24)], [(0, 0), (0, length)])
    assert columns["digests"].tobytes() == xxhash.xxh3_64_digest((tmp_path / data).read_bytes())


@pytest.mark.parametrize("wrong", [{"overwrite": "no"}, {"spread": 2.5}, {"spread": "2"}, {"spread": 300}], ids=str)
def test_an_option_of_the_wrong_type_or_size_is_refused(tmp_path, wrong):
    with pytest.raises(Unusable, match=f"{next(iter(wrong))} must be"):
        StorageWriter(tmp_path, **wrong)
