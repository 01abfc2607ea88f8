"""A Ray cluster of several nodes on this machine, in a process of its own, whose workers and raylets can be killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["RayCluster"]

_MARK = "PENSTOCK_TEST_CLUSTER"
_OBJECTS_BYTES = 80 << 20
_ROOT = Path(__file__).parents[2]


class RayCluster:
    """A head without processors, and nodes with one each: ``start`` makes it.

    Attributes:
        address: Its address, for ``ray.init``.
        env: The environment of its processes, which programs that connect to it should have, too.
    """

    def __init__(self, process: subprocess.Popen[str], address: str, env: Mapping[str, str]) -> None:
        self._process, self.address, self.env = process, address, dict(env)

    @classmethod
    @contextmanager
    def start(
        cls, nodes: int = 2, env: Mapping[str, str] | None = None, interpreter: str = sys.executable
    ) -> Iterator[Self]:
        """Start a cluster, whose workers run ``interpreter``; end all of its processes, whatever became of them."""
        # Short: paths of sockets have at most 107 bytes.
        folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        path = os.pathsep.join((f"{_ROOT}/src", str(_ROOT)))
        given = {
            **os.environ,
            **(env or {}),
            "PYTHONPATH": path,
            "RAY_USAGE_STATS_ENABLED": "0",
            # Ray Train looks at its workers every 2 s by default, and notices reports, deaths and the end only then.
            "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
            _MARK: uuid.uuid4().hex,
        }
        # Another cluster that this machine may belong to.
        given.pop("RAY_ADDRESS", None)
        words = [interpreter, "-W", "ignore", "-m", "tests.servers.ray_cluster", folder, str(nodes)]
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=given
        )
        made = cls(process, "", given)
        try:
            made.address = made._answer()
            if not made.address:
                raise RuntimeError("the Ray cluster did not start")
            yield made
        finally:
            with suppress(OSError):
                made._ask("end")
            process.kill()
            process.communicate()
            for pid in _marked(given[_MARK]):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shutil.rmtree(folder, ignore_errors=True)

    def workers(self, task: str) -> list[int]:
        """Return the numbers of the processes that are at a task whose name begins so."""
        return [pid for pid in _marked(self.env[_MARK]) if _words(pid).startswith(f"ray::{task}")]

    def raylets(self) -> list[int]:
        """Return the numbers of the raylets of all nodes; the head's is the first."""
        return sorted(pid for pid in _marked(self.env[_MARK]) if "/raylet/raylet" in _words(pid).partition(" ")[0])

    def cpu_s(self) -> dict[int, float]:
        """Return the CPU seconds that raylets, workers and the other processes of the cluster have taken so far."""
        found = {}
        for pid in _marked(self.env[_MARK]):
            # Drivers have the mark, too.
            if " -c " in _words(pid):
                continue
            with suppress(OSError):
                ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
                found[pid] = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        return found

    def add_node(self) -> None:
        """Add a node."""
        self._ask("add")

    def _ask(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def _marked(mark: str) -> Iterator[int]:
    """Yield the processes whose environment has the mark of a cluster."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and mark.encode() in (entry / "environ").read_bytes():
                pid = int(entry.name)
                if "ray" in _words(pid):
                    yield pid


def _words(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _main(folder: str, nodes: int) -> None:
    from ray._common.utils import get_default_ray_temp_dir
    from ray.cluster_utils import Cluster

    # Ray writes the address of a cluster there, too, and fails where no other cluster has made the folder.
    Path(get_default_ray_temp_dir()).mkdir(parents=True, exist_ok=True)  # type: ignore[no-untyped-call]
    # A dead node is noticed in a second; Ray's own 15 s would be most of a test.
    soon = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 4}
    given = {"object_store_memory": _OBJECTS_BYTES, "include_dashboard": False}
    head = {**given, "num_cpus": 0, "_system_config": soon, "temp_dir": folder}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(nodes):
        cluster.add_node(num_cpus=1, object_store_memory=_OBJECTS_BYTES)
    print(cluster.address, flush=True)
    for line in sys.stdin:
        if line.strip() == "end":
            break
        cluster.add_node(num_cpus=1, object_store_memory=_OBJECTS_BYTES)
        print("added", flush=True)
    cluster.shutdown()  # type: ignore[no-untyped-call]
    print("ended", flush=True)


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
