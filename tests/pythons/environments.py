"""Interpreters of this machine, and a virtual environment of one with what a check needs."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ROOT", "Missing", "clean", "environment", "interpreter", "lowest", "pins", "pip", "project", "supported"]

ROOT = Path(__file__).parents[2]
_ASK = "import sys; print('.'.join(map(str, sys.version_info[:2])))"


class Missing(Exception):
    """The machine has no interpreter of a version."""


def project() -> dict[str, Any]:
    """Return the table ``project`` of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def supported() -> list[str]:
    """Return the versions of Python that the classifiers name, oldest first."""
    named = [each.removeprefix("Programming Language :: Python :: ") for each in project()["classifiers"]]
    return sorted((each for each in named if re.fullmatch(r"3\.\d+", each)), key=Version)


def interpreter(version: str) -> str:
    """Return the path of a Python of this version: the running one, on the PATH, or among those of pyenv.

    Raises:
        Missing: There is none.
    """
    folder = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser() / "versions"
    pyenv = sorted(folder.glob(f"{version}.*/bin/python"), key=lambda path: Version(path.parts[-3]), reverse=True)
    for path in filter(None, (sys.executable, shutil.which(f"python{version}"), *pyenv)):
        # A shim of pyenv lies on the PATH also where it refuses to run.
        answer = subprocess.run([path, "-c", _ASK], capture_output=True, text=True, check=False)
        if answer.stdout.strip() == version:
            return str(path)
    raise Missing(f"no Python {version} on the PATH or in {folder}")


def environment(name: str, python: str, requirements: Iterable[str], constraints: Iterable[str]) -> str:
    """Return the interpreter of ``.venv-<name>``, which has ``requirements``; it is made anew where they change."""
    folder = ROOT / f".venv-{name}"
    stamp, own = folder / "stamp", str(folder / "bin" / "python")
    wanted = [python, *requirements], [*constraints]
    digest = hashlib.sha256(repr(wanted).encode()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == digest):
        print(f"setting up {folder.name}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
        limits = folder / "constraints.txt"
        limits.write_text("".join(f"{each}\n" for each in constraints))
        if requirements:
            pip(own, "install", *requirements, PIP_CONSTRAINT=str(limits))
        # Last: an environment that is half set up is made anew.
        stamp.write_text(digest)
    return own


def pip(python: str, *words: str, **variables: str) -> None:
    """Run pip of an environment; raises ``SystemExit`` with its output where it fails."""
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    done = subprocess.run(command, env=clean(**variables), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: pip failed:\n{done.stdout}{done.stderr}")


def clean(**variables: str) -> dict[str, str]:
    """Return the environment of this process without what would add packages to another interpreter's."""
    steering = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_CONSTRAINT")
    return {name: value for name, value in os.environ.items() if name not in steering} | variables


def pins(text: str) -> list[str]:
    """Return the lines of a file of constraints that pin a version."""
    return [line for line in text.splitlines() if "==" in line]


def lowest(requirements: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return constraints: each of ``requirements`` at the lowest version that it admits, the rest as ``others`` pin.

    Raises:
        ValueError: A requirement has no lower bound.
    """
    found: dict[str, str] = {}
    for each in map(Requirement, requirements):
        bounds = [bound.version for bound in each.specifier if bound.operator in (">=", "==", "~=")]
        if not bounds:
            raise ValueError(f"{each} has no lower bound")
        found[canonicalize_name(each.name)] = max(bounds, key=Version)
    named = {canonicalize_name(Requirement(each).name): each for each in others}
    return [*(f"{name}=={bound}" for name, bound in found.items()), *(v for k, v in named.items() if k not in found)]
