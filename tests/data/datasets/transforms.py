"""Transforms and data that worker processes can import."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch.utils.data import get_worker_info

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock import PackedBatch, Sample


def key_and_bytes(sample: Sample) -> tuple[str, bytes]:
    return sample.key, sample.read()


def number(sample: Sample) -> int:
    return int(sample.read())


def explode(sample: Sample) -> int:
    if sample.key.endswith("3"):
        raise RuntimeError("boom")
    return 0


def joined_bytes(sample: Sample) -> np.ndarray:
    """Return the bytes of a sample's fields one after the other, or those of its object."""
    fields = [sample[name] for name in sorted(sample.fields)] or [sample]
    return np.frombuffer(b"".join(each.read() for each in fields), np.uint8)


def tokens_and_documents(packed: PackedBatch) -> np.ndarray:
    return np.concatenate([packed.tokens[0], packed.document_ids[0]])


def plain(samples: Iterable[object]) -> list[object]:
    return [np.asarray(each).tolist() for each in samples]


def who(_: Sample) -> int:
    info = get_worker_info()
    return -1 if info is None else info.id


def numbered(folder: Path, count: int) -> str:
    """Write files 000…: each holds its own number."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        (folder / f"{index:03d}").write_bytes(str(index).encode())
    return f"{folder}/"


def explode_number(sample: Sample) -> int:
    if sample.key.endswith("3"):
        raise RuntimeError("boom")
    return int(sample.read())
