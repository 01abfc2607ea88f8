"""Two profiles of Multi-Storage Client: of a bucket on moto, and of files of this machine."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.servers.moto import moto

_CONFIG = """
profiles:
  bucket:
    storage_provider:
      type: s3
      options: {{base_path: bkt/base, region_name: us-east-1, endpoint_url: "{endpoint}"}}
    credentials_provider:
      type: S3Credentials
      options: {{access_key: testing, secret_key: testing}}
  disk:
    storage_provider:
      type: file
      options: {{base_path: {folder}}}
"""


@pytest.fixture(scope="session")
def server():
    with moto() as server:
        server.client().create_bucket(Bucket="bkt")
        yield server


@pytest.fixture(scope="session")
def config(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("msc")
    (folder / "files").mkdir()
    path = folder / "msc.yaml"
    path.write_text(_CONFIG.format(endpoint=server.endpoint, folder=folder / "files"), "utf-8")
    return path


@pytest.fixture(params=["bucket", "disk"])
def base(request, config, server, monkeypatch):
    """Return a fresh, empty URL of a profile."""
    monkeypatch.setenv("MSC_CONFIG", str(config))
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return f"msc://{request.param}/{uuid4().hex}"


@pytest.fixture
def tree(base):
    """Return the URL of a directory with four objects."""
    from penstock.compat import multistorageclient as msc

    for name in ("a.txt", "d/b.txt", "d/e/c.txt", "z.bin"):
        msc.write(f"{base}/{name}", name.encode())
    return base
