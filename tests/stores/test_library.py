"""The whole library on every store: verbs, workers, checkpoints of each kind, commands, and doctor."""

from __future__ import annotations

import pytest
import torch
import torch.distributed.checkpoint
from torch.utils.data import ConcatDataset, DataLoader

import penstock as ps
from penstock.cli.doctor import examine
from penstock.errors import AlreadyExists, NotFound
from tests.checkpoint.dcp import saves
from tests.emulators import EMULATORS, names
from tests.stores.samples import number

SAMPLES = 24
everywhere = pytest.mark.parametrize("place", names(), indirect=True)
elsewhere = pytest.mark.parametrize("place", names(without=("memory", "local")), indirect=True)


def filled(place):
    for each in range(SAMPLES):
        place.put(f"train/{each:02}", str(each).encode())
    return ps.MapDataset.from_prefix(f"{place.url}train/", store=place.store, transform=number)


@everywhere
def test_objects_are_written_copied_listed_read_and_deleted(place):
    url, store = place.url, place.store
    with ps.open(f"{url}a/b c", "wb", store=store) as file:
        file.write(b"some bytes")
    ps.copy(f"{url}a/b c", f"{url}a/copy", store=store)
    assert place.objects() == {"a/b c": b"some bytes", "a/copy": b"some bytes"}
    assert [each.key.rpartition("a/")[2] for each in ps.list(f"{url}a/", store=store)] == ["b c", "copy"]
    with ps.open(f"{url}a/copy", store=store) as file:
        assert file.read() == b"some bytes"
    ps.delete(f"{url}a/copy", store=store)
    with pytest.raises(NotFound):
        ps.stat(f"{url}a/copy", store=store)


@everywhere
def test_a_new_object_replaces_none(place):
    place.put("key", b"old")
    with pytest.raises(AlreadyExists), ps.open(f"{place.url}key", "xb", store=place.store) as file:
        file.write(b"new")
    assert place.objects() == {"key": b"old"}


@everywhere
def test_forked_workers_read_after_their_parent_has(place):
    dataset = filled(place)
    assert dataset[3] == 3, "the parent has an engine and connections by now, which no worker inherits"
    loader = DataLoader(dataset, 6, num_workers=2, collate_fn=list, multiprocessing_context="fork", timeout=100)
    assert sum(loader, []) == [*range(SAMPLES)]


def test_spawned_workers_read_from_every_store(request):
    """One interpreter for all stores: each would import torch again."""
    rows = [row for row in EMULATORS.values() if row.apart and row.name != "ceph"]
    datasets = [filled(row.open(row, request)) for row in rows]
    loader = DataLoader(
        ConcatDataset(datasets), 6, num_workers=1, collate_fn=list, multiprocessing_context="spawn", timeout=100
    )
    assert sum(loader, []) == [*range(SAMPLES)] * len(rows)


@everywhere
@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_checkpoints_of_every_kind_come_back(place):
    url, store, tensor = place.url, place.store, torch.arange(50_000, dtype=torch.float32)
    ps.save({"w": tensor, "step": 3}, f"{url}model.pt", store=store)
    loaded = ps.load(f"{url}model.pt", store=store)
    assert torch.equal(loaded["w"], tensor)
    assert loaded["step"] == 3
    ps.save_safetensors({"w": tensor}, f"{url}model.safetensors", store=store)
    assert torch.equal(ps.load_safetensors(f"{url}model.safetensors", store=store)["w"], tensor)
    for layout in saves.LAYOUTS:
        saves.save({"w": tensor}, f"{url}{layout}/", store=store, layout=layout)
        found = saves.load({"w": torch.zeros_like(tensor)}, f"{url}{layout}/", store=store)
        assert torch.equal(found["w"], tensor)


@everywhere
def test_a_run_of_checkpoints_is_kept_restored_and_verified(place):
    run = ps.CheckpointManager(f"{place.url}run/", keep_last=2, store=place.store)
    for step in (1, 2, 3):
        run.save(step, {"w": torch.full((1000,), step)})
    assert run.steps() == [2, 3]
    assert torch.equal(run.restore()["w"], torch.full((1000,), 3))
    assert len(list(run.verify(2))) == 1
    with pytest.raises(AlreadyExists):
        run.save(3, {})
    run.save(3, {"w": torch.zeros(3)}, overwrite=True)
    assert torch.equal(run.restore()["w"], torch.zeros(3))
    run.delete(2, 3)
    assert [*place.objects()] == ["run/penstock-steps.json"], "the index, which clean() and a new step renew"


@elsewhere
def test_commands_reach_a_store_by_its_environment(place, penstock):
    place.put("train/a", b"a")
    place.put("train/b", b"bb")
    listed = penstock("ls", f"{place.url}train/", **place.environment)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert [line.split()[-1].rpartition("/")[2] for line in listed.stdout.splitlines()] == ["a", "b"]
    secrets = [value for name, value in place.environment.items() if "SECRET" in name or "CONNECTION" in name]
    assert secrets
    assert not any(secret in listed.stdout for secret in secrets)


@everywhere
def test_doctor_passes_and_reports_unsupported_write_conditions(place, request):
    heeds = EMULATORS[request.node.callspec.params["place"]].heeds
    found = {each.name: each for each in examine(f"{place.url}runs", place.store)}
    outcomes = {name: each.outcome for name, each in found.items()}
    conditions = {"write only what is new": "create", "replace a version": "replace"}
    for name, condition in conditions.items():
        assert (outcomes.pop(name) == "passed") == (condition in heeds), found[name]
    assert outcomes.pop("clock", "skipped") in ("passed", "skipped"), "the fault server tells no time"
    assert set(outcomes.values()) == {"passed"}, found
    assert place.objects() == {}, "nothing is left behind"
