"""A program that prints, for each of a few everyday calls, the files of Penstock whose functions the call runs."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Self

import penstock as ps
from penstock.testing.faults import FaultServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

OBJECTS, REPEATS = 32, 5
CHUNKS = 80  # more than a dataset holds as a whole
ARRAY = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [CHUNKS, 8],
    "data_type": "float32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 8]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 0,
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    "dimension_names": ["time", "x"],
    "attributes": {},
}
PACKAGE = str(Path(ps.__file__).parent) + "/"
SERVER = PACKAGE + "testing/"
# Slow requests are looked for a few times a second, whatever is called: a busy machine has them in each repeat.
TIMED = {"engine/transport/late_calls.py", "engine/read/hedging.py", "histogram.py"}


class Trace:
    """Penstock's functions that run in any thread while the block runs, by file, with how often each was called."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self._on = False
        # Before any thread of Penstock starts: Python 3.11 cannot give a hook to a thread that runs.
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def __enter__(self) -> Self:
        self.calls.clear()
        self._on = True
        return self

    def __exit__(self, *_: object) -> None:
        self._on = False

    def files(self) -> dict[str, int]:
        """Return the number of calls in each file."""
        found: Counter[str] = Counter()
        for (file, _), count in self.calls.items():
            if file not in TIMED:
                found[file] += count
        return dict(sorted(found.items()))

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if not self._on or event != "call":
            return
        code = frame.f_code
        path = code.co_filename
        if path.startswith(PACKAGE) and not path.startswith(SERVER) and code.co_name != "<module>":
            self.calls[path.removeprefix(PACKAGE), code.co_qualname] += 1


def fill(server: FaultServer) -> None:
    """Store the objects and the array that the calls read."""
    for number in range(OBJECTS):
        server.put("steps", f"objects/{number % 4}/{number:02}", b"%02d" % number * 500)
    server.put("steps", "array.zarr/zarr.json", json.dumps(ARRAY).encode())
    for number in range(CHUNKS):
        server.put("steps", f"array.zarr/c/{number}/0", bytes(32))


def size(sample: ps.Sample) -> int:
    return len(sample.data)


def labelled() -> ps.MapDataset:
    return ps.MapDataset.from_prefix("s3://steps/objects/", labels="folder", transform=size)


def array() -> ps.ZarrDataset:
    return ps.ZarrDataset("s3://steps/array.zarr", shuffle=True)


def calls() -> dict[str, Callable[[], object]]:
    """Return the calls by name; what an epoch iterates is made here, before it is traced."""
    objects = ps.DataLoader(labelled(), batch_size=8, shuffle=True)
    chunks = ps.DataLoader(array(), batch_size=8)
    return {
        "open_read": lambda: ps.open("s3://steps/objects/0/00").read(),
        "from_prefix": labelled,
        "loader_epoch": lambda: list(objects),
        "zarr_open": array,
        "zarr_epoch": lambda: list(chunks),
    }


def main() -> None:
    """Warm each call up, trace it, and print its files with their number of calls, as JSON."""
    trace = Trace()
    found = {}
    with FaultServer.start() as server:
        fill(server)
        os.environ.update(server.environment)
        for name, call in calls().items():
            call()
            runs = []
            for _ in range(REPEATS):
                with trace:
                    call()
                runs.append(trace.files())
            # Without work that comes once a second, or for responses that are slow by chance.
            found[name] = {file: count for file, count in runs[0].items() if all(file in run for run in runs)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
