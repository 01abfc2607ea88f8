"""Each public name of the originals is in its drop-in with a compatible signature, or docs/migrate.md lists it."""

from __future__ import annotations

import ast
import gzip
import importlib
import inspect
import json
import re
from contextlib import suppress
from fnmatch import fnmatchcase
from inspect import Parameter
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Unsupported
from tests.compat.originals import FILE, LIBRARIES

ORIGINALS: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
MANUAL = Path(__file__).parents[2] / "docs" / "migrate.md"
MISSING = object()
POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def differing(package: str) -> dict[str, str]:
    """Return the names that the drop-in lacks or takes other arguments for, and how they differ."""
    found: dict[str, str] = {}
    for module, names in ORIGINALS[package]["modules"].items():
        try:
            home = importlib.import_module(f"penstock.compat.{package}.{module}".rstrip("."))
        except ModuleNotFoundError:
            found[f"{module}.*"] = "no such module"
            continue
        for name, members in names.items():
            path = f"{module}.{name}".lstrip(".")
            value = _attribute(home, name)
            if value is MISSING or name not in getattr(home, "__all__", [name]):
                found[path] = "absent"
                continue
            for member, expected in members.items():
                if problem := _problem(value, member, expected):
                    found[f"{path}.{member}".rstrip(".")] = problem
    return found


def _attribute(home: Any, name: str) -> Any:
    """Return a module's attribute; MISSING where there is none, or where it is refused with advice."""
    with suppress(Unsupported):
        return getattr(home, name, MISSING)
    return MISSING


def _problem(value: Any, member: str, expected: str | None) -> str:
    found = getattr(value, member, MISSING) if member else value
    if found is MISSING:
        return "" if expected is None and _assigned(value, member) else "absent"
    if expected is None:
        return ""
    try:
        ours = [*inspect.signature(found).parameters.values()]
    except ValueError:
        return "" if callable(found) else "not callable"
    unbound = member and ours and ours[0].name == "self"
    why = mismatch(expected, ours[1:] if unbound else ours, by_name=not member.startswith("__"))
    return f"{expected}: {why}" if why else ""


def _assigned(value: Any, member: str) -> bool:
    """Say whether a class declares an attribute, or its methods assign it."""
    ours = [each for each in value.__mro__ if each.__module__.startswith("penstock.")] if inspect.isclass(value) else []
    return any(member in each.__annotations__ or f"self.{member} = " in inspect.getsource(each) for each in ours)


def mismatch(theirs: str, ours: list[Parameter], *, by_name: bool = True) -> str:  # noqa: PLR0911  one a rule
    """Return why a call that fits the original's signature may not fit ours; empty where each does.

    Special methods are called by operators, so names do not matter there.
    """
    arguments = ast.parse(f"def f{theirs}: pass").body[0].args  # type: ignore[attr-defined]
    kinds = {each.kind for each in ours}
    named = {each.name: each for each in ours}
    slots = [each for each in ours if each.kind in POSITIONAL]
    positional = [*arguments.posonlyargs, *arguments.args]
    names = arguments.args if by_name else []
    defaults = dict(zip([each.arg for each in positional[::-1]], arguments.defaults[::-1], strict=False))
    defaults |= {
        each.arg: value for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value
    }
    for at, each in enumerate(positional):
        if at >= len(slots) and Parameter.VAR_POSITIONAL not in kinds:
            return f"{each.arg} cannot be passed by position"
        if each in names and at < len(slots) and each.arg != slots[at].name:
            return f"{slots[at].name} stands in the place of {each.arg}"
        if each in names and at < len(slots) and slots[at].kind is Parameter.POSITIONAL_ONLY:
            return f"{each.arg} cannot be passed by name"
    for each in arguments.kwonlyargs:
        if each.arg not in named and Parameter.VAR_KEYWORD not in kinds:
            return f"no {each.arg}"
    if arguments.kwarg and Parameter.VAR_KEYWORD not in kinds:
        return f"no **{arguments.kwarg.arg}"
    for name, default in defaults.items():
        if name in named and not _same(default, named[name].default):
            return f"{name}={named[name].default!r}"
    theirs_all = {each.arg for each in [*positional, *arguments.kwonlyargs]}
    needed = [each for each in ours if each.default is Parameter.empty]
    needed = [each for each in needed if each.kind not in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)]
    filled = {each.name for each in slots[: len(positional)]}
    return next((f"needs {each.name}" for each in needed if each.name not in theirs_all | filled), "")


def _same(theirs: ast.expr, ours: object) -> bool:
    try:
        expected = ast.literal_eval(theirs)
    except ValueError:  # a name or a call: that there is a default has to do
        return ours is not Parameter.empty
    return bool(expected == ours)


def listed(package: str) -> list[str]:
    """Return the names, with ``*`` for any rest, that the manual lists as absent or different."""
    section = MANUAL.read_text("utf-8").partition(f"\n### Names of {package}\n")[2].partition("\n#")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("package", LIBRARIES.values())
def test_names_that_differ_from_the_original_are_those_that_the_manual_lists(package):
    found, names = differing(package), listed(package)
    unlisted = {name: why for name, why in found.items() if not any(fnmatchcase(name, each) for each in names)}
    assert unlisted == {}, f"docs/migrate.md does not list {unlisted}"
    stale = [each for each in names if not any(fnmatchcase(name, each) for name in found)]
    assert stale == [], f"docs/migrate.md lists {stale}, which the drop-in has"


@pytest.mark.parametrize("package", LIBRARIES.values())
def test_an_absent_name_of_a_package_is_refused_with_an_alternative(package):
    bare = []
    for module, names in ORIGINALS[package]["modules"].items():
        with suppress(ModuleNotFoundError):
            home = importlib.import_module(f"penstock.compat.{package}.{module}".rstrip("."))
            bare += [f"{module}.{name}" for name in names if not _is_answered(home, name)]
    assert bare == []


def _is_answered(home: Any, name: str) -> bool:
    """Return whether a name is there, or raises an error that names what to use."""
    try:
        return hasattr(home, name)
    except Unsupported as error:
        return str(error).startswith(f"{name} is not a part of penstock.compat.")


def test_importing_an_absent_name_raises_the_error_with_an_alternative():
    with pytest.raises(
        Unsupported, match=r"DataPipeline is not a part of penstock\.compat\.webdataset: use WebDataset"
    ):
        exec("from penstock.compat.webdataset import DataPipeline")  # noqa: S102  a statement, as programs have it
    with pytest.raises(ImportError, match="cannot import name 'speling'"):
        exec("from penstock.compat.webdataset import speling")  # noqa: S102  the same


def test_the_data_are_those_of_the_versions_that_the_drop_ins_name():
    assert {(each["distribution"], each["version"]): name for name, each in ORIGINALS.items()} == LIBRARIES
    for name, each in ORIGINALS.items():
        about = str(importlib.import_module(f"penstock.compat.{name}").__doc__)
        assert each["version"].rpartition(".")[0] in about


@pytest.mark.parametrize(
    ("theirs", "ours", "why"),
    [
        ("(a, b=1)", "(a, b=1)", ""),
        ("(a, b=1)", "(a, b=1, c=2)", ""),
        ("(a, b=1)", "(a, b=2)", "b=2"),
        ("(a, b)", "(b, a)", "b stands in the place of a"),
        ("(a)", "(a, b)", "needs b"),
        ("(a, b=None)", "(a)", "b cannot be passed by position"),
        ("(*, a)", "()", "no a"),
        ("(a, **more)", "(a)", "no **more"),
        ("(a, /)", "(b, /)", ""),
        ("(a)", "(a, /)", "a cannot be passed by name"),
        ("(a=OTHER)", "(a)", "a=<class 'inspect._empty'>"),
    ],
)
def test_a_call_that_does_not_fit_is_found(theirs, ours, why):
    scope: dict[str, Any] = {}
    exec(f"def call{ours}: pass", scope)  # noqa: S102  a signature from this file
    assert mismatch(theirs, [*inspect.signature(scope["call"]).parameters.values()]) == why
