"""Docstrings of public names: every parameter is named, results are described, and the examples run."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import textwrap
from typing import Any, NamedTuple

import pytest

from tests.edges.launch import run
from tests.images import emptied
from tests.test_exports import PAGES, _documented

MANUAL = "\n".join(page.read_text("utf-8") for page in PAGES)
# Modules that also hold tools for our own rooms: public are only the names that the manual mentions.
MIXED = {"penstock.errors", "penstock.events", "penstock.interop.obspec"}
# Named in the manual, but not as modules to import from.
NOT_MODULES = {"penstock.version"}
PUBLIC = ["penstock", "penstock.testing.restarts", *_documented()]
PUBLIC = [each for each in PUBLIC if not each.startswith("penstock.compat") and each not in NOT_MODULES]
# Methods whose arguments a public protocol describes, for all classes that implement it.
PROTOCOLS = {
    "epoch": ("samples", "seed", "epoch"),
    "open": ("first",),
    "positions": ("samples",),
    "with_lanes": ("lanes",),
}
HEADER = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example):$", re.MULTILINE)
ENTRY = re.compile(r"^ {4}\*{0,2}(\w+): \S", re.MULTILINE)
LITERAL = re.compile(r"^ {4}Not run, [^\n]{10,}::\n\n {8}\S", re.MULTILINE)


class Item(NamedTuple):
    """A public function, class or method, with its docstring in sections."""

    name: str
    value: Any
    owner: type | None

    @property
    def doc(self) -> str:
        return inspect.cleandoc(self.value.__doc__ or "")

    @property
    def sections(self) -> dict[str, str]:
        return sections(self.doc)


def sections(doc: str) -> dict[str, str]:
    """Return a docstring's sections by name; the text before the first one is ""."""
    pieces = HEADER.split(doc)
    return {"": pieces[0], **dict(zip(pieces[1::2], pieces[2::2], strict=True))}


def listed(module: str) -> list[str]:
    """Return the public names of a module that are functions or classes."""
    home = importlib.import_module(module)
    names = [each for each in getattr(home, "__all__", ()) if is_ours(getattr(home, each))]
    if module in MIXED:
        return [each for each in names if mentioned(each, module)]
    return names


def mentioned(name: str, module: str) -> bool:
    """Return whether the manual mentions a name: a class anywhere, a function as this module's."""
    called = rf"{module}\.{name}\b|from {module} import [^\n]*\b{name}\b"
    return re.search(rf"\b{name}\b" if name[0].isupper() else called, MANUAL) is not None


def is_ours(value: object) -> bool:
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("penstock")


def items(module: str) -> list[Item]:
    """Return the public names of a module, and the methods that its classes define themselves."""
    home = importlib.import_module(module)
    found = []
    for name in listed(module):
        value = getattr(home, name)
        found.append(Item(f"{module}.{name}", value, None))
        if inspect.isclass(value):
            for member, raw in vars(value).items():
                plain = getattr(raw, "__func__", raw)
                if not member.startswith("_") and inspect.isfunction(plain):
                    found.append(Item(f"{module}.{name}.{member}", plain, value))
    return found


def parameters(item: Item) -> list[str]:
    """Return the parameters that a docstring has to name: ours, not those of another library's signature."""
    theirs: set[str] = set()
    if item.owner is not None:
        member = item.name.rpartition(".")[2]
        if member.endswith("_async") and hasattr(item.owner, member.removesuffix("_async")):
            return []  # the awaited form of a documented method
        theirs.update(PROTOCOLS.get(member, ()))
        given = inspect.signature(item.value).parameters.values()
        for base in item.owner.__mro__[1:]:
            if not base.__module__.startswith("penstock") and callable(vars(base).get(member)):
                theirs.update(inspect.signature(vars(base)[member]).parameters)
                theirs.update(each.name for each in given if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD))
        function = item.value
    else:
        function = constructor(item.value) if inspect.isclass(item.value) else item.value
    if function is None:
        return []
    names = [each for each in inspect.signature(function).parameters if each not in ("self", "cls")]
    return [each for each in names if not each.startswith("_") and each not in theirs]


def constructor(cls: type) -> Any:
    """Return the function whose arguments a class takes; None for another library's, and for protocols."""
    for base in cls.__mro__:
        for member in ("__init__", "__new__"):
            found = vars(base).get(member)
            if found is not None and inspect.isfunction(found):
                named = issubclass(cls, tuple) and member == "__new__"
                return found if named or found.__module__.startswith("penstock") else None
    return None


def described(item: Item) -> set[str]:
    """Return the arguments that a docstring names: for a class also those that its bases describe."""
    docs = [item.doc]
    if inspect.isclass(item.value):
        docs += [base.__doc__ or "" for base in item.value.__mro__ if base.__module__.startswith("penstock")]
    found = set()
    for doc in docs:
        parts = sections(inspect.cleandoc(doc))
        found.update(ENTRY.findall(parts.get("Args", "") + "\n" + parts.get("Attributes", "")))
    return found


def returned(item: Item) -> str:
    """Return the annotation of a function's result."""
    if inspect.isclass(item.value):
        return "None"
    annotation = inspect.signature(item.value).return_annotation
    return "None" if annotation in (None, inspect.Signature.empty) else str(annotation)


def needs_example(item: Item) -> bool:
    if item.owner is None:
        # Of an error, its bases and the line that raises it say enough.
        return not (inspect.isclass(item.value) and issubclass(item.value, Exception))
    made = isinstance(vars(item.owner)[item.name.rpartition(".")[2]], classmethod)
    return made and re.search(rf"\b(Self|{item.owner.__name__})\b", returned(item)) is not None


def gaps(item: Item) -> list[str]:
    """Return what a docstring lacks."""
    if not item.doc:
        return ["docstring"]
    if returned(item) in ("Never", "NoReturn"):
        return []
    found = [f"argument {each}" for each in parameters(item) if each not in described(item)]
    told = item.doc.startswith(("Return ", "Yield ")) or {"Returns", "Yields"} & {*item.sections}
    if returned(item) != "None" and not told:
        found.append("Returns")
    example = item.sections.get("Example", "")
    if needs_example(item) and not example:
        found.append("Example")
    elif example and ">>> " not in example and not LITERAL.search(example):
        found.append("Example that runs, or 'Not run, <reason>::' with an indented block")
    if "doctest: +SKIP" in item.doc:
        found.append("Example without +SKIP")
    return found


@pytest.mark.parametrize("module", PUBLIC)
def test_docstrings_name_every_argument_the_result_and_an_example(module):
    lacking = {item.name: missing for item in items(module) if (missing := gaps(item))}
    assert not lacking, "\n" + "\n".join(f"{name}: {', '.join(missing)}" for name, missing in lacking.items())


# Each docstring's examples share their names and a folder; nothing else.
RUN = """
import doctest, json, os, sys, tempfile
import numpy as np
import torch
import penstock as ps

flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
runner = doctest.DocTestRunner(optionflags=flags, verbose=False)
for name, file, line, text in json.load(open(sys.argv[1])):
    os.chdir(tempfile.mkdtemp())
    names = {"ps": ps, "torch": torch, "np": np, "__name__": "__main__"}
    runner.run(doctest.DocTestParser().get_doctest(text, names, name, file, line))
sys.exit(runner.summarize(verbose=False).failed > 0)
"""


@pytest.mark.parametrize("module", PUBLIC)
def test_examples_of_a_module_run_as_printed(module, filled, tmp_path):
    examples = [examined(item) for item in items(module) if ">>> " in item.doc]
    if not examples:
        assert not any(map(needs_example, items(module)))
        return
    program, texts = tmp_path / "examples.py", tmp_path / "examples.json"
    program.write_text(RUN, "utf-8")
    texts.write_text(json.dumps(examples), "utf-8")
    user = os.environ | emptied(filled) | {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    ended = run([program, texts], [user], folder=tmp_path)
    assert ended.returncode == 0, ended.stdout


def examined(item: Item) -> tuple[str, str, int, str]:
    """Return a docstring with its place, for doctest to name."""
    value = inspect.unwrap(item.value)
    file, (_, line) = inspect.getsourcefile(value), inspect.getsourcelines(value)
    return item.name, str(file), line, item.value.__doc__


def example_of(text: str) -> list[str]:
    def function(url: str, *, store: object = None) -> str: ...

    function.__doc__ = textwrap.dedent(text)
    return gaps(Item("penstock.function", function, None))


COMPLETE = """Open a file.

    Args:
        url: The object.
        store: Options.

    Returns:
        The text.

    Example:
        >>> 1 + 1
        2
"""


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        ("", "", []),
        ("store: Options.", "", ["argument store"]),
        ("    Returns:\n        The text.\n", "", ["Returns"]),
        ("    Example:\n        >>> 1 + 1\n        2\n", "", ["Example"]),
        (">>> 1 + 1", "one and one", ["Example that runs, or 'Not run, <reason>::' with an indented block"]),
        (">>> 1 + 1\n        2", "Not run, needs a cluster of two ranks::\n\n            main()", []),
        ("1 + 1", "1 + 1  # doctest: +SKIP", ["Example without +SKIP"]),
    ],
)
def test_each_gap_of_a_docstring_is_found(old, new, missing):
    assert example_of(COMPLETE.replace(old, new) if old else COMPLETE) == missing
