"""A restore finds the newest step, again where it goes meanwhile, and says what it found instead."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

import penstock as ps
from penstock.checkpoint.commit import CommittedCheckpoint
from penstock.checkpoint.run.filling import fill_state
from penstock.errors import NotFound, Unusable
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


class App:
    """An object that takes its part of a state."""

    def load_state_dict(self, state):
        self.state = state


def test_a_state_of_one_process_is_read_into_another_in_place(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    run = ps.CheckpointManager(tmp_path)
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "app": {"n": 1},
        "epoch": 7,
        "seen": [1, 2],
    }
    run.save(1, state)
    other = torch.nn.Linear(3, 2)
    into = {
        "model": other.state_dict(),
        "optimizer": torch.optim.Adam(other.parameters()).state_dict(),
        "app": App(),
        "seen": [],
    }
    app = into["app"]
    assert run.restore(into=into) is into
    assert torch.equal(other.weight, model.weight)
    assert app.state == {"n": 1}
    assert into["seen"] == [1, 2]
    assert "epoch" not in into
    moments = into["optimizer"]["state"]
    assert torch.equal(moments[0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])


@pytest.mark.parametrize(
    ("into", "message"),
    [
        ({"c": 1}, "has no 'c': it has 'z', 'a', 'b'"),
        ({"a": torch.zeros(3)}, r"into\['a'\] has the shape \(3,\), and the checkpoint's \(2,\)"),
        ({"a": torch.zeros(2, device="meta")}, "device 'meta'"),
        ({"b": {"n": torch.zeros(1)}}, r"into\['b'\]\['n'\] is a tensor, but an int in the checkpoint"),
        ({"b": {"m": 1}}, r"into\['b'\] has the key 'm', which the checkpoint lacks"),
    ],
    ids=str,
)
def test_a_state_that_does_not_fit_is_refused_before_anything_is_filled(into, message):
    first = torch.zeros(2)
    with pytest.raises(Unusable, match=message):
        fill_state({"z": first, **into}, {"z": torch.ones(2), "a": torch.ones(2), "b": {"n": 1}})
    assert first.tolist() == [0, 0]


def test_a_state_that_is_not_a_dict_cannot_be_read_into_one(tmp_path):
    run = ps.CheckpointManager(tmp_path)
    run.save(1, Counter("ab"))
    assert run.restore(into={"a": 0}) == {"a": 1}
    run.save(2, [1, 2])
    with pytest.raises(Unusable, match="a dict, got a list"):
        run.restore(into={"a": 0})
    with pytest.raises(Unusable, match=r"into must be a dict .*, got a .*Linear"):
        run.restore(into=torch.nn.Linear(1, 1))
