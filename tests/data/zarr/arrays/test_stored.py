"""Arrays know where they and their objects lie, in one store or several, and what tells them from others."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.data.zarr.arrays import stored
from penstock.data.zarr.arrays.stored import OwnObjects, ReferencedObjects, Stores, check_absent
from penstock.data.zarr.format.layout import layout_of
from penstock.data.zarr.format.references import references_of
from penstock.errors import Bug, Damaged, NotFound, StateMismatch, Unsupported, Unusable
from penstock.source import open_source
from penstock.values import Span
from tests.data.zarr.stores import DIMS, LAYOUTS, VALUES, arrays_at, files_of, numbered, write


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
    for copy in (tmp_path / "moved" / "b", zarr.open_array(path)):
        _loader(copy).load_state_dict(state)
    _refuses(_loader(_array(tmp_path / "c", units="K", long_name="dew point")), state)


def test_state_of_joined_stores_fits_them_elsewhere_and_no_other_stores(tmp_path):
    years = [_array(tmp_path / "a" / year) for year in ("2019", "2020", "2021")]
    state = _state(_loader(years[:2], along="time"))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    _loader([tmp_path / "b" / "2019", tmp_path / "b" / "2020"], along="time").load_state_dict(state)
    for others in (years[1:], years[1::-1]):
        _refuses(_loader(others, along="time"), state)


def copied(folder, url):
    for path, data in files_of(folder).items():
        with ps.open(f"{url}/{path}", "wb") as file:
            file.write(data)


def test_samples_and_targets_may_lie_in_different_stores_under_one_key(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_BYTES", 0)
    write(tmp_path / "a", VALUES, DIMS, **LAYOUTS["sharded"])
    write(tmp_path / "b", VALUES + 1000, DIMS, **LAYOUTS["sharded"])
    copied(tmp_path / "a", "memory://joined-one/x.zarr")
    copied(tmp_path / "b", "memory://joined-two/x.zarr")
    urls = {"local": str(tmp_path / "a"), "one": "memory://joined-one/x.zarr"}
    dataset = ps.ZarrDataset(urls, "memory://joined-two/x.zarr")
    loader = ps.DataLoader(dataset, 5)
    batches = list(loader)
    for name in urls:
        np.testing.assert_array_equal(np.concatenate([inputs[name] for inputs, _ in batches]), VALUES)
    np.testing.assert_array_equal(np.concatenate([targets for _, targets in batches]), VALUES + 1000)


def test_samples_and_targets_of_one_store_share_its_source(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **LAYOUTS["whole"])
    contents = ps.ZarrDataset(str(tmp_path / "a"), str(tmp_path / "a")).contents
    assert contents.source is contents.arrays[0].source


LAYOUT = layout_of({"zarr_format": 2, "shape": [8], "chunks": [4], "dtype": "|u1", "order": "C", "fill_value": 0})
DATA = bytes(range(200))
SOURCE, _ = open_source("memory://locations/x")


def located(entry):
    references = references_of({"a/0": entry}, "")
    found = ReferencedObjects.of(references, {SOURCE.root: SOURCE}, LAYOUT, lambda url: open_source(url)[0])
    return found.numbered(lambda _: 1)


def cut(data, span):
    return data[span.start : span.stop]


SPANS = st.one_of(
    st.integers(1, 250).map(lambda n: Span("a/0", -n)),
    st.tuples(st.integers(0, 90), st.integers(0, 60)).map(lambda at: Span("a/0", at[0], at[0] + at[1])),
    st.just(Span("a/0", most=1000)),
)


@given(span=SPANS, start=st.integers(0, 100), size=st.integers(0, 100), ranged=st.booleans())
def test_a_span_of_a_part_is_that_part_of_the_object(span, start, size, ranged):
    entry, inner = (["memory://locations/x", start, size], DATA[start : start + size])
    if not ranged:
        entry, inner = ["memory://locations/x"], DATA
    found = located(entry).find(span)
    assert found.key == "x"
    assert found.key.home == 1
    # Past the end of a part there is nothing: a store would answer with an error, and never with what follows.
    assert cut(DATA, found) == cut(inner, span)


def test_inline_bytes_are_sliced_and_absent_references_return_none():
    found = located("base64:" + "AAECAwQF")
    assert found.find(Span("a/0", 1, 3)) == bytes([1, 2])
    assert found.find(Span("a/0", -2)) == bytes([4, 5])
    assert found.find(Span("a/1")) is None
    assert found.url("a/") == "references#a"
    assert located(["memory://locations/x", 0, 8]).url("a/0") == "memory://locations/x"


def test_a_part_larger_than_any_chunk_is_damaged():
    with pytest.raises(Damaged, match="more than a chunk can have"):
        located(["memory://locations/x", 0, 1 << 40]).find(Span("a/0"))


def test_only_an_arrays_own_objects_may_be_missing():
    check_absent(OwnObjects(SOURCE), NotFound("gone"))
    with pytest.raises(Damaged, match="leads to a missing object"):
        check_absent(located(["memory://locations/x"]), NotFound("gone"))
    bucket = NotFound("no such bucket")
    bucket.missing = "bucket"
    with pytest.raises(Unusable, match="no such bucket"):
        check_absent(OwnObjects(SOURCE), bucket)


def test_own_objects_are_found_in_the_store_with_their_number():
    found = OwnObjects(SOURCE).numbered(lambda source: {SOURCE: 2}[source]).find(Span("a/0"))
    assert (found.key, found.key.home) == ("a/0", 2)


def test_stores_that_references_lead_to_are_opened_once_and_are_of_bounded_number(monkeypatch):
    monkeypatch.setattr(stored, "MOST_ROOTS", 3)
    references = references_of({f"a/{n}": [f"memory://store-{n % 4}/x", 0, 4] for n in range(8)}, "")
    opened, stores = [], Stores()
    found = ReferencedObjects.of(references, {}, LAYOUT, lambda url: opened.append(url) or open_source(url)[0])
    with pytest.raises(Bug, match="not numbered"):
        found.find(Span("a/0"))
    found = found.numbered(stores.number)
    homes = [getattr(found.find(Span(f"a/{n}")).key, "home", 0) for n in (0, 1, 2, 4, 5, 6)]
    assert homes == [0, 1, 2] * 2
    assert opened == [f"memory://store-{n}/x" for n in range(3)]
    assert [each.root for each in stores.sources] == [f"memory://store-{n}/" for n in range(3)]
    with pytest.raises(Unsupported, match="more than 3 buckets"):
        found.find(Span("a/3"))
