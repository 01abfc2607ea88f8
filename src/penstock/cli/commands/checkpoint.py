"""``penstock checkpoint``: list, verify, delete and clean the checkpoints of a run."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import sys
from collections.abc import Iterator
from typing import Annotated

from typer import Argument, Option, Typer

import penstock as ps
from penstock.cli.options import JsonLines, Store, with_store
from penstock.cli.output import readable, write_row
from penstock.display import counted
from penstock.errors import CheckpointError, NotFound
from penstock.source import open_source
from penstock.values import as_folder

app = Typer()
checkpoint = Typer(
    no_args_is_help=True, help="List, verify, delete and clean a run's checkpoints (penstock.CheckpointManager)."
)
app.add_typer(checkpoint, name="checkpoint")
_HOUR_S = 3600


@checkpoint.command()
@with_store
def ls(
    url: Annotated[str, Argument(metavar="URL", help="The run: s3://bucket/run/.")],
    *,
    json: JsonLines = False,
    store: Store,
) -> None:
    """List the committed steps, oldest first: step, size, objects, metric. Exit code 1 if there are none.

    Steps with a damaged manifest are named at the end, and the exit code is 5.
    """
    from penstock.checkpoint.run.steps import describe_steps

    found = dict(describe_steps(ps.CheckpointManager(url, store=store)))
    if not found:
        raise NotFound("no committed checkpoint found", url=url)
    for each in filter(None, found.values()):
        metric = "-" if each.metric is None else f"{each.metric:g}"
        text = f"{each.step:>12} {readable(each.size):>10} {each.objects:>4} objects  metric {metric}"
        write_row(each._asdict(), text, as_json=json)
    damaged = [str(step) for step, each in found.items() if each is None]
    if damaged:
        raise CheckpointError(f"the manifest of step {', '.join(damaged)} is damaged", url=url)


@checkpoint.command()
@with_store
def verify(
    url: Annotated[str, Argument(metavar="URL", help="The run, or one distributed checkpoint.")],
    step: Annotated[list[int] | None, Argument(metavar="[STEP]...", help="Default: all.")] = None,
    *,
    json: JsonLines = False,
    store: Store,
) -> None:
    """Read steps, verify every byte, print the intact objects. Exit code 5 at the first damage."""
    run = ps.CheckpointManager(url, store=store)
    found = [run.verify(each) for each in step or run.steps()] or [_one(url, store)]
    for objects in found:
        for name in objects:
            write_row({"object": name, "status": "intact"}, name, as_json=json)
    print(f"{counted(len(found), 'checkpoint')} as written", file=sys.stderr)


def _one(url: str, store: Store) -> Iterator[str]:
    """Verify the single checkpoint at ``url``, for a URL without steps of a run below it."""
    source, key = open_source(url, store)
    try:
        from penstock.checkpoint.commit import CommittedCheckpoint

        return CommittedCheckpoint(source, as_folder(key)).verify()
    except NotFound:
        raise NotFound("no committed checkpoint found", url=url) from None


@checkpoint.command()
@with_store
def rm(
    url: Annotated[str, Argument(metavar="URL", help="The run.")],
    step: Annotated[list[int], Argument(metavar="STEP...", help="The steps.")],
    *,
    json: JsonLines = False,
    store: Store,
) -> None:
    """Delete steps, manifests first, so that no step is ever visible in part. If one is missing, delete none."""
    ps.CheckpointManager(url, store=store).delete(*step)
    for each in step:
        write_row({"step": each, "status": "deleted"}, str(each), as_json=json)


@checkpoint.command()
@with_store
def clean(
    url: Annotated[str, Argument(metavar="URL", help="The run.")],
    *,
    older_than: Annotated[
        float, Option(metavar="HOURS", min=0, help="Longer than any save takes; by the store's clock.")
    ] = 24.0,
    json: JsonLines = False,
    store: Store,
) -> None:
    """Delete leftovers of interrupted saves and unfinished uploads, and print them."""
    for orphan in ps.CheckpointManager(url, store=store).clean(older_than * _HOUR_S):
        write_row({"url": orphan, "status": "deleted"}, orphan, as_json=json)
