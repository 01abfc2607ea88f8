"""LeRobot datasets: ``ps.LeRobotDataset`` over a store, compared with the classes of ``lerobot`` on local files.

One thread decodes in each. Local files are the best case of LeRobot's streaming, which reads them in order: it decodes
each frame once, and mixes a pool. LeRobot 0.6.1 wants an older torch than ours, and so its environment is made by hand:

python3.12 -m venv PEER && PEER/bin/pip install torch -c constraints.txt
PEER/bin/pip install --no-deps lerobot==0.6.1 av==15.1.0 torchcodec==0.13.0 gymnasium cloudpickle
PEER/bin/pip install -c constraints.txt torch torchvision datasets pandas einops jsonlines draccus deepdiff requests \
    safetensors termcolor
python -m benchmarks.robots PEER/bin/python

torchcodec needs the libraries of FFmpeg, which its own pages say how to install.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

import penstock as ps
from benchmarks.environments import peer
from penstock.testing.faults import FaultServer, Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.options import StoreOptions

RATE = 30
ACTIONS = {"action": [number / RATE for number in range(50)]}
PLANS: dict[str, dict[str, list[float]]] = {
    "present frame": {},
    "50 actions": ACTIONS,
    "2 frames, 50 actions": {"observation.images.c0": [-3 / RATE, 0.0], **ACTIONS},
}


def ask(python: str, **task: Any) -> dict[str, float]:
    """Run LeRobot in its environment; its answer is the last line that it prints."""
    done = subprocess.run(
        [python, str(peer("lerobot_robot")), json.dumps(task)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        message = f"lerobot failed at {task['do']}:\n{done.stderr[-2000:]}"
        raise SystemExit(message)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def read(url: str | Path, deltas: dict[str, list[float]], order: Any, store: StoreOptions | None = None) -> Any:
    """Return the cost of an epoch; opening is outside of it, as with LeRobot's."""
    dataset = ps.LeRobotDataset(url, delta_timestamps=deltas, store=store)
    loader = ps.DataLoader(dataset, 8, shuffle=order, decode_threads=1)
    began, busy, count = time.perf_counter(), time.process_time(), 0
    for batch in loader:
        count += len(batch["index"])
    seconds, cpu = time.perf_counter() - began, time.process_time() - busy
    return {"rate": count / seconds, "cpu_ms": 1e3 * cpu / count, "count": count}


def compare_items(python: str, folder: Path, deltas: dict[str, list[float]]) -> str:
    """Compare items of LeRobot's map dataset with ours: each value, its type and its shape."""
    ours = ps.LeRobotDataset(folder, delta_timestamps=deltas)
    rows = [*range(0, len(ours), max(len(ours) // 24, 1)), len(ours) - 1]
    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "items.pt")
        ask(python, do="keep", root=str(folder), deltas=deltas, rows=rows, file=str(file))
        theirs = torch.load(file)
    same = total = 0
    for row, item in theirs.items():
        mine = ours[row]
        total += len({*item, *mine})
        for key in {*item} & {*mine}:
            a, b = item[key], mine[key]
            alike = a == b if isinstance(a, str) else (a.dtype, a.shape) == (b.dtype, b.shape) and torch.equal(a, b)
            same += alike
    return f"{same} of {total} values of {len(theirs)} items are equal"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lerobot", help="the Python that has lerobot")
    parser.add_argument("--cameras", type=int, nargs="+", default=(1, 3))
    parser.add_argument("--plans", nargs="+", choices=PLANS, default=[*PLANS])
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--length", type=int, default=60, help="frames of an episode")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which medians are printed")
    parser.add_argument("--data", type=Path, help="folder that keeps the datasets, which take a minute to encode")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for cameras in arguments.cameras:
            folder = (arguments.data or Path(name)) / f"{cameras}-{arguments.episodes}-{arguments.length}"
            if not folder.exists():
                counts = {"cameras": cameras, "episodes": arguments.episodes, "length": arguments.length}
                ask(arguments.lerobot, do="write", root=str(folder), **counts)
            with FaultServer.start(Settings()) as near, FaultServer.start(Settings(latency_ms=30)) as far:
                for path in filter(Path.is_file, folder.rglob("*")):
                    for server in (near, far):
                        server.put("robots", f"robot/{path.relative_to(folder)}", path.read_bytes())
                for plan in arguments.plans:
                    compare(arguments, folder, {"0 ms": near, "30 ms": far}, f"{cameras} cameras, {plan}", PLANS[plan])


def compare(
    arguments: argparse.Namespace,
    folder: Path,
    servers: dict[str, FaultServer],
    label: str,
    deltas: dict[str, list[float]],
) -> None:
    """Print medians of rounds in which all ways alternate, since the machine may be shared."""
    ways: dict[str, Callable[[], Any]] = {
        "LeRobot, streaming": lambda: ask(arguments.lerobot, do="stream", root=str(folder), deltas=deltas),
        "LeRobot, map": lambda: ask(arguments.lerobot, do="map", root=str(folder), deltas=deltas),
        "lanes, local": lambda: read(folder, deltas, ps.order.Lanes()),
        "shuffle=True, local": lambda: read(folder, deltas, order=True),
    }
    for name, server in servers.items():
        where: Any = {"url": "s3://robots/robot/", "deltas": deltas, "store": server.store}
        ways[f"lanes, {name}"] = lambda where=where: read(order=ps.order.Lanes(), **where)
        ways[f"shuffle=True, {name}"] = lambda where=where: read(order=True, **where)
    print(f"{label}: {compare_items(arguments.lerobot, folder, deltas)}", flush=True)
    rounds = [{name: work() for name, work in ways.items()} for _ in range(arguments.rounds)]
    for name in ways:
        rate, cpu_ms = (median(each[name][what] for each in rounds) for what in ("rate", "cpu_ms"))
        text = f"{label}, {name:20}: {rate:5.1f} samples/s, {cpu_ms:5.1f} ms of CPU a sample"
        for other in [*ways][:2]:
            rates, costs = (
                median(each[name][what] / each[other][what] for each in rounds) for what in ("rate", "cpu_ms")
            )
            text += f"; of {other}: rate {rates:.2f}, CPU {costs:.2f}"
        print(text, flush=True)


if __name__ == "__main__":
    main()
