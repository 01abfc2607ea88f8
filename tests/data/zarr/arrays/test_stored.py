"""An array knows where it lies, and what tells it from others."""

import shutil

import pytest
import zarr

import penstock as ps
from penstock.errors import StateMismatch
from tests.data.zarr.stores import arrays_at, numbered, write


def test_opened_array_exposes_its_url_and_shape(tmp_path):
    write(tmp_path / "a.zarr", numbered((3, 2)), chunks=(2, 2))
    array = arrays_at(str(tmp_path / "a.zarr"))[""]
    assert array.url == f"file://{tmp_path}/a.zarr/"
    assert array.decoded.shape == (3, 2)


def _array(path, **attributes):
    write(path, numbered((12, 4)), ("time", "x"), chunks=(4, 4), attributes={"history": str(path), **attributes})
    return path


def _loader(given, **arguments):
    return ps.DataLoader(ps.ZarrDataset(given, dims="time", **arguments), 2, decode_threads=1)


def _state(loader):
    next(iter(loader))
    return loader.state_dict()


def _refuses(loader, state):
    with pytest.raises(StateMismatch, match=r"the catalog differs .* of arrays"):
        loader.load_state_dict(state)


def test_state_fits_a_copy_elsewhere_and_no_other_array_of_the_same_shape(tmp_path):
    path = _array(tmp_path / "a", units="K", long_name="temperature")
    state = _state(_loader(path))
    shutil.copytree(path, tmp_path / "moved" / "b")
    for given in (tmp_path / "moved" / "b", zarr.open_array(path)):
        _loader(given).load_state_dict(state)
    _refuses(_loader(_array(tmp_path / "c", units="K", long_name="dew point")), state)


def test_state_of_joined_stores_fits_them_elsewhere_and_no_other_stores(tmp_path):
    years = [_array(tmp_path / "a" / year) for year in ("2019", "2020", "2021")]
    state = _state(_loader(years[:2], along="time"))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    _loader([tmp_path / "b" / "2019", tmp_path / "b" / "2020"], along="time").load_state_dict(state)
    for others in (years[1:], years[1::-1]):
        _refuses(_loader(others, along="time"), state)
