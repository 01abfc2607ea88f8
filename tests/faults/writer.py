"""A process that forks another for each object to write, so that killing one costs no interpreter."""

from __future__ import annotations

import os

from penstock.options import StoreOptions, TransportOptions
from penstock.source import open_source
from tests.children import killing
from tests.faults.cases import PART_BYTES, small_limits, small_parts

__all__ = ["NEW", "serve"]

NEW = {"put": b"new!" * 10_000, "multipart": b"NEW!" * (6 * PART_BYTES // 4) + b"end"}


def serve():
    """Take lines `how key seconds`: see ``killing``."""
    with small_limits():
        killing(lambda how, key: _write(key, NEW[how]))


def _write(key, data):
    options = StoreOptions(transport=TransportOptions(stall_timeout_s=5), write=small_parts())
    source, _ = open_source(os.environ["BUCKET_URL"], options)
    with source.open_write(key) as file:
        for at in range(0, len(data), 10_000):
            file.write(data[at : at + 10_000])
