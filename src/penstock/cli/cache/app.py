"""Cache commands for typer: names, options, and help with an example."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from typing import TYPE_CHECKING, Annotated

import penstock as ps
from penstock.cli.cache import commands
from penstock.cli.store import with_options, with_store

if TYPE_CHECKING:
    from collections.abc import Callable

    import typer

__all__ = ["COMMANDS"]

_PREFIX = "Only objects whose URL begins with this: s3://bucket/train/. Default: all."


def cache(app: "typer.Typer") -> None:
    """Add ``cache`` with its subcommands."""
    import typer

    group = typer.Typer(
        no_args_is_help=True,
        help="Show, fill, check and empty the cache on this machine's disk. It is the one that --cache, --store or "
        "PENSTOCK_CACHE name. Where none of them is given, ls, verify and clear look into ~/.cache/penstock, and warm "
        "is refused: programs keep nothing there unless they are told to.",
    )
    for add in (_ls, _warm, _verify, _clear):
        add(group)
    app.add_typer(group, name="cache")


def _with_cache(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the options that select the cache to ``command``, which receives them as the keyword ``choice``."""
    from typer import Option

    def choice(
        *,
        cache: Annotated[str | None, Option("--cache", metavar="DIR", help="The cache's directory.")] = None,
        store: Annotated[
            str | None, Option("--store", metavar="PROFILE", help="The cache of a profile of penstock.toml.")
        ] = None,
    ) -> commands.CacheChoice:
        return commands.CacheChoice(cache, store)

    return with_options("choice", choice)(command)


def _ls(group: "typer.Typer") -> None:
    import typer

    @group.command(epilog="Example: penstock cache ls -l s3://bucket/train/")
    @_with_cache
    def ls(
        prefix: Annotated[str, typer.Argument(metavar="[URL]", help=_PREFIX)] = "",
        *,
        long: Annotated[
            bool, typer.Option("--long", "-l", help="Bytes on disk, bytes of the object, time of the last use, URL.")
        ] = False,
        json: Annotated[bool, typer.Option("--json", help="One JSON object per line; safe for every key.")] = False,
        choice: commands.CacheChoice,
    ) -> None:
        """List the objects in the cache, one per line, and how full it is. Exit code 1 if there are none."""
        line = commands.as_json if json else commands.as_long if long else commands.as_url
        commands.ls(prefix, line, choice)


def _warm(group: "typer.Typer") -> None:
    import typer

    @group.command(
        epilog="Examples: PENSTOCK_CACHE=/nvme/cache penstock cache warm s3://bucket/train; "
        "penstock cache warm --catalog --cache /nvme/cache s3://bucket/train.catalog"
    )
    @with_store
    def warm(
        urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Objects, prefixes or globs.")],
        *,
        catalog: Annotated[bool, typer.Option("--catalog", help="URLs are those of saved catalogs.")] = False,
        cache: Annotated[str | None, typer.Option("--cache", metavar="DIR", help="The cache's directory.")] = None,
        json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
        store: ps.StoreOptions | str,
    ) -> None:
        """Read objects into the cache, in parallel; those that are there already cost no request.

        The cache has to be named, as for the programs that are to use it: with --cache, --store or PENSTOCK_CACHE.
        An interrupted command is repeated and goes on where it was. What does not fit is left out, with exit code 6.
        """
        commands.warm(urls, commands.cached(store, cache), catalogs=catalog, as_json=json)


def _verify(group: "typer.Typer") -> None:
    import typer

    @group.command(epilog="Example: penstock cache verify")
    @_with_cache
    def verify(
        *,
        json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
        choice: commands.CacheChoice,
    ) -> None:
        """Compare everything in the cache with its checksums, and remove what is damaged: then exit code 5."""
        commands.verify(choice, as_json=json)


def _clear(group: "typer.Typer") -> None:
    import typer

    @group.command(epilog="Example: penstock cache clear s3://bucket/old/")
    @_with_cache
    def clear(
        prefix: Annotated[str, typer.Argument(metavar="[URL]", help=_PREFIX)] = "",
        *,
        json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
        choice: commands.CacheChoice,
    ) -> None:
        """Remove objects from the cache, never from a store. Programs may go on using the cache meanwhile."""
        commands.clear(prefix, choice, as_json=json)


COMMANDS = {"cache": cache}
