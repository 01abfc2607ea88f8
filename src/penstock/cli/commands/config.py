"""``penstock config``: settings and where they come from; validation of configuration files."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import json as javascript
import sys
from typing import TYPE_CHECKING, Annotated

from penstock.cli.exits import write
from penstock.cli.text import harmless
from penstock.errors import NotFound

if TYPE_CHECKING:
    import typer

__all__ = ["COMMANDS"]

_INVALID = 2  # as for a ConfigError


def config(app: "typer.Typer") -> None:
    """Add ``config`` with its subcommands."""
    import typer

    inner = typer.Typer(no_args_is_help=True)
    app.add_typer(inner, name="config", help="Show settings and where they come from; check configuration files.")
    for add in (_show, _validate):
        add(inner)


def _show(app: "typer.Typer") -> None:
    import typer

    @app.command(epilog="Example: penstock config show penstock://data/")
    def show(
        place: Annotated[str, typer.Argument(metavar="[PROFILE|URL]", help="Default: a list of all profiles.")] = "",
        *,
        json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    ) -> None:
        """Print every setting of a profile or a URL, with the file and key, variable or default it comes from.

        Secrets are shown as set or unset. No request is made.
        """
        from penstock.stores.profiles.effective import profiles, settings

        rows = settings(place) if place else profiles()
        if not rows:
            raise NotFound("no profiles: there is no penstock.toml here, above, in ~/.config/penstock or /etc/penstock")
        names = ("name", "value", "origin") if place else ("profile", "url", "origin")
        if json:
            write("".join(javascript.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
            return
        widths = [max(len(row[at]) for row in rows) for at in (0, 1)]
        write(
            "".join(harmless(f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}".rstrip()) + "\n" for row in rows)
        )


def _validate(app: "typer.Typer") -> None:
    import typer

    @app.command(epilog="Example: penstock config validate penstock.toml")
    def validate(
        file: Annotated[str | None, typer.Argument(metavar="[FILE]", help="Default: the files that are found.")] = None,
        *,
        json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    ) -> None:
        """Check every profile of a file: keys, values, URLs, what is extended. Exit code 2 if one cannot work.

        A file that ends in .yaml or .json is read as Multi-Storage Client's.

        A variable that is not set here is reported, and is no failure. No request is made.
        """
        from penstock.stores.profiles.effective import check_files

        count, problems = check_files(file)
        for name, text, note in problems:
            record = {"profile": name, "severity": "note" if note else "error", "text": text}
            write(javascript.dumps(record) + "\n" if json else f"{record['severity']}: {harmless(text)}\n")
        failed = sum(not each.note for each in problems)
        print(f"{count:,} profile{'s' * (count != 1)}, {failed:,} with errors", file=sys.stderr)
        if failed:
            raise SystemExit(_INVALID)


COMMANDS = {"config": config}
