"""A server with images for the manual's pages and for examples in docstrings, and a user's environment for it."""

from __future__ import annotations

import io
import random
import tarfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import penstock as ps
from penstock.testing.faults import FaultServer, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CLASSES", "IMAGES_PER_LABEL", "LABELS", "PHOTOS_PER_CLASS", "emptied", "filled_server"]

LABELS, IMAGES_PER_LABEL = 10, 60
CLASSES, PHOTOS_PER_CLASS = ("cat", "dog", "owl"), 24


@contextmanager
def filled_server() -> Iterator[FaultServer]:
    """Run a server with labelled images under s3://bucket/train/, and photographs under s3://bucket/photos/.

    The labelled images are also in tar files of 100 samples, as png and cls, under s3://bucket/shards/. Two videos of
    20 frames, 10 a second, are under s3://bucket/videos/, one of 4 s with sound under s3://bucket/films/, recordings of
    3 s under s3://bucket/sound/, and a LeRobot dataset of 31 rows under s3://bucket/robot/.
    The server is the project's own: moto takes four times as long, and believes any signature.
    """
    with FaultServer.start(Settings(access_key="testing", secret_key="testing")) as server:
        _fill(server)
        yield server


def emptied(server: FaultServer) -> dict[str, str]:
    """Delete all objects but the images and the robot's, and return what a user would export to read them."""
    keys = (each.key for each in ps.list("s3://bucket/", store=server.store))
    kept = ("train/", "photos/", "shards/", "videos/", "films/", "sound/", "robot/")
    used = [each for each in keys if not each.startswith(kept)]
    ps.delete((f"s3://bucket/{each}" for each in used), store=server.store)
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


def _fill(server):
    from PIL import Image

    from tests.data.lerobot.written import robot
    from tests.data.video.files import encode, film, record

    draw = random.Random(0)
    shards: dict[str, bytes] = {}
    for label in range(LABELS):
        for number in range(IMAGES_PER_LABEL):
            png = io.BytesIO()
            Image.frombytes("L", (8, 8), draw.randbytes(64)).save(png, "PNG")
            server.put("bucket", f"train/{label}/{number:04}.png", png.getvalue())
            shards[f"{label}-{number:04}.png"] = png.getvalue()
            shards[f"{label}-{number:04}.cls"] = b"%d" % label
    for number, members in enumerate(batched(shards.items(), 200)):
        server.put("bucket", f"shards/train-{number:04}.tar", tar(members))
    for name in CLASSES:
        for number in range(PHOTOS_PER_CLASS):
            jpeg, size = io.BytesIO(), (draw.randrange(40, 400), draw.randrange(40, 400))
            Image.new("RGB", size, draw.randrange(1 << 24)).save(jpeg, "JPEG")
            server.put("bucket", f"photos/{name}/{number:04}.jpg", jpeg.getvalue())
    for number in range(2):
        server.put("bucket", f"videos/{number:04}.mp4", encode(count=20, g=4, rate=10, seed=number))
    server.put("bucket", "films/0000.mp4", film())
    for name, codec, kind in (("0000.wav", "pcm_s16le", "s16"), ("0001.m4a", "aac", "fltp")):
        form = "ipod" if codec == "aac" else "wav"
        server.put("bucket", f"sound/{name}", record(codec, form, kind, rate=16_000, layout="mono", seconds=3))
    for name, body in robot().items():
        server.put("bucket", f"robot/{name}", body)
