"""``penstock demo``: train from a bucket, kill the training, resume it."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from typing import Annotated

from typer import Option, Typer

from penstock.cli.demo import EPOCHS

app = Typer()


@app.command()
def demo(
    *,
    bucket: Annotated[
        str | None, Option(help="Your own bucket, or its URL, instead of a server on this machine.")
    ] = None,
    provider: Annotated[str | None, Option(help="What the server on this machine speaks: s3, gcs, azure, oss.")] = None,
    endpoint: Annotated[str | None, Option(help="The server of --bucket; default: the environment, then AWS.")] = None,
    epochs: Annotated[int, Option(min=1, help="How many epochs to train.")] = EPOCHS,
    keep: Annotated[bool, Option("--keep", help="Leave the objects in your bucket.")] = False,
) -> None:
    """Fill a bucket with images, train from it, kill the training, resume it in mid-epoch, and report."""
    # Imported late: it imports a test server.
    from penstock.cli.demo.story import Demo

    Demo(bucket=bucket, provider=provider, endpoint=endpoint, epochs=epochs, keep=keep).run()
