"""Saves that are cut off at a chosen place: the newest whole step is restored then, and cleaning leaves no orphan."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

import penstock as ps
from penstock.checkpoint.run.steps import CheckpointManager
from penstock.errors import NoSpace, PenstockError, Unusable
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from tests.amounts import SOAK
from tests.checkpoint.run.saver import manager, state
from tests.checkpoint.run.test_steps import same
from tests.faults.cases import PART_BYTES, small_limits, store

LIMIT_S = 60
WAITS = {"stall", "stall-body", "drip", "503-after"}
MISHAPS = [(name, times) for name in FAULTS for times in (1, None) if SOAK or times or name not in WAITS]
HOLD = FAULTS["stall"]  # nothing is done, and no answer comes until the client goes away
HELD = replace(HOLD, name="held", undone=False)  # it is done, and no answer comes
_runs = count()


class Place(NamedTuple):
    """Where a save of step 3, or again of step 2, is cut off: at a request, before or after it is carried out."""

    verb: str
    nth: int = 1
    part: int = 0
    at: str = ""  # the object's name
    done: bool = False
    new: bool = False  # what is to be saved counts from here on


MANIFEST = "checkpoint.json"
PLACES = {
    "while it lists": Place("list", new=True),
    "at the first look": Place("head"),
    "before the upload": Place("create"),
    "once it is begun": Place("create", done=True),
    "in the first part": Place("part", part=1),
    "between parts": Place("part", part=4, done=True),
    "before the parts are one": Place("complete"),
    "when the data is there": Place("complete", done=True),
    "before the manifest": Place("head", nth=2, at=MANIFEST),
    "while the manifest goes up": Place("put", at=MANIFEST),
    "when the manifest is there": Place("put", at=MANIFEST, done=True, new=True),
    "at the last look": Place("head", nth=3, at=MANIFEST, new=True),
    "before what is superseded goes": Place("delete", new=True),
    "half-way through that": Place("delete", done=True, new=True),
    "with its data gone too": Place("delete", nth=2, done=True, new=True),
}
RULED = {"while it lists", "with its data gone too"}  # what only a save with rules does
AGAIN = {name: place for name, place in PLACES.items() if name not in RULED}


@pytest.fixture(scope="module")
def server(request):
    settings = Settings(dialect=getattr(request, "param", "s3"), least_part_bytes=PART_BYTES)
    with pytest.MonkeyPatch.context() as patch, FaultServer.start(settings) as server, small_limits():
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture
def bucket(server):
    """Make a bucket for a run; whatever was planted is gone again in the end."""
    name = f"bucket-{next(_runs)}"
    server.make(name)
    yield name
    server.heal()


@pytest.fixture
def url(server, bucket):
    return f"{server.scheme}://{bucket}/run/"


def _cut_off(server, bucket, place, how, work):
    """Do ``work`` in a child, cut it off once its request is held at the place, and return its exit status."""
    fault = HELD if place.done else HOLD
    key = f"run/{place.at}" if place.at else None
    server.fail(fault, when=Match(verb=place.verb, bucket=bucket, nth=place.nth, part=place.part, key=key))
    pid = os.fork()
    if not pid:
        status = 1
        try:
            work()
            status = 0
        except KeyboardInterrupt:
            status = 130
        finally:
            os._exit(status)
    try:
        _until(lambda: _met(server, bucket, fault.name) and _asleep(pid), pid)
        os.kill(pid, how)
        _until(lambda: False, pid)
    except _Ended as ended:
        return ended.args[0]
    raise AssertionError


def _asleep(pid):
    """Say whether a process waits: Python hears of a signal just before that only once the wait is over."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("S")


class _Ended(Exception):
    pass


def _until(condition, pid):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            raise _Ended(os.waitstatus_to_exitcode(status))
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            pytest.fail("it hangs")
        time.sleep(0.002)


def _no_orphans(server, bucket, expected):
    """Clean, and check that a manifest and its object are there for each step, no more, and the newest is right."""
    run = manager(f"{server.scheme}://{bucket}/run/")
    run.clean(older_than_s=-5)
    assert len(server.objects(bucket).keys() - {"run/penstock-steps.json"}) == 2 * len(run.steps())
    assert server.uploads(bucket) == []
    same(run.restore(), expected)


@pytest.mark.parametrize(
    ("server", "how"),
    [("s3", signal.SIGKILL), ("s3", signal.SIGINT), ("gcs", signal.SIGKILL)],
    indirect=["server"],
    ids=["s3-SIGKILL", "s3-SIGINT", "gcs-SIGKILL"],
)
@pytest.mark.parametrize("name", PLACES)
def test_a_save_that_is_cut_off_anywhere_leaves_the_old_step_or_the_new_one(server, bucket, url, name, how):
    place = PLACES[name]
    run = manager(url, keep_last=2)
    for step in (1, 2):
        run.save(step, state(step))
    place = place._replace(at=place.at and f"000000000003/{place.at}")
    status = _cut_off(server, bucket, place, how, lambda: manager(url, keep_last=2).save(3, state(3)))
    assert status == (130 if how == signal.SIGINT else -how)
    expected = state(3 if place.new else 2)
    same(run.restore(), expected)
    if how == signal.SIGINT and name != "once it is begun":  # its id was in the answer
        assert server.uploads(bucket) == []
    _no_orphans(server, bucket, expected)
    manager(url, keep_last=2).save(4, state(4))
    _no_orphans(server, bucket, state(4))


@pytest.mark.parametrize(
    ("server", "how"),
    [("s3", signal.SIGKILL), ("s3", signal.SIGINT), ("gcs", signal.SIGKILL)],
    indirect=["server"],
    ids=["s3-SIGKILL", "s3-SIGINT", "gcs-SIGKILL"],
)
@pytest.mark.parametrize("name", AGAIN)
def test_a_step_that_is_saved_again_is_the_old_one_or_the_new_one(server, bucket, url, name, how):
    place = AGAIN[name]
    run = manager(url)
    run.save(2, state(2))
    nth = place.nth + (place.at == MANIFEST and place.verb == "head")  # the old manifest is read, too
    place = place._replace(nth=nth, at=place.at and f"000000000002/{place.at}")
    status = _cut_off(server, bucket, place, how, lambda: run.save(2, state(7), overwrite=True))
    assert status == (130 if how == signal.SIGINT else -how)
    expected = state(7 if place.new else 2)
    same(run.restore(2), expected)
    _no_orphans(server, bucket, expected)


class _Falls:
    def __reduce__(self):
        raise ZeroDivisionError


@pytest.mark.parametrize("overwrite", [False, True])
def test_exception_raised_by_the_state_leaves_existing_steps_unchanged(server, bucket, url, overwrite):
    run = manager(url)
    run.save(1, state(1))
    before = server.objects(bucket)
    falling = {**state(2), "more": _Falls()}
    with pytest.raises(Unusable, match=r"state\['more'\] .*ZeroDivisionError"):
        run.save(2 - overwrite, falling, overwrite=overwrite)
    with pytest.raises(Unusable, match="ZeroDivisionError"):  # while it is written
        run.save(2 - overwrite, falling, overwrite=overwrite, weights_only=False)
    assert (server.objects(bucket), server.uploads(bucket)) == (before, [])
    same(run.restore(), state(1))


def _numbers(name, times, seed):
    """Return which requests meet the fault in turn: all, until a save has no such one, or a draw of those it has."""
    if SOAK and (name not in WAITS or times == 1):
        return count(1)
    return sorted(random.Random(f"{seed}{name}{times}").sample(range(1, 13), 1 if name in WAITS else 3))


@pytest.mark.parametrize(("name", "times"), MISHAPS)
def test_newest_complete_step_is_restored_after_any_request_fault(server, bucket, url, name, times, seed):
    """Each request of a save in turn meets the fault, alone or with all after it; a draw of them unless in soak."""
    run = CheckpointManager(url, keep_last=1, store=store(server))
    run.save(1, _small(1))
    newest, step = 1, 1
    for nth in _numbers(name, times, seed):
        step += 1
        met = _met(server, bucket, name)
        server.fail(FAULTS[name], when=Match(bucket=bucket, nth=nth, times=times))
        try:
            run.save(step, _small(step))
            ended = True
        except PenstockError:
            ended = False
        server.heal()
        latest = run.latest()
        assert latest in ((step,) if ended else (newest, step))
        newest = latest
        for old in run.steps()[:-1]:  # those that it came too late to remove
            run.delete(old)
        _no_orphans(server, bucket, _small(newest))
        if _met(server, bucket, name) == met:
            break  # there is no such request any more


def _small(step):
    """Return a state of two parts."""
    whole = state(step)
    return {**whole, "weights": whole["weights"][:1]}


def _met(server, bucket, name):
    return sum(seen.fault == name for seen in server.seen(bucket=bucket))


def test_a_full_disk_leaves_the_older_steps(disk):
    folder = disk / "run"
    run = CheckpointManager(folder)
    run.save(1, state(1))
    (data,) = folder.glob("*/*/state.pt")
    pages = -(-data.stat().st_size // 4096)
    for room in (0, 1, pages // 2, pages - 1, pages):  # the last has room for the data, and none for the manifest
        filler = disk / "filler"
        filler.write_bytes(bytes((shutil.disk_usage(disk).free // 4096 - room) * 4096))
        for step, overwrite in ((2, False), (1, True)):
            with pytest.raises(NoSpace, match="cannot write"):
                run.save(step, state(2), overwrite=overwrite)
            assert run.steps() == [1]
            same(run.restore(), state(1))
            assert len(CheckpointManager(folder).clean(older_than_s=-5)) == (room == pages)
            assert sum(path.is_file() for path in folder.rglob("*")) == 2
        filler.unlink()
    run.save(2, state(2))
    same(ps.CheckpointManager(folder).restore(), state(2))
