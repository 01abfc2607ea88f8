"""Transforms and data that worker processes can import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils.data import get_worker_info

if TYPE_CHECKING:
    from pathlib import Path

    from penstock import Sample


def key_and_bytes(sample: Sample) -> tuple[str, bytes]:
    return sample.key, sample.read()


def number(sample: Sample) -> int:
    return int(sample.read())


def explode(sample: Sample) -> int:
    if sample.key.endswith("3"):
        raise RuntimeError("boom")
    return 0


def who(_: Sample) -> int:
    info = get_worker_info()
    return -1 if info is None else info.id


def numbered(folder: Path, count: int) -> str:
    """Write files 000…: each holds its own number."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        (folder / f"{index:03d}").write_bytes(str(index).encode())
    return f"{folder}/"
