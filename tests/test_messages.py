"""Messages name arguments and options that exist: of a class or function that they name, that one's own."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.public_api import members, public

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = Path(__file__).parents[1] / "src" / "penstock"
# Rooms whose messages name the arguments of the library that they imitate, or what a server understands.
FOREIGN_ROOMS = ("compat", "testing")
FOREIGN = {
    "accelerate, transformers, lightning": {"ignore_data_skip", "plugins"},
    "datasets": {"embed_external_files"},
    "fsspec": {"cache_type", "use_listings_cache"},
    "torch": {"batch_sampler", "full_state_dict", "multiprocessing_context", "no_dist", "persistent_workers"},
    "torch's checkpoints": {"use_collectives"},
    "fields of a SAS": {"sig", "srt", "ss", "sv"},
    "dimensions and columns of examples": {"cls", "jpg", "lat", "lon", "time"},
    "parts of headers, URLs and reprs": {"bytes", "count", "crc32c", "mean", "p50", "p99", "permutation", "sample"}
    | {"shared"},
    "parts of pages and metrics": {"height", "le", "role", "stroke", "style", "width", "x", "y"},
}
# Of other programs, and a suffix of buckets.
FOREIGN_OPTIONS = {"dereference", "hard-dereference", "head", "no-recursion", "resource", "x-s3"}
NAMED = re.compile(r"(?<![\w.&?%<{-])([a-z_][a-z0-9_]*)=(?!=)")
CALLED = re.compile(r"\b(?:(\w+)\.)?(\w+)\(([^()]*)\)")
OPTION = re.compile(r"(?<![\w…-])--([a-z][a-z0-9-]*)")


@cache
def texts() -> list[tuple[str, str]]:
    """Return the literal texts of the source that are not docstrings, each with its place."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        place = path.relative_to(SOURCES)
        if place.parts[0] not in FOREIGN_ROOMS:
            found += [(f"{place}:{line}", text) for line, text in literals(ast.parse(path.read_text("utf-8")))]
    return found


def literals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of literals; ``{}`` stands for a value. Docstrings and pages (HTML) are left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        text = ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values)
        else:
            yield from literals(node)
        if text and not re.search(r'<\w|^" \w+="', text):
            yield node.lineno, text


@cache
def arguments() -> dict[str, set[str]]:
    """Return the arguments of each public class, function and method, by its last name."""
    found: dict[str, set[str]] = {}
    keywords = {
        name: set(re.findall(r"^    (\w+):", body, re.MULTILINE))
        for path in SOURCES.rglob("*.py")
        for name, body in re.findall(
            r"^class (\w+)\(TypedDict.*((?:\n    .*|\n)*)", path.read_text("utf-8"), re.MULTILINE
        )
    }
    own: set[str] = set()
    for line in "\n".join(each for name, value in public() for each in members(name, value)).splitlines():
        head, _, rest = line.partition("(")
        if not line.startswith((" ", ")", "class ")):
            own = found.setdefault(head.rpartition(".")[2], set())
        own.update(re.findall(r"(?:^\s*|, )\**(\w+)(?=[:=,)])", rest if not line.startswith(" ") else line))
        for each in re.findall(r"Unpack\[(\w+)\]", line):
            own.update(keywords[each])
    return found


@cache
def known() -> set[str]:
    """Return the names of all arguments."""
    return set().union(*arguments().values(), *FOREIGN.values())


@cache
def options() -> set[str]:
    """Return the options of all commands."""
    import typer

    from penstock.cli.app import build

    def of(command) -> Iterator[str]:
        for each in command.params:
            yield from (each.lstrip("-") for each in (*each.opts, *each.secondary_opts))
        for inner in getattr(command, "commands", {}).values():
            yield from of(inner)

    return {*of(typer.main.get_command(build())), "help", *FOREIGN_OPTIONS}


def unknown(text: str) -> list[str]:
    """Return the arguments and options of a text that do not exist."""
    found = [f"{name}=" for name in NAMED.findall(text) if name not in known()]
    for _, function, inside in CALLED.findall(text):
        if function in arguments():
            given = {name for name in NAMED.findall(inside) if name not in arguments()[function]}
            found += [f"{function}({name}=)" for name in sorted(given)]
    return found + [f"--{each}" for each in OPTION.findall(text) if each not in options()]


def test_messages_name_arguments_and_options_that_exist():
    found = [f"{place}: {', '.join(wrong)} in {text!r}" for place, text in texts() if (wrong := unknown(text))]
    assert not found, "\n".join(found)


def test_arguments_of_other_functions_are_noticed():
    assert unknown("pass patience=3") == ["patience="]
    assert unknown("give ps.order.BlockShuffle(seed=3) as shuffle=") == ["BlockShuffle(seed=)"]
    assert unknown("run penstock ls --colour") == ["--colour"]
    assert unknown("ps.ReadOptions(ahead_bytes=…) or --anonymous") == []
