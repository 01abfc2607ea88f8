"""What cannot reach a worker process is refused before one starts."""

from __future__ import annotations

import multiprocessing
from functools import partial

import pytest

import penstock as ps
from penstock.errors import Unusable
from penstock.loading.sendable import check_sendable
from tests.datasets.transforms import number, numbered


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return ps.MapDataset.from_prefix(numbered(tmp_path_factory.mktemp("sendable") / "data", 8))


@pytest.mark.parametrize(
    "context", ["spawn", "forkserver", pytest.param(multiprocessing.get_context("spawn"), id="context")]
)
@pytest.mark.parametrize("name", ["transform", "collate_fn"])
def test_a_lambda_is_refused_by_its_name_where_workers_are_spawned(dataset, name, context):
    ours = ps.MapDataset.from_catalog(
        dataset.catalog, transform=(lambda sample: sample) if name == "transform" else number
    )
    collate = (lambda samples: samples) if name == "collate_fn" else None
    with pytest.raises(Unusable, match=rf"{name}=<function .*lambda.*num_workers=2.*def at the top of a module"):
        ps.DataLoader(ours, 2, num_workers=2, collate_fn=collate, multiprocessing_context=context)


def test_a_lambda_is_taken_where_workers_are_forked_or_threads(dataset):
    ours = ps.MapDataset.from_catalog(dataset.catalog, transform=lambda sample: int(sample.read()))
    for options in ({"num_workers": 1, "multiprocessing_context": "fork"}, {}):
        assert [batch.tolist() for batch in ps.DataLoader(ours, 4, **options)] == [[0, 1, 2, 3], [4, 5, 6, 7]]


class Method(ps.MapDataset):
    def transform(self, sample):
        return number(sample)


def test_what_can_be_sent_is_taken(dataset):
    for function in (number, partial(number), None, Method.from_catalog(dataset.catalog).transform):
        check_sendable({"transform": function}, 2, "spawn")
