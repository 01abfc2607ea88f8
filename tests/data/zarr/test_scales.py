"""Patches of two resolutions lie at the same place, static fields have any patch, and lead times may be several."""

import tempfile

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import Unusable
from tests.amounts import examples
from tests.data.zarr.stores import numbered, write


def grid(path, name, shape, coordinates=None, chunks=None):
    """Write a field of (time, lat, lon) with coordinates; return its URL and values."""
    values = numbered(shape)
    dataset = xr.Dataset({name: (("time", "lat", "lon"), values)}, coordinates or {})
    dataset.to_zarr(path, encoding={name: {"chunks": chunks or shape}}, consolidated=False)
    return f"{path}/{name}", values


def cells(count, *, first=90.0, last=-90.0, points=False):
    """Return the centres of cells, or points from the first to the last."""
    edges = np.linspace(first, last, count + (not points))
    return edges if points else (edges[1:] + edges[:-1]) / 2


@st.composite
def cases(draw):
    factor, coarse = draw(st.integers(2, 4)), (draw(st.integers(5, 12)), draw(st.integers(4, 9)))
    fine = tuple(factor * size - draw(st.integers(0, factor - 1)) for size in coarse)
    patch = {"lat": draw(st.integers(1, 3)), "lon": draw(st.integers(1, 2))}
    stride = {"lat": draw(st.integers(1, 3))}
    arguments = {"patch": patch, "halo": draw(st.integers(0, 1)), "stride": stride, "scale": factor}
    chunks = [tuple(draw(st.integers(1, size)) for size in (4, *shape)) for shape in (coarse, fine)]
    return factor, coarse, fine, chunks, arguments


@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.booleans(), st.sampled_from((1, 2)), st.booleans())
def test_patches_of_two_resolutions_are_the_same_area(case, shuffle, world, swapped):
    factor, coarse, fine, chunks, arguments = case
    halo, rows, columns = arguments["halo"], *arguments["patch"].values()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.data.zarr.samples.arrangement._KEPT_CHUNKS", 0)
        values = [numbered((4, *shape), "i4") for shape in (coarse, fine)]
        for name, each, chunk in zip("ab", values, chunks, strict=True):
            write(f"{folder}/{name}", each, ("time", "lat", "lon"), chunks=chunk)
        a, b = values
        pair, outer = ("ba", factor) if swapped else ("ab", 1)
        inputs, targets = (b, a) if swapped else (a, b)
        inner = factor if not swapped else 1
        wanted = []
        limit = [min(whole, small // factor) for whole, small in zip(coarse, fine, strict=True)]
        for time in range(4):
            for y in range(halo, limit[0] - rows - halo + 1, arguments["stride"]["lat"]):
                for x in range(halo, limit[1] - columns - halo + 1, columns):
                    large = [slice((at - halo) * outer, (at + n + halo) * outer) for at, n in ((y, rows), (x, columns))]
                    small = [slice(at * inner, (at + n) * inner) for at, n in ((y, rows), (x, columns))]
                    wanted.append(inputs[time][*large].tobytes() + targets[time][*small].tobytes())
        found = []
        for rank in range(world if wanted else 0):
            dataset = ps.ZarrDataset(
                *(f"{folder}/{name}" for name in pair),
                dims="time",
                output="numpy",
                shuffle=shuffle,
                place=ps.Place(rank, world),
                **arguments,
            )
            found += [one.tobytes() + other.tobytes() for one, other in dataset]
        assert sorted(found) == sorted(wanted)
        if wanted:
            # All values of an array differ, so those of the samples are the elements that they use.
            statistics, samples = dataset.statistics(threads=1), dataset.as_map()
            for side, used in zip((statistics.samples, statistics.targets), zip(*samples, strict=True), strict=True):
                elements = np.unique(np.stack(used))
                assert side[""].count == len(elements)
                assert side[""].mean == pytest.approx(elements.mean(), rel=1e-12)


def test_each_chunk_of_two_resolutions_is_read_once(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_CHUNKS", 0)
    write(tmp_path / "a", numbered((3, 16, 16)), ("time", "lat", "lon"), chunks=(1, 8, 8))
    write(tmp_path / "b", numbered((3, 64, 64)), ("time", "lat", "lon"), chunks=(1, 32, 32))
    dataset = ps.ZarrDataset(
        tmp_path / "a", tmp_path / "b", dims="time", patch={"lat": 4, "lon": 4}, scale=4, shuffle=True
    )
    assert dataset.plan(8).amplification == 1
    assert set(dataset.contents.arrangement.space.sizes.tolist()) == {4}


@pytest.mark.parametrize("points", [False, True])
def test_grids_of_cells_and_of_points_are_nested(tmp_path, points):
    sizes = [(9, 9), (33, 33)] if points else [(8, 8), (32, 32)]
    places = [{"lat": cells(n, points=points), "lon": cells(m, first=0, last=40, points=points)} for n, m in sizes]
    coarse, a = grid(tmp_path / "a.zarr", "t", (2, *sizes[0]), places[0])
    fine, b = grid(tmp_path / "b.zarr", "t", (2, *sizes[1]), places[1])
    dataset = ps.ZarrDataset(coarse, fine, dims="time", patch={"lat": 4, "lon": 4}, scale=4, output="numpy")
    samples = [*dataset]
    assert len(samples) == 8
    assert np.array_equal(samples[3][0], a[0, 4:8, 4:8])
    assert np.array_equal(samples[3][1], b[0, 16:32, 16:32])
    train, valid = dataset.split(0.5, dim="lat")
    assert {one.tobytes() for one, _ in train} == {a[t, :4, x : x + 4].tobytes() for t in (0, 1) for x in (0, 4)}
    assert len(valid) == 4


def test_patches_of_different_places_are_refused(tmp_path):
    north, _ = grid(tmp_path / "a.zarr", "t", (2, 8, 8), {"lat": cells(8), "lon": np.arange(8.0)})
    south, b = grid(tmp_path / "b.zarr", "t", (2, 8, 8), {"lat": -cells(8), "lon": np.arange(8.0)})
    how = {"dims": "time", "patch": {"lat": 4}, "output": "numpy"}
    with pytest.raises(Unusable, match=r"different places along 'lat': element 0 is 78.75 in .*-78.75 in"):
        ps.ZarrDataset(north, south, **how)
    accepted = ps.ZarrDataset(north, south, align="index", **how)
    assert np.array_equal(next(iter(accepted))[1], b[0, :4])
    fine, _ = grid(tmp_path / "c.zarr", "t", (2, 16, 8), {"lat": cells(16, first=88), "lon": np.arange(8.0)})
    with pytest.raises(Unusable, match="different places along 'lat'"):
        ps.ZarrDataset(north, fine, scale={"lat": 2}, **how)
    single, _ = grid(tmp_path / "d.zarr", "t", (2, 8, 8), {"lat": cells(8).astype("f4"), "lon": np.arange(8)})
    assert len(ps.ZarrDataset(north, single, **how)) == 4


def test_patches_along_time_pair_equal_times(tmp_path):
    days = np.datetime64("2000-01-01", "ns") + np.arange(8) * np.timedelta64(1, "D")
    one, same, later = (
        grid(tmp_path / name, name, (8, 3, 2), {"time": times})[0]
        for name, times in (("a", days), ("b", days), ("c", days + np.timedelta64(2, "D")))
    )
    how = {"dims": "lat", "patch": {"time": 4}}
    assert len(ps.ZarrDataset(one, same, **how)) == len(ps.ZarrDataset(one, later, align="index", **how)) == 6
    with pytest.raises(Unusable, match="different times along 'time': element 0 is"):
        ps.ZarrDataset(one, later, **how)


def test_whole_fields_with_latitudes_in_reverse_are_refused(tmp_path):
    latitudes, levels = cells(4), np.array([10.0, 20, 30, 40, 50])
    one, values = grid(tmp_path / "one", "a", (6, 4, 5), {"lat": latitudes, "lon": levels})
    flipped, _ = grid(tmp_path / "flipped", "b", (6, 4, 5), {"lat": latitudes[::-1].astype("f4"), "lon": levels})
    turned, _ = grid(tmp_path / "turned", "b", (6, 4, 5), {"lat": latitudes, "lon": np.roll(levels, 2) - 360})
    elsewhere, _ = grid(tmp_path / "elsewhere", "b", (6, 4, 5), {"lat": latitudes, "lon": levels + 360})
    with pytest.raises(
        Unusable, match=r"opposite directions along 'lat': 67\.5 to -67\.5 in .* and -67\.5 to 67\.5 in"
    ):
        ps.ZarrDataset(one, flipped, dims="time")
    with pytest.raises(Unusable, match=r"different meridians along 'lon': .* roll one by transform="):
        ps.ZarrDataset(one, turned, dims="time")
    tiles = [grid(tmp_path / f"{x}", "t", (6, 4, 5), {"lat": np.arange(4) * 180.0 + x})[0] for x in (0, 180)]
    assert len(ps.ZarrDataset(*tiles, dims="time")) == 6
    for other, arguments in ((flipped, {"align": "index"}), (elsewhere, {}), (one, {})):
        pairs = [*ps.ZarrDataset(one, other, dims="time", output="numpy", **arguments)]
        assert np.array_equal([first for first, _ in pairs], values)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"patch": {"lat": 4}}, "differ in length along 'lat'"),
        ({"patch": {"lat": 4}, "scale": 3}, r"scale of 'lat' is 3, but .* and the coarsest array has 8 elements"),
        ({"patch": {"lat": 4, "lon": 4}, "scale": {"lat": 4, "lon": 4}}, "scale of 'lon' is 4, but all arrays have"),
        ({"patch": {"lat": 4}, "scale": {"lon": 4}}, "scale names 'lon', which has no patches"),
        ({"patch": {"lat": 4}, "scale": 0}, "scale must be"),
        (
            {"patch": {"lat": 2}, "scale": {"lat": 4}, "select": {"lat": slice(0, 8, 2)}},
            "must be a slice without steps",
        ),
    ],
)
def test_scales_that_do_not_fit_are_refused(tmp_path, arguments, words):
    write(tmp_path / "a", numbered((3, 8, 8)), ("time", "lat", "lon"), chunks=(1, 8, 8))
    write(tmp_path / "b", numbered((3, 32, 8)), ("time", "lat", "lon"), chunks=(1, 32, 8))
    with pytest.raises(Unusable, match=words):
        ps.ZarrDataset(tmp_path / "a", tmp_path / "b", dims="time", **arguments)


def test_selected_rows_are_those_of_the_coarse_array(tmp_path):
    write(tmp_path / "a", numbered((1, 8, 2)), ("time", "lat", "lon"), chunks=(1, 8, 2))
    write(tmp_path / "b", numbered((1, 32, 2)), ("time", "lat", "lon"), chunks=(1, 32, 2))
    pair = (tmp_path / "a", tmp_path / "b")
    how = {"dims": "time", "patch": {"lat": 2}, "scale": 4, "select": {"lat": slice(3, 7)}, "output": "numpy"}
    samples = [*ps.ZarrDataset(*pair, **how)]
    assert [int(one[0, 0]) // 2 for one, _ in samples] == [3, 5]
    assert [int(other[0, 0]) // 2 for _, other in samples] == [12, 20]


def test_static_fields_have_the_patch_of_the_others(tmp_path):
    field, mask, height = numbered((4, 8, 8)), numbered((8, 8), "i2"), numbered((32, 32))
    write(tmp_path / "t", field, ("time", "lat", "lon"), chunks=(1, 4, 4))
    write(tmp_path / "mask", mask, ("lat", "lon"), chunks=(3, 8))
    write(tmp_path / "height", height, ("lat", "lon"), chunks=(5, 7))
    names = {name: tmp_path / name for name in ("t", "mask", "height")}
    dataset = ps.ZarrDataset(
        names,
        tmp_path / "t",
        dims="time",
        target_offsets=(1, 3),
        patch={"lat": 4, "lon": 2},
        scale=4,
        halo={"lat": 1},
        output="numpy",
    )
    samples = [*dataset]
    assert len(samples) == 4
    for number, (inputs, leads) in enumerate(samples):
        x = 2 * number
        assert np.array_equal(inputs["t"], field[0, 0:6, x : x + 2])
        assert np.array_equal(inputs["mask"], mask[0:6, x : x + 2])
        assert np.array_equal(inputs["height"], height[0:24, 4 * x : 4 * x + 8])
        assert np.array_equal(leads, field[[1, 3], 1:5, x : x + 2])
