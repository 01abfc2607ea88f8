"""Files of statistics are those that were saved, or refused; normalisation takes what fits."""

import json

import numpy as np
import pytest

import penstock as ps
from penstock.errors import Damaged, NotFound, Unusable
from tests.data.zarr.stores import numbered, write


@pytest.fixture
def group(tmp_path):
    for name, start in (("t2m", 0), ("u", 100)):
        write(tmp_path / "g" / name, numbered((8, 3)) + start, ("time", "x"), chunks=(2, 3))
    write(tmp_path / "g" / "still", np.full((8, 3), 5, "f4"), ("time", "x"), chunks=(2, 3))
    return {name: tmp_path / "g" / name for name in ("t2m", "u", "still")}


def test_a_file_has_the_statistics_and_is_refused_once_changed(tmp_path, group):
    found = ps.ZarrDataset(group).statistics()
    found.save(tmp_path / "s.json")
    again = ps.ZarrStatistics.load(tmp_path / "s.json")
    assert again == found
    assert hash(again) == hash(found)
    assert again["t2m"].mean == found["t2m"].mean == 11.5
    assert repr(again) == repr(found)
    assert "u: mean 111.5, std 6.92219, 100 to 123, 24 values, 0 missing" in repr(found)
    record = json.loads((tmp_path / "s.json").read_text())
    assert record["samples"]["still"]["std"] == [0.0]
    record["samples"]["u"]["mean"] = [0.0]
    (tmp_path / "s.json").write_text(json.dumps(record))
    with pytest.raises(Damaged, match="is damaged"):
        ps.ZarrStatistics.load(tmp_path / "s.json")
    for text in ("{}", "[]", "x", json.dumps({**record, "kind": "other"}), json.dumps({**record, "samples": 3})):
        (tmp_path / "s.json").write_text(text)
        with pytest.raises(Damaged, match="cannot read a file of statistics"):
            ps.ZarrDataset(group, normalize=tmp_path / "s.json")
    with pytest.raises(NotFound):
        ps.ZarrDataset(group, normalize=tmp_path / "none.json")
    with pytest.raises(Unusable, match="normalize must be statistics, or the URL of a file of them, got 3"):
        ps.ZarrDataset(group, normalize=3)


def test_only_some_arrays_are_normalised_and_constant_ones_are_shifted(group):
    found = ps.ZarrDataset(group).statistics()
    made = ps.ZarrDataset(group, normalize=found.only("still", "u"), output="numpy")
    sample = next(iter(made))
    assert sample["t2m"].tolist() == [0, 1, 2]
    assert sample["still"].tolist() == [0, 0, 0]
    assert sample["u"][0] == np.float32(-11.5) / np.float32(found["u"].std)
    assert len(made.plan(2).normalized) == 2
    with pytest.raises(Unusable, match="no statistics of 'v'; known: 't2m', 'u', 'still'"):
        found.only("v")
    with pytest.raises(KeyError, match="no statistics of 't'"):
        found["t"]


@pytest.mark.parametrize(
    "values",
    [
        np.arange(10**9, 10**9 + 24, dtype="i4"),
        np.arange(10**12, 10**12 + 24, dtype="i8"),
        np.r_[np.full(23, 60_000), -60_000].astype("f2"),
        np.r_[np.full(23, 6e-8), 0].astype("f2"),
    ],
    ids=["int32", "int64", "float16 of wide range", "float16 of narrow range"],
)
def test_normalised_values_keep_the_digits_that_tell_them_apart(tmp_path, values):
    write(tmp_path / "a", values.reshape(8, 3), chunks=(2, 3))
    dataset = ps.ZarrDataset(tmp_path / "a", output="numpy")
    found = np.stack([*dataset.normalized(dataset.statistics())])
    wanted = (values.astype("f8") - values.mean(dtype="f8")) / values.std(dtype="f8")
    np.testing.assert_allclose(found.reshape(-1), wanted, atol=2e-3)


@pytest.mark.parametrize("by", ["", "time", "x"])
def test_array_that_has_a_dimension_twice_is_normalised(tmp_path, by):
    values = numbered((4, 3, 3))
    write(tmp_path / "a", values, ("time", "x", "x"), chunks=(2, 2, 2))
    dataset = ps.ZarrDataset(tmp_path / "a", dims="time", output="numpy")
    found = np.stack([*dataset.normalized(dataset.statistics(by or ()))])
    axes = {"": (0, 1, 2), "time": (1, 2), "x": (0,)}[by]
    wanted = (values - values.mean(axes, keepdims=True)) / values.std(axes, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_other_names_and_lengths_are_refused_and_targets_take_those_of_samples(group, tmp_path):
    found = ps.ZarrDataset({"t2m": group["t2m"]}).statistics("x")
    pair = ps.ZarrDataset({"t2m": group["t2m"]}, {"t2m": group["t2m"]}, normalize=found, output="numpy")
    inputs, wanted = next(iter(pair))
    assert np.array_equal(inputs["t2m"], wanted["t2m"])
    with pytest.raises(Unusable, match="no statistics of samples 'u'; known: 't2m'"):
        ps.ZarrDataset({"u": group["u"]}, normalize=found)
    write(tmp_path / "w", numbered((8, 4)), ("time", "x"), chunks=(2, 4))
    with pytest.raises(Unusable, match=r"statistics of samples\['t2m'\] by x of the lengths \(3,\), and the array has"):
        ps.ZarrDataset({"t2m": tmp_path / "w"}, normalize=found)


def test_shares_are_merged_once_each_and_of_one_reading(group):
    dataset = ps.ZarrDataset(group)
    shares = [dataset.statistics(part=(number, 3)) for number in range(3)]
    whole = dataset.statistics()
    merged = shares[2].merge(*shares[:2])
    np.testing.assert_allclose(merged["u"].std, whole["u"].std, rtol=1e-12)
    assert merged.chunks == whole.chunks
    assert (shares[0]["t2m"].count, shares[0]["u"].count) == (24, 0)
    with pytest.raises(Unusable, match="merge takes parts 0 to 2 of 3, got"):
        shares[0].merge(shares[1])
    with pytest.raises(Unusable, match="merge takes parts"):
        shares[0].merge(shares[1], shares[1], shares[2])
    with pytest.raises(Unusable, match="of other arrays"):
        shares[0].merge(shares[1], dataset.statistics("x", part=(2, 3)))
    with pytest.raises(Unusable, match=r"cannot merge statistics after only\(\)"):
        shares[0].merge(shares[1].only("u"), shares[2])
    with pytest.raises(Unusable, match="all chunks, got"):
        dataset.normalized(shares[0])
