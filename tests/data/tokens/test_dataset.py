"""Samples of tokens are those of numpy's memory maps, in every order, on ranks and workers, after any resumption."""

import itertools
import pickle

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.tokens.batch import StackedWindows
from penstock.errors import Changed, Damaged, StateMismatch, Unusable
from penstock.testing.restarts import check_restarts
from tests.amounts import examples
from tests.data.reads import spans_of
from tests.data.tokens.files import cut, llmc, megatron

SIZES = [70_001, 0, 39, 128_000, 40]
LENGTH = 40


@pytest.fixture(scope="module")
def arrays():
    draw = np.random.default_rng(0)
    return [draw.integers(0, 65_536, size, dtype=np.uint16) for size in SIZES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, arrays):
    folder = tmp_path_factory.mktemp("tokens")
    for number, array in enumerate(arrays):
        array.tofile(folder / f"{number}.bin")
    return folder


def opened(folder, **options):
    return ps.TokenDataset.from_shards(f"{folder}/", **{"length": LENGTH, "dtype": "uint16", **options})


def windows(arrays, length=LENGTH, stride=LENGTH):
    return [each.astype(np.int64).tolist() for array in arrays for each in cut(array, length, stride)]


ORDERS = {
    "catalog": False,
    "full": True,
    "blocks": ps.order.BlockShuffle(block_bytes=20_000, window_blocks=4),
    "lanes": ps.order.Lanes(block_bytes=20_000, window_blocks=4),
    "by-number": ps.order.BlockShuffle(70, 3),
    "lanes-in-order": ps.order.Lanes(90, shuffle=False),
    "defaults": ps.order.Lanes(),
}


@pytest.mark.parametrize("stride", [LENGTH, LENGTH - 1, 1000])
def test_samples_are_those_of_a_memory_map(folder, arrays, stride):
    dataset = opened(folder, stride=stride)
    expected = windows(
        [np.memmap(folder / f"{at}.bin", np.uint16) if SIZES[at] else arrays[at] for at in range(5)], stride=stride
    )
    assert len(dataset) == len(expected)
    assert [each.tolist() for each in dataset] == expected
    for index in (0, 7, len(expected) - 1, -1, np.int64(3)):
        assert dataset[index].dtype == torch.int64
        assert dataset[index].tolist() == expected[index]
    with pytest.raises(IndexError, match="does not exist"):
        dataset[len(expected)]
    with pytest.raises(IndexError, match="does not exist"):
        dataset[-len(expected) - 1]


def test_tokens_left_out_are_counted(folder):
    dataset = opened(folder)
    assert dataset.tokens == sum(SIZES)
    assert dataset.left_out == sum(size % LENGTH for size in SIZES)
    assert opened(folder, stride=LENGTH + 1).left_out == dataset.tokens - LENGTH * len(
        opened(folder, stride=LENGTH + 1)
    )


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
@pytest.mark.parametrize("workers", [0, 2])
def test_every_window_comes_once_in_each_order(folder, arrays, order, workers):
    loader = ps.DataLoader(opened(folder), 64, shuffle=order, num_workers=workers)
    batches = [*loader]
    assert {each.shape[1:] for each in batches} == {(LENGTH,)}
    assert {each.dtype for each in batches} == {torch.int64}
    assert sorted(each for batch in batches for each in batch.tolist()) == sorted(windows(arrays))
    if order is not True:
        assert loader.stats().total.requests < 80 * max(workers, 1)


@pytest.mark.parametrize(
    ("order", "ranks"), [("blocks", 1), ("defaults", 1), ("catalog", 1), ("lanes", 1), ("lanes", 2)]
)
def test_each_byte_is_read_once_by_one_rank(folder, order, ranks):
    dataset, size_bytes = opened(folder), 0
    for rank in range(ranks):
        loader = ps.DataLoader(dataset, 64, shuffle=ORDERS[order], place=ps.Place(rank, ranks))
        for _ in loader:
            pass
        size_bytes += loader.stats().total.size_bytes
    used = 2 * (dataset.tokens - dataset.left_out)
    # A block across the border of two ranks, and those of the incomplete last batch.
    assert used <= size_bytes <= used + (ranks - 1) * 2 * 20_000


def test_files_longer_than_the_look_ahead_are_read_once(tmp_path):
    for number in range(3):
        np.zeros(700_001, "u4").tofile(tmp_path / f"{number}.bin")
    dataset = opened(tmp_path, length=129, dtype="u4")
    for order in (False, ps.order.Lanes(), ps.order.Lanes(200, 2)):
        loader = ps.DataLoader(dataset, 32, shuffle=order)
        for _ in loader:
            pass
        assert loader.stats().total.size_bytes == 4 * (dataset.tokens - dataset.left_out)


@pytest.mark.parametrize("order", ["blocks", "lanes", "by-number", "catalog", "full"])
def test_every_restart_goes_on_exactly(folder, order):
    check_restarts(lambda: ps.DataLoader(opened(folder, stride=4000), 8, shuffle=ORDERS[order], seed=5))


ELASTIC = [False, True, ps.order.BlockShuffle(block_bytes=900), ps.order.Lanes(lanes=4), ps.order.Lanes(5, 2, lanes=4)]
FILES = st.tuples(
    st.lists(st.integers(0, 3000), min_size=1, max_size=4), st.sampled_from(["u1", "i1", "u2", "u4", "i8"])
)


@given(
    FILES,
    st.fixed_dictionaries({"length": st.integers(1, 300), "stride": st.integers(1, 400), "across": st.booleans()}),
    st.sampled_from(ELASTIC),
    st.sampled_from([1, 2, 4]),
    st.data(),
)
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_each_window_comes_once_on_ranks_and_after_a_resumption(tmp_path_factory, files, shape, order, ranks, data):
    sizes, dtype = files
    folder, draw = tmp_path_factory.mktemp("drawn"), np.random.default_rng(1)
    info = np.iinfo(dtype)
    arrays = [draw.integers(info.min, info.max, size, dtype, endpoint=True) for size in sizes]
    for number, array in enumerate(arrays):
        array.tofile(folder / f"{number}.bin")
    expected = windows([np.concatenate(arrays)] if shape["across"] else arrays, shape["length"], shape["stride"])
    if not expected:
        with pytest.raises(Unusable, match="there is no window"):
            opened(folder, **shape, dtype=dtype)
        return

    def loaders(world):
        dataset = opened(folder, **shape, dtype=dtype)
        places = [ps.Place(rank, world) for rank in range(world)]
        return [ps.DataLoader(dataset, 4 // world, shuffle=order, seed=3, place=place) for place in places]

    first, world = loaders(ranks), data.draw(st.sampled_from([1, 2, 4]))
    stop = data.draw(st.integers(0, len(first[0])))
    batches = itertools.islice(zip(*first, strict=True), stop)
    seen = [each.tolist() for batch in batches for part in batch for each in part]
    state = first[0].state_dict()
    for loader in loaders(world):
        loader.load_state_dict(state)
        seen += [each.tolist() for batch in loader for each in batch] if stop < len(first[0]) else []
    assert {*map(tuple, seen)} == {*map(tuple, expected)}
    # The last batch may be too short for all ranks.
    assert len(expected) <= len(seen) <= len(expected) + max(ranks, world) - 1


# Worker processes read a single order here, and all of them where there is one dataset.
EACH = [(order, 0) for order in ORDERS] + [("lanes", 2)]


@pytest.mark.parametrize(("order", "workers"), EACH)
def test_windows_across_files_come_once_and_read_each_byte_once(folder, arrays, order, workers):
    dataset, joined = opened(folder, across=True), np.concatenate(arrays)
    expected = windows([joined])
    assert dataset.left_out == sum(SIZES) % LENGTH
    assert [each.tolist() for each in dataset] == expected
    border = SIZES[0] // LENGTH  # of the first file, an empty one, and one shorter than a window
    assert dataset[border].tolist() == expected[border]
    assert dataset[border:][0].tolist() == expected[border]
    assert dataset.url_of(border).endswith("/0.bin")
    loader = ps.DataLoader(dataset, 64, shuffle=ORDERS[order], num_workers=workers)
    assert sorted(each for batch in loader for each in batch.tolist()) == sorted(expected)
    if not workers:
        assert loader.stats().total.size_bytes == 2 * LENGTH * len(dataset)


@pytest.mark.parametrize("order", ["lanes", "full"])
def test_every_restart_across_files_goes_on_exactly(folder, order):
    check_restarts(lambda: ps.DataLoader(opened(folder, length=9000, across=True), 4, shuffle=ORDERS[order], seed=5))


def test_windows_across_files_begin_behind_headers_and_in_slices_of_any_place(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.bin").write_bytes(llmc(range(100 * number, 100 * number + 7)))
        np.save(tmp_path / f"{number}.npy", np.arange(100 * number + 50, 100 * number + 55, dtype="u2"))
    stream = [*range(7), *range(50, 55), *range(100, 107), *range(150, 155), *range(200, 207), *range(250, 255)]
    dataset = opened(tmp_path, length=10, stride=3, dtype=None, across=True)
    assert [each.tolist() for each in dataset] == cut(stream, 10, 3)
    assert [each.tolist() for each in dataset[3:6]] == cut(stream, 10, 3)[3:6]
    assert repr(dataset) == "<TokenDataset of 9 windows of 10 tokens; 2 of 36 tokens in 6 files are left out>"


def test_window_across_a_replaced_file_is_changed(folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    dataset, border = opened(tmp_path, across=True), SIZES[0] // LENGTH
    np.ones(SIZES[2], "u2").tofile(tmp_path / "2.bin")
    loader = ps.DataLoader(dataset, 2000, on_error="skip", shuffle=True)
    assert sum(map(len, loader)) == len(dataset) - 1
    with pytest.raises(Changed, match=r"2\.bin"):
        dataset[border]


def test_state_of_another_length_or_stride_is_refused(folder):
    state = ps.DataLoader(opened(folder), 8).state_dict()
    for options in ({"length": 41}, {"stride": 39}, {"across": True}):
        with pytest.raises(StateMismatch):
            ps.DataLoader(opened(folder, **options), 8).load_state_dict(state)
    ps.DataLoader(opened(folder), 8).load_state_dict(state)


DOCUMENTS = [[[*range(10)], [10, 11]], [], [[*range(20, 50)]], [[]], [[*range(60, 65)]], [[*range(70, 91)]]]


@pytest.fixture
def pair(tmp_path):
    for name in ("x", "y"):
        data, idx = megatron(DOCUMENTS, "i4")
        (tmp_path / f"{name}.bin").write_bytes(data)
        (tmp_path / f"{name}.idx").write_bytes(idx)
    return tmp_path


def flat(document):
    return [token for sequence in document for token in sequence]


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_windows_do_not_cross_documents(pair, order):
    dataset = opened(pair, length=10, stride=9, dtype=None, documents=True)
    expected = [window for document in DOCUMENTS for window in cut(flat(document), 10, 9)] * 2
    assert [each.tolist() for each in dataset] == expected
    batches = ps.DataLoader(dataset, 4, shuffle=order)
    assert sorted(each for batch in batches for each in batch.tolist()) == sorted(expected)
    assert dataset.left_out == dataset.tokens - 2 * (10 + 28 + 19)


def test_documents_shorter_than_a_window_say_so(pair):
    with pytest.raises(Unusable, match="the longest document has 30; leave documents= out, or a smaller length="):
        opened(pair, length=31, dtype=None, documents=True)


def test_windows_of_files_cross_documents(pair):
    tokens = [token for document in DOCUMENTS for token in flat(document)]
    dataset = opened(pair, length=10, dtype=None)
    assert [each.tolist() for each in dataset] == cut(tokens, 10, 10) * 2


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
@pytest.mark.parametrize("documents", [False, True])
def test_whole_sequences_and_documents_have_any_length(pair, documents, order):
    units = [flat(each) for each in DOCUMENTS] if documents else [each for document in DOCUMENTS for each in document]
    dataset = opened(pair, length=None, dtype=None, documents=documents)
    assert [each.tolist() for each in dataset] == units * 2
    assert [dataset[at].tolist() for at in range(len(dataset))] == units * 2
    assert dataset.left_out == 0
    loader = ps.DataLoader(dataset, 3, shuffle=order)
    assert sorted(each.tolist() for batch in loader for each in batch) == sorted(units * 2)


def test_empty_documents_take_no_request(tmp_path):
    data, idx = megatron([[]] * 30)
    (tmp_path / "x.bin").write_bytes(data)
    (tmp_path / "x.idx").write_bytes(idx)
    dataset = opened(tmp_path, length=None, documents=True, dtype=None)
    assert [len(each) for each in dataset] == [0] * 30
    loader = ps.DataLoader(dataset, 4, shuffle=True)
    assert [len(each) for batch in loader for each in batch] == [0] * 30
    assert loader.stats().total.requests == 0
    assert spans_of(dataset) == []


def test_arrays_keep_the_stored_type(folder, arrays):
    dataset = opened(folder, output="numpy")
    assert dataset.dtype == dataset[0].dtype == np.uint16
    dataset[0][0] = 1  # writable, and no view of a run
    batch = next(iter(ps.DataLoader(dataset, 8)))
    assert batch.dtype == np.uint16
    assert batch.tolist() == windows(arrays)[:8]


def test_transform_and_collate_function_get_copies(folder, arrays):
    def shifted(tokens):
        assert tokens.dtype == torch.int64
        return tokens[:-1].clone(), tokens[1:].clone()

    dataset = opened(folder, transform=shifted)
    inputs, targets = next(iter(ps.DataLoader(dataset, 8, shuffle=ps.order.Lanes(block_bytes=4000), num_workers=1)))
    assert inputs.shape == targets.shape == (8, LENGTH - 1)
    assert (inputs[:, 1:] == targets[:, :-1]).all()
    assert [each.tolist() for each, _ in dataset] == [each[:-1] for each in windows(arrays)]
    listed = next(iter(ps.DataLoader(opened(folder), 3, collate_fn=list)))
    assert [each.tolist() for each in listed] == windows(arrays)[:3]


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_workers_of_other_processes_read_the_same(pair, context):
    dataset = opened(pair, length=10, dtype=None, documents=True)
    loader = ps.DataLoader(dataset, 4, shuffle=ps.order.Lanes(), num_workers=1, multiprocessing_context=context)
    assert sorted(each for batch in loader for each in batch.tolist()) == sorted(each.tolist() for each in dataset)


@pytest.fixture(scope="module")
def joined(folder, arrays, tmp_path_factory):
    """Datasets of two folders and of two types of tokens, and a slice, and their samples."""
    wide = tmp_path_factory.mktemp("wide")
    (arrays[0][:9001] + np.uint32(70_000)).tofile(wide / "0.bin")
    parts = (opened(folder), opened(wide, dtype="uint32"), opened(folder, across=True)[1740:1760])
    expected = windows(arrays) + windows([arrays[0][:9001] + np.uint32(70_000)])
    return parts, expected + windows([np.concatenate(arrays)])[1740:1760]


@pytest.mark.parametrize(("order", "workers"), EACH)
def test_windows_of_datasets_end_to_end_come_once_in_each_order(joined, order, workers):
    parts, expected = joined
    loader = ps.DataLoader(ps.concat(*parts), 64, shuffle=ORDERS[order], num_workers=workers)
    batches = [*loader]
    assert {(each.dtype, each.shape[1:]) for each in batches} == {(torch.int64, (LENGTH,))}
    found = [each for batch in batches for each in batch.tolist()]
    assert sorted(found) == sorted(expected)
    assert order != "catalog" or found == expected
    if order != "full":
        assert loader.stats().total.requests < 120 * max(workers, 1)


def test_datasets_end_to_end_have_indices_and_slices(joined):
    parts, expected = joined
    both = ps.concat(ps.concat(*parts[:2]), parts[2])
    assert len(both) == len(expected)
    assert repr(both) == f"<ConcatTokens of {len(expected):,} samples in 3 parts>"
    rows = [0, len(parts[0]), 7, -1, len(parts[0])]
    assert [each.tolist() for each in both.__getitems__(rows)] == [expected[row] for row in rows]
    assert [each.tolist() for each in both] == expected
    at = len(parts[0])
    assert [each.tolist() for each in both[at - 2 : at + 2]] == expected[at - 2 : at + 2]
    with pytest.raises(IndexError, match="does not exist"):
        both[len(expected)]
    with pytest.raises(Unusable, match="must have step 1, got step 2"):
        both[::2]


@pytest.mark.parametrize("order", ["blocks", "lanes", "full"])
def test_datasets_end_to_end_resume_on_other_ranks(folder, order):
    dataset = ps.concat(opened(folder, stride=1500), opened(folder, length=LENGTH, stride=4000, across=True))
    shuffle = ps.order.Lanes(block_bytes=20_000, window_blocks=4, lanes=4) if order == "lanes" else ORDERS[order]
    expected = sorted(each.tolist() for each in dataset)

    def loaders(world):
        places = [ps.Place(rank, world) for rank in range(world)]
        return [ps.DataLoader(dataset, 16 // world, shuffle=shuffle, seed=7, place=place) for place in places]

    for first, then in ((1, 4), (4, 2), (2, 1)):
        begun = loaders(first)
        batches = itertools.islice(zip(*begun, strict=True), 4)
        seen = [each.tolist() for batch in batches for part in batch for each in part]
        state = begun[0].state_dict()
        for loader in loaders(then):
            loader.load_state_dict(state)
            seen += [each.tolist() for batch in loader for each in batch]
        # The last batch may be too short for all ranks.
        assert {*map(tuple, seen)} == {*map(tuple, expected)}
        assert len(seen) <= len(expected) + 3


SOURCES = st.tuples(st.integers(9, 300), st.sampled_from(["u2", "u2", "u4"]), st.booleans())


@given(
    st.lists(SOURCES, min_size=1, max_size=3),
    st.sampled_from(ELASTIC),
    st.sampled_from(["stratified", "random", "one-source"]),
    st.sampled_from(["raise", "skip"]),
    st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4])),
    st.integers(0, 30),
)
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_mixture_stacks_what_it_makes_singly(tmp_path_factory, drawn, order, batches, errors, ranks, stop):  # noqa: PLR0913, PLR0917  what is drawn
    folder, sources = tmp_path_factory.mktemp("mixed"), {}
    for number, (tokens, dtype, joined) in enumerate(drawn):
        np.arange(number * 1000, number * 1000 + tokens).astype(dtype).tofile(folder / f"{number}.bin")
        own = ps.TokenDataset.from_shards(f"{folder}/{number}.bin", length=9, dtype=dtype)
        sources[f"{number}"] = ps.concat(own, own[: len(own) // 2]) if joined else own
    mix = ps.Mix(sources, batches=batches, ends="longest", on_error=dict.fromkeys(sources, errors))

    def delivered(collate_fn):
        """Return the batches and the state of each rank, and those of ranks that go on from there."""
        found, state = [], None
        for world in ranks:
            for rank in range(world):
                options = {"shuffle": order, "seed": 3, "place": ps.Place(rank, world), "collate_fn": collate_fn}
                loader = ps.DataLoader(mix, 8 // world, **options)
                if state is not None:
                    loader.load_state_dict(state)
                found.append([each.tolist() for each in itertools.islice(loader, stop)])
            state = loader.state_dict()
            found.append(state)
        return found

    assert delivered(None) == delivered(torch.stack)
    of_windows = len({dtype for _, dtype, _ in drawn}) == 1
    assert isinstance(mix.batched(8).collate_fn, StackedWindows) == of_windows


def test_state_of_other_datasets_end_to_end_is_refused(joined):
    parts, _ = joined
    state = ps.DataLoader(ps.concat(*parts), 8).state_dict()
    ps.DataLoader(ps.concat(*parts), 8).load_state_dict(state)
    with pytest.raises(StateMismatch):
        ps.DataLoader(ps.concat(parts[1], parts[0], parts[2]), 8).load_state_dict(state)


def test_datasets_end_to_end_stack_windows_of_one_length(folder, pair, tmp_path_factory):
    def first(*parts, **options):
        return next(iter(ps.DataLoader(ps.concat(*parts), 4, **options)))

    long = tmp_path_factory.mktemp("long")
    np.arange(40).tofile(long / "0.bin")
    for parts, says in (
        ((opened(folder), opened(folder, length=50)), "int64 windows of 40 tokens and int64 windows of 50 tokens"),
        ((opened(folder), opened(folder, output="numpy")), "int64 windows of 40 tokens and uint16 arrays of 40"),
        ((opened(folder), opened(pair, length=None, dtype=None)), "int64 windows of 40 tokens and whole sequences"),
        (
            [opened(long, dtype="int64", length=10, output=each) for each in ("torch", "numpy")],
            "int64 arrays of 10 tokens and int64 windows of 10 tokens",
        ),
    ):
        with pytest.raises(Unusable, match=f"a batch is one array, but the datasets have {says}.* or pass collate_fn="):
            first(*parts)
        with pytest.raises(Unusable, match="a batch is one array"):
            ps.DataLoader(ps.Mix({"a": parts[0], "b": parts[1]}), 4)
        assert len(first(*parts, collate_fn=list)) == 4
    arrays = opened(folder, output="numpy")
    assert first(arrays, arrays).dtype == np.uint16
    mixed = next(iter(ps.DataLoader(ps.Mix({"a": arrays, "b": arrays}), 4)))
    assert isinstance(mixed, np.ndarray)
    assert mixed.dtype == np.uint16
    documents = opened(pair, length=None, dtype=None)
    assert [len(each) for each in first(documents, documents)] == [10, 2, 30, 0]
    mix = ps.Mix({"a": documents, "b": documents})
    assert sorted(len(each) for batch in ps.DataLoader(mix, 4) for each in batch) == sorted(2 * [*map(len, documents)])
    doubled = opened(folder, transform=lambda tokens: 2 * tokens)
    assert first(doubled, opened(folder))[0].tolist() == (2 * opened(folder)[0]).tolist()


def test_datasets_of_other_kinds_are_not_joined_with_tokens(folder):
    for others in ((ps.MapDataset.from_prefix(f"{folder}/"),), (ps.Mix({"a": opened(folder)}),), ("a",)):
        with pytest.raises(Unusable, match="concat joins a TokenDataset with others of its kind, got a"):
            ps.concat(*others, opened(folder))
    with pytest.raises(Unusable, match="map-style datasets are the loader's"):
        ps.concat(opened(folder), shuffle=True)


def test_copies_read_the_same(folder):
    dataset = opened(folder)
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy[5].tolist() == dataset[5].tolist()
    assert copy.contents.digest == dataset.contents.digest


def test_torchs_loader_reads_batches_by_index(folder, arrays):
    loader = torch.utils.data.DataLoader(opened(folder), batch_size=16)
    assert next(iter(loader)).tolist() == windows(arrays)[:16]
    sampler = ps.BatchSampler(opened(folder), 16, shuffle=True)
    loader = torch.utils.data.DataLoader(opened(folder), batch_sampler=sampler)
    assert sorted(each for batch in loader for each in batch.tolist()) == sorted(windows(arrays))


def test_slices_are_datasets_of_neighbours(folder, arrays):
    dataset, expected = opened(folder), windows(arrays)
    for rows in (slice(0, 100), slice(100, None), slice(-7, None), slice(1740, 1760), slice(5, 5), slice(9, 3)):
        part = dataset[rows]
        assert len(part) == len(expected[rows])
        assert [each.tolist() for each in part] == expected[rows]
        batches = ps.DataLoader(part, 16, shuffle=ps.order.Lanes(block_bytes=4000, window_blocks=2))
        assert sorted(each for batch in batches for each in batch.tolist()) == sorted(expected[rows])
    with pytest.raises(Unusable, match=r"must have step 1, got step 2"):
        dataset[::2]
    with pytest.raises(StateMismatch):
        ps.DataLoader(dataset[:100], 8).load_state_dict(ps.DataLoader(dataset[1:101], 8).state_dict())


def test_plan_of_a_batch_names_files(folder):
    loader = ps.DataLoader(opened(folder), 8, shuffle=ps.order.Lanes(), seed=1)
    planned, batch = loader.inspect(3), [*loader][3]
    assert [opened(folder)[each.index].tolist() for each in planned] == batch.tolist()
    assert {each.url.rpartition("/")[2] for each in planned} <= {f"{at}.bin" for at in range(5)}
    assert loader.report().context.url == f"file://{folder}/"


@pytest.mark.parametrize("order", ["lanes", "full", "catalog"])
def test_spans_are_those_that_an_epoch_reads(folder, tmp_path, order):
    options = ps.StoreOptions(cache=ps.CacheOptions(path=tmp_path / "cache"))
    dataset = opened(folder, stride=400, store=options)
    loader = ps.DataLoader(dataset, 32, shuffle=ORDERS[order], seed=2)
    warmed = ps.warm(loader)
    assert warmed.fetched > 0
    for _ in loader:
        pass
    assert loader.stats().total.requests == 0
    assert sum(span.stop - span.start for span in spans_of(dataset)) >= 2 * (dataset.tokens - dataset.left_out)


def test_replaced_file_is_changed(folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    dataset = opened(tmp_path)
    np.ones(SIZES[0], "u2").tofile(tmp_path / "0.bin")
    with pytest.raises(Changed, match=r"0\.bin"):
        dataset[0]
    with pytest.raises(Changed, match=r"0\.bin"):
        [*ps.DataLoader(dataset, 64, shuffle=ps.order.Lanes())]
    loader = ps.DataLoader(dataset, 2000, on_error="skip", shuffle=ps.order.Lanes(block_bytes=20_000))
    assert sum(map(len, loader)) == len(dataset) - SIZES[0] // LENGTH
    assert loader.skipped_count == SIZES[0] // LENGTH


def test_failing_transform_names_the_sample(folder):
    dataset = opened(folder, transform=lambda tokens: tokens.nothing)
    with pytest.raises(AttributeError) as caught:
        dataset[3]
    assert any("sample 3 of file://" in note for note in caught.value.__notes__)
    dataset = opened(folder, transform=lambda tokens: next(iter(tokens[:0])))
    with pytest.raises(RuntimeError, match=r"the transform of sample 0 of file://.* raised StopIteration"):
        [*ps.DataLoader(dataset, 4)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"length": 0}, "length must be 1 or more"),
        ({"length": 2.5}, "length must be a whole number"),
        ({"stride": 0}, "stride must be 1 or more"),
        ({"length": None, "stride": 4}, "stride= needs length="),
        ({"length": None}, r"has no Megatron index \(.idx\): length=None needs it; pass length="),
        ({"documents": "yes"}, "documents must be True or False"),
        ({"across": 1.5}, "across must be True or False"),
        ({"across": True, "documents": True}, "in which documents have no borders: leave it out, or documents="),
        ({"across": True, "length": None}, "in which sequences have no borders: leave it out, or pass length="),
        ({"across": True, "length": 200_000}, "no window of 200000 tokens in 5 files"),
        ({"output": "jax"}, "output must be 'torch' or 'numpy'"),
        ({"transform": 3}, "transform must be a function"),
        ({"length": 150_000}, "the longest file has 128000; pass across=True, or a smaller length="),
        ({"length": 200_000}, "no window of 200000 tokens in 5 files of 198080 tokens: pass a smaller length="),
        ({"length": 10**30}, r"length and stride must be at most 2\^48 tokens"),
        ({"stride": 10**30}, r"length and stride must be at most 2\^48 tokens"),
        ({"documents": True}, "documents=True needs it; leave that out"),
        ({"dtype": None}, "pass dtype='uint16'"),
    ],
)
def test_wrong_arguments_are_refused(folder, options, says):
    with pytest.raises(ps.PenstockError, match=says):
        opened(folder, **options)
    with pytest.raises(Unusable, match=r"create a TokenDataset by TokenDataset\.from_shards"):
        ps.TokenDataset(f"{folder}/")


def test_odd_number_of_bytes_is_refused(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"\0" * 999)
    with pytest.raises(Damaged, match=r"999 bytes are not a whole number of uint16.*a\.bin"):
        opened(tmp_path, format="raw")
