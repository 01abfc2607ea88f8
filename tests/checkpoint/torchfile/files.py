"""Files of ``torch.save`` in memory, for the tests of this room."""

from __future__ import annotations

import io

import torch

from penstock.checkpoint.gather import Object
from penstock.source import open_source


def stored(body: bytes, url: str = "memory://test-unpack/a.pt", store=None):
    """Write a file as it is, and return where it lies."""
    source, key = open_source(url, store)
    source.put(key, body)
    meta = source.head(key)
    return source, Object(key, meta.etag, meta.size, source.url(key), None)


def saved(obj, **options) -> bytes:
    """Return the file that ``torch.save`` writes."""
    file = io.BytesIO()
    torch.save(obj, file, **options)
    return file.getvalue()
