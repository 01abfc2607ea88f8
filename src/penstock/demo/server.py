"""Where the demo works: a bucket on a server of its own (moto's, in a process of its own), or a prefix in a user's."""

from __future__ import annotations

import http.client
import logging
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import penstock as ps
from penstock.errors import NotFound, PenstockError
from penstock.source import open_source

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["borrowed", "embedded"]

_BUCKET = "penstock-demo"


@contextmanager
def embedded() -> Iterator[str]:
    """Run moto's S3 server until the block ends; yields the URL of an empty bucket, ending in ``/``.

    Inside the block the environment points at it, for this process and its children: nobody needs any options.
    """
    # In a process group of its own, so that Ctrl-C reaches it after us; it ends when its standard input does, so it
    # also goes when this process is killed.
    with subprocess.Popen(  # noqa: S603  our own module
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as server:
        try:
            endpoint = server.stdout.readline().strip() if server.stdout else ""
            if not endpoint:
                raise PenstockError("the demo's own S3 server did not start: see what it says above")
            with _environment(_own(endpoint)):
                yield f"s3://{_BUCKET}/"
        finally:
            server.kill()  # it holds nothing worth a farewell


@contextmanager
def borrowed(bucket: str, endpoint: str | None, *, keep: bool) -> Iterator[str]:
    """Work below a prefix of our own in a bucket that is there; yields its URL, ending in ``/``.

    Credentials, region and everything else come from the environment. What was written is deleted in the end,
    whatever happened, unless ``keep``.

    Raises:
        NotFound: No such bucket; none is ever created.

    """
    root = f"s3://{bucket.removeprefix('s3://').rstrip('/')}/"
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


def _own(endpoint: str) -> dict[str, str]:
    """Return an environment in which only our server exists, however the user's own is set up."""
    elsewhere = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return elsewhere | {
        "AWS_ACCESS_KEY_ID": "demo",
        "AWS_SECRET_ACCESS_KEY": "demo",
        "AWS_ENDPOINT_URL_S3": endpoint,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "no_proxy": "127.0.0.1",
    }


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


def _serve() -> None:
    """Serve on a free port with an empty bucket, print the endpoint, and return when standard input ends."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # one line a request otherwise
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    connection = http.client.HTTPConnection(host, port)
    connection.request("PUT", f"/{_BUCKET}")
    connection.getresponse().read()  # it answers
    print(f"http://{host}:{port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
