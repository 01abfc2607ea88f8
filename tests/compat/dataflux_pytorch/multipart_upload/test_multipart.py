from __future__ import annotations

import io
import random

from penstock.compat.dataflux_pytorch.multipart_upload.multipart import (
    upload_chunks_concurrently_from_bytesio as upload,
)


def test_a_buffer_becomes_an_object(gcs, client):
    data = random.Random(0).randbytes(12 << 20)
    blob = client.bucket(gcs.name).blob("dir/a b.ckpt")
    buffer = io.BytesIO(data)
    buffer.seek(100)  # all of it is sent, as in the original
    upload(buffer, blob, chunk_size=5 << 20, max_workers=2)
    assert gcs.objects == {"dir/a b.ckpt": data}
    upload(io.BytesIO(b"small"), blob, content_type="text/plain")
    assert gcs.objects == {"dir/a b.ckpt": b"small"}
    assert gcs.server.uploads(gcs.name) == []
