"""A bucket on moto that the environment names, as a user of the S3 connector exports it, with objects in it."""

from __future__ import annotations

import random
import uuid

import pytest

from tests.servers import Bucket

OBJECTS = {
    f"train/{label}/{number}": random.Random(f"{label}{number}").randbytes(200) for label in "ab" for number in range(5)
}


@pytest.fixture
def s3(moto_server, monkeypatch):
    for name, value in moto_server.environment.items():
        monkeypatch.setenv(name, value)
    client = moto_server.client()
    bucket = Bucket(moto_server, f"test-{uuid.uuid4().hex}", client)
    client.create_bucket(Bucket=bucket.name)
    return bucket


@pytest.fixture
def filled(s3):
    for key, data in OBJECTS.items():
        s3.client.put_object(Bucket=s3.name, Key=key, Body=data)
    return s3
