"""``python -m benchmarks.map_kills``: maps whose workers or drivers are killed: which rows are lost or doubled.

``ps.map`` beside Ray Data's ``write_parquet`` and ``write_json``, without and with its checkpoint, and datatrove's
``JsonlWriter``, on files of this machine. One process is killed at a random moment of each call, while two workers are
at rows. A call that has failed, or has not ended, or whose driver was killed, is made again once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from pyarrow import parquet

from benchmarks.environments import OURS, python
from tests.servers.ray_cluster import RayCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

_KINDS = ("worker", "driver")
_ROWS, _PARTS = 1600, 16
_LONGEST_S = 120  # of a call, which takes some 5 s alone on the machine
# Each row tells who is at work, and how far all are.
_ROW = """
import os, sys, time
folder, address = sys.argv[1:]
def work(row):
    open(f"{folder}/pids/{os.getpid()}", "w").close()
    with open(f"{folder}/ticks", "ab") as file:
        file.write(b".")
    time.sleep(0.002)
    return row
"""
_OURS = """
import penstock as ps
how = {"format": "jsonl", "part_bytes": 4000, "version": "1", "processes": 2}
if __name__ == "__main__":
    ps.map(f"{folder}/in/", work, f"{folder}/out/", **how)
"""
_RAY = """
import ray
ray.init(address=address, logging_level="ERROR", log_to_driver=False)
context = ray.data.DataContext.get_current()
context.enable_progress_bars = False
CHECKPOINT
rows = ray.data.read_json(f"{folder}/in/", override_num_blocks=16).map(work)
rows.write_FORM(f"{folder}/out")
"""
_CHECKPOINT = """
from ray.data.checkpoint import CheckpointConfig
context.checkpoint_config = CheckpointConfig("id", f"{folder}/records", delete_checkpoint_on_success=False)
"""
_DATATROVE = """
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
def step(data, rank=0, world_size=1):
    yield from map(work, data)
steps = [JsonlReader(f"{folder}/in"), step, JsonlWriter(f"{folder}/out", compression=None)]
if __name__ == "__main__":
    LocalPipelineExecutor(steps, tasks=16, workers=2, logging_dir=f"{folder}/records").run()
"""
_PROGRAMS = {"ps.map": (OURS, _OURS), "datatrove": ("datatrove==0.10.1 orjson", _DATATROVE)} | {
    f"Ray Data, write_{form}{name}": (OURS, _RAY.replace("FORM", form).replace("CHECKPOINT", code))
    for form in ("parquet", "json")
    for name, code in (("", ""), (", checkpoint", _CHECKPOINT))
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Kill, and print what was lost or doubled."""
    parser = argparse.ArgumentParser("python -m benchmarks.map_kills", description=__doc__)
    parser.add_argument("--histories", type=int, default=10, help="of each kind of kill (default %(default)s)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of when is killed")
    parser.add_argument("--sides", nargs="+", choices=_PROGRAMS, default=[*_PROGRAMS], help="default: all")
    parser.add_argument("--kinds", nargs="+", choices=_KINDS, default=_KINDS, help="of what is killed (default: all)")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}; of {_ROWS:,} rows, those lost and doubled, for each call or history that has any")
    print("side | killed | of calls that ended well | failed | did not end | in the end")
    with RayCluster.start(2) as cluster:
        for side, kind in product(options.sides, options.kinds):
            draw = random.Random(f"{options.seed} {kind}")
            found = [*filter(None, (_history(side, kind, cluster, draw) for _ in range(options.histories)))]
            # The call of a driver that is killed cannot end well.
            calls = [each for history in found for each in history[kind == "driver" :]]
            well = [wrong for how, *wrong in calls if how == "well" and any(wrong)]
            last = [wrong for *_, (_, *wrong) in found if any(wrong)]
            hows = Counter(how for how, *_ in calls)
            cells = f"{len(found)} {kind}s", f"{len(well)} {well}", hows["failed"], hows["hung"], f"{len(last)} {last}"
            print(side, *cells, sep=" | ", flush=True)


def _history(side: str, kind: str, cluster: RayCluster, draw: random.Random) -> list[tuple[str, int, int]]:
    """Write, kill, and write again if that is needed; return how each call ended, and the rows lost and doubled then.

    There are none if the first call had ended before the kill.
    """
    wanted, calls = draw.randrange(_ROWS // 10, _ROWS * 8 // 10), list[tuple[str, int, int]]()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, ExitStack() as stack:
        folder = Path(name)
        for each in ("in", "out", "pids", "records"):
            (folder / each).mkdir()
        (folder / "ticks").touch()
        for part in range(_PARTS):
            rows = ({"id": str(number), "text": "word " * 6} for number in range(part, _ROWS, _PARTS))
            (folder / f"in/{part:02}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        (folder / "program.py").write_text(_ROW + _PROGRAMS[side][1])
        process = _start(side, folder, cluster, stack)
        while (folder / "ticks").stat().st_size < wanted and process.poll() is None:
            time.sleep(0.01)
        workers = [int(each.name) for each in (folder / "pids").iterdir() if Path("/proc", each.name).exists()]
        if process.poll() is not None or not workers:
            return []
        with suppress(ProcessLookupError):
            os.kill(draw.choice(workers) if kind == "worker" else process.pid, signal.SIGKILL)
        calls.append((_wait(process), *_count(folder / "out")))
        if calls[0][0] != "well":
            calls.append((_wait(_start(side, folder, cluster, stack)), *_count(folder / "out")))
    return calls


def _start(side: str, folder: Path, cluster: RayCluster, stack: ExitStack) -> subprocess.Popen[bytes]:
    requirement = _PROGRAMS[side][0]
    words = [python(requirement), "-W", "ignore", folder / "program.py", folder, cluster.address]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)} if requirement else cluster.env
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(words, env=env, start_new_session=True, **silent)
    # Workers of a driver that was killed may live on.
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait(process: subprocess.Popen[bytes]) -> str:
    try:
        return "well" if process.wait(_LONGEST_S) == 0 else "failed"
    except subprocess.TimeoutExpired:
        _end(process)
        return "hung"


def _count(folder: Path) -> tuple[int, int]:
    """Return how many rows are missing in the files of a folder, and how many are there again."""
    found = Counter[str]()
    for path in folder.iterdir():
        if path.suffix == ".parquet":
            found.update(parquet.read_table(path, columns=["id"])["id"].to_pylist())
        elif path.suffix in (".json", ".jsonl") and path.name != "map.json":
            for line in path.read_text().splitlines():
                # The last line of a file may be torn.
                with suppress(ValueError):
                    found[json.loads(line)["id"]] += 1
    return _ROWS - len(found), found.total() - len(found)


if __name__ == "__main__":
    main()
