"""Processes share a cache and are killed at any moment: it keeps its bound, and serves no wrong byte."""

import os
import signal
from random import Random

import pytest

from tests.engine.cache.entries import MIB, cache_in, content, du, held, keep

OBJECTS = 600


def _size(number):
    return 1000 + number * 7919 % 60_000


def _fill(path, size_bytes, seed, told):
    """Read objects at random and keep those that are missing, a byte into ``told`` for each; a wrong byte ends it."""
    cache, random = cache_in(path, size_bytes), Random(seed)
    while True:
        number = random.randrange(OBJECTS)
        found = held(cache, f"{number}")
        if found is None:
            keep(cache, f"{number}", _size(number))
        elif found != content(f"{number}", _size(number)):
            return
        os.write(told, b".")


class Filler:
    """Such a process."""

    def __init__(self, path, size_bytes, seed):
        self._heard, told = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                _fill(path, size_bytes, seed, told)
            finally:
                os._exit(1)
        os.close(told)

    def went_on(self, count):
        """Wait for some more of its reads; says whether it has not ended."""
        while count > 0:
            done = len(os.read(self._heard, count))
            if not done:
                return False
            count -= done
        return True

    def stop(self):
        """Halt it until ``go_on``: while others write, a walk through a directory may count a file twice."""
        os.kill(self._pid, signal.SIGSTOP)
        os.waitpid(self._pid, os.WUNTRACED)

    def go_on(self):
        os.kill(self._pid, signal.SIGCONT)

    def kill(self):
        """End it, now; returns its exit status."""
        os.kill(self._pid, signal.SIGKILL)
        os.close(self._heard)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


@pytest.mark.parametrize(
    ("processes", "kills", "size_bytes"),
    [(4, 12, 6 * MIB), pytest.param(16, 300, 16 * MIB, marks=pytest.mark.slow)],
    ids=["few", "many"],
)
def test_processes_that_are_killed_leave_a_cache_that_keeps_its_promises(tmp_path, seed, processes, kills, size_bytes):
    random, samples = Random(seed), []
    running = [Filler(tmp_path, size_bytes, number) for number in range(processes)]
    try:
        for kill in range(kills):
            victim = random.randrange(processes)
            assert running[victim].went_on(random.randrange(1, 150)), "it read a wrong byte, or failed"
            for each in running:
                each.stop()
            samples.append(du(tmp_path))
            assert running[victim].kill() == -signal.SIGKILL
            samples.append(du(tmp_path))
            for each in running:
                if each is not running[victim]:
                    each.go_on()
            running[victim] = Filler(tmp_path, size_bytes, processes + kill)
        assert all(each.went_on(20) for each in running)
    finally:
        for each in running:
            each.kill()
    assert max(samples) <= size_bytes
    assert max(samples) > size_bytes / 2, "it was never full"
    cache = cache_in(tmp_path, size_bytes)
    assert cache.verify().damaged == 0
    assert sum(held(cache, f"{number}") is not None for number in range(OBJECTS)) == cache.usage().entries > 0
    assert [path for path in (tmp_path / "penstock-cache-1" / "writers").iterdir() if "." in path.name] == []
    cache.clear()
    assert [*tmp_path.iterdir()] == []
