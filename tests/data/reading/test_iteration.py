"""A place is found in the parent and travels to its workers; anywhere else it is found anew."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.utils.data import DataLoader, IterableDataset

from penstock.data.order.sampling import Cursor
from penstock.data.reading.iteration import Epochs, Iterations, check_place, resolve
from penstock.errors import Unusable
from penstock.values import Place
from tests.data.datasets.ranks import ranks

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext


class Where(IterableDataset):
    """Yields where each iteration begins, and for whom."""

    def __init__(self, iterations: Iterations) -> None:
        self.iterations = iterations

    def __iter__(self):
        cursor, place = self.iterations.begin()
        yield [list(cursor), [place.rank, place.world, place.worker, place.workers]]


@pytest.fixture
def ranked(monkeypatch):
    """The parent is rank 2 of 3, and knows it from its environment."""
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    return monkeypatch


def test_alone_a_process_is_its_rank_without_workers(ranked):
    iterations = Iterations(None)
    assert iterations.begin() == (Cursor(0, 0), Place(2, 3))
    assert iterations.begin() == (Cursor(1, 0), Place(2, 3))
    ranked.setenv("RANK", "1")
    assert iterations.rank() == Place(1, 3)
    assert Iterations(Place(3, 4)).rank() == Place(3, 4)


@pytest.mark.usefixtures("ranked")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_have_the_parents_rank_and_their_own_number(method):
    iterations = Iterations(None)
    iterations.epochs.resume(Cursor(4, 10, 8, 3))
    loader = DataLoader(
        Where(iterations),
        batch_size=None,
        num_workers=2,
        multiprocessing_context=method,
        persistent_workers=True,
        timeout=100,
    )
    found = list(loader)
    assert found == [[[4, 10, 8, 3], [2, 3, 0, 2]], [[4, 10, 8, 3], [2, 3, 1, 2]]]
    assert [cursor for cursor, _ in loader] == [[5, 0, 8, 3]] * 2
    assert iterations.epochs.next() == Cursor(6, 0, 8, 3)


def _forget(*_) -> None:
    for name in ("RANK", "WORLD_SIZE"):  # a fork server has the environment of when it was started, by any test
        os.environ.pop(name, None)


@pytest.mark.usefixtures("ranked")
def test_a_spawned_worker_has_no_need_of_its_parents_environment():
    options = {"multiprocessing_context": "forkserver", "worker_init_fn": _forget, "timeout": 100}
    loader = DataLoader(Where(Iterations(None)), batch_size=None, num_workers=1, **options)
    assert list(loader) == [[[0, 0, 0, 0], [2, 3, 0, 1]]]


def _train(rank: int, loaders: list[DataLoader], results) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    results.put((rank, [[list(loader) for _ in range(2)] for loader in loaders]))


@pytest.mark.parametrize(("method", "spawning"), [("fork", ["spawn"]), ("spawn", [])])
def test_a_dataset_that_is_made_before_its_ranks_are_started_is_each_ranks_own(method, spawning):
    """As by torch's ``mp.spawn(train, args=(dataset,))``, with and without workers in each rank."""
    context = multiprocessing.get_context(method)
    options = [
        {},
        # A rank that is spawned spawns its worker, and each imports torch: it is started once.
        {"num_workers": 1 if method == "spawn" else 2, "persistent_workers": method == "spawn"},
        *({"num_workers": 1, "persistent_workers": True, "multiprocessing_context": each} for each in spawning),
    ]
    loaders = []
    for each in options:
        iterations = Iterations(None)
        iterations.epochs.resume(Cursor(4, 10, 8, 3))
        loaders.append(DataLoader(Where(iterations), batch_size=None, **each))
    results = context.Queue()
    ranks = [context.Process(target=_train, args=(rank, loaders, results)) for rank in range(2)]
    for process in ranks:
        process.start()
    found = dict(results.get(timeout=240) for _ in ranks)  # each imports torch, and so do its workers
    for process in ranks:
        process.join(60)
    for rank in range(2):
        for each, epochs in zip(options, found[rank], strict=True):
            workers = each.get("num_workers", 1)
            assert epochs == [
                [[begun, [rank, 2, worker, workers]] for worker in range(workers)]
                for begun in ([4, 10, 8, 3], [5, 0, 8, 3])
            ]
    assert all(loader.dataset.iterations.epochs.next() == Cursor(4, 10, 8, 3) for loader in loaders)


def test_sent_anywhere_else_it_finds_its_place_where_it_arrives(ranked):
    data = pickle.dumps((Iterations(None), Iterations(Place(0, 5))))
    ranked.setenv("RANK", "0")
    found, given = pickle.loads(data)
    assert (found.rank(), given.rank()) == (Place(0, 3), Place(0, 5))


def test_without_a_call_each_iteration_is_the_next_epoch():
    epochs = Epochs()
    assert [epochs.begin() for _ in range(4)] == [Cursor(0, 0), Cursor(1, 0), Cursor(2, 0), Cursor(3, 0)]


def test_set_chooses_the_next_epoch_and_later_epochs_count_from_it():
    epochs = Epochs()
    epochs.begin()
    epochs.set(7)
    assert [epochs.begin(), epochs.begin()] == [Cursor(7, 0), Cursor(8, 0)]
    epochs.set(0)
    assert epochs.begin() == Cursor(0, 0)


def test_a_resumed_position_is_the_next_iterations_and_naming_its_epoch_keeps_it():
    epochs = Epochs()
    epochs.resume(Cursor(4, 70))
    epochs.set(4)
    assert (epochs.next(), epochs.latest()) == (Cursor(4, 70), Cursor(4, 70))
    assert [epochs.begin(), epochs.begin()] == [Cursor(4, 70), Cursor(5, 0)]
    epochs.resume(Cursor(4, 70))
    epochs.set(5)
    assert epochs.begin() == Cursor(5, 0)


def test_the_latest_is_where_the_iteration_under_way_began():
    epochs = Epochs()
    epochs.resume(Cursor(2, 10))
    epochs.begin()
    assert (epochs.latest(), epochs.next()) == (Cursor(2, 10), Cursor(3, 0))
    assert worker(epochs).join(0, 1, seed=1) == Cursor(3, 0)
    assert epochs.latest() == Cursor(3, 0)


def test_the_lanes_of_a_run_stay_through_its_epochs_and_reach_workers_that_are_alive():
    epochs = Epochs()
    alive = worker(epochs)
    assert alive.join(0, 1, seed=1) == Cursor(0, 0)
    epochs.resume(Cursor(4, 70, 8))
    assert [alive.join(0, 1, seed=2), alive.join(0, 1, seed=3)] == [Cursor(4, 70, 8), Cursor(5, 0, 8)]
    epochs.set(9)
    assert [epochs.begin(), epochs.begin()] == [Cursor(9, 0, 8), Cursor(10, 0, 8)]
    epochs.restart(Cursor(2, 10, 4))
    assert (epochs.latest(), epochs.next()) == (Cursor(2, 10, 4), Cursor(3, 0, 4))
    epochs.resume(Cursor(1, 5))
    assert [epochs.begin(), epochs.begin()] == [Cursor(1, 5), Cursor(2, 0)]


def worker(epochs: Epochs) -> Epochs:
    """Return the same memory as a worker process sees it: with a count of its own."""
    other = Epochs.__new__(Epochs)
    other.__setstate__(epochs.__getstate__())
    return other


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_all_workers_of_an_iteration_join_the_same_epoch(iterations, random):
    """Any number of workers per iteration, in any order, with seeds that may repeat as after torch.manual_seed."""
    epochs = Epochs()
    for expected, (workers, reseeded) in enumerate(iterations):
        seed = 42 if reseeded else 1000 + expected
        order = random.sample(range(workers), workers)
        assert {worker(epochs).join(index, workers, seed) for index in order} == {Cursor(expected, 0)}


@given(st.integers(1, 5), st.integers(1, 40), st.randoms(use_true_random=False))
def test_persistent_workers_count_on_by_themselves(workers, iterations, random):
    epochs = Epochs()
    alive = [worker(epochs) for _ in range(workers)]
    for expected in range(iterations):
        order = random.sample(range(workers), workers)
        assert {alive[index].join(index, workers, 99) for index in order} == {Cursor(expected, 0)}


def test_a_late_worker_of_an_older_iteration_still_finds_its_epoch():
    epochs = Epochs()
    assert worker(epochs).join(0, 2, seed=1) == Cursor(0, 0)
    assert worker(epochs).join(0, 2, seed=2) == Cursor(1, 0)
    assert worker(epochs).join(1, 2, seed=1) == Cursor(0, 0)
    assert worker(epochs).join(1, 2, seed=2) == Cursor(1, 0)


def test_more_than_512_workers_are_refused():
    with pytest.raises(Unusable, match="512"):
        Epochs().join(0, 513, seed=1)


def _join(epochs: Epochs, index: int, results: multiprocessing.Queue) -> None:
    results.put([epochs.join(index, 3, seed=5), epochs.join(index, 3, seed=5)])


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_agree_and_the_parent_sees_it(method: str):
    context: BaseContext = multiprocessing.get_context(method)
    epochs, results = Epochs(), context.Queue()
    epochs.set(3)
    processes = [context.Process(target=_join, args=(epochs, index, results)) for index in range(3)]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    assert found == [[Cursor(3, 0), Cursor(4, 0)]] * 3
    assert epochs.begin() == Cursor(5, 0)


def test_a_copy_lives_its_own_life():
    epochs = Epochs()
    epochs.set(5)
    copy = pickle.loads(pickle.dumps(epochs))
    assert (copy.begin(), copy.begin(), epochs.begin()) == (Cursor(5, 0), Cursor(6, 0), Cursor(5, 0))


def test_a_fork_taken_under_the_lock_does_not_hang():
    epochs = Epochs()
    with epochs._lock:
        child = os.fork()
        if child == 0:
            os._exit(int(epochs.begin() != Cursor(0, 0)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


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
    assert all("outside of the mesh" in each for each in some[2:])


def test_a_places_numbers_are_pythons_so_that_they_do_not_overflow():
    import numpy as np

    place = Place(np.int8(100), np.int8(120))
    assert (type(place.rank), type(place.world), place.world * 2) == (int, int, 240)
