"""``dataflux_pytorch.multipart_upload.multipart`` over Penstock: one buffer, uploaded in parallel parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.compat.dataflux_pytorch.listing import store_options
from penstock.errors import Unsupported
from penstock.options import WriteOptions
from penstock.source import object_at

if TYPE_CHECKING:
    import io

_PART_BYTES, _WORKERS = 32 << 20, 8  # the original's defaults
# Blob properties that Penstock's writer does not support. Google's library sends them with an upload, or drops them.
_NOT_SENT = (
    *("storage_class", "cache_control", "content_encoding", "content_disposition", "content_language", "custom_time"),
    *("md5_hash", "crc32c", "retention", "contexts", "event_based_hold", "temporary_hold"),
)


def upload_chunks_concurrently_from_bytesio(
    bytesio: io.BytesIO,
    blob: Any,
    content_type: str | None = None,
    chunk_size: int = _PART_BYTES,
    deadline: float | None = None,
    max_workers: int = _WORKERS,
    *,
    checksum: str | None = "crc32c",
    timeout: Any = None,
    retry: Any = None,
) -> None:
    """Upload all of ``bytesio`` to a blob, atomically, with the credentials of the blob's client.

    The object gets the blob's metadata and content type, and ``blob.user_project`` pays. As in the original, properties
    that were only loaded from an older version of the object are not written again, except the content type.

    A part has ``chunk_size`` bytes, and ``max_workers`` parts are in flight. ``deadline`` and ``timeout`` have no
    effect: an upload fails when it makes no progress. ``checksum`` has no effect: an upload is always verified.
    """
    url = f"gs://{blob.bucket.name}/{blob.name}"
    _refuse_unsent(blob, url)
    payer = getattr(blob, "user_project", None) or getattr(blob.bucket, "user_project", None)
    write = WriteOptions(part_bytes=chunk_size, buffer_bytes=chunk_size * (max_workers + 1))
    store = replace(store_options(blob.client, retry), write=write, user_project=payer)
    source, key = object_at(url, store)
    kind = content_type or getattr(blob, "content_type", None) or ""
    with source.open_write(key, metadata=_get_set_property(blob, "metadata"), content_type=kind) as writer:
        writer.write(bytesio.getbuffer())


def _refuse_unsent(blob: Any, url: str) -> None:
    found = [name for name in _NOT_SENT if _get_set_property(blob, name)]
    if getattr(blob, "_encryption_key", None) or getattr(blob, "encryption_key", None):
        found.insert(0, "encryption_key")
    kms = getattr(blob, "kms_key_name", None)
    # A key name with a version was loaded from the store: it describes the encryption of the replaced object.
    if kms and "cryptoKeyVersions" not in kms:
        found.insert(0, "kms_key_name")
    if found:
        message = f"cannot upload {url}: blob.{found[0]} is set, and Penstock cannot write an object with it"
        raise Unsupported(f"{message}; unset it, or upload by blob.upload_from_file", url=url)


def _get_set_property(blob: Any, name: str) -> Any:
    """Return a property that the caller has set; None if it was loaded from the store or is not set."""
    first, *others = name.split("_")
    changed = getattr(blob, "_changes", None)
    if changed is not None and first + "".join(map(str.title, others)) not in changed:
        return None
    return getattr(blob, name, None)
