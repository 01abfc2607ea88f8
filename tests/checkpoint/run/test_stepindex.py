"""The index of a run's steps is a stranger's document: what it says is read, and whatever else it is counts as none."""

from __future__ import annotations

import json

import pytest

import penstock as ps
from penstock.checkpoint.integrity import Manifest
from penstock.checkpoint.run.store import StepEntry, decode, encode


def test_an_index_beyond_all_bounds_counts_as_none_and_a_user_s_steps_json_stays(tmp_path):
    (tmp_path / "steps.json").write_bytes(b"mine")
    run = ps.CheckpointManager(tmp_path, keep_last=2)
    with (tmp_path / "penstock-steps.json").open("wb") as file:
        file.truncate(1 << 40)
    for step in (1, 2, 3):
        run.save(step, {}, metric=1.0)
    for damage in (b"[" + b"[]," * (1 << 22), b'{"penstock_steps":1,"steps":{"3":["",1%s]}}' % (b"0" * 400)):
        (tmp_path / "penstock-steps.json").write_bytes(damage)
        run.save(4, {}, overwrite=True)
    assert run.steps() == [3, 4]
    assert (tmp_path / "steps.json").read_bytes() == b"mine"


def test_decoded_step_index_equals_the_encoded_one_in_step_order():
    entries = {
        30: StepEntry("c", None, ()),
        2: StepEntry("a", 0.1, ("x/0.data", "x/1.data")),
        10: StepEntry("", -1.0, ("é",)),
    }
    found = decode(encode(entries))
    assert found == entries
    assert list(found) == [2, 10, 30]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"7",
        b"{}",
        b'{"penstock_steps":2,"steps":{}}',
        b'{"penstock_steps":1}',
        b'{"penstock_steps":1,"steps":[]}',
        b'{"penstock_steps":1,"steps":{"x":["a",1]}}',
        b'{"penstock_steps":1,"steps":{"1":["a"]}}',
        b'{"penstock_steps":1,"steps":{"1":[7,1]}}',
        b'{"penstock_steps":1,"steps":{"1":["a",1,"../x"]}}',
        b'{"penstock_steps":1,"steps":{"1":["a",1,"/x"]}}',
        b'{"penstock_steps":1,"steps":{"1":["a",1,7]}}',
        b'{"penstock_steps":1,"steps":{"1":["a",1,"x"],"2":null}}',
        b"[" * 100_000,
    ],
    ids=lambda data: repr(data[:50]),
)
def test_invalid_step_index_document_decodes_to_nothing(data):
    assert decode(data) == {}


@pytest.mark.parametrize("metric", ["0.5", None, [], 10**400], ids=["text", "none", "list", "beyond floats"])
def test_metric_that_cannot_be_a_float_becomes_none(metric):
    assert StepEntry.of(Manifest("s", "state", {}, {"metric": metric}), "etag") == StepEntry("etag", None, ())
    assert decode(json.dumps({"penstock_steps": 1, "steps": {"1": ["a", metric]}}).encode())[1].metric is None


def test_of_a_damaged_manifest_nothing_is_known_so_that_it_is_read_again():
    assert StepEntry.of(None, "etag") == StepEntry("", None, ())
