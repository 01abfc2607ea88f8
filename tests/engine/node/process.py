"""A process of a node, for tests: it does what it is told, line by line, and answers in JSON.

``python -m tests.engine.node.process DIRECTORY``; see ``Process``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).parents[2]


class Process:
    """One such process, from outside."""

    def __init__(self, *arguments):
        command, pipe = [sys.executable, *arguments], subprocess.PIPE
        self.child = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT)
        self.pid = self.child.pid

    def tell(self, *words):
        self.child.stdin.write(json.dumps(words) + "\n")
        self.child.stdin.flush()

    def hear(self):
        return json.loads(self.child.stdout.readline())

    def ask(self, *words):
        self.tell(*words)
        return self.hear()

    def kill(self):
        """End it as a crash does."""
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()


def processes(where, count):
    return running(count, "-m", __name__, str(where))


@contextmanager
def running(count, *arguments):
    """Start so many of Python's with these arguments; whatever becomes of them, they are gone in the end."""
    started = []
    try:
        started.extend(Process(*arguments) for _ in range(count))
        yield started
    finally:
        for each in started:
            each.child.kill()
            each.child.wait()
            each.child.stdin.close()
            each.child.stdout.close()


class Server:
    """What such a process does; each public method is a verb."""

    def __init__(self, where):
        from penstock.engine.node.member import Shared

        self._where = where
        self._shared = Shared(Path(where))

    def row(self, numbers):
        """Write a row with these numbers; wait for its turn."""
        from penstock.engine.node.table import ProcessRow

        rates = tuple(tuple(each) for each in numbers.pop("rates", ()))
        others = self._meet(ProcessRow(seen_at=monotonic() + 1.0, rates=rates, **numbers), 0.0)
        return sorted(each.process for each in others.values())

    def meet(self, later_s=0.0):
        """Write a row; return the numbers of all others that live, by a clock that is this late."""
        from penstock.engine.node.table import ProcessRow

        others = self._meet(ProcessRow(seen_at=monotonic()), later_s)
        return sorted(each.process for each in others.values())

    def _meet(self, row, later_s):
        while True:
            with self._shared.locked() as within:
                if within:
                    others = self._shared.living(self._shared.read(), monotonic() + later_s)
                    assert self._shared.write(row, others)
                    return others

    def learned(self, group, store, base):
        """Show a rate that was learned just now."""
        from penstock.engine.node.rate import Rate
        from penstock.engine.node.table import RequestGroup

        now = monotonic()
        with self._shared.locked() as within:
            self._shared.keep({5: RequestGroup(group, store, "reads of it", Rate(base, now, opened=now, touched=now))})
            return within

    def hold(self):
        """Keep all others out, and stay within until the next line."""
        with self._shared.locked() as within:
            say(within)
            sys.stdin.readline()
        return "left"

    def fork(self):
        """Return what a child sees, which closes what it has inherited, as all children of Penstock do."""
        from penstock.engine.node.member import Shared

        def see():
            self._shared.close()
            self._shared = Shared(Path(self._where))
            return self.meet(60.0)

        return in_child(see)

    def member(self):
        """Take part as a program does; return what it sees."""
        self._shared.close()
        os.environ["PENSTOCK_NODE"] = self._where
        return taken_part()

    def fork_member(self):
        """Return what a child sees that takes part, too."""
        return in_child(taken_part)


def in_child(see):
    reader, writer = os.pipe()
    if not (child := os.fork()):
        os.write(writer, json.dumps(see()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return json.loads(os.read(reader, 1 << 16))


def taken_part():
    from penstock.engine.node.member import member
    from penstock.options import NodeOptions

    class Paced:
        store = 1

        def counted(self):
            return {}

        def bound(self, rates):
            pass

    global held
    member.enter(held := Paced(), NodeOptions())
    while True:
        member.tick(monotonic(), 0, full=False)
        if member.status.directory or member.status.reason not in ("", "no store takes part yet"):
            return [*member.status.processes]


def say(answer):
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    server = Server(sys.argv[1])
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        say(getattr(server, verb)(*arguments))
