"""What tests of runs save, and a process with torch loaded that forks another for each step to save.

Killing a saver then costs no interpreter.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from penstock.checkpoint.run.steps import CheckpointManager
from penstock.options import StoreOptions, TransportOptions
from penstock.testing.faults import Settings
from penstock.testing.faults.dialect import find_words
from tests.children import killing
from tests.faults.cases import small_limits, small_parts

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["manager", "objects", "same", "serve", "state"]


def state(step: int) -> dict[str, object]:
    """Return what is saved as ``step``: tensors of several parts, and the step."""
    generator = torch.Generator().manual_seed(step)
    return {"weights": [torch.rand(30_000, generator=generator) for _ in range(4)], "step": step}


def manager(url: str, store: StoreOptions | None = None, **options: object) -> CheckpointManager:
    """Return a manager that uploads in small parts."""
    store = replace(store or StoreOptions(), transport=TransportOptions(stall_timeout_s=5), write=small_parts())
    with small_limits():
        return CheckpointManager(url, store=store, **options)


def serve() -> None:
    """Take lines `dialect,endpoint,url step seconds`: see ``killing``."""
    late = ("isal.isal_zlib", "isal.igzip_lib", "numpy.random", "torch.utils.serialization.config")
    late += ("fastcrc.crc32", "penstock.stores.gcs.driver", "penstock.stores.gcs.store", "fastcrc.crc64")
    late += ("penstock.stores.oss.store", "penstock.stores.azure.driver", "penstock.stores.azure.store")
    killing(_save, *late)


def _save(where: str, step: str) -> None:
    dialect, endpoint, url = where.split(",")
    store = find_words(dialect).store(Settings(dialect=dialect), endpoint)
    manager(url, store, keep_last=2).save(int(step), state(int(step)))


def same(found: dict[str, object], expected: dict[str, object]) -> None:
    """Make sure that one ``state`` is the other."""
    assert found["step"] == expected["step"]
    assert all(torch.equal(*pair) for pair in zip(found["weights"], expected["weights"], strict=True))


def objects(folder: Path) -> list[str]:
    """Return the names of the files below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
