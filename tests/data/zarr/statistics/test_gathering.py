"""Statistics are those of xarray over the elements that samples take; each chunk is read once, in any shares."""

import json
import signal

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.zarr.statistics import gathering
from penstock.data.zarr.statistics.record import Moments
from penstock.errors import Damaged, Unusable
from penstock.interop.zarr import Store
from tests.amounts import examples
from tests.data.zarr.stores import LAYOUTS, numbered, write

DIMS = ("time", "level", "x")
RANDOM = np.random.default_rng(1)


def field(shape=(20, 5, 8), dtype="f4"):
    values = RANDOM.normal(280, 10, shape).astype(dtype)
    values.flat[::11] = np.nan
    return values


def same(found, values, kept=()):
    array = xr.DataArray(np.asarray(values).astype("f8"), dims=DIMS)
    over = [name for name in DIMS if name not in kept]
    for ours, theirs in (
        (found.mean, array.mean(over)),
        (found.std, array.std(over)),
        (found.min, array.min(over)),
        (found.max, array.max(over)),
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    np.testing.assert_array_equal(found.count, array.count(over))
    np.testing.assert_array_equal(found.missing, array.isnull().sum(over))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("by", [(), "level", ("time", "x")])
def test_statistics_are_those_of_xarray(tmp_path, layout, by):
    values = field((13, 6, 8))
    write(tmp_path / "a", values, DIMS, **LAYOUTS[layout])
    found = ps.ZarrDataset(tmp_path / "a", dims="time", decode_cf=False).statistics(by)
    assert found.complete
    same(found[""], values, (by,) if isinstance(by, str) else by)


@settings(max_examples=examples(15), deadline=None)
@given(st.data())
def test_statistics_are_of_the_elements_that_samples_take(tmp_path_factory, data):
    values = field()
    path = tmp_path_factory.mktemp("a") / "a"
    chunks = tuple(data.draw(st.integers(1, size)) for size in values.shape)
    write(path, values, DIMS, chunks=chunks)
    offsets = data.draw(st.sampled_from([0, (-2, 1), range(3), 2]))
    stride, step = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 2))
    patch = data.draw(st.sampled_from([{}, {"x": 3}]))
    valid = np.arange(20) % data.draw(st.integers(2, 9)) > 0
    window = [offsets] if isinstance(offsets, int) else [*offsets]
    chosen = np.arange(0, 20, step)
    positions = range(max(0, -min(window)), min(len(chosen), len(chosen) - max(window)), stride)
    taken = [[chosen[at + each] for each in window] for at in positions]
    times = {each for some in taken if valid[some].all() for each in some}
    given_ = {"dims": "time", "offsets": offsets, "stride": {"time": stride}, "patch": patch, "valid": valid}
    given_["select"] = {"time": slice(0, None, step), "level": [3, 0]}
    if not times:
        return
    dataset = ps.ZarrDataset(path, **given_)
    used = values[np.ix_(sorted(times), [3, 0], range(6 if patch else 8))]
    by = data.draw(st.sampled_from([(), "level"]))
    found = dataset.statistics(by)[""]
    if by:
        np.testing.assert_allclose(found.mean[[3, 0]], np.nanmean(used.astype("f8"), axis=(0, 2)), rtol=1e-12)
        assert np.isnan(found.mean[[1, 2, 4]]).all()
    else:
        same(found, used)
    count = data.draw(st.integers(1, 5))
    first, *others = [dataset.statistics(by, part=(number, count)) for number in range(count)]
    merged = first.merge(*data.draw(st.permutations(others)))
    assert merged.complete
    np.testing.assert_allclose(merged[""].mean, found.mean, rtol=1e-12)
    np.testing.assert_allclose(merged[""].std, found.std, rtol=1e-12)
    np.testing.assert_array_equal(merged[""].count, found.count)


def test_each_chunk_is_read_once_though_windows_overlap_and_targets_share_the_array(server):
    write(Store("s3://bucket/a", store=server.store), field(), DIMS, chunks=(4, 5, 8))
    windows = {"offsets": range(4), "target_offsets": range(4, 6)}
    dataset = ps.ZarrDataset("s3://bucket/a", "s3://bucket/a", dims="time", store=server.store, **windows)
    before = len(server.seen())
    found = dataset.statistics()
    assert len(server.seen()) - before == 5
    assert found.samples[""].moments is found.targets[""].moments


def test_parts_of_a_dataset_have_their_own_statistics_and_normalise_the_others(tmp_path):
    values = field()
    values[np.isnan(values)] = 280
    write(tmp_path / "a", values, DIMS, chunks=(3, 2, 8))
    full = ps.ZarrDataset(tmp_path / "a", dims="time", output="numpy")
    train, validation = full.split_at(15)
    found = train.statistics("level")
    same(found[""], values[:15], ("level",))
    found.save(tmp_path / "s.json")
    mean, std = (each.astype("f4")[:, None] for each in (found[""].mean, found[""].std))
    for dataset in (validation.normalized(found), validation.normalized(tmp_path / "s.json")):
        for kept in (0, 64):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("penstock.data.zarr.samples.arrangement._KEPT_CHUNKS", kept)
                for sample, raw in zip(dataset, values[15:], strict=True):
                    assert np.array_equal(sample, (raw - mean) / std)
    again = ps.ZarrDataset(tmp_path / "a", dims="time", output="numpy", normalize=tmp_path / "s.json")
    batch = next(iter(ps.DataLoader(again, 4)))
    assert np.array_equal(batch, (values[:4] - mean) / std)
    assert np.array_equal(again.as_map()[7], (values[7] - mean) / std)
    assert again.plan(4).normalized == ("samples: by level (5,): 600 values, 0 missing",)
    assert "normalized" in repr(again.plan(4))
    # Statistics of normalised datasets are of the values that are stored.
    assert again.split_at(15)[0].statistics("level") == found


@pytest.mark.parametrize("dtype", ["i2", "u1", "f8", "f2"])
def test_normalised_integers_are_float32_and_chunks_that_were_never_written_are_normalised(tmp_path, dtype):
    values = (numbered((9, 2, 4)) % 50).astype(dtype)
    write(tmp_path / "a", values, DIMS, chunks=(2, 2, 3), fill_value=7)
    (tmp_path / "a" / "c" / "1" / "0" / "0").unlink()
    values[2:4, :, :3] = 7
    dataset = ps.ZarrDataset(tmp_path / "a", dims="time", output="numpy", decode_cf=False)
    found = dataset.statistics("x")
    same(found[""], values, ("x",))
    wanted = np.dtype(dtype) if dtype[0] == "f" else np.dtype("f4")
    wide = np.result_type(dtype, "f4")
    mean, std = (each.astype(wide) for each in (found[""].mean, found[""].std))
    for _ in range(2):
        for sample, raw in zip(dataset.normalized(found), values, strict=True):
            assert sample.dtype == wanted
            np.testing.assert_array_equal(sample, ((raw.astype(wide) - mean) / std).astype(wanted))


def test_saved_statistics_go_on_after_an_error_and_are_not_read_again(tmp_path, monkeypatch):
    values = field()
    write(tmp_path / "a", values, DIMS, chunks=(2, 5, 8), compressors=None)
    broken = tmp_path / "a" / "c" / "6" / "0" / "0"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:100])
    dataset = ps.ZarrDataset(tmp_path / "a", dims="time")
    with pytest.raises(Damaged):
        dataset.statistics(save=tmp_path / "s.json", threads=1)
    begun = ps.ZarrStatistics.load(tmp_path / "s.json")
    assert (begun.chunks, begun.complete) == ((6, 10), False)
    assert "6 of 10 chunks" in repr(begun)
    with pytest.raises(Unusable, match="takes statistics of all chunks, got 6 of 10 chunks of part"):
        dataset.normalized(begun)
    broken.write_bytes(whole)
    decoded, read = gathering._decoded, []
    monkeypatch.setattr(gathering, "_decoded", lambda *given: read.append(given[3]) or decoded(*given))
    found = dataset.statistics(save=tmp_path / "s.json")
    same(found[""], values)
    assert sorted(read) == [6, 7, 8, 9]
    monkeypatch.setattr("penstock.data.zarr.statistics.gathering.moments_of", None)
    assert dataset.statistics(save=tmp_path / "s.json") == found
    with pytest.raises(Unusable, match="the file has statistics of other arrays, elements, dimensions or parts"):
        dataset.statistics("level", save=tmp_path / "s.json")


@pytest.mark.parametrize("by", [(), "level"])
def test_chunk_that_was_being_added_at_ctrl_c_counts_once_after_the_resume(tmp_path, monkeypatch, by):
    values = field()
    write(tmp_path / "a", values, DIMS, chunks=(2, 5, 8))
    dataset = ps.ZarrDataset(tmp_path / "a", dims="time")
    add, added = Moments.add, []

    def interrupted(self, other, at=()):
        add(self, other, at)
        added.append(at)
        if len(added) == 4:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Moments, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            dataset.statistics(by, save=tmp_path / "s.json")
    same(dataset.statistics(by, save=tmp_path / "s.json")[""], values, (by,) if by else ())


def test_saved_statistics_of_values_decoded_otherwise_are_refused(tmp_path):
    write(tmp_path / "a", np.arange(4, dtype="f4"), ("time",), attributes={"_FillValue": 3.0})
    assert ps.ZarrDataset(tmp_path / "a").statistics(save=tmp_path / "s.json")[""].max == 2
    with pytest.raises(Unusable, match="the file has statistics of other arrays"):
        ps.ZarrDataset(tmp_path / "a", decode_cf=False).statistics(save=tmp_path / "s.json")


def test_series_of_stores_have_statistics_of_all(tmp_path):
    values = field((20, 5, 8))
    for number, (start, stop) in enumerate(((0, 7), (7, 8), (8, 20))):
        write(tmp_path / f"{number}.zarr", values[start:stop], DIMS, chunks=(3 + number, 2, 8))
    dataset = ps.ZarrDataset(f"{tmp_path}/*.zarr", along="time", dims="time", align="index")
    same(dataset.statistics()[""], values)
    same(dataset.statistics("time")[""], values, ("time",))
    stacked = ps.ZarrDataset([tmp_path / "0.zarr"] * 3, along="member", dims=("member", "time"))
    assert stacked.statistics("member")[""].mean.shape == (3,)


def test_masks_over_combinations_complex_values_and_unknown_dimensions_are_refused(tmp_path):
    values = field()
    write(tmp_path / "a", values, DIMS, chunks=(4, 5, 8))
    valid = np.ones((20, 5), bool)
    valid[3, 2] = False
    two = ps.ZarrDataset(tmp_path / "a", dims=("time", "level"), valid=valid)
    with pytest.raises(Unusable, match="all combinations of elements"):
        two.statistics()
    one = ps.ZarrDataset(tmp_path / "a", dims="time")
    same(one.subset(np.array([2, 0, 3])).statistics()[""], values[[0, 2, 3]])
    with pytest.raises(Unusable, match="by: unknown dimension 'height'; dimensions are 'level', 'time', 'x'"):
        one.statistics("height")
    with pytest.raises(Unusable, match="by must be the name of a dimension, or a sequence of names, got 1"):
        one.statistics(by=1)
    for part in ((3, 3), 1, (0, 0)):
        with pytest.raises(Unusable, match="part"):
            one.statistics(part=part)
    write(tmp_path / "c", field().astype("c8"), DIMS, chunks=(4, 5, 8))
    with pytest.raises(Unusable, match="values of complex64 have no statistics"):
        ps.ZarrDataset(tmp_path / "c", dims="time").statistics()


def test_levels_without_values_are_refused_when_samples_take_them(tmp_path):
    write(tmp_path / "a", numbered((20, 5, 8)), DIMS, chunks=(4, 5, 8))
    some = ps.ZarrDataset(tmp_path / "a", dims="time", select={"level": [1, 3]})
    found = some.statistics("level")
    assert len([*some.normalized(found)]) == 20
    with pytest.raises(Unusable, match="missing or infinite values for elements"):
        ps.ZarrDataset(tmp_path / "a", dims="time", normalize=found)
    assert json.dumps(found.as_record())
