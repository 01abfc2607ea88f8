"""``penstock config``: settings and where they come from; validation of configuration files."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import sys
from collections.abc import Sequence
from typing import Annotated

from typer import Argument, Typer

from penstock.cli.options import JsonLines
from penstock.cli.output import write_row
from penstock.cli.screen import Cell, Screen, terminal
from penstock.display import counted
from penstock.errors import NotFound

app = Typer()
config = Typer(no_args_is_help=True)
app.add_typer(config, name="config", help="Show settings and where they come from; check configuration files.")
# Exit code as for a ConfigError.
_INVALID = 2


@config.command(epilog="Example: penstock config show penstock://data/")
def show(
    place: Annotated[str, Argument(metavar="[PROFILE|URL]", help="Default: a list of all profiles.")] = "",
    *,
    json: JsonLines = False,
) -> None:
    """Print every setting of a profile or a URL, with the file and key, variable or default it comes from.

    Secrets are shown as set or unset. No request is made.
    """
    from penstock.stores.profiles.effective import profiles, settings

    rows = settings(place) if place else profiles()
    if not rows:
        raise NotFound("no profiles: no penstock.toml found here, above, in ~/.config/penstock or /etc/penstock")
    names = ("name", "value", "origin") if place else ("profile", "url", "origin")
    widths = [max(len(row[at]) for row in rows) for at in (0, 1)]
    screen = terminal(as_json=json)
    if screen is not None:
        _draw(screen, rows, widths)
        return
    for row in rows:
        text = f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}".rstrip()
        write_row(dict(zip(names, row, strict=True)), text, as_json=json)


def _draw(screen: Screen, rows: Sequence[tuple[str, str, str]], widths: Sequence[int]) -> None:
    """Print settings in groups: explicit settings in colour, defaults dim."""
    group = ""
    for name, value, origin in rows:
        before, group = group, name.partition(".")[0] if "." in name else ""
        if group != before:
            screen.title(group)
        made = origin != "default"
        width = min(max(widths[1], 1), 40)
        screen.row(
            Cell(name.removeprefix(f"{group}."), "" if made else "dim", widths[0]),
            Cell(value, "bold green" if made else "dim", width),
            Cell(origin, "cyan" if made else "dim"),
        )


@config.command(epilog="Example: penstock config validate penstock.toml")
def validate(
    file: Annotated[str | None, Argument(metavar="[FILE]", help="Default: the files that are found.")] = None,
    *,
    json: JsonLines = False,
) -> None:
    """Check every profile of a file: keys, values, URLs, extended profiles. Exit code 2 if one cannot work.

    A file that ends in .yaml or .json is read as Multi-Storage Client's.

    A variable that is not set here is reported and does not fail the check. No request is made.
    """
    from penstock.stores.profiles.effective import check_files

    count, problems = check_files(file)
    for name, text, note in problems:
        severity = "note" if note else "error"
        write_row({"profile": name, "severity": severity, "text": text}, f"{severity}: {text}", as_json=json)
    failed = sum(not each.note for each in problems)
    print(f"{counted(count, 'profile')}, {failed:,} with errors", file=sys.stderr)
    if failed:
        raise SystemExit(_INVALID)
