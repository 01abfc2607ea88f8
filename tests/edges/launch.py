"""Programs of one process or several, run to their end, or ended with all they started; nothing is imported twice."""

from __future__ import annotations

import ast
import atexit
import os
import subprocess
import sys
import tempfile
from functools import cache
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING

from tests.edges.nursery import Ended, Order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

__all__ = ["program", "ranks", "run", "torchrun"]

LIMIT_S = 240  # against hangs: the slowest program takes ten; and pytest has the last word, after 300

# What takes long to import, by what a program says that imports it; the order makes few nurseries of many programs.
# Torch is first for all that name it, or Penstock, which imports it for most and never asks whether it is there.
HEAVY = {
    "lightning.pytorch": "lightning.pytorch",
    "transformers.Trainer": "transformers.trainer",
    "accelerate": "accelerate",
    "pytest": "pytest",
    "torch.distributed.tensor": "torch.distributed.tensor",
    "torch.distributed.fsdp": "torch.distributed.fsdp",
    "torch.distributed.checkpoint": "torch.distributed.checkpoint",
}


def program(*command: object, limit_s: float = LIMIT_S, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program until all its processes have ended; TimeoutExpired, and none left, where they hang."""
    return run(command, [os.environ | {"OMP_NUM_THREADS": "1"} | environment], limit_s=limit_s)


def ranks(
    count: int, *command: object, limit_s: float = LIMIT_S, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program as the ranks of a job, with what torchrun would tell them; all end when one of them fails."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # the ranks' meeting point, as torchrun's
    job = os.environ | {
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": store.host,
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    each = [job | {"RANK": str(rank), "LOCAL_RANK": str(rank)} | environment for rank in range(count)]
    return run(command, each, limit_s=limit_s)


def torchrun(
    count: int, *command: object, limit_s: float = LIMIT_S, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program under torchrun itself, whose ranks are interpreters of their own: for what torchrun does."""
    launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}")
    return program(*launcher, *command, limit_s=limit_s, **environment)


def run(
    command: Sequence[object],
    variables: Sequence[dict[str, str]],
    *,
    folder: Path | None = None,
    limit_s: float = LIMIT_S,
) -> subprocess.CompletedProcess[str]:
    """Run a program, ``-m module`` or a file, as often as there are sets of variables, all at once, with exactly these.

    What they print comes back together. The first exit code that is not zero is the result's; one that fails ends all.
    TimeoutExpired beyond the limit, with their stacks in what they printed.
    """
    words = [str(each) for each in command]
    with tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="backslashreplace") as output:
        order = Order(
            _heavy(words), words, str(folder or Path.cwd()), output.name, [dict(each) for each in variables], limit_s
        )
        nursery = _nursery()
        nursery.send(tuple(order))
        ended = Ended(*nursery.recv())
        printed = output.read()
    if ended.hung:
        raise subprocess.TimeoutExpired(words, limit_s, printed)
    return subprocess.CompletedProcess(words, next(filter(None, ended.codes), 0), printed)


def _heavy(words: list[str]) -> list[str]:
    """Return what is worth importing before a program runs: no more than it names, lest it forgets to import it."""
    named = {words[1]} if words[0] == "-m" else _named(Path(words[0]), set())
    found = [HEAVY[each] for each in HEAVY if any(f"{name}.".startswith(f"{each}.") for name in named)]
    return ["torch", *found] if found or {"torch", "penstock"} & {name.partition(".")[0] for name in named} else []


def _named(path: Path, read: set[Path]) -> set[str]:
    """Return what a program names, or one of the files beside it that it imports."""
    read.add(path)
    named = set(_imported(path.read_text("utf-8")))
    beside = {path.with_name(f"{name.partition('.')[0]}.py") for name in named}
    return named.union(*(_named(each, read) for each in sorted(beside) if each not in read and each.exists()))


def _imported(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{each.name}" for each in node.names)


@cache
def _nursery() -> Connection:
    """Start what runs the programs of this test session; it ends with it, whatever ends that."""
    ours, theirs = Pipe()
    alone = {
        "OPENBLAS_NUM_THREADS": "1",  # that of numpy starts threads when it is imported
        "HF_HUB_OFFLINE": "1",  # read when it is imported, so that programs would say it too late
    }
    nursery = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("nursery.py"), str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=os.environ | alone,
        start_new_session=True,  # Ctrl-C is for the tests
    )
    theirs.close()
    atexit.register(_end, nursery, ours)
    return ours


def _end(nursery: subprocess.Popen[bytes], orders: Connection) -> None:
    """Let it go, and by force if it does not: what it runs dies with it."""
    orders.close()
    try:
        nursery.wait(10)
    except subprocess.TimeoutExpired:
        nursery.kill()
        nursery.wait()
