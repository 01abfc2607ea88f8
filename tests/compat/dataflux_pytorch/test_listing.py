from __future__ import annotations

import json
import pickle
from multiprocessing.reduction import ForkingPickler

import pytest

from penstock.compat.dataflux_pytorch.dataflux_iterable_dataset import DataFluxIterableDataset
from penstock.compat.dataflux_pytorch.dataflux_mapstyle_dataset import DataFluxMapStyleDataset
from penstock.compat.dataflux_pytorch.listing import Config, data_format_default, list_bucket
from penstock.errors import NotFound, Unusable
from tests.compat.dataflux_pytorch.conftest import OBJECTS


@pytest.mark.parametrize("kind", [DataFluxMapStyleDataset, DataFluxIterableDataset])
def test_changes_to_the_objects_list_change_the_items_read(filled, kind):
    dataset = kind(None, filled.name, Config(prefix="train/"), data_format_fn=len)
    objects = dataset.objects
    assert isinstance(objects, list)
    assert objects is dataset.objects
    assert json.loads(json.dumps(objects)) == [[name, size] for name, size in objects]
    sizes = [len(data) for data in OBJECTS.values()]
    assert read(dataset) == sizes
    objects.reverse()
    assert read(dataset) == sizes[::-1]
    del objects[1:]
    assert read(dataset) == sizes[-1:]
    objects.append(("other", 5))
    assert [name for name, _ in dataset.objects] == [[*OBJECTS][-1], "other"]
    assert dataset.catalog[0].etag, "held to the version that was listed"
    assert len(read(pickle.loads(ForkingPickler.dumps(dataset)))) == 2
    objects += [objects[0]]
    assert len(read(dataset)) == 3


def read(dataset):
    return [dataset[at] for at in range(len(dataset))] if isinstance(dataset, DataFluxMapStyleDataset) else [*dataset]


def test_composed_objects_are_excluded_from_the_bucket_listing(filled):
    def names(prefix):
        return [each.key for each in list_bucket(filled.name, Config(prefix=prefix), None)[0]]

    assert names(None) == names("") == ["other", *OBJECTS]
    assert names("train/") == names("tr") == list(OBJECTS)
    assert names("data") == names("none") == []


def test_missing_bucket_and_invalid_config_raise_errors(gcs):
    with pytest.raises(NotFound):
        list_bucket("no-such-bucket", Config(), None)
    with pytest.raises(Unusable, match="config"):
        list_bucket(gcs.name, {"prefix": "x"}, None)


def test_composing_is_off_when_disabled():
    assert Config(disable_compose=True).max_composite_object_size == 0
    assert Config().max_composite_object_size == 100_000_000
    assert data_format_default(b"x") == b"x"
