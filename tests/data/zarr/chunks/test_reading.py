"""Chunks come before the samples that need them, once, and go after the last one; errors are of single samples."""

import pickle
import threading
import weakref

import numpy as np
import pytest
import torch
import zarr
from torch.utils.data import DataLoader, RandomSampler

import penstock as ps
from penstock import events
from penstock.data.reading import chunks
from penstock.data.reading.reading import Failed, in_lists
from penstock.data.zarr.chunks.contents import Chunks, ZarrContents
from penstock.data.zarr.chunks.reading import ZarrReading
from penstock.data.zarr.dataset import ZarrDataset
from penstock.errors import Cancelled, ChecksumMismatch, Damaged
from penstock.source import Source
from penstock.values import PAUSE
from tests.data.reads import spans_of
from tests.data.zarr.stores import DIMS, LAYOUTS, SHARDED, SPATIAL, VALUES, WHOLE, numbered, write

MANY = numbered((200, 6, 8))
pytestmark = pytest.mark.usefixtures("nothing_kept")


def dataset(tmp_path, layout, **arguments):
    write(tmp_path / "a", MANY, DIMS, **layout)
    return ZarrDataset(str(tmp_path / "a"), output="numpy", **arguments)


def tens(order):
    return [order[at : at + 10] for at in range(0, len(order), 10)]


def variables(tmp_path, count, length, *, chunk=1):
    """Return the dataset of a group of arrays of which no chunk was written."""
    folder = tmp_path / f"{count}.zarr"
    group = zarr.open_group(folder, mode="w", zarr_format=2)
    for number in range(count):
        group.create_array(f"v{number:04}", shape=(length, 2), chunks=(chunk, 2), dtype="f4")
    return ZarrDataset({f"v{number:04}": str(folder / f"v{number:04}") for number in range(count)}, shuffle=True)


def test_a_first_batch_looks_at_so_many_chunks_whatever_the_number_of_variables(tmp_path, monkeypatch):
    pending, known, repeats = chunks._Pending, [], []
    for count in (2, 16, 128):
        made = []
        data = variables(tmp_path, count, 4096)
        with monkeypatch.context() as patch:
            patch.setattr(chunks, "_Pending", lambda *need, made=made: made.append(need) or pending(*need))
            next(iter(ps.DataLoader(data, 2)))
        known.append(len(made))
        repeats.append(len(made) - len({chunk for chunk, _ in made}))
    assert repeats == [0, 0, 0]
    # Two windows, and a margin.
    assert max(known) <= 2 * (1 << 15) + (1 << 13)


def test_a_window_of_chunks_of_many_variables_is_read_once(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.data.zarr.dataset._MOST_CHUNKS", 64)
    data = variables(tmp_path, 8, 96, chunk=4)
    pending, made = chunks._Pending, []
    monkeypatch.setattr(chunks, "_Pending", lambda *need: made.append(need[0]) or pending(*need))
    assert sum(len(batch["v0000"]) for batch in ps.DataLoader(data, 4)) == 96
    assert sorted(made) == [*range(8 * 24)]


@pytest.mark.parametrize(("layout", "reads"), [(WHOLE, 50), (SPATIAL, 67 * 4), (SHARDED, 200 + 25)])
def test_each_chunk_and_index_is_read_once(tmp_path, layout, reads):
    reading = dataset(tmp_path, layout).reading(tens(list(range(200))), 1)
    held = 0
    for item in reading:
        made = item.make()
        held = max(held, len(reading._pending))
        if item.size:
            np.testing.assert_array_equal(made, MANY[10 * item.batch + item.slot])
    assert reading.counts.requests == reads
    assert not reading._pending


TAKEN = {
    "same element": {},
    "steps": {"offsets": (-1, 0), "target_offsets": range(1, 5)},
    "one step later": {"target_offsets": 3},
    "patches": {"patch": {"x": 4}, "halo": 1, "target_offsets": 1},
}


@pytest.fixture
def arrays(tmp_path):
    """Write an array and its copy by a layout, read chunk by chunk; return their paths."""

    def written(layout):
        for name in ("a", "copy"):
            write(tmp_path / name, MANY, DIMS, **layout)
        return tmp_path / "a", tmp_path / "copy"

    return written


@pytest.mark.parametrize("taken", TAKEN)
@pytest.mark.parametrize(("layout", "reads"), [(WHOLE, 50), (SPATIAL, 67 * 4), (SHARDED, 200 + 25)])
def test_chunks_of_an_array_that_is_sample_and_target_are_read_once(arrays, layout, reads, taken):
    array, copy = arrays(layout)
    both, apart = (ZarrDataset(array, other, dims="time", output="numpy", **TAKEN[taken]) for other in (array, copy))
    with both.reading(tens(list(range(len(both)))), 1) as reading:
        samples = [made for item in reading for made in [item.make()] if item.size]
        assert reading.counts.requests == reads
        assert not reading._pending
    for mine, wanted, mapped in zip(samples, apart, both.as_map(), strict=False):
        for one, same, other in zip(mine, mapped, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
            np.testing.assert_array_equal(same, other)
    assert both.plan(10).amplification == 1


@pytest.mark.parametrize("taken", ["steps", "patches"])
@pytest.mark.parametrize("layout", [WHOLE, SHARDED])
@pytest.mark.parametrize("normalised", ["x", "xy"])
def test_batches_of_an_array_that_is_sample_and_target_are_those_of_two(arrays, layout, taken, normalised):
    found = []
    array, copy = arrays(layout)
    for other in (array, copy):
        given = ZarrDataset({"x": array}, {"y": other}, dims="time", output="numpy", shuffle=True, **TAKEN[taken])
        whole = ZarrDataset({"x": array}, {"y": other}, dims="time").statistics("x")
        found.append([*ps.DataLoader(given.normalized(whole.only(*normalised)), 7, decode_threads=3)])
    for (inputs, wanted), (one, other) in zip(*found, strict=True):
        np.testing.assert_array_equal(inputs["x"], one["x"])
        np.testing.assert_array_equal(wanted["y"], other["y"])


@pytest.mark.parametrize("layout", [WHOLE, SHARDED])
@pytest.mark.parametrize("batches", [20, 10])
def test_an_operation_is_done_after_the_last_batch_and_cancelled_before(tmp_path, layout, batches):
    found, ended = dataset(tmp_path, layout), []
    stop = events.subscribe(lambda each: ended.append(each) if isinstance(each, events.OperationEnded) else None)
    with found.reading(tens(list(range(200))), 1) as reading:
        for item in reading:
            item.make()
            if item.size and (item.batch, item.slot) == (batches - 1, 9) and batches < 20:
                break
    stop()
    assert ended[-1].outcome == ("done" if batches == 20 else "cancelled")


@pytest.mark.parametrize("layout", [WHOLE, SHARDED])
def test_memory_of_an_epochs_chunks_is_used_by_the_next(tmp_path, layout, monkeypatch):
    monkeypatch.setattr("penstock.data.reading.pool._LEAST_BYTES", 1)
    found = dataset(tmp_path, layout)
    pool = found.contents.pool(found._limits.chunk_bytes)
    free = []
    for _ in range(3):
        for item in found.reading(tens(list(range(200))), 1):
            item.make()
        del item
        free.append(pool.free_bytes)
    assert free[0] > 0
    assert free == free[:1] * 3


@pytest.mark.parametrize("share", [0.0, 0.7], ids=["in-turn", "ahead"])
def test_items_may_be_made_by_any_thread(tmp_path, seed, share):
    order, coins = np.random.default_rng(1).permutation(200).tolist(), np.random.default_rng(seed)
    reading = dataset(tmp_path, SPATIAL, memory_bytes=1 << 16, window_bytes=1).reading(tens(order), 1)
    found, lock = {}, threading.Lock()

    def work():
        while True:
            with lock:
                item = (reading.ahead() if coins.random() < share else None) or next(reading, None)
            if item is None:
                return
            made = item.make()
            if item.size:
                found[item.batch, item.slot] = made

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    got = np.stack([found[number // 10, number % 10] for number in range(200)])
    np.testing.assert_array_equal(got, MANY[order])


def test_an_error_is_that_of_the_samples_that_need_the_chunk(tmp_path):
    data = dataset(tmp_path, WHOLE)
    path = tmp_path / "a" / "c" / "3" / "0" / "0"
    path.write_bytes(b"no chunk at all")
    failed = []
    for item in data.reading(tens(list(range(200))), 1):
        try:
            item.make()
        except Damaged:
            assert item.size
            failed.append(10 * item.batch + item.slot)
    assert failed == [12, 13, 14, 15]


def test_closing_ends_it(tmp_path):
    reading = dataset(tmp_path, SHARDED).reading(tens(list(range(200))), 1)
    assert isinstance(reading, ZarrReading)
    next(reading)
    reading.close()
    reading.close()
    assert next(reading, None) is None


def test_closing_wakes_samples_whose_chunks_are_never_decoded(tmp_path):
    reading = dataset(tmp_path, SHARDED).reading(tens(list(range(200))), 1)
    sample = next(item for item in reading if item.size)
    raised = []

    def make():
        with pytest.raises(Cancelled):
            sample.make()
        raised.append(1)

    waiting = threading.Thread(target=make, daemon=True)
    waiting.start()
    reading.close()
    waiting.join(60)
    assert raised == [1]


@pytest.mark.parametrize("layout", [WHOLE, SPATIAL, SHARDED], ids=["whole", "spatial", "sharded"])
def test_chunks_are_decoded_ahead_of_sample_requests(tmp_path, layout):
    reading = dataset(tmp_path, layout).reading(tens(list(range(200))), 1)
    assert reading.ahead() is None, "nothing is read before the first next"
    next(reading).make()
    reads = reading._ahead
    decoded = 1
    while reading._to_take:
        reads._inbox.wait(reads._reads[0])
        item = reading.ahead()
        assert item.size == 0
        item.make()
        decoded += 1
    assert reading.ahead() is None
    assert decoded == len(reading._pending)
    for item in reading:
        assert item.size, "every chunk in sight is there"
        np.testing.assert_array_equal(item.make(), MANY[10 * item.batch + item.slot])
    reading.close()
    assert reading.ahead() is None


def batched(tmp_path, layout, batch=10, **arguments):
    return dataset(tmp_path, layout, **arguments).batched(batch).dataset


@pytest.mark.parametrize("layout", [WHOLE, SPATIAL, SHARDED], ids=["whole", "spatial", "sharded"])
@pytest.mark.parametrize("offsets", [0, (0, 1)], ids=["one", "two"])
def test_samples_of_a_batch_are_made_together(tmp_path, layout, offsets):
    data = batched(tmp_path, layout, offsets=offsets)
    order, made = list(range(199)), []
    reading = data.reading(tens(order), 1)
    items = [(item, item.make()) for item in reading]
    for item, some in items:
        if item.size:
            assert (item.samples, 10 * item.batch + item.slot) == (len(some), len(made))
            made += some
    wanted = MANY[:199] if offsets == 0 else np.stack([MANY[:199], MANY[1:]], axis=1)
    np.testing.assert_array_equal(np.stack(made), wanted)
    assert sum(item.size > 0 for item, _ in items[len(items) // 2 :]) <= 11, "an item for each batch, but for the first"
    assert not reading._pending


def test_several_arrays_of_samples_that_are_made_together_keep_their_names(tmp_path):
    write(tmp_path / "a", MANY, DIMS, **WHOLE)
    write(tmp_path / "b", -MANY[:, 0, 0], DIMS[:1], chunks=(7,))
    arrays = {"a": str(tmp_path / "a"), "b": str(tmp_path / "b")}
    for targets in (None, {"t": arrays["b"]}):
        data = ZarrDataset(arrays, targets, output="numpy", dims="time")
        for number, batch in enumerate(data.batched(30)):
            inputs = batch if targets is None else batch[0]
            assert [*inputs] == ["a", "b"]
            np.testing.assert_array_equal(inputs["a"], MANY[30 * number : 30 * number + 30])
            np.testing.assert_array_equal(inputs["b"], -MANY[30 * number : 30 * number + 30, 0, 0])
            if targets:
                np.testing.assert_array_equal(batch[1]["t"], inputs["b"])


def test_an_error_is_that_of_the_samples_that_need_the_chunk_among_those_made_together(tmp_path):
    data = batched(tmp_path, WHOLE)
    (tmp_path / "a" / "c" / "3" / "0" / "0").write_bytes(b"no chunk at all")
    reading, made = data.reading(tens(list(range(200))), 1), []
    for item in reading:
        some = item.make()
        made += some if item.size else []
    assert [at for at, each in enumerate(made) if isinstance(each, Failed)] == [12, 13, 14, 15]
    assert {type(made[at].error) for at in range(12, 16)} == {Damaged}
    assert "time=13" in made[13].name
    np.testing.assert_array_equal(np.stack(made[:12] + made[16:]), np.delete(MANY, range(12, 16), axis=0))
    assert not reading._pending


@pytest.mark.parametrize("threads", [1, 3])
def test_a_loader_leaves_out_samples_of_a_damaged_chunk_alone(tmp_path, threads):
    data = dataset(tmp_path, WHOLE)
    (tmp_path / "a" / "c" / "3" / "0" / "0").write_bytes(b"no chunk at all")
    loader = ps.DataLoader(data, 10, on_error="skip", decode_threads=threads)
    batches = list(loader)
    np.testing.assert_array_equal(np.concatenate(batches), np.delete(MANY, range(12, 16), axis=0))
    assert [len(batch) for batch in batches[:3]] == [10, 6, 10]
    assert loader.stats().samples == 196
    assert loader.skipped_count == 4
    with pytest.raises(Damaged):
        list(ps.DataLoader(data, 10, decode_threads=threads))


def test_samples_that_are_made_together_may_need_more_than_memory_has(tmp_path):
    order = np.random.default_rng(1).permutation(200).tolist()
    data = batched(tmp_path, SPATIAL, memory_bytes=1 << 16, window_bytes=1)
    made = [each for item in data.reading(tens(order), 1) for each in [item.make()] if item.size]
    np.testing.assert_array_equal(np.concatenate(made), MANY[order])


def test_an_array_that_is_kept_and_cannot_be_read_yet_costs_the_samples_that_need_it(tmp_path, monkeypatch):
    write(tmp_path / "a", MANY, DIMS, **WHOLE)
    write(tmp_path / "b", MANY[0] + 1, DIMS[1:], chunks=(6, 8))
    data = ZarrDataset({"a": str(tmp_path / "a"), "b": str(tmp_path / "b")}, output="numpy", dims="time").batched(10)
    chunk = tmp_path / "b" / "c" / "0" / "0"
    whole = chunk.read_bytes()
    chunk.write_bytes(b"no chunk at all")
    read = ZarrContents.name_of

    def named(contents, position):
        chunk.write_bytes(whole)
        return read(contents, position)

    monkeypatch.setattr(ZarrContents, "name_of", named)
    (first, *_), _ = data.deliveries("skip")
    assert first.samples == 9
    np.testing.assert_array_equal(first.batch["a"], MANY[1:10])


def test_chunks_of_a_batch_are_let_go_before_those_of_the_next_are_decoded(tmp_path, monkeypatch):
    data, chunks, held = batched(tmp_path, WHOLE, batch=8), [], []
    decode = data.contents.chunks.decode

    def counted(chunk, read, pool=None):
        held.append({number for number, each in enumerate(chunks) if each() is not None})
        values = decode(chunk, read, pool)
        chunks.append(weakref.ref(values))
        return values

    monkeypatch.setattr(data.contents.chunks, "decode", counted)
    lists = in_lists(data.reading([[*range(at, at + 8)] for at in range(0, 200, 8)], 1))
    next(lists)
    before = len(held)
    next(lists)
    assert before >= 2
    assert not {0, 1} & held[before]


@pytest.fixture(params=LAYOUTS)
def samples(request, tmp_path):
    write(tmp_path / "a.zarr", VALUES, DIMS, **LAYOUTS[request.param])
    return ps.ZarrDataset(str(tmp_path / "a.zarr"), decode_cf=False).as_map()


@pytest.fixture
def decoded(monkeypatch):
    """Count the decoded chunks."""
    seen, decode = [], Chunks.decode
    monkeypatch.setattr(Chunks, "decode", lambda self, chunk, *rest: seen.append(chunk) or decode(self, chunk, *rest))
    return seen


def test_samples_by_number_are_the_arrays_own(samples):
    assert len(samples) == 21
    for number in (20, 0, 7, -1, np.int64(3)):
        np.testing.assert_array_equal(samples[number].numpy(), VALUES[number])
    samples[5].zero_()
    np.testing.assert_array_equal(samples[5].numpy(), VALUES[5])
    for number in (21, -22):
        with pytest.raises(IndexError, match="the dataset has 21"):
            samples[number]


def test_neighbours_decode_a_chunk_once(samples, decoded):
    for number in range(21):
        samples[number]
    samples.__getitems__([*range(21)])
    assert len(decoded) == len({*decoded})


def test_chunks_are_held_within_the_memory(tmp_path, decoded):
    write(tmp_path / "a", VALUES, DIMS, chunks=(1, 6, 8))
    size = 6 * 8 * 4
    samples = ps.ZarrDataset(str(tmp_path / "a"), window_bytes=1, memory_bytes=12 * size).as_map()
    most = samples._most_bytes // size
    assert 1 <= most <= 9
    batch = samples.__getitems__([*range(21)])
    np.testing.assert_array_equal(np.stack(batch), VALUES)
    assert samples._cache._held_bytes <= samples._most_bytes
    assert len(decoded) == 21
    samples[20], samples[0]
    assert decoded[21:] == [0]  # the oldest went first


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_loader_with_a_sampler_reads_each_sample(samples, workers):
    order = RandomSampler(samples, generator=torch.Generator().manual_seed(1))
    samples[0]  # the parent has a cache, and threads
    found = torch.cat([*DataLoader(samples, 4, sampler=order, num_workers=workers)]).numpy()
    np.testing.assert_array_equal(found[np.argsort(found[:, 0, 0])], VALUES)
    assert not np.array_equal(found, VALUES)


def test_a_pickled_map_reads_the_same_and_holds_nothing(samples):
    samples[3]
    again = pickle.loads(pickle.dumps(samples))
    assert not again._cache._held
    assert torch.equal(again[3], samples[3])


def read_by(samples):
    """Return the spans that an iteration over ``samples`` reads, in order."""
    read, lookahead = [], Source.lookahead

    def noting(self, wanted, workers=1):
        return lookahead(self, (read.append(span) or span for span in wanted), workers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Source, "lookahead", noting)
        list(samples)
    return [span for span in read if span is not PAUSE]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_epoch_reads_exactly_the_spans_listed_in_advance(tmp_path, layout):
    write(tmp_path / "a", VALUES, DIMS, **LAYOUTS[layout])
    dataset = ps.ZarrDataset(str(tmp_path / "a"), shuffle=True, seed=3)
    named = spans_of(dataset)
    assert sorted(named, key=str) == sorted(read_by(dataset), key=str)
    assert len({*named}) == len(named) > 1


def test_batches_are_named_in_the_order_in_which_they_are_read(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **SPATIAL)
    dataset = ps.ZarrDataset(str(tmp_path / "a"), shuffle=True, seed=3)
    batched = dataset.batched(4)
    for epoch in range(2):
        [(source, spans)] = batched.reads()
        named = list(spans)
        assert source.root == "file:///"
        assert batched.coming().epoch == epoch
        assert named == read_by(batched)


def test_arrays_that_are_kept_and_chunks_of_two_stores_are_named(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **SPATIAL)
    write(tmp_path / "height", VALUES[0], ("y", "x"), chunks=(4, 5))
    urls = {name: str(tmp_path / name) for name in ("a", "height")}
    named = spans_of(ps.ZarrDataset(urls, patch={"y": 3}))
    assert sum("/height/" in span.key for span in named) == 4
    assert sum("/a/" in span.key for span in named) == 7 * 2 * 2


def test_samples_that_are_left_out_need_no_chunks(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **SPATIAL)
    dataset = ps.ZarrDataset(str(tmp_path / "a"))
    assert len(spans_of(dataset, [[0, 1], [2]])) == 4
    assert not spans_of(dataset, [])


def test_chunks_of_a_shard_that_were_never_written_are_not_named(tmp_path):
    values = VALUES.copy()
    values[:8] = 0
    write(tmp_path / "a", values, DIMS, **SHARDED, fill_value=0)
    dataset = ps.ZarrDataset(str(tmp_path / "a"))
    assert len(spans_of(dataset)) == (21 - 8 + 1) // 2 * 2


def test_a_damaged_index_is_an_error(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **SHARDED)
    path = tmp_path / "a/c/0/0/0"
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    dataset = ps.ZarrDataset(str(tmp_path / "a"))
    with pytest.raises(ChecksumMismatch, match="index"):
        spans_of(dataset)
