"""An array knows where it lies."""

from penstock.data.zarr.arrays.opening import opened
from tests.data.zarr.stores import numbered, write


def test_opened_array_exposes_its_url_and_shape(tmp_path):
    write(tmp_path / "a.zarr", numbered((3, 2)), chunks=(2, 2))
    array = opened(str(tmp_path / "a.zarr"), "samples", None, decode_cf=None)[""]
    assert array.url == f"file://{tmp_path}/a.zarr/"
    assert array.decoded.shape == (3, 2)
