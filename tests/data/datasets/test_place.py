"""A process reads the data of its place among the data-parallel ranks, wherever that place is written down."""

from __future__ import annotations

import pytest
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from penstock.data.reading.iteration import check_place, resolve
from penstock.errors import Unusable
from penstock.values import Place
from tests.data.datasets.ranks import ranks


def test_a_place_is_itself():
    place = Place(rank=2, world=5)
    assert resolve(place) is place


def test_without_a_group_or_an_environment_one_is_alone():
    assert resolve(None) == Place()


def test_place_is_read_from_launcher_environment_variables(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert resolve(None) == Place(rank=3, world=8)


@pytest.mark.parametrize(
    "environment", [{"RANK": "1"}, {"RANK": "1", "WORLD_SIZE": "x"}, {"RANK": "2", "WORLD_SIZE": "2"}]
)
def test_half_an_environment_is_refused(monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Unusable):
        resolve(None)


def test_anything_else_is_refused_by_its_type():
    with pytest.raises(Unusable, match="got 3"):
        check_place(3)
    with pytest.raises(Unusable, match="unsharded"):
        check_place("all")
    for place in (None, Place(1, 2), "unsharded"):
        check_place(place)
    assert resolve("unsharded") == Place()


def _group():
    return resolve(None)


def _meshes(layouts):
    """Return this rank's place in each mesh, or what it raised."""
    return [_tried(init_device_mesh("cpu", shape, mesh_dim_names=names)) for shape, names in layouts]


def _tried(mesh):
    try:
        place = resolve(mesh)
    except Unusable as error:
        return str(error)
    return place.rank, place.world


def _parts():
    """Dimensions taken out of a mesh with a name that says nothing, and a mesh of some ranks only."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    return _tried(mesh["columns"]), _tried(mesh), _tried(DeviceMesh("cpu", [0, 1]))


@pytest.fixture
def init_method(tmp_path):
    return f"file://{tmp_path}/store"


def test_place_is_read_from_the_process_group(init_method):
    assert ranks(2, init_method, _group) == [Place(0, 2), Place(1, 2)]


def test_ranks_that_differ_in_another_dimension_read_the_same(init_method):
    told = {
        (("dp", "tp"), (2, 2)): [(0, 2), (0, 2), (1, 2), (1, 2)],
        (("data_parallel", "tensor_parallel"), (2, 2)): [(0, 2), (0, 2), (1, 2), (1, 2)],
        (("tp", "dp"), (2, 2)): [(0, 2), (1, 2), (0, 2), (1, 2)],
        (("dp_replicate", "dp_shard"), (2, 2)): [(0, 4), (1, 4), (2, 4), (3, 4)],
        (("replicate", "shard"), (2, 2)): [(0, 4), (1, 4), (2, 4), (3, 4)],
        (("pp", "dp_replicate", "dp_shard", "cp", "tp"), (1, 1, 2, 1, 2)): [(0, 2), (0, 2), (1, 2), (1, 2)],
        (("pp", "dp_replicate", "dp_shard_mod_ep", "dp_shard_in_ep", "tp"), (1, 2, 1, 2, 1)): [
            (0, 4), (1, 4), (2, 4), (3, 4),
        ],
        (("dp_replicate", "tp", "dp_shard"), (2, 1, 2)): [(0, 4), (1, 4), (2, 4), (3, 4)],
        (("dp_shard", "tp", "dp_replicate"), (1, 2, 2)): [(0, 2), (1, 2), (0, 2), (1, 2)],
        (("anything",), (4,)): [(0, 4), (1, 4), (2, 4), (3, 4)],
        (("dp_shard_cp",), (4,)): [(0, 4), (1, 4), (2, 4), (3, 4)],
        (None, (4,)): [(0, 4), (1, 4), (2, 4), (3, 4)],
    }  # fmt: skip
    found = ranks(4, init_method, _meshes, [(shape, names) for names, shape in told])
    assert dict(zip(told, map(list, zip(*found, strict=True)), strict=True)) == told


def test_names_that_do_not_say_are_refused(init_method):
    layouts = [
        ((2, 2), ("a", "tp")),
        ((2, 2), None),
        ((2, 2), ("dp", "dp_shard_cp")),
        ((2, 2), ("tp", "shard_tp")),
        ((4,), ("tp",)),
    ]
    for told in zip(*ranks(4, init_method, _meshes, layouts), strict=True):
        assert all('place=mesh["dp"]' in each and "ps.Place" in each for each in told)


def test_a_part_of_a_mesh_is_taken_as_it_is_and_a_rank_outside_refused(init_method):
    columns, whole, some = zip(*ranks(4, init_method, _parts), strict=True)
    assert columns == ((0, 2), (1, 2), (0, 2), (1, 2))
    assert all("cannot tell" in each for each in whole)
    assert some[:2] == ((0, 2), (1, 2))
    assert all("not part of the mesh" in each for each in some[2:])


def test_a_places_numbers_are_pythons_so_that_they_do_not_overflow():
    import numpy as np

    place = Place(np.int8(100), np.int8(120))
    assert (type(place.rank), type(place.world), place.world * 2) == (int, int, 240)
