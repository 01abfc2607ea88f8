"""Slurm's part in a job, on this machine: a batch script with its variables, and an srun that starts its tasks.

``sbatch`` runs a script as Slurm would on the first node; the commands ``srun`` and ``scontrol`` that the script finds
are this file. All "nodes" are this machine; the first one's name resolves.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["sbatch"]

LIMIT_S = 240
OPTION = re.compile(r"^#SBATCH --([\w-]+)(?:=(\S+))?", re.MULTILINE)


def sbatch(
    script: Path, *words: object, folder: Path, environment: dict[str, str], **options: str
) -> subprocess.CompletedProcess[str]:
    """Run a batch script to its end; ``options`` (``gpus_per_node="2"``) override those that it names.

    What all its tasks print comes back together, and the script's exit code.
    """
    found = dict(OPTION.findall(script.read_text("utf-8")))
    found |= {name.replace("_", "-"): value for name, value in options.items()}
    nodes, per_node = int(found["nodes"]), int(found["ntasks-per-node"])
    names = ",".join(["localhost", *(f"node-{number}" for number in range(1, nodes))])
    job = {
        "JOB_ID": str(_free_port() - 15000),  # scripts and Lightning derive a port from it
        "JOB_NAME": found["job-name"],
        "JOB_NODELIST": names,
        "NODELIST": names,
        "JOB_NUM_NODES": str(nodes),
        "NNODES": str(nodes),
        "NTASKS": str(nodes * per_node),
        "NTASKS_PER_NODE": str(per_node),
        "GPUS_ON_NODE": found.get("gpus-per-node") or found["gres"].removeprefix("gpu:"),
        "CPUS_PER_TASK": found["cpus-per-task"],
        **dict.fromkeys(("NODEID", "PROCID", "LOCALID"), "0"),
    }
    tools = folder / "slurm"
    tools.mkdir()
    for name in ("srun", "scontrol"):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" {name} "$@"\n')
        (tools / name).chmod(0o755)
    variables = os.environ | {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "VENV": sys.prefix,
        "OMP_NUM_THREADS": "1",
        "JOBSCRATCH": str(folder),
        **{f"SLURM_{name}": value for name, value in job.items()},
    }
    return subprocess.run(
        ["bash", script, *map(str, words)],
        env=variables | environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def _free_port() -> int:
    """Return a port of those that job numbers lead to, and to which nothing is bound now."""
    for port in range(15000 + os.getpid() % 5000, 25000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise OSError("no port is free")


def srun(words: list[str]) -> int:
    """Run a command as all tasks of the job, and return the first exit code that is not zero; one that fails ends all.

    That is what ``--kill-on-bad-exit=1`` says, the one option that is known here.
    """
    if words[0] != "--kill-on-bad-exit=1":
        raise SystemExit(f"srun: unknown option {words[0]}")
    per_node = int(os.environ["SLURM_NTASKS_PER_NODE"])
    tasks: dict[int, subprocess.Popen[bytes]] = {}
    for rank in range(int(os.environ["SLURM_NTASKS"])):
        node, local = divmod(rank, per_node)
        numbers = {"PROCID": rank, "NODEID": node, "LOCALID": local}
        own = {f"SLURM_{name}": str(number) for name, number in numbers.items()}
        task = subprocess.Popen(words[1:], env=os.environ | own)
        tasks[task.pid] = task
    failed = 0
    for _ in range(len(tasks)):
        pid, status = os.wait()
        tasks.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if code and not failed:
            failed = code
            for task in tasks.values():
                task.terminate()
    return failed


if __name__ == "__main__":
    if sys.argv[1] == "scontrol":
        assert sys.argv[2:4] == ["show", "hostnames"], sys.argv
        print(*sys.argv[4].split(","), sep="\n")
    else:
        sys.exit(srun(sys.argv[2:]) & 0xFF)
