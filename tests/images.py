"""A server with images for the manual's pages and for examples in docstrings, and a user's environment for it."""

from __future__ import annotations

import io
import random
import tarfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.servers.moto import moto

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Server

__all__ = ["CLASSES", "IMAGES_PER_LABEL", "LABELS", "PHOTOS_PER_CLASS", "emptied", "filled_server"]

LABELS, IMAGES_PER_LABEL = 10, 60
CLASSES, PHOTOS_PER_CLASS = ("cat", "dog", "owl"), 24


@contextmanager
def filled_server() -> Iterator[Server]:
    """Run a server with labelled images under s3://bucket/train/, and photographs under s3://bucket/photos/.

    The labelled images are also in tar files of 100 samples, as png and cls, under s3://bucket/shards/.
    """
    with moto() as server:
        _fill(server.client())
        yield server


def emptied(server: Server) -> dict[str, str]:
    """Delete all objects but the images, and return what a user would export to read them."""
    client = server.client()
    for each in client.get_paginator("list_objects_v2").paginate(Bucket="bucket").search("Contents[].Key"):
        if not each.startswith(("train/", "photos/", "shards/")):
            client.delete_object(Bucket="bucket", Key=each)
    return server.environment


def batched(items, size):
    items = list(items)
    return (items[at : at + size] for at in range(0, len(items), size))


def tar(members):
    """Return a tar file of these names and bytes."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def _fill(client):
    from PIL import Image

    draw = random.Random(0)
    client.create_bucket(Bucket="bucket")
    shards: dict[str, bytes] = {}
    for label in range(LABELS):
        for number in range(IMAGES_PER_LABEL):
            png = io.BytesIO()
            Image.frombytes("L", (8, 8), draw.randbytes(64)).save(png, "PNG")
            client.put_object(Bucket="bucket", Key=f"train/{label}/{number:04}.png", Body=png.getvalue())
            shards[f"{label}-{number:04}.png"] = png.getvalue()
            shards[f"{label}-{number:04}.cls"] = b"%d" % label
    for number, members in enumerate(batched(shards.items(), 200)):
        client.put_object(Bucket="bucket", Key=f"shards/train-{number:04}.tar", Body=tar(members))
    for name in CLASSES:
        for number in range(PHOTOS_PER_CLASS):
            jpeg, size = io.BytesIO(), (draw.randrange(40, 400), draw.randrange(40, 400))
            Image.new("RGB", size, draw.randrange(1 << 24)).save(jpeg, "JPEG")
            client.put_object(Bucket="bucket", Key=f"photos/{name}/{number:04}.jpg", Body=jpeg.getvalue())
