"""Four ranks, each a process of its own that loads its part of the state; timed from a barrier to the slowest's end."""

import ctypes
import json
import signal
import sys
import time
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory

import torch
import torch.distributed.checkpoint as dcp
from meter import Meter
from model import RANKS, mesh, sharded

_POLL_S = 0.05
_PR_SET_PDEATHSIG = 1


def load(reader):
    """Load through ``reader(meter)`` with ``RANKS`` ranks: the script runs itself once for each."""
    if len(sys.argv) > 2:
        _load_part(reader, int(sys.argv[2]), sys.argv[3])
    else:
        with TemporaryDirectory() as folder:
            told = _told(f"{folder}/ranks")
        sums = {name: sum(each[name] for each in told) for name in ("cpu_s", "peak_rss")}
        print(
            json.dumps({**told[0], **sums, **{name: max(each[name] for each in told) for name in ("wall_s", "beyond")}})
        )


def _load_part(reader, rank, rendezvous):
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a rank ends with who started it, however that ends
    torch.set_num_threads(1)
    meter = Meter()
    parts = {name: torch.ones(shape[0] // RANKS, *shape[1:]) for name, shape in meter.shapes.items()}
    state, storage = sharded(parts, mesh(rank, rendezvous)), reader(meter)
    torch.distributed.barrier()
    with meter:
        dcp.load(state, storage_reader=storage)
        meter.check_tensors(parts, rank, fresh=False)


def _told(rendezvous):
    """Start the ranks and return what each says; where one fails, the others would wait for it, and are ended."""
    command = [sys.executable, *sys.argv]
    ranks = [Popen([*command, str(rank), rendezvous], stdout=PIPE, text=True) for rank in range(RANKS)]
    while any(each.poll() is None for each in ranks) and not any(each.returncode for each in ranks):
        time.sleep(_POLL_S)
    for each in ranks:
        each.kill()
    told = [each.communicate()[0] for each in ranks]
    if any(each.returncode for each in ranks):
        raise SystemExit(f"ranks ended with {[each.returncode for each in ranks]}")
    return [json.loads(each) for each in told]
