"""Requests of simulated ranks at a start, in an epoch, at a resume and for a checkpoint: how they grow with ranks."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
import torch
from torch import distributed

import penstock as ps
from benchmarks import cluster
from benchmarks.cluster import Cluster
from penstock.testing.faults.script import Settings
from tests.simulation.collectives import Group, simulated
from tests.simulation.processes import Crowd
from tests.simulation.store import Weather
from tests.simulation.world import World

RANKS = (1, 2, 8, 17)


def _phases(count, fill, *, group=True, most=64):
    """Return the rows of all phases of a set, by name."""
    its = Cluster(count, group=group, most=most)
    with its.running():
        fill(its)
    return {name: its.row(name) for name in its.phases}


def _requests(fill, name, *, group=True):
    return [_phases(count, fill, group=group)[name]["requests"] for count in RANKS]


@pytest.fixture(autouse=True)
def few_batches(monkeypatch):
    monkeypatch.setattr(cluster, "BATCH", 2)
    monkeypatch.setattr(cluster, "BATCHES", 1)


def _few_objects(its):
    cluster.listing(its, objects=900)


def _few_tokens(its):
    cluster.tokens(its, files=20, windows=50)


def _small_catalog(its):
    # Above 1 MiB, which processes of a node share.
    cluster.catalog(its, shards=15, samples=10_000)


def _small_checkpoint(its):
    cluster.checkpoint(its, tensors=3, size=1000)


@pytest.mark.parametrize("fill", [_few_objects, _few_tokens])
def test_requests_of_a_listing_do_not_grow_with_ranks_of_a_group(fill):
    assert _requests(fill, "start") == [{"LIST": 1}] * len(RANKS)


@pytest.mark.parametrize("fill", [_few_objects, _few_tokens])
def test_each_rank_without_a_group_lists_for_itself(fill):
    assert _requests(fill, "start", group=False) == [{"LIST": count} for count in RANKS]


def test_resumed_ranks_of_a_group_list_once():
    assert _requests(_few_tokens, "resume") == [{"LIST": 1}] * len(RANKS)


def test_a_saved_catalog_costs_two_requests_a_rank_and_its_bytes_once_a_node():
    found = [_phases(count, _small_catalog) for count in RANKS]
    for name in ("start", "resume"):
        nodes = [-(-count // cluster.NODE) for count in RANKS]
        expected = [{"GET": count + node, "HEAD": count} for count, node in zip(RANKS, nodes, strict=True)]
        assert [each[name]["requests"] for each in found] == expected
        sizes = [each[name]["bytes"] for each in found]
        head, whole = 64 << 10, sizes[0]
        assert sizes == [whole * node + head * (count - node) for count, node in zip(RANKS, nodes, strict=True)], (
            "a rank that is not the first of its node reads the header alone"
        )


def test_requests_of_a_checkpoint_grow_by_the_same_number_for_each_rank():
    found = [_phases(count, _small_checkpoint) for count in RANKS]
    # The first rank looks for checkpoints of torch's layout and ours.
    assert [each["save"]["requests"] for each in found] == [{"HEAD": count + 2, "PUT": count} for count in RANKS]
    assert [each["commit"]["requests"] for each in found] == [{"HEAD": 3, "PUT": 2}] * len(RANKS)
    # The first rank reads the manifest for all, and each its part of the index.
    expected = [{"GET": count + 1, "HEAD": 1} for count in RANKS]
    assert [each["restore: metadata"]["requests"] for each in found] == expected
    assert [each["restore: data"]["requests"] for each in found] == [{"GET": count, "HEAD": count} for count in RANKS]


def test_an_epoch_in_lanes_reads_each_byte_once_on_any_number_of_ranks():
    size, files, windows = 2 * 2049, 8, 1000

    def fill(its):
        for number in range(files):
            its.put(f"data/{number}.bin", windows * size)
        url = f"{its.world.url}data/"

        def epoch(rank, count):
            dataset = ps.TokenDataset.from_shards(url, dtype="uint16", format="raw", store=its.world.options)
            batches = dataset.batched(20, len, shuffle=ps.order.Lanes(window_blocks=2), place=ps.Place(rank, count))
            assert sum(batches) * count >= files * windows
            yield "epoch"

        its.run(epoch)

    for count in (1, 2, 8):
        row = _phases(count, fill)["epoch"]
        # A block of 1 MiB at the border of two lanes is read by both, and a remainder is repeated.
        assert files * windows * size <= row["bytes"] <= files * windows * size + (2 * count << 20)


def test_nodes_that_run_stand_for_those_that_do_not():
    rows = [_phases(32, _small_checkpoint, most=most) for most in (16, 32)]
    assert [row["save"]["ran"] for row in rows] == [16, 32]
    for name in rows[0]:
        assert rows[0][name]["requests"] == rows[1][name]["requests"]
        assert rows[0][name]["bytes"] == rows[1][name]["bytes"]


def test_ranks_of_one_role_with_different_requests_are_refused():
    its = Cluster(3)

    def program(rank, _count):
        for _ in range(rank + 1):
            ps.list(its.world.url, store=its.world.options).__next__()
        yield "start"

    with its.running():
        its.put("data/1", 10)
        its.run(program)
        with pytest.raises(AssertionError, match="start: rank 2"):
            its.check_roles("start")


@pytest.mark.parametrize("count", [2, 3])
def test_a_checkpoint_rank_by_rank_takes_the_requests_of_torch_with_a_group(count):
    world = World("torch", settings=Settings(), weather=Weather())
    seen = Counter()
    carry_out = world.store.carry_out

    def counted(request, **how):
        seen[request.verb.upper(), request.key.rpartition("/")[2].rpartition(".")[2]] += 1
        return carry_out(request, **how)

    def save(rank):
        group.join(rank)
        state = {f"part {rank}": torch.zeros(1000, dtype=torch.uint8)}
        manager = ps.CheckpointManager(f"{world.url}run/", store=world.options).across(group)
        manager.save(1, state)
        if rank == 0:
            saved.update(seen)
            seen.clear()
        distributed.all_gather_object([None] * count, None, group=group)
        manager.restore(1, into=state)

    world.store.carry_out = counted
    group, saved = Group(world, count), Counter()
    with world.running(), simulated():
        Crowd(world, Random(1)).run([lambda rank=rank: save(rank) for rank in range(count)])
    row = _phases(count, _small_checkpoint)
    restored, seen = seen, saved
    assert seen["PUT", "data"] == row["save"]["requests"]["PUT"] == count
    assert seen["HEAD", "data"] == row["save"]["requests"]["HEAD"] - 2
    assert seen["PUT", "json"] + seen["PUT", "index"] == row["commit"]["requests"]["PUT"]
    # The manager's first rank has looked at the manifest before.
    metadata = row["restore: metadata"]["requests"]
    assert restored["HEAD", "json"] == metadata["HEAD"] + 1 == 2
    assert restored["GET", "json"] + restored["GET", "index"] == metadata["GET"] + 1
    assert restored["GET", "data"] == row["restore: data"]["requests"]["GET"] == count
