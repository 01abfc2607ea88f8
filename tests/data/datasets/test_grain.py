"""Datasets as sources of grain: its own iterators deliver each sample, in threads, in processes and after a resume."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import closing
from functools import partial

import grain
import numpy as np
import pytest
import zarr
from grain._src.python.dataset.base import SupportsBatchedReadRandomAccessDataSource
from grain._src.python.dataset.transformations import batch as grain_batch

import penstock as ps
from penstock.errors import Changed, Unusable
from penstock.interop.zarr import Store
from penstock.testing.faults import FAULTS, FaultServer, Settings
from tests.children import forked
from tests.data.datasets.transforms import joined_bytes, plain, tokens_and_documents
from tests.images import tar

COUNT = 40
LATENCY_MS = 30


def broken(sample):
    if sample.key.endswith("3"):
        raise RuntimeError("boom")
    return joined_bytes(sample)


@pytest.fixture(scope="module")
def server():
    """Yield a server in this environment, with objects, pairs, shards, tokens, documents and an array."""
    with FaultServer.start() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        for number in range(COUNT):
            server.put("bucket", f"objects/{number:03}", bytes([number] * 8))
            for name in "ab":
                server.put("bucket", f"pairs/{number:03}.{name}", bytes([number, ord(name)]))
        for shard in range(4):
            members = [(f"{number}.bin", bytes([shard, number])) for number in range(10)]
            server.put("bucket", f"shards/{shard}.tar", tar(members))
        server.put("bucket", "tokens/a.bin", np.arange(400, dtype=np.uint16).tobytes())
        server.put("bucket", "documents/a.ds", np.arange(500, dtype=np.uint16).tobytes())
        ends = np.cumsum(np.random.default_rng(0).integers(1, 24, 45)).clip(max=500)
        server.put("bucket", "documents/a.ds.index", np.append(ends[ends < 500], 500).astype(np.uint64).tobytes())
        zarr.save_array(Store("s3://bucket/array.zarr"), np.arange(COUNT * 3, dtype="f4").reshape(COUNT, 3))
        yield server


@pytest.fixture(scope="module")
def distant():
    """Yield a server that answers after 30 ms, with objects of a byte."""
    with FaultServer.start(Settings(latency_ms=LATENCY_MS)) as server:
        for number in range(COUNT):
            server.put("bucket", f"objects/{number:03}", bytes([number]))
        yield server


@pytest.fixture
def mended(server):
    yield server
    server.heal()


@pytest.fixture(scope="module")
def sources(server):
    """Return a dataset of each kind that has samples by index; its samples are arrays."""
    assert server.seen("put")
    objects = ps.MapDataset.from_prefix("s3://bucket/objects/", transform=joined_bytes)
    tokens = partial(ps.TokenDataset.from_shards, dtype="uint16", output="numpy")
    shards = ps.MapDataset.from_shards("s3://bucket/shards/", transform=joined_bytes)
    return {
        "objects": objects,
        "slice": objects[5:30:2],
        "concat": ps.concat(objects[:7], shards),
        "pairs": ps.MapDataset.from_prefix("s3://bucket/pairs/", group="stem", transform=joined_bytes),
        "shards": shards,
        "tokens": tokens("s3://bucket/tokens/", length=10),
        "documents": tokens("s3://bucket/documents/", length=None, documents=True),
        "packed": tokens("s3://bucket/documents/", length=32, pack="best-fit", transform=tokens_and_documents),
        "zarr": ps.ZarrDataset("s3://bucket/array.zarr", output="numpy").as_map(),
    }


KINDS = ["objects", "slice", "concat", "pairs", "shards", "tokens", "documents", "packed", "zarr"]


@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_grain_are_those_of_the_dataset_alone_and_in_batches(sources, kind, monkeypatch):
    dataset = sources[kind]
    assert isinstance(dataset, SupportsBatchedReadRandomAccessDataSource)
    expected = plain(dataset[number] for number in range(len(dataset)))
    assert len(expected) > 8
    source = grain.MapDataset.source(dataset)
    assert plain(source.to_iter_dataset()) == expected
    order = [*grain.MapDataset.range(len(dataset)).shuffle(seed=1)]
    shuffled = [expected[number] for number in order]
    assert plain(source.shuffle(seed=1)) == shuffled
    chosen = grain.MapDataset.range(len(dataset)).shuffle(seed=1).batch(7)
    read = chosen.map(dataset.__getitems__)
    assert plain(sample for batch in read.to_iter_dataset() for sample in batch) == shuffled
    monkeypatch.setattr(grain_batch, "_is_batch_map_pushdown_experiment_enabled", lambda: True)
    pushed = source.shuffle(seed=1).batch(7, batch_fn=list)
    assert plain(sample for batch in pushed.to_iter_dataset() for sample in batch) == shuffled


def test_batch_of_grain_reads_elements_alone_until_it_pushes_batches_down(sources, monkeypatch):
    calls = []
    monkeypatch.setattr(ps.MapDataset, "_getitems", lambda _, indices: calls.append(indices) or [*indices])
    batches = grain.MapDataset.source(sources["objects"]).batch(8, batch_fn=list)
    # When grain turns its experiment on, docs/grain.md can recommend MapDataset.source(dataset).batch(…).
    assert (len(batches[0]), calls) == (8, [])
    monkeypatch.setattr(grain_batch, "_is_batch_map_pushdown_experiment_enabled", lambda: True)
    batches = grain.MapDataset.source(sources["objects"]).batch(8, batch_fn=list)
    assert (batches[4], calls) == ([*range(32, 40)], [[*range(32, 40)]])


def test_samples_of_a_batch_are_requested_at_once_and_elements_in_turn(distant):
    dataset = ps.MapDataset.from_prefix("s3://bucket/objects/", transform=joined_bytes, store=distant.store)
    alone = grain.MapDataset.source(dataset).batch(COUNT)
    together = grain.MapDataset.range(len(dataset)).batch(COUNT).map(dataset.__getitems__).map(np.stack)

    def connections(batches):
        before = len(distant.seen())
        assert (batches[0] == np.arange(COUNT)[:, None]).all()
        return len({each.connection for each in distant.seen()[before:]})

    assert connections(alone) == 1
    assert connections(together) >= 5


def pipeline(dataset, epochs=2):
    indices = grain.MapDataset.range(len(dataset)).seed(3).shuffle().repeat(epochs).batch(6)
    return indices.map(dataset.__getitems__).map(np.stack)


def test_epochs_of_indices_are_those_of_elements(sources):
    dataset = sources["objects"]
    elements = grain.MapDataset.source(dataset).seed(3).shuffle().repeat(2).batch(6)
    expected = plain(elements)
    assert plain(pipeline(dataset)) == expected
    first, second = np.concatenate(elements)[:, 0].reshape(2, COUNT)
    assert sorted(first) == sorted(second) == [*range(COUNT)]
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize(("threads", "ahead"), [(1, 1), (16, 500), (3, 4), (0, 0)])
def test_state_of_grain_resumes_after_each_batch(sources, threads, ahead):
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=ahead)
    batches = pipeline(sources["objects"]).to_iter_dataset(options)
    expected = plain(batches)
    for stop in range(len(expected) + 1):
        first = iter(batches)
        taken = plain(next(first) for _ in range(stop))
        second = iter(batches)
        second.set_state(first.get_state())
        assert taken + plain(second) == expected
        first.close()
        second.close()


def every_kind(sources):
    """Return a pipeline of grain with batches of each kind of dataset, as lists of bytes."""
    return grain.MapDataset.concatenate(
        [
            grain.MapDataset.range(len(each)).seed(5).shuffle().batch(9).map(each.__getitems__).map(plain)
            for each in sources.values()
        ]
    )


def test_processes_of_grain_read_all_kinds_and_resume(sources):
    batches = every_kind(sources)
    expected = [*batches]
    # The parent has read: its connections must not reach the workers.
    several = batches.to_iter_dataset(grain.ReadOptions(2, 4)).mp_prefetch(
        grain.MultiprocessingOptions(num_workers=2, per_worker_buffer_size=2)
    )
    middle = len(expected) // 2
    with closing(iter(several)) as workers:
        assert [next(workers) for _ in range(middle)] == expected[:middle]
        state = workers.get_state()
        assert [next(workers) for _ in expected[middle:]] == expected[middle:]
        # Not at the end, where grain starts new processes.
        workers.set_state(state)
        assert [next(workers) for _ in expected[middle:]] == expected[middle:]


def test_forked_child_reads_a_source_that_its_parent_has_read(sources):
    dataset = sources["objects"]
    batches = pipeline(dataset)
    expected = plain(batches)

    def compare():
        assert plain(batches) == expected
        assert plain(grain.MapDataset.source(dataset).batch(6)) == plain(
            np.arange(COUNT)[:, None].repeat(8, 1)[n : n + 6] for n in range(0, COUNT, 6)
        )

    with forked(compare) as status:
        assert status() == 0


def test_secrets_stay_out_of_the_pickle_for_processes_of_grain(server):
    dataset = ps.MapDataset.from_prefix("s3://bucket/objects/", transform=joined_bytes, store=server.store)
    options = grain.MultiprocessingOptions(num_workers=1)
    workers = iter(grain.MapDataset.source(dataset).to_iter_dataset().mp_prefetch(options))
    with pytest.raises(Unusable, match=r"a secret in it .* pass profile=, or set the environment"):
        next(workers)


@pytest.mark.parametrize("kind", KINDS)
def test_indices_of_a_source_are_checked_by_the_dataset_and_counted_in_epochs_by_grain(sources, kind):
    dataset = sources[kind]
    length = len(dataset)
    for beyond in (length, -length - 1, 1 << 70, np.int64(length)):
        with pytest.raises(IndexError, match=f"sample {beyond} does not exist"):
            dataset._getitems([0, beyond])
    for wrong in (1.5, "3", None, slice(2), np.True_):
        with pytest.raises(TypeError):
            dataset._getitems([wrong])
    assert dataset._getitems([]) == []
    source = grain.MapDataset.source(dataset)
    first, second, last = plain(dataset._getitems([0, True, -1]))
    assert plain(dataset._getitems(np.array([0, length - 1, 0]))) == [first, last, first]
    assert plain([source[np.uint8(1)], source[-1], source[length], source[length * (1 << 65) + 1]]) == [
        *(second, last, first, second)
    ]
    assert plain(source[1:3]) == plain(dataset._getitems([1, 2]))
    assert plain(source[-1:]) == [last]
    assert len(source[length:]) == 0


def test_dataset_without_indices_is_refused(sources):
    objects = ps.IterableDataset.from_prefix("s3://bucket/objects/", transform=joined_bytes)
    mixed = ps.Mix({"a": sources["objects"], "b": sources["shards"]})
    arrays = ps.ZarrDataset("s3://bucket/array.zarr")
    for name, dataset in (("an IterableDataset", objects), ("a Mix", mixed), ("a ZarrDataset", arrays)):
        assert not isinstance(dataset, SupportsBatchedReadRandomAccessDataSource)
        with pytest.raises(Unusable, match=f"{name} has no samples by index.*as_map"):
            grain.MapDataset.source(dataset)[0]
    for dataset in (objects, mixed):
        with pytest.raises(TypeError, match="has no len"):
            iter(grain.MapDataset.source(dataset).to_iter_dataset())


def failing(dataset):
    """Return ways to read a sample that fails, on threads of grain and in batches."""
    source = grain.MapDataset.source(dataset)
    few = grain.ReadOptions(2, 4)
    yield lambda: source[3]
    yield lambda: [*source.to_iter_dataset(few)]
    yield lambda: [*grain.MapDataset.range(len(dataset)).batch(8).map(dataset.__getitems__).to_iter_dataset(few)]


def test_error_of_a_sample_names_its_object(mended):
    objects = ps.MapDataset.from_prefix("s3://bucket/objects/", transform=joined_bytes)
    mended.put("bucket", "objects/003", b"changed")
    try:
        for read in failing(objects):
            with pytest.raises(Changed, match=r"has changed .*s3://bucket/objects/003"):
                read()
        for read in failing(ps.MapDataset(objects.catalog[:3], transform=broken)):
            read()
        mended.put("bucket", "objects/003", bytes([3] * 8))
        for read in failing(ps.MapDataset.from_prefix("s3://bucket/objects/", transform=broken)):
            with pytest.raises(RuntimeError, match="boom") as raised:
                read()
            assert any("s3://bucket/objects/003" in note for note in raised.value.__notes__)
    finally:
        mended.put("bucket", "objects/003", bytes([3] * 8))


def test_processes_of_grain_pass_the_error_of_a_sample_on(mended):
    dataset = ps.MapDataset.from_prefix("s3://bucket/objects/", transform=joined_bytes)
    mended.put("bucket", "objects/003", b"changed")
    try:
        options = grain.MultiprocessingOptions(num_workers=1)
        workers = iter(grain.MapDataset.source(dataset).to_iter_dataset().mp_prefetch(options))
        with pytest.raises(Changed, match=r"has changed .*s3://bucket/objects/003"):
            list(workers)
        workers.close()
    finally:
        mended.put("bucket", "objects/003", bytes([3] * 8))


def test_passing_failures_of_the_store_are_retried(mended, sources):
    mended.fail(*[FAULTS["503"], FAULTS["reset"], FAULTS["truncate"]] * 4)
    assert sorted(plain(np.concatenate([*pipeline(sources["objects"], 1).to_iter_dataset()])[:, :1])) == [
        [number] for number in range(COUNT)
    ]


def test_documents_packed_by_grain_lose_no_token_and_resume(sources):
    class Split(grain.experimental.FlatMapTransform):
        max_fan_out = 8

        def flat_map(self, element):
            return [{"tokens": each.astype(np.int32)} for each in element]

    documents = sources["documents"]
    read = grain.MapDataset.range(len(documents)).seed(1).shuffle().batch(8).map(documents.__getitems__)
    elements = grain.experimental.FlatMapIterDataset(read.to_iter_dataset(grain.ReadOptions(2, 4)), Split())
    packed = grain.experimental.FirstFitPackIterDataset(elements, length_struct={"tokens": 32}, num_packing_bins=4)
    rows = [*packed]
    found = np.concatenate([each["tokens"][each["tokens_segment_ids"] > 0] for each in rows])
    assert sorted(found.tolist()) == [*range(500)]
    first, second = iter(packed), iter(packed)
    taken = [next(first) for _ in range(5)]
    second.set_state(first.get_state())
    assert plain(each["tokens"] for each in [*taken, *second]) == plain(each["tokens"] for each in rows)


INTERRUPTED = """
from contextlib import closing
import grain, numpy as np
import penstock as ps
from tests.data.datasets.transforms import joined_bytes

dataset = ps.MapDataset.from_prefix("s3://bucket/objects/", transform=joined_bytes)
indices = grain.MapDataset.range(len(dataset)).seed(1).shuffle().repeat().batch(4)
with closing(iter(indices.map(dataset.__getitems__).to_iter_dataset(grain.ReadOptions(2, 500)))) as batches:
    for number, _ in enumerate(batches):
        if number == 3:
            print("reading", flush=True)
"""


def test_interrupted_program_leaves_what_grain_has_queued(distant):
    environment = {**os.environ, **distant.environment}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED], env=environment, **pipes) as program:
        try:
            assert program.stdout.readline() == "reading\n"
            seen = len(distant.seen("get"))
            program.send_signal(signal.SIGINT)
            _, errors = program.communicate(timeout=60)
        finally:
            program.kill()
    assert re.findall(r"^\w+", errors.strip().splitlines()[-1]) == ["KeyboardInterrupt"], errors
    assert program.returncode == -signal.SIGINT
    # Of 500 batches of 4 that were queued.
    assert len(distant.seen("get")) - seen < 500
