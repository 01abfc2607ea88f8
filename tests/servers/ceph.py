"""A Ceph cluster of one: the S3 server that checks signatures and digests, as a cloud's does."""

from __future__ import annotations

import secrets
import shutil
import socket
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.servers import Server
from tests.servers.child import running

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ceph", "missing"]

_SCRIPT = Path(__file__).with_name("ceph.sh")
_PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin", "setpriv")


def missing() -> list[str]:
    """Return the programs that would be needed and are not installed."""
    return [name for name in _PROGRAMS if shutil.which(name) is None]


@contextmanager
def ceph() -> Iterator[Server]:
    """Run a fresh, empty cluster, all in memory, until the block ends. Takes some seconds to start."""
    access_key, secret_key = "testaccesskey", secrets.token_hex(20)
    with TemporaryDirectory(prefix="penstock-ceph-", ignore_cleanup_errors=True) as folder:
        gateway, monitor = _free_ports(2)
        command = ["bash", str(_SCRIPT), folder, str(gateway), str(monitor), access_key, secret_key]
        with running(command) as endpoint:
            yield Server(endpoint, access_key, secret_key)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
