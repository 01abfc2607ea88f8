"""Attributes of OME-Zarr's images name the axes, in each version's form; anything else is no image, and no error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.zarr.format.metadata import image_of

LEVELS = [{"path": "0"}, {"path": "1"}]


@pytest.mark.parametrize(
    ("attributes", "axes"),
    [
        ({"multiscales": [{"version": "0.1", "datasets": LEVELS}]}, "tczyx"),
        ({"multiscales": [{"datasets": LEVELS}]}, "tczyx"),
        ({"multiscales": [{"version": "0.3", "axes": ["c", "y", "x"], "datasets": LEVELS}]}, "cyx"),
        ({"multiscales": [{"axes": [{"name": "y", "type": "space"}, {"name": "x"}], "datasets": LEVELS}]}, "yx"),
        ({"ome": {"version": "0.5", "multiscales": [{"axes": [{"name": "x"}], "datasets": LEVELS}]}}, "x"),
    ],
    ids=["0.1", "no version", "0.3", "0.4", "0.5"],
)
def test_each_version_of_the_format_is_read(attributes, axes):
    assert image_of(attributes) == (tuple(axes), ("0", "1"))


def test_first_of_several_images_is_used():
    several = [{"axes": [name], "datasets": [{"path": name}]} for name in ("a", "b")]
    assert image_of({"multiscales": several}) == (("a",), ("a",))


@pytest.mark.parametrize(
    "image",
    [
        {"version": "0.4", "datasets": LEVELS},
        {"axes": ["x", "x"], "datasets": LEVELS},
        {"axes": ["x", 5], "datasets": LEVELS},
        {"axes": ["x", ""], "datasets": LEVELS},
        {"axes": ["x"], "datasets": []},
        {"axes": ["x"], "datasets": [{"path": "0"}, {"path": "/"}]},
        {"axes": ["x"], "datasets": [{"path": "0"}, "1"]},
        {"axes": ["x"], "datasets": [{"path": "../0"}]},
        {"axes": ["x"]},
    ],
)
def test_multiscales_metadata_violating_the_specification_is_ignored(image):
    assert image_of({"multiscales": [image]}) is None


def test_only_the_oldest_images_go_without_axes():
    assert image_of({"ome": {"version": "0.5", "multiscales": [{"datasets": LEVELS}]}}) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda some: (
        st.lists(some, max_size=3)
        | st.dictionaries(st.sampled_from(["multiscales", "ome", "axes", "datasets", "path", "name", "version"]), some)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["multiscales", "ome"]), JSON))
def test_no_attributes_are_an_error(attributes):
    image = image_of(attributes)
    assert image is None or (all(image.axes) and all(image.paths))
