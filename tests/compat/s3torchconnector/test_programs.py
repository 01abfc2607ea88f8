"""The programs of the blog on S3's connector and MinIO run with the import changed, as processes of their own."""

from __future__ import annotations

import io
import random
import re
from pathlib import Path

import pytest

from tests.edges.launch import program
from tests.servers.moto import moto

EXAMPLES = Path(__file__).parents[3] / "examples" / "compat"
DIGITS, EACH = 3, 8


@pytest.fixture(scope="module")
def variables():
    from PIL import Image

    draw = random.Random(0)
    with moto() as server:
        client = server.client()
        client.create_bucket(Bucket="mnist")
        for number in range(DIGITS * EACH):
            png = io.BytesIO()
            Image.frombytes("L", (28, 28), draw.randbytes(784)).save(png, "PNG")
            client.put_object(Bucket="mnist", Key=f"train/{number % DIGITS}/{number:04}.png", Body=png.getvalue())
        yield server.environment


def printed(name, variables):
    ended = program(EXAMPLES / name, **variables)
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def test_s3_mnist_trains_on_all_images(variables):
    out = printed("s3_mnist.py", variables)
    assert "24 images\n" in out
    assert re.findall(r"epoch (\d): (\d+) images", out) == [("0", "24"), ("1", "24")]


def test_s3_connector_iterates_shards_and_saves(variables):
    out = printed("s3_connector.py", variables)
    assert len(re.findall(r"^mnist train/\d/\d{4}\.png \d+$", out, re.MULTILINE)) == DIGITS * EACH
    assert "24 objects, 24 of them different\nloaded ['bias', 'weight']\nno such object: NotFound\n" in out
