"""``penstock checkpoint``: list, verify, delete and clean the checkpoints of a run."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import json as javascript
import sys
from typing import TYPE_CHECKING, Annotated

import penstock as ps
from penstock.cli.exits import write
from penstock.cli.store import with_store
from penstock.cli.text import harmless, readable
from penstock.errors import CheckpointError, NotFound
from penstock.source import open_source
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import typer

    from penstock.checkpoint.run.steps import StepDescription

__all__ = ["COMMANDS"]

_HOUR_S = 3600


def steps(app: "typer.Typer") -> None:
    """Add ``checkpoint`` with its subcommands."""
    import typer

    group = typer.Typer(
        no_args_is_help=True, help="List, verify, delete and clean a run's checkpoints (penstock.CheckpointManager)."
    )
    for add in (_ls, _verify, _rm, _clean):
        add(group)
    app.add_typer(group, name="checkpoint")


def _ls(app: "typer.Typer") -> None:
    import typer

    @app.command()
    @with_store
    def ls(
        url: Annotated[str, typer.Argument(metavar="URL", help="The run: s3://bucket/run/.")],
        *,
        json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
        store: ps.StoreOptions | str,
    ) -> None:
        """List the committed steps, oldest first: step, size, objects, metric. Exit code 1 if there are none.

        Steps with a damaged manifest are named at the end, and the exit code is 5.
        """
        line: Callable[[StepDescription], str] = _as_json if json else _as_text
        found = dict(ps.CheckpointManager(url, store=store).described())
        if not found:
            raise NotFound("no checkpoint is committed there", url=url)
        for each in filter(None, found.values()):
            write(line(each))
        damaged = [str(step) for step, each in found.items() if each is None]
        if damaged:
            raise CheckpointError(f"the manifest of step {', '.join(damaged)} is damaged", url=url)


def _as_text(found: "StepDescription") -> str:
    metric = "-" if found.metric is None else f"{found.metric:g}"
    return f"{found.step:>12} {readable(found.size):>10} {found.objects:>4} objects  metric {metric}\n"


def _as_json(found: "StepDescription") -> str:
    return javascript.dumps(found._asdict()) + "\n"


def _verify(app: "typer.Typer") -> None:
    import typer

    @app.command()
    @with_store
    def verify(
        url: Annotated[str, typer.Argument(metavar="URL", help="The run, or one distributed checkpoint.")],
        step: Annotated[list[int] | None, typer.Argument(metavar="[STEP]...", help="Default: all.")] = None,
        *,
        json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
        store: ps.StoreOptions | str,
    ) -> None:
        """Read steps, verify every byte, print the intact objects. Exit code 5 at the first damage."""
        run = ps.CheckpointManager(url, store=store)
        found = [run.verify(each) for each in step or run.steps()] or [_one(url, store)]
        for objects in found:
            for name in objects:
                write((javascript.dumps({"object": name, "status": "intact"}) if json else harmless(name)) + "\n")
        print(f"{len(found):,} checkpoint{'s' * (len(found) != 1)} as written", file=sys.stderr)


def _one(url: str, store: ps.StoreOptions | str) -> "Iterator[str]":
    """Verify the single checkpoint at ``url``, for a URL without steps of a run below it."""
    source, key = open_source(url, store)
    try:
        from penstock.checkpoint.commit import CommittedCheckpoint

        return CommittedCheckpoint(source, as_folder(key)).verify()
    except NotFound:
        raise NotFound("no checkpoint is committed there", url=url) from None


def _rm(app: "typer.Typer") -> None:
    import typer

    @app.command()
    @with_store
    def rm(
        url: Annotated[str, typer.Argument(metavar="URL", help="The run.")],
        step: Annotated[list[int], typer.Argument(metavar="STEP...", help="The steps.")],
        *,
        json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
        store: ps.StoreOptions | str,
    ) -> None:
        """Delete steps, manifests first, so that no step is ever visible in part. If one is missing, delete none."""
        ps.CheckpointManager(url, store=store).delete(*step)
        for each in step:
            write((javascript.dumps({"step": each, "status": "deleted"}) if json else f"{each}") + "\n")


def _clean(app: "typer.Typer") -> None:
    import typer

    @app.command()
    @with_store
    def clean(
        url: Annotated[str, typer.Argument(metavar="URL", help="The run.")],
        *,
        older_than: Annotated[
            float, typer.Option(metavar="HOURS", min=0, help="Longer than any save takes; by the store's clock.")
        ] = 24.0,
        json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
        store: ps.StoreOptions | str,
    ) -> None:
        """Delete leftovers of interrupted saves and unfinished uploads, and print them."""
        for orphan in ps.CheckpointManager(url, store=store).clean(older_than * _HOUR_S):
            write((javascript.dumps({"url": orphan, "status": "deleted"}) if json else harmless(orphan)) + "\n")


COMMANDS = {"checkpoint": steps}
