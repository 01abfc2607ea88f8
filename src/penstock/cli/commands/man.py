"""``penstock man``: the manual pages of the commands, made of the same texts as ``--help``."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Option, Typer

from penstock.cli.output import MEANINGS, write
from penstock.errors import NotFound, Unusable
from penstock.version import VERSION

__all__ = ["app", "man", "page", "pages"]

app = Typer()
_KINDS = {" <int>": " NUMBER", " <int range>": " NUMBER", " <float>": " NUMBER", " <float range>": " NUMBER"}


@app.command(epilog="Examples: penstock man cp | man -l -; penstock man --output ~/.local/share/man/man1")
def man(
    words: Annotated[list[str] | None, Argument(metavar="[COMMAND]...", help="Default: penstock itself.")] = None,
    *,
    output: Annotated[str | None, Option(metavar="DIR", help="Write the pages of all commands into DIR.")] = None,
) -> None:
    """Print the manual page of a command, or write those of all commands into a directory."""
    from typer.main import get_command

    from penstock.cli.app import build

    found = dict(pages(get_command(build()), "penstock"))
    if output is None:
        name = "-".join(["penstock", *(words or [])])
        if name not in found:
            raise NotFound(f"there is no command {' '.join(words or [])}: penstock --help lists them")
        write(found[name])
        return
    if words:
        raise Unusable("--output writes the pages of all commands: leave the command out")
    try:
        Path(output).mkdir(parents=True, exist_ok=True)
        for name, text in found.items():
            Path(output, f"{name}.1").write_text(text, "utf-8")
    except OSError as error:
        raise Unusable(f"cannot write manual pages: {error.strerror}", url=output) from error


def pages(command: Any, name: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401  of click
    """Yield the name and the page of a command and of all commands in it."""
    yield name.replace(" ", "-"), page(command, name)
    for word, inner in sorted(getattr(command, "commands", {}).items()):
        yield from pages(inner, f"{name} {word}")


def page(command: Any, name: str) -> str:  # noqa: ANN401  of click
    """Return the manual page of a command, in roff."""
    context = Context(command, info_name=name)
    title = name.replace(" ", "-")
    summary, *rest = _paragraphs(command.help or "")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f'.TH {title.upper()} 1 "" "Penstock {VERSION}"', ".SH NAME", f"{title} \\- {_escaped(summary)}"]
    lines += [".SH SYNOPSIS", f".B {name}", _escaped(usage)]
    if rest:
        lines += [".SH DESCRIPTION", *_joined(rest)]
    parameters = [each.get_help_record(context) for each in command.get_params(context)]
    if shown := [each for each in parameters if each]:
        lines.append(".SH OPTIONS")
    for option, text in shown:
        lines += [".TP", f".B {_escaped(_named(option))}", _escaped(text) or "\\&"]
    if inner := getattr(command, "commands", {}):
        lines.append(".SH COMMANDS")
    for word, each in inner.items():
        lines += [".TP", f".BR {title}-{word} (1)", _escaped(next(iter(_paragraphs(each.help or "")), "\\&"))]
    if command.epilog and name != "penstock":
        examples = command.epilog.partition(": ")[2].split("; penstock ")
        lines += [".SH EXAMPLES", *(f"{each}\n.br" for each in map(_escaped, examples[:1]))]
        lines += [f"penstock {_escaped(each)}\n.br" for each in examples[1:]]
    lines.append(".SH EXIT STATUS")
    for code, meaning in MEANINGS.items():
        lines += [".TP", f".B {code}", meaning]
    return "\n".join(lines) + "\n"


def _named(option: str) -> str:
    """Return an argument by its name alone, and an option's value by a word instead of typer's type."""
    if not option.startswith("-"):
        return option.partition(" <")[0]
    return re.sub(r" <[^>]+>", lambda kind: _KINDS.get(kind[0], " VALUE"), option)


def _paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a help text, each as one line, without typer's escapes."""
    plain = text.replace("\\[", "[")
    return [" ".join(each.split()) for each in re.split(r"\n\s*\n", plain.strip()) if each.strip()]


def _joined(paragraphs: list[str]) -> list[str]:
    return [line for each in paragraphs for line in (".PP", _escaped(each))]


def _escaped(text: str) -> str:
    """Return a text whose backslashes, hyphens and first dot mean themselves in roff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", " ".join(escaped.split()))
