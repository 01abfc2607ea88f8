"""``python -m benchmarks.starts PYTHON``: requests at the start of LitData and Mosaic's streaming, by ranks and nodes.

PYTHON is an interpreter with both libraries. Each rank is a process that makes the dataset and reads one sample; ranks
of one node share a folder for their cache. A fault server, which fails nothing, counts what reaches it.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.peers.mds_layout import written
from penstock.testing.faults import FaultServer

_CASES = ((1, 1), (2, 1), (4, 1), (2, 2), (4, 4))
_RANK = """
import json, os, sys
from importlib.machinery import ModuleSpec
from types import ModuleType
library, url, cache = sys.argv[1:]
# Only its datasets of images need torchvision.
for name in ("", ".datasets", ".transforms", ".transforms.functional"):
    module = sys.modules[f"torchvision{name}"] = ModuleType(f"torchvision{name}")
    module.__spec__, module.VisionDataset, module.to_tensor = ModuleSpec(module.__name__, None), object, None
if library == "litdata":
    import litdata
    from litdata.streaming import downloader
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
    os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = cache
    storage = {"endpoint_url": os.environ["S3_ENDPOINT_URL"]}
    data = litdata.StreamingDataset(url, cache_dir=cache, storage_options=storage, max_cache_size="1GB")
    print(len(data), file=sys.stderr)
else:
    from streaming import StreamingDataset
    data = StreamingDataset(remote=url, local=cache, batch_size=1)
    print(len(data), file=sys.stderr)
os._exit(0)
"""
_WRITE = """
import os, sys, litdata
from functools import partial
if __name__ == "__main__":
    litdata.optimize(fn=str, inputs=[*range(64)], output_dir=sys.argv[1], chunk_size=8, num_workers=1)
    os._exit(0)
"""


def main(arguments: list[str] | None = None) -> None:
    """Print the requests of each library, for each number of ranks and nodes."""
    parser = argparse.ArgumentParser("python -m benchmarks.starts", description="Requests at other libraries' starts.")
    parser.add_argument("python", type=Path, help="an interpreter with litdata and mosaicml-streaming")
    python = parser.parse_args(arguments).python
    with tempfile.TemporaryDirectory() as name, FaultServer.start() as server:
        folder = Path(name)
        _fill(folder, python, server)
        for library in ("litdata", "streaming"):
            for ranks, nodes in _CASES:
                before = len(server.seen())
                failed = _start(library, python, server, (ranks, nodes))
                seen = [f"{each.verb.upper()} {each.key.rpartition('/')[2]}" for each in server.seen()[before:]]
                counts = dict(sorted(Counter(seen).items()))
                row = {"library": library, "ranks": ranks, "nodes": nodes, "requests": counts, "failed": failed}
                print(json.dumps(row), flush=True)


def _fill(folder: Path, python: Path, server: FaultServer) -> None:
    """Write 64 samples as both libraries' shards, and put them on the server."""
    for number in range(64):
        (folder / f"{number:06d}.bin").write_bytes(bytes(100))
    written(folder)
    script = folder / "write.py"
    script.write_text(_WRITE)
    subprocess.run([python, script, folder / "litdata"], check=True, capture_output=True)
    for path in [*(folder / "mds").iterdir(), *(folder / "litdata").iterdir()]:
        server.put("bucket", f"{path.parent.name}/{path.name}", path.read_bytes())


def _start(library: str, python: Path, server: FaultServer, place: tuple[int, int]) -> list[str]:
    """Start all ranks, and return the last lines of those that failed."""
    ranks, nodes = place
    local, url = ranks // nodes, f"s3://bucket/{'litdata' if library == 'litdata' else 'mds'}"
    keys = {"AWS_ACCESS_KEY_ID": server.settings.access_key, "AWS_SECRET_ACCESS_KEY": server.settings.secret_key}
    region = dict.fromkeys(("AWS_REGION", "AWS_DEFAULT_REGION"), server.settings.region)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as cache:
        running = []
        for rank in range(ranks):
            group = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank % local, "LOCAL_WORLD_SIZE": local}
            group |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "S3_ENDPOINT_URL": server.endpoint}
            environment = {**os.environ, **keys, **region, **{name: str(value) for name, value in group.items()}}
            command = [python, "-c", _RANK, library, url, f"{cache}/{rank // local}"]
            running.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
        ended = [(each.communicate(timeout=300)[1], each.returncode) for each in running]
    return [told.strip().rpartition("\n")[2] for told, code in ended if code]


if __name__ == "__main__":
    main()
