"""Command line for typer: names, options and help texts. `commands/` does the work."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import platform
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated

import penstock as ps
from penstock.cli.demo import EPOCHS
from penstock.cli.exits import MEANINGS, write
from penstock.cli.store import with_store
from penstock.cli.text import harmless

if TYPE_CHECKING:
    import typer

__all__ = ["build"]

# Module below this package whose ``COMMANDS`` adds each command, in the order of the help.
_HOMES = {
    "ls": "app",
    **dict.fromkeys(("stat", "cp", "mv", "rm", "cat", "du"), "objects"),
    **dict.fromkeys(("find", "index", "sync", "presign"), "many"),
    "checkpoint": "commands.steps",
    "zarr": "zarr",
    "cache": "cache.app",
    "config": "commands.config",
    "doctor": "app",
    "bench": "commands.bench",
    "report": "app",
    "demo": "app",
}


def build(word: str = "") -> "typer.Typer":
    """Return the whole command line or, if its first ``word`` is a command, only that command.

    Importing and preparing all commands takes longer than a copy of a few objects.
    """
    import typer

    codes = "; ".join(f"{code} {meaning}" for code, meaning in MEANINGS.items())
    app = typer.Typer(
        name="penstock",
        help="Stream training data and checkpoints between PyTorch and object storage.",
        epilog=f"Exit codes: {codes}. PENSTOCK_DEBUG=1 shows an error's traceback.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    _versions(app)
    for name in (word,) if word in _HOMES else _HOMES:
        import_module(f"penstock.cli.{_HOMES[name]}").COMMANDS[name](app)
    return app


def _versions(app: "typer.Typer") -> None:
    import typer

    def show(wanted: bool) -> None:  # noqa: FBT001  typer's form of a callback
        if wanted:
            write(f"penstock {ps.__version__} (Python {platform.python_version()}, pycurl {version('pycurl')})\n")
            raise typer.Exit

    @app.callback()
    def root(
        *,
        version: Annotated[
            bool, typer.Option("--version", callback=show, is_eager=True, help="Print versions.")
        ] = False,
    ) -> None: ...


def _ls(app: "typer.Typer") -> None:
    import typer

    @app.command()
    @with_store
    def ls(
        url: Annotated[str, typer.Argument(metavar="URL", help="s3://bucket/prefix, or a local path.")],
        *,
        long: Annotated[bool, typer.Option("--long", "-l", help="Size in bytes, time and URL.")] = False,
        json: Annotated[bool, typer.Option("--json", help="One JSON object per line; safe for every key.")] = False,
        store: ps.StoreOptions | str,
    ) -> None:
        """List the objects whose URL begins with URL, one per line. Exit code 1 if there are none."""
        from penstock.cli.commands import ls as listing

        line = listing.as_json if json else listing.as_long if long else listing.as_url
        listing.ls(url, line, store)


def _doctor(app: "typer.Typer") -> None:
    import typer

    @app.command(epilog="Example: penstock doctor s3://bucket/runs/")
    @with_store
    def doctor(
        url: Annotated[str, typer.Argument(metavar="URL", help="A bucket, or a prefix that may be written below.")],
        *,
        read_only: Annotated[bool, typer.Option("--read-only", help="Write nothing; read an object there.")] = False,
        json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
        store: ps.StoreOptions | str,
    ) -> None:
        """Examine a store step by step: host, TLS, clock, credentials, then each verb. What fails says what to do.

        Writes about 6 MiB into a new folder below URL, and deletes them. The exit code is that of the first failure.
        """
        # Imported late: no other command needs the examination.
        from penstock.cli.commands import doctor as examining

        examining.doctor(url, examining.as_json if json else examining.as_text, store, read_only=read_only)


def _report(app: "typer.Typer") -> None:
    import typer

    @app.command(epilog="Example: penstock report 's3://bucket/run/report-*.json'")
    @with_store
    def report(
        urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Objects, files or globs.")],
        *,
        json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
        html: Annotated[bool, typer.Option("--html", help="One page, for a browser.")] = False,
        store: ps.StoreOptions | str,
    ) -> None:
        """Join the reports that the ranks of a training have saved, and name the rank that waited longest."""
        found = ps.merge_reports(urls, store=store)
        write((found.json() + "\n") if json else found.html() if html else harmless(str(found)) + "\n")


def _demo(app: "typer.Typer") -> None:
    import typer

    @app.command()
    def demo(
        *,
        bucket: Annotated[
            str | None, typer.Option(help="Your own bucket, or its URL, instead of a server on this machine.")
        ] = None,
        provider: Annotated[
            str | None, typer.Option(help="What the server on this machine speaks: s3, gcs, azure, oss.")
        ] = None,
        endpoint: Annotated[
            str | None, typer.Option(help="The server of --bucket; default: the environment, then AWS.")
        ] = None,
        epochs: Annotated[int, typer.Option(min=1, help="How many epochs to train.")] = EPOCHS,
        keep: Annotated[bool, typer.Option("--keep", help="Leave the objects in your bucket.")] = False,
    ) -> None:
        """Fill a bucket with images, train from it, kill the training, resume it in mid-epoch, and report."""
        from penstock.cli.demo.story import Demo  # imports a test server

        Demo(bucket=bucket, provider=provider, endpoint=endpoint, epochs=epochs, keep=keep).run()


COMMANDS = {"ls": _ls, "doctor": _doctor, "report": _report, "demo": _demo}
