"""Where peers run: the benchmark's own interpreter, or a virtual environment for each package of others."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.pythons.environments import interpreter

__all__ = ["OURS", "ROOT", "answer", "clean", "peer", "python", "versions"]

OURS = ""  # the environment the benchmark itself runs in

ROOT = Path(__file__).parents[1]
_HOME = ROOT / ".venv-bench"
_STAMP = "installed.txt"
_LONGEST_S = 200
_PYTHON = re.compile(r"python(3\.\d+) ")
_ASK = """
import importlib.metadata as m, json, platform, sys
found = {name: m.version(name) for name in sys.argv[1:] if any(m.distributions(name=name))}
print(json.dumps({"python": platform.python_version(), **found}))
"""
_TOLD = (
    *("penstock", "pycurl", "torch", "numpy", "s3torchconnector", "s3torchconnectorclient", "obstore", "boto3"),
    *(
        "s3fs",
        "aiobotocore",
        "zarr",
        "numcodecs",
        "multi-storage-client",
        "runai-model-streamer",
        "insitubatch",
        "xarray",
        "xbatcher",
        "zarr-torch-dataset",
        "mosaicml-streaming",
        "megatron-energon",
        "zarrs",
        "safetensors",
        "datasets",
        "pyarrow",
        "matplotlib",
    ),
)


def python(requirement: str) -> str:
    """Return the interpreter that has ``requirement``; installs it from PyPI the first time.

    Held to constraints.txt, but for the packages that the requirement names: one may need another version than ours,
    or another Python, which then comes first: ``"python3.12 insitubatch==0.2.0"``.

    Raises:
        SystemExit: pip failed; what it said is on standard error.
        Missing: The Python that the requirement names is not installed.
    """
    if not requirement:
        return sys.executable
    folder = _HOME / _package(requirement)
    stamp, own = folder / _STAMP, folder / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != requirement:
        print(f"installing {requirement} into {folder}", flush=True)
        version = _PYTHON.match(requirement)
        subprocess.run(
            [interpreter(version[1]) if version else sys.executable, "-m", "venv", "--clear", folder], check=True
        )
        constraints = folder / "constraints.txt"
        constraints.write_text(_constraints(requirement))
        environment = {**_bare(), "PIP_CONSTRAINT": str(constraints)}
        command = [str(own), "-m", "pip", "install", "--quiet", *_PYTHON.sub("", requirement).split()]
        if subprocess.run(command, env=environment, check=False).returncode:
            message = f"pip could not install {requirement} into {folder}"
            raise SystemExit(message)
        stamp.write_text(requirement)
    return str(own)


def _constraints(requirement: str) -> str:
    named = {_package(each) for each in requirement.split()}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return "".join(f"{line}\n" for line in lines if _package(line) not in named)


def _package(requirement: str) -> str:
    return re.split(r"[=<>~!\[ ]", _PYTHON.sub("", requirement))[0]


def answer(requirement: str, script: str, arguments: list[str], name: str, tree: Path = ROOT) -> Any:
    """Run ``peers/<script>.py`` of a checkout and return what the last line that it prints says.

    Raises:
        SystemExit: It failed, or took too long; the message begins with ``name`` and has its words.
    """
    command = [python(requirement), str(peer(script, tree)), *arguments]
    try:
        done = subprocess.run(
            command, env=clean(requirement, tree), capture_output=True, text=True, timeout=_LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        message = f"{name} did not end within {_LONGEST_S} s: {error.stderr}"
        raise SystemExit(message) from None
    if done.returncode or not done.stdout:
        message = f"{name} failed ({done.returncode}):\n{done.stderr}"
        raise SystemExit(message)
    return json.loads(done.stdout.splitlines()[-1])


def versions(requirement: str) -> dict[str, str]:
    """Return the versions that matter in an environment, by package."""
    command = [python(requirement), "-c", _ASK, *_TOLD]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, env=clean(requirement)).stdout
    return dict(json.loads(answer))


def peer(script: str, tree: Path = ROOT) -> Path:
    """Return where a checkout has the peer of this name."""
    return tree / "benchmarks" / "peers" / f"{script}.py"


def clean(requirement: str, tree: Path = ROOT) -> dict[str, str]:
    """Return what a peer may know of the machine: nothing that could steer a client; and which checkout is ours."""
    steering = re.compile(
        r"(AWS|S3|RUST|PENSTOCK|OMP|LD)_.*|.*_proxy|(CURL|REQUESTS)_CA_BUNDLE|SSL_CERT_.*", re.IGNORECASE
    )
    kept = {name: value for name, value in _bare().items() if not steering.fullmatch(name)}
    missing = "/nonexistent"
    kept |= {"AWS_CONFIG_FILE": missing, "AWS_SHARED_CREDENTIALS_FILE": missing, "AWS_EC2_METADATA_DISABLED": "true"}
    if not requirement:
        kept["PYTHONPATH"] = str(tree / "src")
    return kept


def _bare() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
