"""Where the demo works: a bucket on a test server of its own, or a prefix in a user's bucket."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import penstock as ps
from penstock.errors import ConfigError, NotFound
from penstock.source import open_source
from penstock.testing.faults import FaultServer, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["borrowed", "embedded"]

_BUCKET = "penstock-demo"
_STEERING = ("AWS_", "GOOGLE_", "GCS_", "STORAGE_EMULATOR_HOST", "AZURE_", "OSS_", "ALIBABA_CLOUD_", "PENSTOCK_CONFIG")


@contextmanager
def embedded(provider: str = "s3") -> Iterator[str]:
    """Serve a bucket from memory, in a process of its own, until the block ends; yields its URL, ending in ``/``.

    ``provider`` is a dialect of ``FaultServer``. Inside the block the environment points at the server, for this
    process and its children: they need no options.
    """
    with FaultServer.start(Settings(dialect=provider)) as server:
        server.make(_BUCKET)
        with _environment(_own(server.environment)):
            yield f"{server.scheme}://{_BUCKET}/"


@contextmanager
def borrowed(bucket: str, endpoint: str | None, *, keep: bool) -> Iterator[str]:
    """Work below a prefix of our own in a bucket that is there; yields its URL, ending in ``/``.

    Credentials, region and everything else come from the environment. What was written is deleted in the end,
    whatever happened, unless ``keep``. ``bucket`` may be a URL; a mere name is a bucket of S3's.

    Raises:
        ConfigError: An endpoint for another store than S3.
        NotFound: No such bucket; none is ever created.

    """
    root = f"{bucket if '://' in bucket else f's3://{bucket}'}".rstrip("/") + "/"
    if endpoint and not root.startswith("s3://"):
        raise ConfigError("--endpoint is for s3://; for other stores set the environment (docs/stores.md)")
    url = f"{root}penstock-demo-{uuid4().hex[:12]}/"
    with _environment({**os.environ, **({"AWS_ENDPOINT_URL_S3": endpoint} if endpoint else {})}):
        try:
            next(ps.list(url), None)
        except NotFound as error:
            raise NotFound("no such bucket: the demo creates none, so make it first", url=root) from error
        try:
            yield url
        finally:
            if not keep:
                source, prefix = open_source(url)
                source.delete([entry.key for page in source.pages(prefix) for entry in page.entries])


def _own(variables: dict[str, str]) -> dict[str, str]:
    """Return an environment in which only our server exists, however the user's own is set up."""
    elsewhere = {name: value for name, value in os.environ.items() if not name.startswith(_STEERING)}
    nothing = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "no_proxy": "127.0.0.1"}
    return elsewhere | nothing | variables


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
