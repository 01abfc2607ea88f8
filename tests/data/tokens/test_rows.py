"""Rows of packed documents have each token once, and their masks, labels and positions are those of the documents."""

import itertools
import pickle
import random

import numpy as np
import pytest
import torch

import penstock as ps
from penstock.data.tokens import packing
from penstock.data.tokens import rows as packed
from penstock.errors import Changed, NotFound, StateMismatch, Unusable
from penstock.testing.restarts import check_restarts
from tests.amounts import examples
from tests.data.tokens.files import megatron
from tests.data.tokens.lengths import write_numbered

LENGTH = 64
IGNORED = -100
# Of files: many short documents, some longer than a row, and those of exactly a row, two, one more, and one token.
SPECIAL = [LENGTH, 2 * LENGTH, 2 * LENGTH + 1, 1, 0, 1500, LENGTH - 1, LENGTH + 1]


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    """Make runs of 8 rows, so that little data has many blocks, and do not join runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_LEAST_BYTES", 8 * LENGTH * 4)
        patch.setattr(packed, "_GAP_BYTES", 256)
        yield


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    draw = np.random.default_rng(0)
    files = [
        np.append(SPECIAL, draw.integers(1, 30, 2000)),
        draw.integers(0, 3, 5),
        np.zeros(3, np.int64),
        np.append(draw.integers(1, 200, 150), draw.integers(0, 20, 1500)),
    ]
    folder = tmp_path_factory.mktemp("documents")
    return folder, write_numbered(folder, files)


@pytest.fixture(scope="module")
def folder(documents):
    return documents[0]


@pytest.fixture(scope="module")
def lengths(documents):
    return documents[1]


def opened(folder, pack="best-fit", **options):
    return ps.TokenDataset.from_shards(f"{folder}/", **{"length": LENGTH, "pack": pack, **options})


def check_batch(batch, lengths, *, pack="best-fit", length=LENGTH):
    """Compare a batch with what its token values say; return the tokens of its rows without padding."""
    starts = np.cumsum(lengths) - lengths
    tokens, labels = batch.tokens.numpy(), batch.labels.numpy()
    ids, positions = batch.document_ids.numpy(), batch.position_ids.numpy()
    found, borders = [], [0]
    for row in range(len(tokens)):
        size = sum(batch.seq_lens[row])
        values = tokens[row, :size]
        assert not tokens[row, size:].any()
        # Empty documents begin where the next one does.
        document = np.searchsorted(starts, values, side="right") - 1
        new = np.append(True, (np.diff(values) != 1) | (np.diff(document) != 0))
        number, begins = np.cumsum(new) - 1, np.flatnonzero(new)
        assert ids[row].tolist() == [*number.tolist(), *[-1] * (length - size)]
        assert positions[row].tolist() == [*(np.arange(size) - begins[number]).tolist(), *range(length - size)]
        last = values + 1 == (starts + lengths)[document]
        assert labels[row].tolist() == [*np.where(last, IGNORED, values + 1).tolist(), *[IGNORED] * (length - size)]
        ends = [*begins[1:].tolist(), size]
        assert batch.seq_lens[row] == [end - begin for begin, end in zip(begins.tolist(), ends, strict=True)]
        for begin, end in zip(begins.tolist(), ends, strict=True):
            if pack == "best-fit" and lengths[document[begin]] <= length:
                assert end - begin == lengths[document[begin]]
        borders += [row * length + end for end in ends] + ([(row + 1) * length] if size < length else [])
        found.append(values.copy())
    assert batch.cu_seqlens.tolist() == borders
    assert batch.max_seqlen == max(np.diff(borders))
    assert (batch.tokens.dtype, batch.labels.dtype) == (torch.int64, torch.int64)
    return found


def check_once(rows, dataset, *, surplus=0):
    """Assert that these are all rows of a dataset, of which up to ``surplus`` may come twice."""
    once = [*{int(row[0]): row for row in rows}.values()]
    assert len(once) == len(dataset)
    assert len(rows) - len(once) <= surplus
    values = np.sort(np.concatenate(once))
    assert values.tolist() == [*range(dataset.tokens - dataset.left_out)]


ORDERS = {
    "catalog": False,
    "full": True,
    "blocks": ps.order.BlockShuffle(block_bytes=2048, window_blocks=48),
    "lanes": ps.order.Lanes(block_bytes=2048, window_blocks=32, lanes=24),
    "defaults": ps.order.Lanes(),
    "lanes-in-order": ps.order.Lanes(90, shuffle=False),
}


@pytest.mark.parametrize("pack", ["best-fit", "cut"])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
@pytest.mark.parametrize("workers", [0, 2])
def test_each_token_comes_once_in_each_order(folder, lengths, pack, order, workers):
    dataset = opened(folder, pack)
    assert len(dataset.windows.starts) > 5
    loader = ps.DataLoader(dataset, 7, shuffle=order, num_workers=workers, seed=3)
    rows = [row for batch in loader for row in check_batch(batch, lengths, pack=pack)]
    check_once(rows, dataset)
    assert dataset.padding == pytest.approx(1 - dataset.tokens / (len(dataset) * LENGTH))
    assert dataset.padding < 0.02
    assert dataset.cut == int((lengths > LENGTH).sum())


@pytest.mark.parametrize("pack", ["best-fit", "cut"])
def test_rows_by_index_and_in_slices_are_those_of_the_whole(folder, lengths, pack):
    dataset = opened(folder, pack)
    rows = [row for batch in ps.DataLoader(dataset, 1) for row in check_batch(batch, lengths, pack=pack)]
    for index in (0, 1, 130, len(dataset) - 1, -1, np.int64(40)):
        [row] = check_batch(dataset[index], lengths, pack=pack)
        assert row.tolist() == rows[index].tolist()
    part = dataset[100:301][7:]
    found = [row for batch in ps.DataLoader(part, 5) for row in check_batch(batch, lengths, pack=pack)]
    assert [each.tolist() for each in found] == [each.tolist() for each in rows[107:301]]
    assert [int(each.tokens[0, 0]) for each in part] == [int(row[0]) for row in rows[107:301]]
    assert (part.padding, part.tokens) == (dataset.padding, dataset.tokens)
    assert len(dataset[5:5]) == 0
    assert [*dataset[5:5]] == []
    with pytest.raises(IndexError, match="does not exist"):
        part[len(part)]


def test_each_byte_is_read_once_and_a_row_alone_reads_its_pieces(folder):
    dataset = opened(folder)
    loader = ps.DataLoader(dataset, 16, shuffle=ORDERS["lanes"])
    for _ in loader:
        pass
    assert loader.stats().total.size_bytes == 4 * dataset.tokens
    assert sum(span.stop - span.start for _, spans in dataset.reads() for span in spans) == 4 * dataset.tokens


def test_pieces_far_apart_are_read_alone(tmp_path):
    lengths = write_numbered(tmp_path, [np.tile([40, 30_000, 24, 1], 20)])
    dataset = opened(tmp_path, longer="leave-out")
    [(_, spans)] = [*dataset[3:4].reads()]
    sizes = [span.stop - span.start for span in spans]
    assert len(sizes) > 1
    assert max(sizes) < 1000
    check_batch(dataset[3], lengths)


@pytest.mark.parametrize("order", ["catalog", "full", "blocks", "lanes"])
def test_every_restart_goes_on_exactly(folder, order):
    check_restarts(lambda: ps.DataLoader(opened(folder)[100:140], 4, shuffle=ORDERS[order], seed=5))


def ranks(dataset, world, order, state=None, **options):
    found = []
    for rank in range(world):
        place = ps.Place(rank=rank, world=world)
        loader = ps.DataLoader(dataset, 24 // world, shuffle=order, seed=3, place=place, **options)
        if state is not None:
            loader.load_state_dict(state)
        found.append(loader)
    return found


@pytest.mark.parametrize(("order", "times"), [("catalog", 3), ("full", 3), ("blocks", 10), ("lanes", 20)])
def test_rows_come_once_after_random_changes_of_ranks(folder, lengths, order, times):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw, dataset = random.Random(seed), opened(folder)
    for _ in range(examples(times)):
        rows, state = [], None
        for steps in (draw.randrange(8), draw.randrange(1, 8), None):
            world, states = draw.choice([1, 2, 3, 4, 6, 8]), []
            for loader in ranks(dataset, world, ORDERS[order], state):
                for batch in itertools.islice(loader, steps):
                    rows += check_batch(batch, lengths)
                states.append(loader.state_dict())
            assert all(each == states[0] for each in states)
            assert len(str(states[0])) < 300
            state = states[0]
        check_once(rows, dataset, surplus=world - 1)


def test_global_batches_are_the_same_on_any_number_of_ranks_and_workers(folder):
    dataset, found = opened(folder), set()
    for world, workers in ((1, 0), (2, 0), (3, 0), (8, 0), (2, 2)):
        batches = zip(*ranks(dataset, world, ORDERS["lanes"], num_workers=workers), strict=True)
        some = [sorted(int(row[0]) for part in parts for row in part.tokens) for parts in itertools.islice(batches, 4)]
        found.add(str(some))
    assert len(found) == 1


def test_state_of_another_packing_is_refused(folder):
    state = ps.DataLoader(opened(folder), 8).state_dict()
    for options in ({"pack": "cut"}, {"length": 65}, {"longer": "leave-out"}):
        with pytest.raises(StateMismatch):
            ps.DataLoader(opened(folder, **options), 8).load_state_dict(state)
    with pytest.raises(StateMismatch):
        ps.DataLoader(opened(folder)[1:], 8).load_state_dict(state)
    ps.DataLoader(opened(folder), 8).load_state_dict(state)


def test_long_documents_are_cut_left_out_or_refused(folder, lengths):
    left = int(lengths[lengths > LENGTH].sum())
    dataset = opened(folder, longer="leave-out")
    assert (dataset.left_out, dataset.cut) == (left, 0)
    assert f"{left:,} of" in repr(dataset)
    rows = [row for batch in ps.DataLoader(dataset, 9) for row in check_batch(batch, lengths)]
    assert sum(map(len, rows)) == dataset.tokens - left
    assert len(np.unique(np.concatenate(rows))) == dataset.tokens - left
    count = int((lengths > LENGTH).sum())
    with pytest.raises(Unusable, match=rf"{count} documents have more than length=64 tokens, at most 1,500; the first"):
        opened(folder, longer="refuse")
    assert len(opened(folder, length=1500, longer="refuse"))


def test_rows_of_length_one_have_the_next_token_as_label(tmp_path):
    lengths = write_numbered(tmp_path, [[3, 1, 0, 2]])
    for pack in ("best-fit", "cut"):
        dataset = opened(tmp_path, pack, length=1)
        [batch] = ps.DataLoader(dataset, 6)
        check_batch(batch, lengths, pack=pack, length=1)
        pairs = sorted(zip(batch.tokens[:, 0].tolist(), batch.labels[:, 0].tolist(), strict=True))
        assert pairs == [(0, 1), (1, 2), (2, IGNORED), (3, IGNORED), (4, 5), (5, IGNORED)]


@pytest.mark.parametrize("dtype", ["u1", "u2", "i8"])
def test_tokens_of_each_type_are_packed(tmp_path, dtype):
    lengths = write_numbered(tmp_path, [[30, 64, 100, 20, 7, 1, 20]], dtype)
    dataset = opened(tmp_path)
    check_once([row for batch in ps.DataLoader(dataset, 2) for row in check_batch(batch, lengths)], dataset)


def test_documents_of_several_sequences_and_of_datatrove_are_whole(tmp_path):
    data, idx = megatron([[[1, 2], [3]], [[4]], [[], [5, 6]]], "i4")
    (tmp_path / "a.bin").write_bytes(data)
    (tmp_path / "a.idx").write_bytes(idx)
    [batch] = ps.DataLoader(opened(tmp_path, "cut", length=6), 1)
    assert (batch.tokens.tolist(), batch.seq_lens) == ([[1, 2, 3, 4, 5, 6]], [[3, 1, 2]])
    np.arange(1, 7, dtype="u2").tofile(tmp_path / "b.ds")
    np.array([3, 4, 6], "u8").tofile(tmp_path / "b.ds.index")
    [same] = ps.DataLoader(ps.TokenDataset.from_shards(f"{tmp_path}/b.ds", length=6, pack="cut"), 1)
    assert (same.tokens.tolist(), same.seq_lens) == (batch.tokens.tolist(), batch.seq_lens)


def test_arrays_keep_the_stored_type(folder):
    dataset = opened(folder, output="numpy")
    batch = next(iter(ps.DataLoader(dataset, 4)))
    expected = next(iter(ps.DataLoader(opened(folder), 4)))
    assert (batch.tokens.dtype, batch.labels.dtype) == (np.int32, np.int64)
    for name in ("tokens", "labels", "cu_seqlens", "position_ids", "document_ids"):
        value = getattr(batch, name)
        assert isinstance(value, np.ndarray)
        assert value.tolist() == getattr(expected, name).tolist()
        assert value.dtype.name == str(getattr(expected, name).dtype).removeprefix("torch.") or name == "tokens"


def test_transform_gets_a_batch_of_one_row_and_may_return_it(folder):
    def doubled(row):
        return row._replace(labels=2 * row.labels)

    def plain(row):
        return {"input_ids": row.tokens[0], "labels": row.labels[0]}

    expected = next(iter(ps.DataLoader(opened(folder), 4)))
    batch = next(iter(ps.DataLoader(opened(folder, transform=doubled), 4)))
    assert isinstance(batch, ps.PackedBatch)
    assert (batch.tokens.tolist(), batch.seq_lens) == (expected.tokens.tolist(), expected.seq_lens)
    assert batch.labels.tolist() == (2 * expected.labels).tolist()
    batch = next(iter(ps.DataLoader(opened(folder, transform=plain), 4)))
    assert batch["input_ids"].tolist() == expected.tokens.tolist()
    rows = next(iter(ps.DataLoader(opened(folder), 4, collate_fn=list)))
    assert [row.seq_lens for row in rows] == [[each] for each in expected.seq_lens]


def test_loaders_of_torch_batch_rows(folder, lengths):
    dataset = opened(folder)
    sampler = ps.BatchSampler(dataset, 8, shuffle=ORDERS["blocks"])
    rows = [
        row
        for batch in torch.utils.data.DataLoader(dataset, batch_sampler=sampler)
        for row in check_batch(batch, lengths)
    ]
    check_once(rows, dataset)


def test_datasets_are_pickled_with_their_plan(folder):
    dataset = opened(folder)[3:]
    copied = pickle.loads(pickle.dumps(dataset))
    assert copied.contents.digest == dataset.contents.digest
    assert copied[9].tokens.tolist() == dataset[9].tokens.tolist()


def test_concatenated_rows_come_once(folder, lengths):
    first, second = opened(folder)[:200], opened(folder)[200:]
    joined = ps.concat(first, second)
    for order in ORDERS.values():
        if isinstance(order, ps.order.Lanes) and not order.shuffle:
            continue
        loader = ps.DataLoader(joined, 8, shuffle=order, seed=1)
        check_once([row for batch in loader for row in check_batch(batch, lengths)], opened(folder))


def mixed(folder, **options):
    packed, cut = opened(folder), opened(folder, "cut")
    return ps.Mix({"packed": packed, "cut": cut}, weights={"packed": 3, "cut": 1}, **options)


def test_mixture_of_packed_and_cut_rows_has_exact_shares_and_goes_on_with_other_ranks(folder, lengths):
    mix = mixed(folder, ends="once")
    rows, state = [], None
    for world, steps in ((2, 9), (3, 5), (1, None)):
        for loader in ranks(mix, world, ps.order.Lanes(lanes=6, block_bytes=2048, window_blocks=32), state):
            for batch in itertools.islice(loader, steps):
                rows += check_batch(batch, lengths, pack="cut")
            kept = loader.state_dict()
        state = kept
    total = int(lengths.sum())
    assert len(rows) == sum(map(len, mix.sources.values()))
    assert np.sort(np.concatenate(rows)).tolist() == sorted([*range(total), *range(total)])


def test_mixture_gives_each_batch_its_share_of_packed_and_cut_rows(folder):
    loader = ps.DataLoader(mixed(folder), 24, shuffle=True)
    for number in range(5):
        names = [each.source for each in loader.inspect(number)]
        assert (names.count("packed"), names.count("cut")) == (18, 6)
    assert next(iter(loader)).tokens.shape == (24, LENGTH)


def test_rows_of_other_lengths_and_windows_do_not_stack(folder):
    windows = ps.TokenDataset.from_shards(f"{folder}/", length=LENGTH)
    for other, name in ((opened(folder, length=65), "packed rows of 65 tokens"), (windows, "int64 windows of 64 tok")):
        with pytest.raises(Unusable, match=f"packed rows of 64 tokens|{name}"):
            ps.DataLoader(ps.Mix({"a": opened(folder), "b": other}), 4)
        with pytest.raises(Unusable, match=name):
            ps.DataLoader(ps.concat(opened(folder), other), 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pack": "first-fit"}, "pack must be 'best-fit' or 'cut', got 'first-fit'"),
        ({"pack": True}, "pack must be"),
        ({"longer": "drop"}, "longer must be"),
        ({"pack": None, "longer": "refuse"}, "longer='refuse' is for packed rows: pass pack='best-fit' with it"),
        ({"pack": "cut", "longer": "refuse"}, "pack='cut' cuts all documents where rows end"),
        ({"stride": 63}, "stride= is for windows, and cannot be combined with pack="),
        ({"documents": True}, "documents= is for windows"),
        ({"across": True}, "across= is for windows"),
        ({"length": None}, "pack= needs length="),
        ({"length": 0}, "length must be"),
        ({"length": 1 << 31}, r"length must be below 2\^31"),
        ({"length": 64.5}, "length must be"),
        ({"format": "raw", "dtype": "int32"}, "'raw' files have no index of documents"),
    ],
)
def test_wrong_arguments_are_refused(folder, options, message):
    with pytest.raises(Unusable, match=message):
        opened(folder, **options)


def test_rows_without_a_length_are_refused_and_2049_tokens_are_honoured(folder):
    with pytest.raises(Unusable, match="pack= needs length=, the tokens of a row, such as 8192"):
        ps.TokenDataset.from_shards(f"{folder}/", pack="best-fit")
    rows = ps.TokenDataset.from_shards(f"{folder}/", pack="best-fit", length=2049)
    assert rows[0].tokens.shape == (1, 2049)


def test_files_without_documents_are_refused(tmp_path):
    np.arange(100, dtype="u2").tofile(tmp_path / "a.bin")
    with pytest.raises(NotFound, match="no Megatron index"):
        opened(tmp_path)
    data, idx = megatron([[]] * 30)
    (tmp_path / "a.bin").write_bytes(data)
    (tmp_path / "a.idx").write_bytes(idx)
    with pytest.raises(Unusable, match="the indexes of 1 files have no documents with tokens"):
        opened(tmp_path)
    data, idx = megatron([[[1] * 100]])
    (tmp_path / "a.bin").write_bytes(data)
    (tmp_path / "a.idx").write_bytes(idx)
    with pytest.raises(Unusable, match="all documents have more than length=64 tokens"):
        opened(tmp_path, longer="leave-out")
    with pytest.raises(Unusable, match="file holds uint16 tokens, not int32"):
        opened(tmp_path, dtype="int32")


@pytest.mark.parametrize(("size", "said"), [(40, ["37.5 % of packed rows of 64 tokens is padding"]), (32, [])])
def test_much_padding_is_a_line_in_the_log(tmp_path, caplog, size, said):
    write_numbered(tmp_path, [[size] * 200])
    dataset = opened(tmp_path)
    assert [each.message.partition(":")[0] for each in caplog.records] == said
    assert dataset.padding == (0.375 if said else 0)


def test_orders_that_cut_blocks_apart_are_refused(folder, lengths):
    dataset = opened(folder)
    for order in (ps.order.BlockShuffle(50), ps.order.Lanes(50)):
        with pytest.raises(Unusable, match="block_samples would cut blocks of packed rows apart"):
            ps.DataLoader(dataset, 4, shuffle=order)
    sizes = np.diff(dataset.windows.starts)
    loader = ps.DataLoader(dataset, 4, shuffle=ps.order.BlockShuffle(sizes, 2))
    check_once([row for batch in loader for row in check_batch(batch, lengths)], dataset)


def test_window_of_an_order_has_the_blocks_that_its_bytes_hold(folder):
    dataset = opened(folder)
    assert dataset._fit_order(ps.order.Lanes()).window_blocks == 160
    # Blocks have some 128 rows of 256 bytes.
    assert dataset._fit_order(ps.order.Lanes(block_bytes=1 << 14, window_blocks=16)).window_blocks == 8
    assert dataset._fit_order(ps.order.Lanes(block_bytes=1, window_blocks=9)).window_blocks == 2


def test_rows_of_a_block_that_cannot_be_read_are_left_out(folder, tmp_path, lengths):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    dataset = opened(tmp_path)
    starts = dataset.windows.starts.tolist()
    blocks = [dataset.windows.piece(first, stop - 1).spans for first, stop in itertools.pairwise(starts)]
    with (tmp_path / "1.bin").open("ab") as file:
        file.write(bytes(4))
    # The file is a single run, and its block has runs of other files, too.
    [lost] = [number for number, spans in enumerate(blocks) if any(each.key.endswith("1.bin") for each in spans)]
    assert len(blocks[lost]) > 8
    with pytest.raises(Changed, match=r"1\.bin"):
        [*ps.DataLoader(dataset, 8, shuffle=ORDERS["defaults"])]
    loader = ps.DataLoader(dataset, 24, shuffle=ORDERS["defaults"], on_error="skip")
    found = [row for batch in loader for row in check_batch(batch, lengths)]
    assert len(found) == len(dataset) - (starts[lost + 1] - starts[lost])
    assert loader.skipped_count == starts[lost + 1] - starts[lost]
    assert all("1.bin" in each.error for each in loader.skipped)
    intact = {int(row[0]) for row in found}
    rows = itertools.chain(range(starts[lost]), range(starts[lost + 1], len(dataset)))
    assert intact == {int(dataset[row].tokens[0, 0]) for row in rows}
    # A row alone needs its pieces only, and most have none in that file.
    rows = [row for batch in ps.DataLoader(dataset, 24, shuffle=True, on_error="skip") for row in batch.seq_lens]
    assert len(dataset) - 5 <= len(rows) < len(dataset)
