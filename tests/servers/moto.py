"""Moto's S3 in a process of its own: quick, faithful in shape, and gullible (it believes any digest or signature)."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from tests.servers import Server
from tests.servers.child import running

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["moto"]


@contextmanager
def moto() -> Iterator[Server]:
    """Run a fresh, empty server until the block ends."""
    start = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
    with running(start, {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as endpoint:
        yield Server(endpoint, "testing", "testing")


def serve() -> None:
    """Serve on a free port, print the endpoint, and return when standard input ends (the child's side)."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication as Dispatcher
    from moto.server import ThreadedMotoServer

    # For each request it lists its own folders and tries 170 patterns again: a third of its time.
    Dispatcher.get_backend_for_host = cache(Dispatcher.get_backend_for_host)  # type: ignore[method-assign]
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # one line a request otherwise
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)
    sys.stdin.read()
    server.stop()
