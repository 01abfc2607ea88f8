"""Trees of files that tests copy and sync."""

from __future__ import annotations

import random

import pytest


def plant(folder, sizes, seed):
    """Write files of random bytes, of these sizes by name; returns the folder."""
    draw = random.Random(seed)
    for name, size in sizes.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.randbytes(size))
    return folder


def contents(folder):
    """Return the bytes of every file by its name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def tree(tmp_path):
    """Return a folder of 30 images in three folders, each of another size."""
    for at in range(30):
        path = tmp_path / "data" / str(at % 3) / f"{at:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(at + 1))
    return tmp_path / "data"
