"""A mistake of a hurried user is refused at construction, with a text that says what to write instead."""

import datetime as dt
import json

import numpy as np
import pytest

import penstock as ps
from penstock.data.zarr.arguments import shape_of
from penstock.errors import Unusable
from tests.data.zarr.stores import DIMS, numbered, write


@pytest.fixture
def folder(tmp_path):
    values = numbered((21, 6, 8))
    write(tmp_path / "a", values, DIMS, chunks=(4, 6, 8))
    write(tmp_path / "short", values[:20], DIMS, chunks=(4, 6, 8))
    write(tmp_path / "narrow", values[:, :5], DIMS, chunks=(4, 5, 8))
    write(tmp_path / "unnamed", values, chunks=(4, 6, 8))
    write(tmp_path / "empty", values[:0], DIMS, chunks=(4, 6, 8))
    write(tmp_path / "day", np.arange(21).astype("M8[D]"), ("time",), chunks=(4,), zarr_format=2)
    write(tmp_path / "word", np.full(21, "a", "U3"), ("time",), chunks=(4,), zarr_format=2)
    return tmp_path


WRONG = [
    ({"missing": "zero"}, "missing must be 'fill' or 'error', got 'zero'"),
    ({"output": "jax"}, "output must be 'torch' or 'numpy', got 'jax'"),
    ({"decode_cf": "yes"}, "decode_cf must be True or False, got 'yes'"),
    ({"transform": 3}, "transform must be a function of a sample, got 3"),
    ({"batch_size": 4}, r"pass batch_size= to the loader: ps\.DataLoader\(dataset, batch_size"),
    ({"num_workers": 4}, "pass num_workers= to the loader"),
    ({"chunks": 4}, "no argument chunks=: the samples of whole chunks"),
    ({"patches": {"y": 2}}, "no argument patches=: did you mean patch="),
    ({"variables": ["t2m"]}, "no argument variables=: some arrays of a group are chosen by a mapping"),
    ({"quux": 1}, r"no argument quux=: help\(ps.ZarrDataset\)"),
    ({"window_bytes": 0}, "window_bytes must be 1 or more, got 0"),
    ({"memory_bytes": 0}, "memory_bytes must be 1 or more, got 0"),
    ({"lanes": 0}, "lanes must be 1 or more, got 0"),
    ({"shuffle": "yes"}, "shuffle must be True, False or an order"),
    ({"dims": "Time"}, "dims: unknown dimension 'Time'; .*did you mean 'time'"),
    ({"patch": {"X": 3}}, "patch: unknown dimension 'X'; .*did you mean 'x'"),
    ({"stride": {"tim": 3}}, "stride: unknown dimension 'tim'; .*did you mean 'time'"),
    ({"patch": {"y": 2}, "halo": {"yy": 1}}, "halo: unknown dimension 'yy'; .*did you mean 'y'"),
    ({"select": {"tme": 3}}, "select: unknown dimension 'tme'; .*did you mean 'time'"),
    ({"select": {"longitude": 3}}, "select: unknown dimension 'longitude'; known are 'time', 'y', 'x'$"),
    ({"select": {"time": slice(5, 5)}}, "select leaves no element of 'time', which has 21 elements"),
    ({"select": {"time": slice(None, None, 0)}}, "select of 'time' must have a step other than 0"),
    ({"select": {"time": np.array(1.5)}}, "select of 'time' must be a whole number"),
    ({"decode_cf": np.array([True, False])}, "decode_cf must be True or False, got"),
    ({"forbidden_is_missing": "no"}, "forbidden_is_missing must be True or False, got 'no'"),
    ({"select": {"x": []}}, r"select leaves no element of 'x', which has 8 elements: \[\]"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG, ids=[str(each) for each, _ in WRONG])
def test_an_argument_that_cannot_be_meant_is_refused(folder, arguments, words):
    with pytest.raises(Unusable, match=words):
        ps.ZarrDataset(str(folder / "a"), **arguments)


def test_arrays_of_one_number_are_numbers(folder):
    taken = {"offsets": np.array(1), "stride": np.array(2), "select": {"x": np.array(3)}}
    found = ps.ZarrDataset(folder / "a", dims="time", output="numpy", **taken)
    assert np.array_equal(np.stack([*found]), numbered((21, 6, 8))[1::2, :, 3])


def test_words_are_refused_before_the_first_request():
    for arguments in ({"missing": 0}, {"output": "tf"}, {"batch_size": 1}, {"window_bytes": 0}, {"shuffle": 7}):
        with pytest.raises(Unusable):
            ps.ZarrDataset("nowhere://", **arguments)


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (5, "got an int$"),
        (None, "got None$"),
        (["a", "short"], 'got a list: of several arrays write {"name": URL'),
        ({"": "a"}, "got '' as a name"),
        ({1: "a"}, "got 1 as a name"),
        ({"t": ["a"]}, r"samples\['t'\] must be the URL"),
    ],
)
def test_invalid_samples_arguments_are_refused(samples, words):
    with pytest.raises(Unusable, match=words):
        ps.ZarrDataset(samples)


@pytest.mark.parametrize(
    ("targets", "arguments", "words"),
    [
        ("short", {}, r"along 'time': .*/a has the shape \(21, 6, 8\).*/short has the shape \(20, 6, 8\)"),
        ("narrow", {"patch": {"y": 2}}, r"along 'y': .*/a has the shape .*/narrow has the shape \(21, 5, 8\)"),
        ("unnamed", {}, "/unnamed has .* samples extend along 'time': .* store dimension_names"),
    ],
)
def test_targets_that_do_not_fit_are_refused_with_both_shapes(folder, targets, arguments, words):
    with pytest.raises(Unusable, match=words):
        ps.ZarrDataset(str(folder / "a"), str(folder / targets), **arguments)


@pytest.mark.parametrize("dims", [None, "dim_0"])
def test_named_targets_beside_unnamed_samples_are_refused(folder, dims):
    with pytest.raises(Unusable, match=r"/a has .* samples extend along 'dim_0': .* store dimension_names"):
        ps.ZarrDataset(str(folder / "unnamed"), str(folder / "a"), dims=dims)


def test_an_array_without_elements_is_refused(folder):
    with pytest.raises(Unusable, match="no samples: the arrays have no elements along 'time'"):
        ps.ZarrDataset(str(folder / "empty"))


@pytest.mark.parametrize(("name", "words"), [("day", r"datetime64\[D\] \(times\)"), ("word", r"<U3 \(texts\)")])
def test_values_that_no_tensor_holds_are_refused_and_numpy_has_them(folder, name, words):
    with pytest.raises(Unusable, match=f"samples has values of {words}, which tensors cannot hold: pass output="):
        ps.ZarrDataset(str(folder / name))
    with pytest.raises(Unusable, match=rf"targets\['z'\] has values of {words}.* \(v\), or pass output="):
        ps.ZarrDataset(str(folder / "a"), {"z": str(folder / name), "v": str(folder / "short")})
    found = np.concatenate([*ps.DataLoader(ps.ZarrDataset(str(folder / name), output="numpy"), 4)])
    assert len(found) == 21


def test_texts_are_all_of_the_type_of_the_array(folder):
    texts = np.array(["a", "bcd", ""] * 7, "U3")
    write(folder / "words", texts, ("time",), chunks=(4,), zarr_format=2)
    dataset = ps.ZarrDataset(str(folder / "words"), output="numpy")
    assert {each.dtype for each in dataset} == {texts.dtype}
    for found in ([*dataset], [*dataset.as_map()], np.concatenate([*dataset.batched(4)])):
        assert np.array_equal(found, texts)
    assert {each.dtype for each in dataset.batched(4)} == {texts.dtype}


def test_objects_are_refused(folder):
    path = folder / "day" / ".zarray"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dtype": "|O", "filters": [{"id": "vlen-utf8"}]}))
    with pytest.raises(ps.errors.PenstockError, match="variable length"):
        ps.ZarrDataset(str(folder / "day"))


@pytest.mark.parametrize("index", [-1, 10**6])
def test_a_sample_that_is_not_there_has_no_url(folder, index):
    with pytest.raises(IndexError, match=f"sample {index} does not exist: the dataset has"):
        ps.ZarrDataset(f"{folder}/a").url_of(index)


def shape(dims=None, **given):
    offsets, patches = (
        (given.get("offsets", 0), given.get("target_offsets", 0)),
        (given.get("patch"), given.get("halo", 0), given.get("scale")),
    )
    return shape_of(dims, offsets, given.get("stride"), patches, given.get("select"))


def test_arguments_become_uniform():
    select = {"time": slice(0, 9), "level": 3, "band": [0, 2]}
    found = shape(
        "time", offsets=range(-1, 1), target_offsets=6, stride=2, patch={"y": 8, "x": 8}, halo=1, select=select
    )
    assert (found.dims, found.offsets, found.target_offsets) == (("time",), (-1, 0), 6)
    assert (found.stride, found.patch, found.halo) == ({"": 2}, {"y": 8, "x": 8}, {"y": 1, "x": 1})
    assert found.select == select
    assert shape(("time", "member"), halo={"y": 1}, stride={"time": 3}).dims == ("time", "member")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dims": 0}, "dims must be the name"),
        ({"dims": ("time", "time")}, "twice"),
        ({"offsets": ()}, "offsets is empty"),
        ({"offsets": "12"}, "offsets must be a number"),
        ({"offsets": 1.5}, "offsets must be a number"),
        ({"target_offsets": (0, 1.5)}, "target_offsets must be a whole number"),
        ({"stride": 0}, "stride must be 1 or more"),
        ({"stride": "2"}, "stride must be a mapping"),
        ({"patch": 64}, "patch must be a mapping"),
        ({"patch": {"y": 0}}, "patch of 'y' must be 1 or more"),
        ({"patch": {"y": 8}, "halo": -1}, "halo must be 0 or more"),
        ({"halo": 2}, "halo=2 needs patches"),
        ({"scale": 2}, "scale=2 needs patches"),
        ({"select": 5}, "select must be a mapping"),
        ({"select": {"time": "2020"}}, "select of 'time'"),
        ({"select": {"time": [True, False]}}, r"is a mask, and takes numbers of elements: np\.flatnonzero"),
        ({"select": {"time": np.array([True, False])}}, r"np\.flatnonzero\(mask\)"),
        ({"select": {"time": [1, 2.5]}}, "select of 'time' must be a whole number"),
        ({"select": {"time": slice("2000", None)}}, r"counts elements, and slice\('2000'.*slice_indexer"),
        ({"select": {"lat": slice(None, 20.5)}}, "select of 'lat' counts elements"),
        ({"select": {"lat": 20.5}}, "select of 'lat' counts elements, and 20.5"),
        ({"select": {"time": np.datetime64("2000-01-01")}}, "select of 'time' counts elements"),
        ({"select": {"time": dt.date(2000, 1, 1)}}, "select of 'time' counts elements"),
    ],
)
def test_invalid_sample_shape_arguments_are_refused(arguments, words):
    with pytest.raises(Unusable, match=words):
        shape(**arguments)
