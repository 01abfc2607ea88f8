"""What cannot reach a worker process is refused before one starts."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

import penstock as ps
from penstock.data.loading.sendable import travel_by_value
from penstock.errors import Unusable
from tests.data.datasets.transforms import number, numbered
from tests.edges.launch import program


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return ps.MapDataset.from_prefix(numbered(tmp_path_factory.mktemp("sendable") / "data", 8))


@pytest.mark.parametrize(
    "context", ["spawn", "forkserver", pytest.param(multiprocessing.get_context("spawn"), id="context")]
)
@pytest.mark.parametrize("name", ["transform", "collate_fn"])
def test_without_cloudpickle_a_lambda_is_refused_where_workers_are_spawned(dataset, name, context, monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    monkeypatch.delitem(sys.modules, "ray.cloudpickle", raising=False)
    ours = ps.MapDataset.from_catalog(
        dataset.catalog, transform=(lambda sample: sample) if name == "transform" else number
    )
    collate = (lambda samples: samples) if name == "collate_fn" else None
    with pytest.raises(Unusable, match=rf"{name}=<function .*lambda.*num_workers=2.*install cloudpickle"):
        ps.DataLoader(ours, 2, num_workers=2, collate_fn=collate, multiprocessing_context=context)


def test_a_lambda_is_taken_where_workers_are_forked_or_threads(dataset):
    ours = ps.MapDataset.from_catalog(dataset.catalog, transform=lambda sample: int(sample.read()))
    for options in ({"num_workers": 1, "multiprocessing_context": "fork"}, {}):
        assert [batch.tolist() for batch in ps.DataLoader(ours, 4, **options)] == [[0, 1, 2, 3], [4, 5, 6, 7]]


class Method(ps.MapDataset):
    def transform(self, sample):
        return number(sample)


def test_picklable_transforms_are_accepted(dataset):
    for function in (number, partial(number), None, Method.from_catalog(dataset.catalog).transform):
        assert not travel_by_value({"transform": function}, 2, "spawn")


def test_a_function_that_no_pickle_holds_is_refused_with_the_cause(dataset):
    pytest.importorskip("cloudpickle")
    lock = threading.Lock()
    with pytest.raises(Unusable, match=r"transform=.* cannot be sent .*pickle '_thread\.lock'"):
        ps.DataLoader(
            ps.MapDataset.from_catalog(dataset.catalog, transform=lambda sample: (lock, sample)),
            2,
            num_workers=1,
            multiprocessing_context="spawn",
        )


MAIN = """
import os
import sys
import penstock as ps
offset = 5
class Number:
    def __call__(self, sample):
        return int(sample.read()) + offset
def begun(worker):
    os.environ["BEGUN"] = str(worker + 1)
made = ps.MapDataset.from_prefix(sys.argv[1], transform=Number())
collate = lambda samples: sum(samples) * int(os.environ["BEGUN"])
how = {"multiprocessing_context": "spawn", "worker_init_fn": begun, "num_workers": 1}
print([*ps.DataLoader(made, 2, collate_fn=collate, **how)])
"""


def test_functions_of_a_main_program_without_a_file_reach_spawned_workers(dataset):
    pytest.importorskip("cloudpickle")
    words = [sys.executable, "-c", MAIN, dataset.catalog.root + dataset.catalog.base]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)
    assert ended.stdout == "[11, 15, 19, 23]\n", ended.stderr


def killed(_):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("method", "guard"), [("fork", False), ("spawn", True)])
def test_killed_worker_error_note_names_the_options_to_lower(dataset, method, guard):
    ours = ps.MapDataset.from_catalog(dataset.catalog, transform=killed)
    with pytest.raises(RuntimeError, match="DataLoader worker") as caught:
        list(ps.DataLoader(ours, 2, num_workers=1, multiprocessing_context=method))
    (note,) = caught.value.__notes__
    assert all(word in note for word in ("memory ran out", "num_workers=", "prefetch=", "batch_size", "num_workers=0"))
    assert ('if __name__ == "__main__":' in note) is guard


def test_an_error_of_a_transform_in_a_worker_is_not_taken_for_a_killed_worker(dataset):
    ours = ps.MapDataset.from_catalog(dataset.catalog, transform=int)
    with pytest.raises(TypeError) as caught:
        list(ps.DataLoader(ours, 2, num_workers=1))
    assert not getattr(caught.value, "__notes__", [])


UNGUARDED = """
import penstock as ps
from tests.data.datasets.transforms import number
dataset = ps.MapDataset.from_prefix({url!r}, transform=number)
list(ps.DataLoader(dataset, 2, num_workers=1, multiprocessing_context="spawn"))
"""


def test_unguarded_script_with_spawn_is_advised_to_add_a_main_guard(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(UNGUARDED.format(url=numbered(tmp_path / "data", 4)), "utf-8")
    ended = program(script, PYTHONPATH=str(Path.cwd()))
    assert ended.returncode
    assert "workers that 'spawn' starts import the script again: write what the script does below " in ended.stdout
