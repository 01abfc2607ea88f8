"""Disks that fail, or take two names for one: a library for LD_PRELOAD, compiled once (``disk.c``)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["preloaded"]


def preloaded(folder: Path) -> dict[str, str]:
    """Return the environment that puts a process on such disks; skips where nothing can be compiled or preloaded."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("needs Linux and a C compiler")
    library = folder / "disk.so"
    source = Path(__file__).with_name("disk.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}
