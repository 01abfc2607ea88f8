"""Several stores are read as one array: as xarray concatenates them, bit by bit, whatever their lengths and chunks."""

import pickle
import re
import shutil
import tempfile
import warnings
from contextlib import contextmanager
from itertools import product

import numpy as np
import pytest
import torch
import xarray as xr
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import NotFound, Unusable
from penstock.interop.zarr import Store
from tests.amounts import examples
from tests.data.zarr.stores import numbered, run_interrupted, write

DAY = np.timedelta64(1, "D")
START = np.datetime64("2000-01-01", "ns")


def year(first, days, *, start=0, names=("t2m",), step=DAY, **coordinates):
    """Return a dataset of some days, whose values all differ."""
    shape = (days, 3, 4)
    values = {name: (("time", "lat", "lon"), numbered(shape) + start + 1e6 * n) for n, name in enumerate(names)}
    times = START + (first + np.arange(days)) * step
    axes = {"lat": np.arange(3.0), "lon": np.arange(4.0)} | coordinates
    return xr.Dataset({**values, "oro": (("lat", "lon"), numbered((3, 4)))}, {"time": times, **axes})


def store(path, dataset, *, chunk=4, zarr_format=3, consolidated=True, **encoding):
    for name, each in dataset.data_vars.items():
        if "time" in each.dims:
            encoding[name] = {"chunks": (chunk, *each.shape[1:]), **encoding.get(name, {})}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset.to_zarr(path, encoding=encoding, zarr_format=zarr_format, consolidated=consolidated)
    return str(path)


def joined(datasets):
    return xr.concat(datasets, "time", data_vars="minimal", coords="minimal", compat="override", join="override")


def dataset(urls, **arguments):
    return ps.ZarrDataset(urls, **{"along": "time", "dims": "time", "output": "numpy"} | arguments)


@contextmanager
def written(*datasets, **how):
    """Write datasets into a folder of their own, each in a store; yield their paths."""
    folder = tempfile.mkdtemp()
    try:
        yield [store(f"{folder}/{n}.zarr", each, **how) for n, each in enumerate(datasets)]
    finally:
        shutil.rmtree(folder)


@st.composite
def programs(draw):
    """Draw lengths, chunks and formats of stores, the shape of samples, and a run with a stop."""
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5).filter(lambda some: sum(some) > 6))
    first = draw(st.integers(-2, 1))
    offsets = draw(st.sampled_from([0, first, range(first, first + 4), (first, first + 3), (1, 0)]))
    patch = {name: draw(st.integers(1, 2)) for name in ("lat", "lon") if draw(st.booleans())}
    sample = {"offsets": offsets, "patch": patch, "stride": {"time": draw(st.integers(1, 3))}}
    if draw(st.booleans()):
        sample["select"] = {"time": slice(draw(st.integers(0, 2)), None, draw(st.sampled_from((1, 1, 2))))}
    lanes = draw(st.sampled_from((1, 2, 4)))
    worlds = [each for each in (1, 2, 4) if lanes % each == 0]
    run = {
        "lanes": lanes,
        "worlds": [draw(st.sampled_from(worlds)) for _ in range(2)],
        "every": lanes * draw(st.integers(1, 2)),
        "stop": draw(st.integers(0, 5)),
        "shuffle": draw(st.booleans()),
        "window_bytes": draw(st.sampled_from((1, 300, 1 << 20))),
    }
    formats = [(draw(st.integers(1, 7)), draw(st.sampled_from((2, 3))), draw(st.booleans())) for _ in lengths]
    return lengths, formats, sample, run


def wanted_samples(array, sample):
    """Return the samples of an array of xarray, by isel, as sorted bytes."""
    chosen, offsets, patch = array.isel(sample.get("select", {})), sample["offsets"], sample["patch"]
    window = [offsets] if isinstance(offsets, int) else [*offsets]
    corners = [range(0, chosen.sizes[name] - size + 1, size) for name, size in patch.items()]
    found = []
    for at in range(max(0, -min(window)), chosen.sizes["time"] - max(0, *window), sample["stride"]["time"]):
        times = at + offsets if isinstance(offsets, int) else [at + each for each in window]
        for corner in product(*corners):
            box = {name: slice(at, at + size) for (name, size), at in zip(patch.items(), corner, strict=True)}
            found.append(chosen.isel(box | {"time": times}).to_numpy().tobytes())
    return sorted(found)


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_samples_are_those_of_xarray_concat_once_each_on_any_ranks_and_resumes(program):
    lengths, formats, sample, run = program
    firsts = np.cumsum([0, *lengths])
    years = [year(first, days, start=12 * first) for first, days in zip(firsts, lengths, strict=False)]
    folder = tempfile.mkdtemp()
    try:
        for n, (each, (chunk, version, consolidated)) in enumerate(zip(years, formats, strict=True)):
            store(f"{folder}/{n}.zarr", each, chunk=chunk, zarr_format=version, consolidated=consolidated)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("penstock.data.zarr.samples.arrangement._KEPT_CHUNKS", 0)
            wanted = wanted_samples(joined(years)["t2m"], sample)
            urls = {"t2m": [f"{folder}/{n}.zarr/t2m" for n in range(len(years))]}
            order = {key: run[key] for key in ("lanes", "shuffle", "window_bytes")}

            def load(rank, world):
                made = dataset(urls, **sample, **order, place=ps.Place(rank, world), align="index")
                return ps.DataLoader(made, run["every"] // world, decode_threads=2)

            if not wanted:
                with pytest.raises(Unusable, match="no sample"):
                    load(0, 1)
                return
            parts = run_interrupted(load, run["worlds"], run["stop"], run["every"], len(wanted))
        found = [np.ascontiguousarray(each).tobytes() for part in parts for batch in part for each in batch["t2m"]]
    finally:
        shutil.rmtree(folder)
    # The last batch may repeat a few samples, so that all ranks have equally many.
    assert sorted({*found}) == wanted
    assert len(found) - len(wanted) < max(run["worlds"])


@pytest.mark.parametrize("kept", [0, 64])
def test_windows_reach_from_store_to_store_and_each_chunk_is_read_once(monkeypatch, kept):
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_CHUNKS", kept)
    years = [year(0, 9), year(9, 7, start=1000), year(16, 1, start=2000), year(17, 8, start=3000)]
    with written(*years) as urls:
        whole = joined(years)["t2m"].to_numpy()
        made = dataset({"t2m": [f"{url}/t2m" for url in urls]}, offsets=range(-3, 5))
        found = [*made]
        assert len(found) == 25 - 7
        for number, each in enumerate(found):
            np.testing.assert_array_equal(each["t2m"], whole[number : number + 8])
        plan = dataset(urls, shuffle=True, window_bytes=1 << 10).plan(2)
        assert plan.amplification == 1
        assert plan.chunks == 1 + 3 + 2 + 1 + 2
        # Samples of a block lie in one store, so that no chunk is in two blocks.
        if not kept:
            assert dataset({"t2m": [f"{url}/t2m" for url in urls]}).contents.arrangement.space.sizes.tolist() == [
                *(4, 4, 1),
                *(4, 3),
                1,
                *(4, 4),
            ]


def test_wildcards_give_stores_in_natural_order_and_groups_keep_static_fields(tmp_path):
    for n in (2, 10, 1):
        store(tmp_path / f"y{n}.zarr", year(5 * n if n < 3 else 15, 5, start=100 * n, names=("t2m", "u")))
    (tmp_path / "readme.txt").write_text("x")
    made = dataset(str(tmp_path / "y*.zarr"))
    found = [*made]
    assert [int(each["t2m"][0, 0]) // 100 for each in found] == [1] * 5 + [2] * 5 + [10] * 5
    assert {*found[0]} == {"t2m", "u", "oro"}
    assert all(np.array_equal(each["oro"], numbered((3, 4))) for each in found)
    assert len(dataset({"x": tmp_path / "y*.zarr" / "u"}).contents) == 15
    with pytest.raises(NotFound, match="no store matches"):
        dataset(f"{tmp_path}/z*.zarr")
    with pytest.raises(Unusable, match=r"must not contain \*\*"):
        dataset(f"{tmp_path}/**.zarr")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("consolidated", [False, True])
@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_wildcards_match_the_members_of_a_group_and_none_of_its_documents(tmp_path, zarr_format, consolidated):
    group = zarr.open_group(tmp_path / "g", mode="w", zarr_format=zarr_format, attributes={"x": 1})
    for member in range(3):
        named = ["time", "y", "x"]
        dims = {"dimension_names": named} if zarr_format == 3 else {"attributes": {"_ARRAY_DIMENSIONS": named}}
        array = group.create_array(f"m{member}/t", shape=(4, 3, 4), chunks=(4, 3, 4), dtype="f4", **dims)
        array[:] = member + 1
    if consolidated:
        zarr.consolidate_metadata(str(tmp_path / "g"), zarr_format=zarr_format)
    (tmp_path / "g" / "statistics.txt").write_text("beside")
    (tmp_path / "g" / ".ipynb_checkpoints").mkdir()
    (tmp_path / "g" / ".ipynb_checkpoints" / "x.ipynb").write_text("hidden")
    for pattern in ("*", "m*", "[lm]*"):
        made = ps.ZarrDataset(tmp_path / "g" / pattern, along="member", dims=("member", "time"))
        assert [float(each["t"].max()) for each in made] == [1] * 4 + [2] * 4 + [3] * 4
    for pattern in ("*/t", "m*/*", "*/*"):
        made = ps.ZarrDataset({"t": tmp_path / "g" / pattern}, along="member", dims=("member", "time"))
        assert [float(each["t"].max()) for each in made] == [1] * 4 + [2] * 4 + [3] * 4


def elements(part):
    """Return the days that the samples of a part have, by their values, and the samples."""
    found = [np.asarray(each["t2m"]) for each in part]
    return sorted({int(value) // 12 for each in found for value in each[..., 0, 0].ravel()}), found


def test_parts_of_joined_stores_are_divided_by_date_and_by_blocks_across_the_stores(monkeypatch):
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_CHUNKS", 0)
    years = [year(first, days, start=12 * first) for first, days in ((0, 9), (9, 7), (16, 1), (17, 8))]
    with written(*years, chunk=3) as urls:
        fields = {"t2m": [f"{url}/t2m" for url in urls]}
        whole = dataset(fields, offsets=(-1, 0), shuffle=True)
        train, validation, test = whole.split_at("2000-01-11", "2000-01-18")
        assert [elements(each)[0] for each in (train, validation, test)] == [
            [*range(10)],
            [*range(10, 17)],
            [*range(17, 25)],
        ]
        assert [len(each) for each in whole.split_at(-8, gap=2 * DAY)] == [14, 7]
        # The border lies within a chunk of the second store, which both parts read.
        assert [each.plan(2).reads for each in (train, validation, test)] == [3 + 1, 3 + 1, 3]
        blocks, rest = whole.split(0.6, block=5, gap=1, seed=2)
        kept, left = elements(blocks), elements(rest)
        assert not {*kept[0]} & {*left[0]}
        wanted = joined(years)["t2m"].to_numpy()
        for days, found in (kept, left):
            assert len(days) > 1
            for each in found:
                at = int(each[1, 0, 0]) // 12
                np.testing.assert_array_equal(each, wanted[at - 1 : at + 1])
        loader = ps.DataLoader(pickle.loads(pickle.dumps(train)), 2, num_workers=1)
        assert sum(len(batch["t2m"]) for batch in loader) == len(train) == 9
        normal = train.normalized(train.statistics())
        assert abs(np.mean([each["t2m"] for each in normal.as_map()])) < 0.2


def test_parts_by_member_are_those_of_the_new_dimension():
    members = [year(0, 6, start=1000 * n) for n in range(4)]
    with written(*members) as urls:
        whole = dataset({"t2m": [f"{url}/t2m" for url in urls]}, along="member", dims=("member", "time"))
        train, validation = whole.split(3, 1)
        assert {int(each["t2m"][0, 0]) // 1000 for each in train} == {0, 1, 2}
        assert {int(each["t2m"][0, 0]) // 1000 for each in validation} == {3}
        first, last = whole.split_at("2000-01-04", dim="time")
        assert [len(first), len(last)] == [12, 12]
        with pytest.raises(Unusable, match="member"):
            whole.split_at("2000")


def test_plan_of_joined_stores_counts_them_and_no_chunk_twice():
    with written(year(0, 9), year(9, 7), year(16, 1)) as urls:
        plan = dataset({"t2m": [f"{url}/t2m" for url in urls]}).plan(2)
        assert plan.joined == ("time: 3 stores of 1 to 9",)
        assert (plan.chunks, plan.amplification) == (3 + 2 + 1, 1)
        assert "joined" in repr(plan)
        plan = dataset(urls[:1] * 2, along="member", dims=("member", "time")).plan(2)
        assert plan.joined == ("member: 2 stores of 1",)


def test_members_are_stacked_along_a_new_dimension():
    members = [year(0, 6, start=1000 * n) for n in range(3)]
    with written(*members) as urls:
        made = dataset(urls, along="member", dims=("member", "time"), offsets=0)
        whole = xr.concat(members, "member")
        found = [*made]
        assert len(found) == 18
        for number, each in enumerate(found):
            member, day = divmod(number, 6)
            np.testing.assert_array_equal(each["t2m"], whole["t2m"][member, day])
            np.testing.assert_array_equal(each["oro"], whole["oro"][member])
        for day, each in enumerate(dataset(urls, along="member")):
            np.testing.assert_array_equal(each["t2m"], whole["t2m"][:, day])
        with pytest.raises(Unusable, match="did you mean 'time'"):
            dataset(urls, along="tim")
        with pytest.raises(Unusable, match="different grids: 'time' is"), written(year(9, 6)) as others:
            dataset([*urls, *others], along="member")


def test_regions_are_joined_along_a_dimension_of_patches():
    west, east = year(0, 4), year(0, 4, start=500, lon=np.arange(4.0, 8.0))
    with written(west, east) as urls:
        whole = xr.concat([west, east], "lon", data_vars="minimal", coords="minimal", compat="override")["t2m"]
        some = {"t2m": [f"{url}/t2m" for url in urls]}
        made = dataset(some, along="lon", patch={"lon": 2, "lat": 1}, halo={"lon": 1})
        found = [each["t2m"] for each in made]
        assert len(found) == 4 * 3 * 3
        wanted = [whole[t, y, x : x + 4].to_numpy() for t in range(4) for y in range(3) for x in (0, 2, 4)]
        assert sorted(each.tobytes() for each in found) == sorted(each.tobytes() for each in wanted)
        with pytest.raises(Unusable, match="overlap along 'lon'"):
            dataset({"t2m": [f"{urls[0]}/t2m"] * 2}, along="lon")


def test_gap_between_stores_is_an_error_that_names_both_and_may_be_left_out():
    first, second = year(0, 5), year(8, 5, start=1000)
    with written(first, second, time={"units": "days since 2000-01-01"}) as urls:
        with pytest.raises(
            Unusable, match=r"gap along 'time': \S+0.zarr/time/ ends at 4 days .* \S+1.zarr/time/ begins at 8"
        ):
            dataset(urls)
        found = [each["t2m"][:, 0, 0] for each in dataset(urls, align="coordinates", offsets=(0, 1))]
    with (
        written(first, second) as urls,
        pytest.raises(Unusable, match=r"ends at 2000-01-05, .* at 2000-01-09, where other steps are 1 day, 0:00:00;"),
    ):
        dataset(urls)
    with written(first, second, time={"units": "days since 2000-01-01"}) as urls:
        whole = joined([first, second])["t2m"][:, 0, 0].to_numpy()
        assert [each.tolist() for each in found] == [whole[n : n + 2].tolist() for n in range(9) if n != 4]
        assert len([*dataset(urls, align="index", offsets=(0, 1))]) == 9


def test_overlapping_and_unordered_stores_are_refused_also_with_align():
    with written(year(0, 5), year(4, 5)) as urls:
        for align in (None, "coordinates"):
            with pytest.raises(Unusable, match=r"or are in the wrong order: .*2000-01-05"):
                dataset(urls, align=align)
        assert len([*dataset(urls, align="index")]) == 10
    with written(year(5, 5), year(0, 5)) as urls, pytest.raises(Unusable, match="overlap along 'time', or are in"):
        dataset(urls)


def test_units_of_each_store_are_decoded_and_one_time_a_store_is_a_series():
    days = [year(n, 1, start=100 * n) for n in range(6)]
    with written(*days) as urls:
        made = dataset(urls, align="coordinates", offsets=(0, 1))
        assert made.coordinates["time"].tolist() == [int(START + n * DAY) for n in range(6)]
        assert len([*made]) == 5
        assert len([*dataset(urls, targets=urls[3], align="coordinates")]) == 1


def test_stores_whose_values_have_several_units_get_a_warning(recwarn):
    kelvin, celsius = year(0, 4), year(4, 4)
    for days, unit in ((kelvin, "K"), (celsius, "degC")):
        days.t2m.attrs["units"] = unit
    with written(kelvin, kelvin.assign_coords(time=celsius.time)) as urls:
        dataset(urls)
    assert not recwarn.list
    with written(kelvin, celsius) as urls:
        dataset(urls)
    [told] = recwarn.list
    assert re.fullmatch(r"units of \S+ are 'K', and of \S+ 'degC': values are not converted", str(told.message))
    assert told.filename == __file__


def test_irregular_times_have_no_gaps_and_one_store_alone_is_a_series():
    times = [START + np.array(some) * DAY for some in ([0, 1, 7, 9], [30, 31, 50])]
    some = [year(0, len(each)).assign_coords(time=each) for each in times]
    with written(*some) as urls:
        assert len(dataset(urls).contents) == 7
        assert len(dataset(urls[:1]).contents) == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda each: each.rename(t2m="t"), r"1.zarr has no array 't2m', which \S+0.zarr has"),
        (lambda each: each.assign(u=each.t2m), r"0.zarr has no array 'u', which \S+1.zarr has"),
        (lambda each: each.astype("f8"), "values of .* are float32, and of .* float64"),
        (
            lambda each: each.isel(lat=slice(2)),
            "lengths of .* are {'lat': 3, 'lon': 4}, and of .* {'lat': 2, 'lon': 4}",
        ),
        (lambda each: each.transpose("lat", "time", "lon"), "dimensions of .*'time', 'lat', 'lon'"),
        (lambda each: each.assign_coords(lat=[2.0, 1.0, 0.0]), "different grids: 'lat' is 0.0 to 2.0 in"),
    ],
)
def test_stores_that_do_not_fit_are_refused_by_name(change, words):
    with written(year(0, 4), change(year(4, 4))) as urls, pytest.raises(Unusable, match=words):
        dataset(urls)


def test_chunks_that_differ_along_other_dimensions_are_refused(tmp_path):
    for name, chunks in (("a", (2, 3)), ("b", (2, 1))):
        write(tmp_path / name, numbered((4, 3)), ("time", "x"), chunks=chunks)
    with pytest.raises(Unusable, match=r"chunks of \S+a/ are {'x': 3}, and of \S+b/ {'x': 1}; penstock zarr copy"):
        dataset([tmp_path / "a", tmp_path / "b"])


def test_along_needs_several_stores_and_lists_need_along(tmp_path):
    write(tmp_path / "a", numbered((4, 3)), ("time", "x"), chunks=(2, 3))
    with pytest.raises(Unusable, match="along='time' joins several stores, and samples and targets are one each"):
        dataset(tmp_path / "a")
    with pytest.raises(Unusable, match="along= joins stores"):
        ps.ZarrDataset([str(tmp_path / "a")])
    with pytest.raises(NotFound, match="along= joins stores"):
        ps.ZarrDataset(f"{tmp_path}/*")
    for wrong in (3, ""):
        with pytest.raises(Unusable, match="along must be the name of a dimension"):
            dataset([tmp_path / "a"], along=wrong)
    with pytest.raises(Unusable, match="a list of stores must not be empty"):
        dataset([])


def test_codecs_shards_packing_and_open_objects_may_differ_between_stores(tmp_path):
    values = numbered((22, 6, 8))
    write(tmp_path / "a", values[:9], ("time", "y", "x"), chunks=(2, 3, 8), shards=(8, 6, 8))
    write(tmp_path / "b", values[9:14], ("time", "y", "x"), chunks=(5, 3, 8), zarr_format=2)
    write(tmp_path / "c", values[14:14], ("time", "y", "x"), chunks=(5, 3, 8))
    write(tmp_path / "d", values[14:], ("time", "y", "x"), chunks=(3, 3, 8), compressors=None)
    given = [str(tmp_path / "a"), zarr.open_array(tmp_path / "b"), tmp_path / "c", zarr.open_array(tmp_path / "d")]
    for shuffle in (False, True):
        found = [*dataset(given, shuffle=shuffle, decode_cf=False)]
        assert np.array_equal(sorted(found, key=lambda each: each[0, 0]), values)
    made = dataset(given, decode_cf=False).as_map()
    assert np.array_equal(made[10], values[10])


def test_stores_of_forty_years_with_a_hole_are_opened_by_one_request_each(server):
    """Forty years in a bucket: one has no object for some days, which are NaN, as in xarray."""
    years = [year(365 * n, 365, start=10_000 * n) for n in range(40)]
    urls = [f"s3://bucket/{1980 + n}.zarr" for n in range(40)]
    for url, each in zip(urls, years, strict=True):
        store(Store(url, store=server.store), each, chunk=100, time={"chunks": (365,)})
    ps.delete("s3://bucket/1993.zarr/t2m/c/1/0/0", store=server.store)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened = [xr.open_zarr(Store(url, store=server.store), chunks=None) for url in urls]
        whole = joined(opened)["t2m"].load().to_numpy()
    before = len(server.seen())
    given = {"store": server.store, "shuffle": True, "window_bytes": 1 << 16}
    made = dataset("s3://bucket/*.zarr", **given)
    sent = [each.key for each in server.seen()[before:]]
    # All five documents of the first store, and a listing; the coordinates of each store.
    assert sum(each.endswith("zarr.json") for each in sent) == 40
    assert len(sent) == 40 + 4 + 1 + 3 * 40
    before = len(server.seen())
    found = np.concatenate([batch["t2m"] for batch in ps.DataLoader(made, 32)])
    # Each chunk once, the orography, and looks at the metadata of the array whose object is not there.
    assert len(server.seen()) - before <= 40 * 4 + 1 + 3
    ranks = [dataset("s3://bucket/*.zarr", place=ps.Place(rank, 2), **given) for rank in (0, 1)]
    halves = np.concatenate([batch["t2m"] for each in ranks for batch in ps.DataLoader(each, 32)])
    assert int(np.isnan(found[:, 0, 0]).sum()) == 100
    wanted = sorted(each.tobytes() for each in whole)
    assert sorted(np.ascontiguousarray(each).tobytes() for each in found) == wanted
    assert sorted(np.ascontiguousarray(each).tobytes() for each in halves) == wanted


def test_targets_follow_from_store_to_store_also_in_a_pickled_dataset():
    years = [year(0, 6), year(6, 5, start=1000)]
    with written(*years) as urls:
        whole = joined(years)["t2m"].to_numpy()
        single = [f"{url}/t2m" for url in urls]
        made = dataset(single, targets=single, target_offsets=(1, 2), output="torch")
        loader = ps.DataLoader(pickle.loads(pickle.dumps(made)), 4)
        pairs = [(x, y) for xs, ys in loader for x, y in zip(xs, ys, strict=True)]
        assert len(pairs) == 9
        for number, (x, y) in enumerate(pairs):
            assert torch.equal(x, torch.from_numpy(whole[number]))
            assert torch.equal(y, torch.from_numpy(whole[number + 1 : number + 3]))


def test_a_pickled_dataset_leaves_the_metadata_of_other_arrays_behind():
    years = [year(0, 6, names=("t2m", *(f"v{n}" for n in range(50)))), year(6, 5, names=("t2m",))]
    with written(*years) as urls:
        made = dataset({"t2m": [f"{url}/t2m" for url in urls]})
        groups = ps.ZarrDataset(urls[0])
        assert len(pickle.dumps(made)) < 20_000
        first = next(iter(groups.contents.arrays))
        assert first.objects.opened is None
        assert len(pickle.dumps(groups)) / len(groups.contents.arrays) < 5_000


def test_name_of_a_sample_is_that_of_its_store(monkeypatch):
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_CHUNKS", 0)
    with written(year(0, 6), year(6, 5)) as urls:
        made = dataset([f"{url}/t2m" for url in urls])
        assert made.url_of(5).endswith("0.zarr/t2m/ at time=5")
        assert made.url_of(6).endswith("1.zarr/t2m/ at time=6")
