"""The API reference: a page for each public module, made from docstrings when the site is built."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

import penstock
from tests.public_api import members
from tests.test_public_docstrings import PUBLIC, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

# The room that a name of the top namespace comes from -> its section on that page, in this order.
SECTIONS = {
    "verbs": "Files",
    "values": "Files",
    "interop": "Files",
    "data.catalog": "Datasets",
    "data.lerobot": "Datasets",
    "data.video": "Datasets",
    "data.datasets": "Datasets",
    "data.reading": "Datasets",
    "data.tokens": "Datasets",
    "data.zarr": "Datasets",
    "data.order": "Order",
    "data.loading": "Loaders and reports",
    "checkpoint": "Checkpoints",
    "jobs": "Jobs",
    "options": "Options",
    "stores": "Options",
    "engine.cache": "Cache and node",
    "engine.node": "Cache and node",
    "engine.contracts": "Options",
    "errors": "Errors",
}


def modules() -> dict[str, dict[str, list[str]]]:
    """Return the public names of each public module, by section.

    Raises:
        LookupError: A name of the top namespace has no section.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for module in PUBLIC:
        names = listed(module)
        if module == "penstock":
            found[module] = {title: [] for title in dict.fromkeys(SECTIONS.values())}
            for name in names:
                found[module][section(name)].append(name)
            found[module] = {title: each for title, each in found[module].items() if each}
        elif names:
            found[module] = {"": names}
    return found


def section(name: str) -> str:
    """Return the section of a name of the top namespace."""
    home = penstock._HOMES[name]  # noqa: SLF001  the table is made for this
    for room, title in SECTIONS.items():
        if home == room or home.startswith(f"{room}."):
            return title
    raise LookupError(f"ps.{name} comes from {home}: give that room a section in docs/site/reference.py")


def pages() -> dict[str, str]:
    """Return the pages of the reference as Sphinx reads them, by their paths on the site."""
    return {f"reference/{module}.md": "\n".join(_directives(module, found)) for module, found in modules().items()}


def _directives(module: str, sections: dict[str, list[str]]) -> Iterator[str]:
    yield from (f"# {module}", "", _summary(module), "")
    for section, names in sections.items():
        if section:
            yield from (f"## {section}", "")
        for name in names:
            heading = "###" if section else "##"
            value = getattr(importlib.import_module(module), name)
            kind = "autoclass" if inspect.isclass(value) else "autofunction"
            yield from (f"{heading} {name}", "", "```{eval-rst}", f".. {kind}:: {module}.{name}")
            if kind == "autoclass" and value.__bases__ != (object,):
                yield "   :show-inheritance:"
            if value.__name__ != name:
                # Sphinx calls this an alias and says no more.
                yield from ("", f".. {kind}:: {value.__module__}.{value.__name__}")
            yield from ("```", "")


def aliases() -> dict[str, str]:
    """Return the public names of classes that have another name at home, with that name."""
    values = {f"{module}.{name}": getattr(importlib.import_module(module), name) for module, name in _names()}
    return {
        name: f"{value.__module__}.{value.__name__}"
        for name, value in values.items()
        if value.__name__ != name.rpartition(".")[2]
    }


def _names() -> Iterator[tuple[str, str]]:
    for module, sections in modules().items():
        for names in sections.values():
            yield from ((module, name) for name in names)


def _summary(module: str) -> str:
    return inspect.getdoc(importlib.import_module(module)).partition("\n\n")[0]


def twins() -> dict[str, str]:
    """Return the pages of the reference as Markdown, by their paths on the site."""
    return {f"reference/{module}.md": "\n".join(_markdown(module, found)) for module, found in modules().items()}


def _markdown(module: str, sections: dict[str, list[str]]) -> Iterator[str]:
    home = importlib.import_module(module)
    yield from (f"# {module}", "", _summary(module), "")
    for names in sections.values():
        for name in names:
            value = getattr(home, name)
            yield from (f"## {module}.{name}", "", "```python", *members(f"{module}.{name}", value), "```", "")
            yield from (_fenced(value), "")
            for member, raw in vars(value).items() if inspect.isclass(value) else ():
                plain = getattr(raw, "__func__", raw)
                if not member.startswith("_") and (inspect.isfunction(plain) or isinstance(plain, property)):
                    yield from (f"### {name}.{member}", "", _fenced(plain), "")


def _fenced(value: Any) -> str:
    """Return a docstring as the code shows it."""
    return f"```text\n{inspect.getdoc(value) or ''}\n```"
