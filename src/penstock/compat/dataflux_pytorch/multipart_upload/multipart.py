"""``dataflux_pytorch.multipart_upload.multipart`` over Penstock: one buffer, uploaded in parallel parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.compat.dataflux_pytorch.options import store_options
from penstock.options import WriteOptions
from penstock.source import object_at

if TYPE_CHECKING:
    import io

__all__ = ["upload_chunks_concurrently_from_bytesio"]

_PART_BYTES, _WORKERS = 32 << 20, 8  # the original's


def upload_chunks_concurrently_from_bytesio(  # noqa: PLR0913  the original's signature: design/0036
    bytesio: io.BytesIO,
    blob: Any,  # noqa: ANN401  a google.cloud.storage.Blob
    content_type: str | None = None,
    chunk_size: int = _PART_BYTES,
    deadline: float | None = None,  # noqa: ARG001  see below
    max_workers: int = _WORKERS,
    *,
    checksum: str | None = "crc32c",  # noqa: ARG001  see below
    timeout: Any = None,  # noqa: ANN401, ARG001  see below
    retry: Any = None,  # noqa: ANN401  a google.api_core.retry.Retry
) -> None:
    """Upload all of ``bytesio`` to a blob, by its client's credentials, atomically.

    ``chunk_size`` bytes are a part, and ``max_workers`` parts are in flight. ``deadline`` and ``timeout`` change
    nothing: an upload is given up when it makes no progress. Nor does ``checksum``: what was sent is always compared.
    """
    write = WriteOptions(part_bytes=chunk_size, buffer_bytes=chunk_size * (max_workers + 1))
    store = replace(store_options(blob.client, retry), write=write)
    source, key = object_at(f"gs://{blob.bucket.name}/{blob.name}", store)
    with source.open_write(key, content_type=content_type or "") as writer:
        writer.write(bytesio.getbuffer())
