"""Mixtures of real sources: shares, stores, workers, errors, states; wrong arguments are refused by name."""

import collections
import itertools
import logging
import random
import re
import threading
import uuid

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader

import penstock as ps
from penstock.errors import Damaged, StateMismatch, Unusable
from penstock.testing.restarts import Counted, check_restarts
from penstock.values import Place
from tests.data.shards.archives import tar

SIZES = {"objects": 40, "shards": 30, "files": 25}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Make objects in a store, shards in a folder, and files in another."""
    folder, draw = tmp_path_factory.mktemp("sources"), random.Random(0)
    url = f"memory://sources-{uuid.uuid4().hex}/x/"
    for number in range(SIZES["objects"]):
        with ps.open(f"{url}{number:03}.bin", "wb") as file:
            file.write(b"object %d" % number)
    for name in ("shards", "files"):
        (folder / name).mkdir()
    for shard in range(3):
        members = [(f"{shard}{at:03}.bin", draw.randbytes(2000)) for at in range(10)]
        (folder / "shards" / f"{shard}.tar").write_bytes(tar(members))
    for number in range(SIZES["files"]):
        (folder / "files" / f"{number:03}.txt").write_bytes(b"file %d" % number)
    return {"objects": url, "shards": f"{folder}/shards/", "files": f"{folder}/files/"}


def name(sample):
    return sample.source, sample.key.rpartition("/")[2]


@pytest.fixture
def sources(places):
    return {
        "objects": ps.MapDataset.from_prefix(places["objects"], transform=name),
        "shards": ps.MapDataset.from_shards(places["shards"], transform=name),
        "files": ps.IterableDataset.from_prefix(places["files"], transform=name, shuffle=True, seed=3),
    }


WEIGHTS = {"objects": 4, "shards": 2, "files": 2}


def loader_of(sources, batch=8, **options):
    arguments = {"weights": WEIGHTS} | options.pop("mix", {})
    return ps.DataLoader(ps.Mix(sources, **arguments), batch, collate_fn=list, **({"shuffle": True} | options))


def counted(batches):
    return collections.Counter(source for batch in batches for source, _ in batch)


def test_each_batch_has_its_share_of_every_source(sources):
    batches = [*loader_of(sources)]
    assert len(batches) == 15
    for batch in batches:
        assert counted([batch]) == WEIGHTS


def test_without_weights_each_sample_comes_once_an_epoch(sources):
    loader = loader_of(sources, mix={"weights": None})
    for _ in range(2):
        assert counted(loader) == SIZES
        samples = [*itertools.chain.from_iterable(loader)]
        assert len(samples) == len({*samples}) == 95


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"temperature": 1}, SIZES),
        ({"temperature": 0, "epoch_samples": 60}, {"objects": 20, "shards": 20, "files": 20}),
        ({"repeats": {"files": 2}}, {"objects": 40, "shards": 30, "files": 50}),
        ({"repeats": {"objects": 0, "shards": 0, "files": 0.01}}, {"files": 1}),
        (
            {"weights": {"objects": 2, "shards": 1, "files": 1}, "ends": "shortest"},
            {"objects": 40, "shards": 20, "files": 20},
        ),
        ({"weights": {"objects": 1, "shards": 1, "files": 0}}, {"objects": 40, "shards": 40}),
        ({"weights": {"objects": 9, "shards": 1, "files": 1}, "ends": "once"}, SIZES),
    ],
)
def test_epochs_have_the_samples_that_are_asked_for(sources, arguments, expected):
    loader = loader_of(sources, mix={"weights": None} | arguments)
    found = counted(loader)
    assert found.total() == loader.dataset.epoch_samples == sum(expected.values())
    for source, count in expected.items():
        assert abs(found[source] - count) <= 2


def test_random_batches_have_other_shares_and_one_source_batches_are_pure(sources):
    shares = {tuple(sorted(counted([batch]).items())) for batch in loader_of(sources, mix={"batches": "random"})}
    assert len(shares) > 5
    batches = [*loader_of(sources, mix={"batches": "one-source"})]
    assert {len(counted([batch])) for batch in batches} == {1}
    assert {source for batch in batches for source, _ in batch} == {*SIZES}


@pytest.mark.parametrize("tail", ["short", "pad", "drop"])
def test_incomplete_last_batches_are_as_for_other_data(sources, tail):
    mix = {"epoch_samples": 30}
    batches = [*loader_of(sources, mix=mix, tail=tail)]
    assert [*map(len, batches)] == [8, 8, 8] + {"short": [6], "pad": [8], "drop": []}[tail]
    check_restarts(lambda: loader_of(sources, mix=mix, tail=tail))


def test_dropped_batches_leave_no_sample_out_of_a_source(sources):
    loader = loader_of(sources, 16, mix={"epoch_samples": 30}, tail="drop")
    came = collections.Counter(itertools.chain.from_iterable(itertools.chain.from_iterable(loader for _ in range(20))))
    for source, size in SIZES.items():
        own = [count for (name, _), count in came.items() if name == source]
        assert sum(own) == 320 * WEIGHTS[source] // 8
        assert len(own) == size
        assert max(own) - min(own) <= 1


def test_a_schedule_counts_the_samples_that_were_delivered(sources):
    alone = [dict.fromkeys(SIZES, 0) | {name: 1} for name in ("objects", "files")]
    mix = {"weights": ps.order.Schedule([(0, alone[0]), (48, alone[0]), (48, alone[1])]), "epoch_samples": 30}
    loader = loader_of(sources, 16, mix=mix, tail="drop")
    assert [{*counted([batch])} for _ in range(5) for batch in loader] == [{"objects"}] * 3 + [{"files"}] * 2


@pytest.mark.parametrize("shuffle", [True, False, ps.order.Lanes(), ps.order.BlockShuffle(4, 2)])
@pytest.mark.parametrize("arguments", [{}, {"batches": "random"}, {"batches": "one-source"}, {"weights": None}])
def test_a_mixture_resumes_after_any_batch(sources, shuffle, arguments):
    check_restarts(lambda: loader_of(sources, mix=arguments, shuffle=shuffle))


def test_a_mixture_resumes_under_torchs_loader(sources):
    def make():
        batches = ps.Mix(sources, weights=WEIGHTS).batched(8, list, shuffle=True)
        return Counted(TorchDataLoader(batches, batch_size=None), batches)

    check_restarts(make)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_worker_processes_make_the_same_batches(sources, method):
    # A process of a fork server has no memory:// of this one.
    sources, mix = {key: sources[key] for key in ("shards", "files")}, {"weights": {"shards": 1, "files": 3}}
    expected = [*loader_of(sources, mix=mix)]
    loader = loader_of(sources, mix=mix, num_workers=2, multiprocessing_context=method)
    assert [*loader] == expected
    delivered = loader.report().sources
    assert {each.name: each.samples for each in delivered} == dict(counted(expected))


def test_global_batches_are_the_same_for_any_ranks(sources):
    whole = [sorted(batch) for batch in loader_of(sources)]
    for world in (2, 4):
        ranks = [[*loader_of(sources, 8 // world, place=Place(rank, world))] for rank in range(world)]
        assert [sorted(sum(parts, [])) for parts in zip(*ranks, strict=True)] == whole


def test_lanes_are_read_by_one_rank_each(sources):
    order = ps.order.Lanes(5, lanes=2)
    sources = {"a": sources["shards"], "b": sources["shards"][:20]}
    arguments = {"weights": {"a": 2, "b": 1}}
    ranks = [[*loader_of(sources, 6, mix=arguments, shuffle=order, place=Place(rank, 2))] for rank in range(2)]
    seen = [{sample for batch in rank[:3] for sample in batch if sample[0] == "a"} for rank in ranks]
    assert [*map(len, seen)] == [12, 12]
    # Only a block at the border of the two lanes is read by both.
    blocks = [{(key[0], int(key[1:]) // 5) for _, key in rank} for rank in seen]
    assert len(blocks[0] & blocks[1]) <= 1


def test_weights_change_where_a_state_is_loaded_and_no_sample_is_lost(sources):
    loader, seen = loader_of(sources), []
    for batch in itertools.islice(loader, 7):
        seen += batch
    state = loader.state_dict()
    new = {"objects": 1, "shards": 1, "files": 6}
    other = loader_of(sources, num_workers=2)
    other.load_state_dict(state, new_weights=new)
    for batch in itertools.islice(other, 4):
        assert counted([batch]) == new
        seen += batch
    counts = collections.Counter(seen)
    for source, size in SIZES.items():
        repeats = [count for (own, _), count in counts.items() if own == source]
        assert max(repeats) - min(repeats) <= (len(repeats) == size)
    with pytest.raises(StateMismatch, match="pass new_weights="):
        loader_of(sources, mix={"weights": new}).load_state_dict(state)
    loader_of(sources, mix={"weights": new}).load_state_dict(state, new_weights=True)


def test_persistent_workers_take_new_weights(sources):
    loader = loader_of(sources, num_workers=1, persistent_workers=True)
    state = loader.state_dict()
    first = [*loader]
    new = {"objects": 1, "shards": 6, "files": 1}
    loader.load_state_dict(state, new_weights=new)
    assert [counted([batch]) for batch in itertools.islice(loader, 3)] == [new] * 3
    assert counted([first[0]]) == WEIGHTS


def test_persistent_workers_of_torch_refuse_weights_that_they_do_not_know(sources):
    batches = ps.Mix(sources, weights=WEIGHTS).batched(8, list)
    state = batches.state_dict()
    loader = TorchDataLoader(batches, batch_size=None, num_workers=1, persistent_workers=True)
    assert len([*loader]) == 15
    batches.load_state_dict(state, new_weights={"objects": 1, "shards": 6, "files": 1})
    with pytest.raises(Unusable, match="worker processes still have the old ones"):
        next(iter(loader))


def test_a_schedule_moves_the_shares_during_the_run(sources):
    schedule = ps.order.Schedule([(0, WEIGHTS), (80, {"objects": 0, "shards": 8, "files": 0})])
    loader = loader_of(sources, mix={"weights": schedule, "epoch_samples": 160})
    shares = [counted([batch])["shards"] for batch in loader]
    assert shares[0] == 2
    assert all(later >= share - 1 for share, later in itertools.pairwise(shares))
    assert shares[10:] == [8] * 10
    check_restarts(lambda: loader_of(sources, mix={"weights": schedule, "epoch_samples": 160}))


def test_arrays_and_tokens_are_sources_too(sources, tmp_path):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(f"{tmp_path}/a.zarr", shape=(12, 4), chunks=(3, 4), dtype="int64")
    array[:] = np.arange(48).reshape(12, 4)
    np.arange(1000, 1040).astype("uint16").tofile(tmp_path / "t.bin")
    mix = ps.Mix(
        {
            "zarr": ps.ZarrDataset(f"{tmp_path}/a.zarr", shuffle=True),
            "tokens": ps.TokenDataset.from_shards(f"{tmp_path}/t.bin", length=4, dtype="uint16"),
            "both": ps.concat(sources["objects"], sources["shards"]),
        },
        weights={"zarr": 1, "tokens": 1, "both": 2},
    )
    loader = ps.DataLoader(mix, 4, shuffle=True, collate_fn=list)
    batches = [*loader]
    assert {sum(isinstance(each, tuple) for each in batch) for batch in batches} == {2}
    arrays = torch.stack([torch.as_tensor(each) for batch in batches for each in batch if not isinstance(each, tuple)])
    assert arrays.shape == (len(batches) * 2, 4)
    assert (arrays[:, 0] >= 1000).sum() == (arrays[:, 0] < 1000).sum() == len(batches)
    assert {source for batch in batches for source, *_ in [each for each in batch if isinstance(each, tuple)]} == {
        "both"
    }


def test_arrays_and_tokens_resume_on_other_ranks_and_workers(tmp_path):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(f"{tmp_path}/a.zarr", shape=(40, 4), chunks=(5, 4), dtype="int64")
    array[:] = np.arange(160).reshape(40, 4)
    for number in (1, 2, 3):
        np.arange(number * 1000, number * 1000 + 101).astype("uint16").tofile(tmp_path / f"{number}.bin")
    tokens = ps.TokenDataset.from_shards(f"{tmp_path}/{{1..2}}.bin", length=4, dtype="uint16", across=True)
    more = ps.TokenDataset.from_shards(f"{tmp_path}/3.bin", length=4, dtype="uint16")
    sources = {
        "zarr": ps.ZarrDataset(f"{tmp_path}/a.zarr", shuffle=True, lanes=4),
        "tokens": tokens,
        "both": ps.concat(more, tokens[3:9]),
    }

    def loaders(world, workers, state=None):
        made = []
        for rank in range(world):
            mix = ps.Mix(sources, weights={"zarr": 2, "tokens": 1, "both": 1})
            options = {"shuffle": True, "place": Place(rank, world), "num_workers": workers}
            made.append(ps.DataLoader(mix, 8 // world, **options))
            if state is not None:
                made[-1].load_state_dict(state)
        return made

    def batches(made, count=None):
        """Return global batches: the samples of all ranks, sorted."""
        together = itertools.islice(zip(*made, strict=True), count)
        return [sorted(each.tolist() for part in parts for each in part) for parts in together]

    whole = batches(loaders(1, 0))
    assert {sum(each[0] < 1000 for each in batch) for batch in whole} == {4}
    for first, then in (((1, 1), (2, 0)), ((2, 0), (4, 0)), ((4, 0), (1, 2))):
        begun = loaders(*first)
        assert batches(begun, 5) + batches(loaders(*then, begun[0].state_dict())) == whole


def test_sources_whose_samples_do_not_stack_say_what_to_do(tmp_path):
    zarr = pytest.importorskip("zarr")
    for width in (4, 5):
        zarr.create_array(f"{tmp_path}/{width}", shape=(12, width), chunks=(3, width), dtype="int64")
    sources = {f"{width}": ps.ZarrDataset(f"{tmp_path}/{width}", shuffle=True) for width in (4, 5)}
    with pytest.raises(RuntimeError, match="equal size") as caught:
        next(iter(ps.DataLoader(ps.Mix(sources), 8)))
    with pytest.raises(
        Unusable, match=r"got a ZarrDataset: arrays of .* joined by ps\.ZarrDataset\(\[…\], along=\"time\"\)"
    ):
        ps.concat(*sources.values())
    note = r"cannot collate row \d of the batch, sample \d+, .*: the sample is a Tensor of shape \([45],\), and in row"
    assert any(re.search(note, each) for each in caught.value.__notes__), caught.value.__notes__


def broken(sample):
    if sample.key.endswith("3.bin"):
        raise ValueError("three")
    return name(sample)


class TestErrors:
    def sources(self, places):
        return {
            "objects": ps.MapDataset.from_prefix(places["objects"], transform=broken),
            "files": ps.MapDataset.from_prefix(places["files"], transform=name),
        }

    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_source_may_skip_what_fails(self, places, workers, caplog):
        caplog.set_level(logging.WARNING, "penstock")
        mix = ps.Mix(self.sources(places), on_error={"objects": "skip"})
        loader = ps.DataLoader(mix, 13, collate_fn=list, shuffle=True, num_workers=workers)
        assert counted(loader) == {"objects": 36, "files": 25}
        assert loader.skipped_count == 4
        assert {each.url[-7:] for each in loader.skipped} == {f"{ten}3.bin" for ten in ("00", "01", "02", "03")}

    def test_torchs_loader_logs_what_is_left_out(self, places, caplog):
        mix = ps.Mix(self.sources(places), on_error={"objects": "skip"})
        assert counted(TorchDataLoader(mix.batched(13, list), batch_size=None)) == {"objects": 36, "files": 25}
        assert sum("left out of its batch" in each.message for each in caplog.records) == 4

    def test_other_sources_raise(self, places):
        for on_error in (None, {"files": "skip"}, {"objects": "raise"}):
            with pytest.raises(ValueError, match="three"):
                [*ps.DataLoader(ps.Mix(self.sources(places), on_error=on_error), 13, collate_fn=list)]

    def test_a_batch_without_a_sample_left_is_damaged(self, places):
        def fails(sample):
            raise ValueError(sample.key)

        mix = ps.Mix(
            {"objects": ps.MapDataset.from_prefix(places["objects"], transform=fails)}, on_error={"objects": "skip"}
        )
        with pytest.raises(Damaged, match="no sample of a batch"):
            [*ps.DataLoader(mix, 4)]


def test_bare_samples_name_their_source_also_in_other_processes(places):
    mix = ps.Mix({key: ps.MapDataset.from_prefix(places[key]) for key in ("objects", "files")})
    for workers in (0, 1):
        [batch, *_] = ps.DataLoader(mix, 8, num_workers=workers)
        assert {sample.source for sample in batch} == {"objects", "files"}
    assert ps.MapDataset.from_prefix(places["files"])[0].source == ""


def test_labels_of_all_sources_are_numbers_of_one_list(tmp_path):
    for source, classes in (("one", "bc"), ("two", "ab")):
        for each in classes:
            (tmp_path / source / each).mkdir(parents=True)
            (tmp_path / source / each / "x").write_bytes(b"")
    parts = {
        source: ps.MapDataset.from_prefix(
            f"{tmp_path}/{source}/", labels="folder", transform=lambda s: (s.label, s.key)
        )
        for source in ("one", "two")
    }
    mix = ps.Mix(parts)
    assert mix.classes == ("a", "b", "c")
    for label, key in itertools.chain.from_iterable(ps.DataLoader(mix, 4, collate_fn=list)):
        assert key.split("/")[-2] == mix.classes[label]
    joined = ps.Mix({"both": ps.concat(parts["one"]), "two": parts["two"]})
    for label, key in itertools.chain.from_iterable(ps.DataLoader(joined, 4, collate_fn=list)):
        assert key.split("/")[-2] == joined.classes[label]


def test_inspect_and_plan_tell_the_sources(sources):
    loader = loader_of(sources)
    planned = loader.inspect(2)
    batch = next(itertools.islice(iter(loader), 2, None))
    assert [each.source for each in planned] == [source for source, _ in batch]
    shown = next(each for each in planned if each.source == "objects")
    assert sources["objects"].url_of(shown.index) == shown.url
    urls = sum(len([*spans]) for _, spans in loader_of(sources).reads())
    assert urls == 120


def test_the_report_tells_shares_and_waits(sources):
    loader = loader_of(sources)
    found = counted(loader)
    report = loader.report()
    told = {each.name: each for each in report.sources}
    assert {each: told[each].samples for each in told} == dict(found)
    assert told["objects"].wanted == 0.5
    assert all(each.waited_s >= 0 for each in report.sources)
    assert "objects" in str(report)
    assert "objects" in report.html()
    assert report.values()["sources"][0]["name"] == "objects"


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"weights": {"objects": 1}}, "weights lacks the source"),
            ({"weights": WEIGHTS | {"x": 1}}, "unknown source 'x'"),
            ({"weights": [1, 2, 3]}, "weights must be a mapping"),
            ({"weights": WEIGHTS, "temperature": 1}, "exclude one another, got weights and temperature"),
            ({"repeats": {"x": 1}}, "repeats: unknown source 'x'"),
            ({"repeats": {"files": 2}, "ends": "longest"}, "ends= needs weights"),
            ({"temperature": 2}, "temperature must be"),
            ({"ends": "never"}, "ends must be"),
            ({"batches": "mixed"}, "batches must be"),
            ({"epoch_samples": 0}, "epoch_samples"),
            ({"epoch_samples": 1.5}, "epoch_samples"),
            ({"epoch_samples": 1 << 70}, r"more than 2\^62 samples"),
            ({"weights": WEIGHTS | {"files": 1e-300}}, r"more than 2\^62 samples"),
            ({"epoch_samples": 10, "ends": "once"}, "pass one of the two"),
            ({"ends": "once", "batches": "one-source"}, "cannot be combined with"),
            ({"weights": ps.order.Schedule([(0, WEIGHTS)])}, "pass epoch_samples="),
            ({"weights": ps.order.Schedule([(0, WEIGHTS)]), "ends": "once"}, "cannot be combined with"),
            ({"weights": ps.order.Schedule([(0, {"x": 1})]), "epoch_samples": 9}, "lacks the source"),
            ({"on_error": "skip"}, "on_error must be a mapping"),
            ({"on_error": {"x": "skip"}}, "on_error: unknown source 'x'"),
            ({"on_error": {"files": "drop"}}, "must be 'raise' or 'skip'"),
        ],
    )
    def test_arguments(self, sources, arguments, words):
        with pytest.raises(Unusable, match=words):
            ps.Mix(sources, **arguments)

    def test_sources(self, sources):
        mix = ps.Mix(sources)
        for wrong, words in (
            ({}, "must be a mapping from names"),
            ([sources["files"]], "must be a mapping from names"),
            ({"": sources["files"]}, "name of a source"),
            ({1: sources["files"]}, "name of a source"),
            ({"a": mix}, "is a Mix"),
            ({"a": [1, 2]}, "must be a dataset of Penstock, got a list"),
            ({"a": sources["objects"][:0]}, "has no samples"),
        ):
            with pytest.raises(Unusable, match=words):
                ps.Mix(wrong)

    def test_place_of_a_source(self, places):
        place = ps.Place(0, 4)
        mix = ps.Mix({"files": ps.IterableDataset.from_prefix(places["files"], transform=name, place=place)})
        with pytest.raises(Unusable, match=r"source 'files' has place=Place\(rank=0, world=4.*loader of the mixture"):
            ps.DataLoader(mix, 2)
        assert sum(map(len, ps.DataLoader(mix, 2, collate_fn=list, place=place))) == -(-SIZES["files"] // 4)

    def test_iteration_without_batches(self, sources):
        with pytest.raises(Unusable, match="a Mix is read in batches"):
            iter(ps.Mix(sources))
        with pytest.raises(Unusable, match="a Mix is read in batches"):
            next(iter(TorchDataLoader(ps.Mix(sources), batch_size=4)))

    def test_a_mixture_in_concat_and_in_a_batch_sampler(self, sources):
        with pytest.raises(Unusable, match="got a Mix"):
            ps.concat(ps.Mix(sources))
        with pytest.raises(Unusable, match="has no samples by index"):
            ps.BatchSampler(ps.Mix(sources), 4)

    def test_new_weights_of_a_plain_dataset(self, sources):
        loader = ps.DataLoader(sources["objects"], 4)
        with pytest.raises(Unusable, match=r"new_weights= changes the weights of a ps\.Mix"):
            loader.load_state_dict(loader.state_dict(), new_weights=WEIGHTS)

    @pytest.mark.parametrize("ends", ["once", "longest"])
    def test_new_weights_that_change_later_where_ends_gives_the_length_of_an_epoch(self, sources, ends):
        loader = loader_of(sources, mix={"ends": ends})
        schedule = ps.order.Schedule([(0, WEIGHTS), (16, WEIGHTS | {"files": 0})], linear=False)
        with pytest.raises(Unusable, match=r"a ps\.order\.Schedule is for a mixture with epoch_samples="):
            loader.load_state_dict(loader.state_dict(), new_weights=schedule)

    def test_states_of_other_kinds(self, sources):
        loader = loader_of(sources)
        state = loader.state_dict()
        plain = ps.DataLoader(sources["objects"], 4).state_dict()
        for wrong in (plain, {name: value for name, value in state.items() if name != "mixture"}):
            with pytest.raises(StateMismatch, match=r"of one dataset, not of a ps\.Mix"):
                loader.load_state_dict(wrong, new_weights=True)
        for mix in ({"batches": "random"}, {"ends": "once"}):
            with pytest.raises(StateMismatch, match="cannot change during a run"):
                loader_of(sources, mix=mix).load_state_dict(state, new_weights=True)

    def test_schedules(self):
        for stages, words in (
            ([(0, {"a": -1})], "must be a number"),
            ([(0, {"a": 1}), (5, {"b": 1})], "lacks the source 'a'"),
        ):
            with pytest.raises(Unusable, match=words):
                ps.order.Schedule(stages)

    def test_functions_that_cannot_be_sent_to_workers(self, places):
        # No library pickles a lock.
        lock = threading.Lock()
        sources = {"a": ps.MapDataset.from_prefix(places["files"], transform=lambda sample: (lock, sample.key))}
        for dataset in (ps.Mix(sources), ps.concat(sources["a"])):
            with pytest.raises(Unusable, match=r"transform of (a|dataset 0)=.*cannot be sent"):
                ps.DataLoader(dataset, 4, num_workers=1, multiprocessing_context="spawn")

    def test_epochs_beyond_counting(self, sources):
        loader = loader_of(sources)
        loader.set_epoch(1 << 61)
        with pytest.raises(Unusable, match=r"the limit is 2\^62 samples"):
            next(iter(loader))

    def test_a_shuffle_that_does_not_reach_a_source(self, sources, places):
        plain = {
            "objects": sources["objects"],
            "files": ps.IterableDataset.from_prefix(places["files"], transform=name),
        }
        ps.DataLoader(ps.Mix(plain), 4)
        with pytest.raises(Unusable, match="does not reach source 'files': a"):
            ps.DataLoader(ps.Mix(plain), 4, shuffle=True)

    def test_lanes_that_differ(self, places):
        shards = {
            "a": ps.IterableDataset.from_shards(places["shards"], shuffle=ps.order.Lanes(4, lanes=2)),
            "b": ps.IterableDataset.from_shards(places["shards"], shuffle=ps.order.Lanes(4, lanes=4)),
        }
        with pytest.raises(Unusable, match="same number of lanes"):
            ps.Mix(shards)


class TestParts:
    """One dataset, mixed by the values of a column."""

    def dataset(self, places):
        dataset = ps.MapDataset.from_prefix(places["objects"], transform=lambda sample: sample.columns["shape"])
        shapes = [("wide", "tall", "square")[number % 7 % 3] for number in range(SIZES["objects"])]
        dataset.catalog = dataset.catalog.with_columns(shape=shapes, size=[*map(len, shapes)])
        return dataset

    def test_batches_are_of_one_value(self, places):
        mix = ps.Mix.by("shape", self.dataset(places), batches="one-source")
        assert [*mix.sources] == ["square", "tall", "wide"]
        for batch in ps.DataLoader(mix, 6, shuffle=True, collate_fn=list):
            assert len({*batch}) == 1

    def test_values_of_a_column_of_numbers_are_names_as_text(self, places):
        mix = ps.Mix.by("size", self.dataset(places), weights={"4": 1, "6": 3})
        for batch in ps.DataLoader(mix, 4, collate_fn=list):
            assert collections.Counter(map(len, batch)) == {4: 1, 6: 3}

    def test_columns_that_do_not_fit_are_refused(self, places):
        dataset = self.dataset(places)
        with pytest.raises(Unusable, match="no column 'colour'; its columns are 'shape', 'size'"):
            ps.Mix.by("colour", dataset)
        with pytest.raises(Unusable, match="no classes"):
            ps.Mix.by("label", dataset)
        with pytest.raises(Unusable, match="takes a MapDataset, got a str"):
            ps.Mix.by(dataset, "shape")
        with pytest.raises(Unusable, match="name of a column"):
            ps.Mix.by(["shape"], dataset)
        dataset.catalog = dataset.catalog[[0] * 300].with_columns(number=[*range(300)])
        with pytest.raises(Unusable, match="300 values"):
            ps.Mix.by("number", dataset)
