"""Jobs in several processes: each ends once, whoever carries it, whatever becomes of who carries it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from threading import Event
from time import monotonic, sleep

import pytest

from penstock import observe
from penstock.engine.node.member import processors
from penstock.errors import Bug, NotFound, Transient, Unusable
from penstock.jobs import tasks
from penstock.jobs.tasks import Worker, run_jobs, suitable
from penstock.source import open_source
from tests.children import children, python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")

MANY = 3000


async def where(job):
    """Tell which process carries a job."""
    await tasks.run_blocking(lambda: None)
    if job % 100 == 99:
        raise NotFound("every hundredth", url=f"file:///{job}")
    return job, os.getpid()


def open_files():
    return len([*Path("/proc/self/fd").iterdir()])


@pytest.fixture(autouse=True)
def _no_child_left():
    before = children()
    yield
    assert children() == before


def test_jobs_are_shared_and_each_comes_back_once():
    ended = [*run_jobs(range(MANY), where, lambda _: 1, Event(), processes=3)]
    assert sorted(job for job, _ in ended) == [*range(MANY)]
    carried = Counter()
    for job, result in ended:
        if job % 100 == 99:
            assert isinstance(result, NotFound)
            assert (str(result), result.url) == (f"every hundredth [file:///{job}]", f"file:///{job}")
        else:
            carried[result[1]] += 1
            assert result[0] == job
    assert len(carried) == 3
    assert os.getpid() in carried
    # What surely falls to each is what it is given at once when it comes; the rest goes to who is free.
    assert min(carried.values()) > 64, carried


def test_few_jobs_and_large_ones_stay_in_this_process():
    for count, cost_bytes in ((100, 1), (MANY, 2 << 20)):
        ended = run_jobs(range(count), where, lambda _, cost_bytes=cost_bytes: cost_bytes, Event(), processes=3)
        assert {result[1] for job, result in ended if job % 100 != 99} == {os.getpid()}


def test_json_lines_sink_receives_events_of_all_worker_processes(tmp_path):
    """Each process has a file of its own, and writes it to its end."""
    (tmp_path / "in").mkdir()
    for number in range(MANY):
        (tmp_path / "in" / f"{number:04}").write_bytes(b"x")
    source, _ = open_source(f"file://{tmp_path}/")

    async def work(key):
        await tasks.head(source, key)
        return os.getpid()

    keys = [f"{tmp_path}/in/{number:04}"[1:] for number in range(MANY)]
    with observe.to(observe.JsonLines(tmp_path / "events.jsonl")):
        carried = Counter(result for _, result in run_jobs(keys, work, lambda _: 1, Event(), processes=3))
    heard = [json.loads(line) for path in tmp_path.glob("*.jsonl*") for line in path.read_text().splitlines()]
    asked = Counter(each["pid"] for each in heard if each.get("event") == "RequestEnded")
    assert asked == carried
    assert len(asked) == 3


def test_memory_is_bounded_over_all_of_them():
    at_once = 0

    def jobs():
        nonlocal at_once
        for job in range(MANY):
            at_once += 1
            assert at_once <= 11, "ten have room, and one waits for it"
            yield job

    for _ in run_jobs(jobs(), where, lambda _: 100, Event(), 1000, 3):
        at_once -= 1


def test_killed_worker_fails_only_its_own_jobs_and_others_continue(tmp_path):
    here, killing = os.getpid(), tmp_path / "killing"

    async def work(job):
        await tasks.run_blocking(lambda: None)
        if os.getpid() != here:
            # The first job that a worker carries, and no other.
            with suppress(FileExistsError), killing.open("x") as file:
                print(job, file=file, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    ended = [*run_jobs(range(MANY), work, lambda _: 1, Event(), processes=3)]
    assert sorted(job for job, _ in ended) == [*range(MANY)]
    lost = {job: error for job, error in ended if isinstance(error, Exception)}
    assert "killed (SIGKILL; memory may be short): repeat the command" in str(lost[int(killing.read_text())])
    assert len(lost) <= 256
    assert {type(error) for error in lost.values()} == {Transient}
    assert len({id(error) for error in lost.values()}) == len(lost)
    assert len({pid for job, pid in ended if job not in lost}) == 2


def test_a_worker_that_breaks_is_a_bug_and_no_hang(capfd):
    here = os.getpid()

    async def work(job):
        await tasks.run_blocking(lambda: None)
        return Event() if os.getpid() != here else job  # a lock cannot be pickled

    ended = dict(run_jobs(range(MANY), work, lambda _: 1, Event(), processes=2))
    assert sorted(ended) == [*range(MANY)]
    lost = [result for result in ended.values() if isinstance(result, Exception)]
    assert 0 < len(lost) <= 256
    assert {str(error) for error in lost} == {"the process that was at it ended with status 1"}
    assert {type(error) for error in lost} == {Bug}
    assert "cannot pickle" in capfd.readouterr().err


def test_closing_early_ends_workers_quickly_and_no_job_continues(tmp_path):
    stop = Event()

    def blocks(job):
        if job > 600:
            (tmp_path / f"began-{os.getpid()}").touch()
            assert stop.wait(60)
            (tmp_path / f"heard-{os.getpid()}").touch()

    async def work(job):
        await tasks.run_blocking(blocks, job)
        if job > 600:
            (tmp_path / "went on").touch()

    jobs = run_jobs(range(MANY), work, lambda _: 1, stop, processes=2)
    for count, _ in enumerate(jobs):
        if count == 500:
            break
    until = monotonic() + 30
    while len([*tmp_path.glob("began-*")]) < 2:
        assert monotonic() < until
        sleep(0.01)  # other processes' files: there is nothing to wait on
    began = monotonic()
    jobs.close()
    assert monotonic() - began < 9
    assert len([*tmp_path.glob("heard-*")]) == 2
    assert not (tmp_path / "went on").exists()


def test_where_no_process_can_be_forked_this_one_does_it_all(monkeypatch):
    def full():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(tasks.os, "fork", full)
    before = open_files()
    ended = [*run_jobs(range(MANY), where, lambda _: 1, Event(), processes=3)]
    assert {result[1] for job, result in ended if job % 100 != 99} == {os.getpid()}
    assert open_files() == before


def test_no_file_stays_open():
    [*run_jobs(range(MANY), where, lambda _: 1, Event(), processes=3)]
    before = open_files()
    [*run_jobs(range(MANY), where, lambda _: 1, Event(), processes=3)]
    assert open_files() == before


def test_ctrl_c_is_the_parent_s_to_hear():
    here = os.getpid()

    async def work(_):
        await tasks.run_blocking(lambda: None)
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGINT)
        return os.getpid()

    ended = [*run_jobs(range(MANY), work, lambda _: 1, Event(), processes=2)]
    assert len({result for _, result in ended}) == 2


def test_they_end_when_their_parent_is_killed():
    told = python(
        """
        import os, signal
        from threading import Event
        from penstock.jobs import tasks
        from penstock.jobs.tasks import run_jobs

        async def work(job):
            await tasks.run_blocking(lambda: None)
            return os.getpid()

        seen = set()
        for _, pid in run_jobs(iter(int, 1), work, lambda _: 1, Event(), processes=3):
            seen.add(pid)
            if len(seen) == 3:
                print(*seen - {os.getpid()}, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    assert told.returncode == -signal.SIGKILL, told.stderr
    pids = [int(each) for each in told.stdout.split()]
    assert len(pids) == 2
    until = monotonic() + 10
    while any(alive(pid) for pid in pids):
        assert monotonic() < until, "a worker outlives its parent"
        sleep(0.01)  # processes of nobody: there is nothing to wait on


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_worker_that_ignores_its_end_request_is_killed(monkeypatch):
    monkeypatch.setattr(tasks, "_GRACE_S", 0.2)

    async def stuck(_):
        signal.pause()  # on the thread that would hear of the end

    one = Worker(stuck, Event(), [])
    one.start("job", 7)
    one.send()
    one.leave()
    assert one.end() == -signal.SIGKILL
    assert [(job, size_bytes, type(error)) for job, size_bytes, error in one.results(Bug(""))] == [
        ("job", 7, Transient)
    ]
    assert one.held == 0


def test_how_many_suit(monkeypatch, tmp_path):
    local, _ = open_source(f"file://{tmp_path}/")
    memory, _ = open_source("memory://bucket/")
    store, _ = open_source("s3://bucket/")
    assert suitable(None, local, store) == min(4, processors())
    assert suitable(7, local, store) == 7
    assert suitable(1, local, store) == 1
    assert suitable(None, local, memory) == 1
    assert suitable(7, memory) == 1
    for wrong in (0, -1, 1.5, "2"):
        with pytest.raises(Unusable, match="processes must be"):
            suitable(wrong, memory)
    monkeypatch.setattr(tasks.sys, "platform", "darwin")
    assert suitable(None, local, store) == 1


def test_jobs_move_where_there_is_room():
    """Who is slow gets few: the next jobs go to who has the fewest."""
    here = os.getpid()

    def slow():
        if os.getpid() != here:
            sleep(0.05)  # a slow process, not a wait for something

    async def work(_):
        await tasks.run_blocking(slow)
        return os.getpid()

    carried = Counter(result for _, result in run_jobs(range(MANY), work, lambda _: 1, Event(), processes=2))
    assert carried[here] > MANY / 2
    assert carried.total() - carried[here] > tasks._IN_TURN
