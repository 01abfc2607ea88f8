"""Functions that run as the ranks of a real process group, each in a process forked where torch is loaded already."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

__all__ = ["free_port", "ranks"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def ranks(world: int, init_method: str, work: Callable[..., Any], *arguments: Any, limit_s: float = 100) -> list[Any]:
    """Return what ``work(*arguments)`` returns or raises on each rank of a gloo group; None of one that died.

    The group lives until the last rank has answered. Whatever hangs is killed.
    """
    processes = multiprocessing.get_context("forkserver")
    environment = dict(os.environ)  # the fork server has that of its own beginning
    started, pipes = [], []
    for rank in range(world):
        here, there = processes.Pipe(duplex=False)
        arguments_of_rank = ((rank, world, init_method), there, environment, work, arguments)
        started.append(processes.Process(target=_rank, args=arguments_of_rank))
        started[-1].start()
        there.close()
        pipes.append(here)
    deadline = time.monotonic() + limit_s
    try:
        return [_answer(pipe, deadline) for pipe in pipes]
    finally:
        for process in started:
            process.join(5)
            process.kill()
            process.join()


def _answer(pipe: Connection, deadline: float) -> Any:
    with pipe:
        assert pipe.poll(max(0.0, deadline - time.monotonic())), "a rank did not answer in time"
        try:
            return pipe.recv()
        except EOFError:
            return None


def _rank(
    place: tuple[int, int, str],
    pipe: Connection,
    environment: dict[str, str],
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    rank, world, init_method = place
    os.environ.clear()
    os.environ.update(environment)
    dist.init_process_group("gloo", init_method, rank=rank, world_size=world)
    try:
        answer = work(*arguments)
    except Exception as error:  # noqa: BLE001  it goes to the test
        error.add_note(traceback.format_exc())
        answer = error
    pipe.send(answer)
    with suppress(RuntimeError):  # a rank may have died
        dist.barrier()
    dist.destroy_process_group()
