"""A restore finds the newest step, again where it goes meanwhile, and says what it found instead."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.checkpoint.commit import CommittedCheckpoint
from penstock.errors import (
    NotFound,
)
from penstock.source import Source
from penstock.testing.faults import FaultServer


def test_the_newest_is_looked_for_again_where_it_is_superseded_meanwhile(tmp_path, monkeypatch):
    saver = ps.CheckpointManager(tmp_path, keep_last=1)
    saver.save(1, {"step": 1})
    run, look, step = ps.CheckpointManager(tmp_path), Source.head, [1]

    def superseded(source, key):
        """Supersede what is looked at, a few times, before it is."""
        if key.endswith("checkpoint.json") and f"/{step[0]:012d}/" in key and step[0] < 6:
            step[0] += 1
            with monkeypatch.context() as alone:
                alone.setattr(Source, "head", look)
                saver.save(step[0], {"step": step[0]})
        return look(source, key)

    monkeypatch.setattr(Source, "head", superseded)
    assert run.latest() == 6
    step[0] = 4
    assert run.restore() == {"step": 6}
    with pytest.raises(NotFound):
        run.restore(5)


def test_the_newest_is_read_again_where_its_data_goes_meanwhile(tmp_path, monkeypatch):
    saver, run = ps.CheckpointManager(tmp_path, keep_last=1), ps.CheckpointManager(tmp_path)
    saver.save(1, {"step": 1})
    objects, left = CommittedCheckpoint.objects, [2, 3]

    def going(committed, names):
        if left:
            saver.save(left.pop(0), {"step": 3 - len(left)})
        return objects(committed, names)

    monkeypatch.setattr(CommittedCheckpoint, "objects", going)
    assert run.restore() == {"step": 3}
    left.append(4)
    with pytest.raises(NotFound, match="000000000003"):
        run.restore(3)


def test_a_step_that_is_not_there_is_answered_by_the_newest_that_is(tmp_path):
    run = ps.CheckpointManager(tmp_path)
    with pytest.raises(NotFound, match="step 7 is not committed, nor is any other"):
        run.restore(7)
    run.save(3, {})
    with pytest.raises(NotFound, match="step 7 is not committed; the newest committed step is 3"):
        run.restore(7)


def test_a_step_in_a_bucket_that_is_not_there_is_not_the_one_that_is_missing():
    with FaultServer.start() as server:
        for step in (None, 7):
            with pytest.raises(NotFound, match="NoSuchBucket"):
                ps.CheckpointManager("s3://no-such-bucket/run", store=server.store).restore(step)
