"""Handle of a fault server, in a separate process or in this one, with the same methods for both."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.testing.faults.dialects import spoken
from penstock.testing.faults.engine import Engine, Seen
from penstock.testing.faults.script import Match, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.options import StoreOptions
    from penstock.testing.faults.kinds import Fault

__all__ = ["FaultServer", "attend"]

_ANY = Match()


class FaultServer:
    """An object store on loopback that fails on demand. Thread-safe; of no use in a forked child.

    Objects are addressed path-style, held in memory, and lost at the end.
    """

    def __init__(self, settings: Settings, ask: Callable[..., object]) -> None:
        """Hold a server (use ``start`` or ``within``); ``ask`` calls a method of the engine by its name."""
        self._ask = ask
        self.settings = settings
        self.endpoint = f"http://127.0.0.1:{ask('port')}"

    @classmethod
    @contextmanager
    def start(cls, settings: Settings | None = None) -> Iterator[FaultServer]:
        """Run in a separate process until the block ends; the server also ends when this process is killed."""
        settings = settings or Settings()
        ours, theirs = socket.socketpair()
        root = str(Path(__file__).parents[3])  # a checkout need not be installed
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}
        command = [sys.executable, "-m", "penstock.testing.faults.child", str(theirs.fileno())]
        with subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()]) as child:  # noqa: S603  our own module
            theirs.close()
            try:
                with Connection(ours.detach()) as line:
                    line.send(settings)
                    yield cls(settings, _over(line))
            finally:
                child.kill()  # nothing to save

    @classmethod
    @contextmanager
    def within(cls, settings: Settings | None = None) -> Iterator[FaultServer]:
        """Run on threads of this process until the block ends: quick to start, but it takes a share of the GIL."""
        settings = settings or Settings()
        engine = Engine(settings)
        try:
            yield cls(settings, lambda name, *arguments: getattr(engine, name)(*arguments))
        finally:
            engine.close()

    @property
    def store(self) -> StoreOptions:
        """Options that connect to the server."""
        return spoken(self.settings.dialect).store(self.settings, self.endpoint)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that connect to the server, for a training program that must not be changed."""
        return spoken(self.settings.dialect).environment(self.settings, self.endpoint)

    @property
    def scheme(self) -> str:
        """Scheme of its URLs, such as ``s3``."""
        return spoken(self.settings.dialect).scheme

    def admit(self, *tokens: str) -> None:
        """Accept these tokens, of bearers or of temporary keys, from now on, and no others."""
        self._ask("admit", tokens)

    def make(self, bucket: str) -> None:
        """Create a bucket, unless it exists."""
        self._ask("make", bucket)

    def put(self, bucket: str, key: str, data: bytes) -> str:
        """Store an object, and create its bucket, without a request; return its version, on S3 the ETag."""
        return str(self._ask("put", bucket, key, data))

    def objects(self, bucket: str) -> dict[str, bytes]:
        """Return the visible objects of a bucket; ``KeyError`` if the bucket does not exist."""
        found = self._ask("objects", bucket)
        assert isinstance(found, dict)
        return found

    def uploads(self, bucket: str) -> list[str]:
        """Return the keys of the unfinished uploads to a bucket."""
        found = self._ask("uploads", bucket)
        assert isinstance(found, list)
        return found

    def fail(self, *faults: Fault, when: Match = _ANY) -> None:
        """Inject faults, one after another, into requests that fit ``when``: by default the next ones of any kind.

        Rules apply in the order in which they were added. A fault waits for a request that it can happen to.
        """
        self._ask("fail", faults, when)

    def heal(self) -> None:
        """Remove all faults that have not happened yet."""
        self._ask("heal")

    def seen(self, verb: str = "", bucket: str = "", key: str | None = None) -> list[Seen]:
        """Return the requests so far that fit, in the order of arrival; empty strings and None match any."""
        found = self._ask("seen", verb, bucket, key)
        assert isinstance(found, list)
        return found

    def opened(self) -> int:
        """Return how many connections to the server were ever opened."""
        found = self._ask("opened")
        assert isinstance(found, int)
        return found


def _over(line: Connection) -> Callable[..., object]:
    lock = threading.Lock()

    def ask(*call: object) -> object:
        with lock:
            line.send(call)
            answer = line.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def attend(line: Connection) -> None:
    """Serve in this process and carry out the owner's calls, until the owner has ended."""
    engine = Engine(line.recv())
    while True:
        try:
            name, *arguments = line.recv()
        except (EOFError, ConnectionError):
            return
        try:
            line.send(getattr(engine, name)(*arguments))
        except Exception as error:  # noqa: BLE001  sent to the owner
            line.send(error)
