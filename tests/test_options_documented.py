"""docs/options.md says of every option what its docstring says: unit, default, and why.

After a change of options, `python -m tests.test_options_documented` writes the tables anew.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from tests.options.kinds import KINDS

PAGE = Path(__file__).parents[1] / "docs" / "options.md"
UNITS = ((1 << 20, "MiB"), (1 << 10, "KiB"))


def told(cls) -> dict[str, str]:
    """Return each attribute's paragraph in the docstring, as one line of Markdown."""
    attributes = inspect.getdoc(cls).partition("Attributes:\n")[2]
    paragraphs = re.findall(r"^ {4}(\w+): (.+(?:\n {5,}.+)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()).replace("``", "`").replace("|", "\\|") for name, text in paragraphs}


def default(field) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f"`{field.default_factory.__name__}()`"
    value = field.default
    for size, unit in UNITS:
        if field.name.endswith("_bytes") and value >= size and not value % size:
            return f"{value // size} {unit}"
    return "not set" if value is None else f"`{value!r}`"


def table(cls) -> str:
    texts = told(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    rows = [f"| `{name}` | {default(fields[name])} | {text} |" for name, text in texts.items()]
    return "\n".join(["| option | default | what it says |", "|---|---|---|", *rows])


def marked(cls) -> tuple[str, str]:
    return f"<!-- {cls.__name__} -->\n", f"\n<!-- /{cls.__name__} -->"


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
def test_every_field_is_described_in_the_docstring(cls):
    assert sorted(told(cls)) == sorted(field.name for field in dataclasses.fields(cls))


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
def test_options_page_matches_the_docstrings(cls):
    begin, end = marked(cls)
    shown = PAGE.read_text("utf-8").partition(begin)[2].partition(end)[0]
    assert shown == table(cls), "run python -m tests.test_options_documented"


def write():
    page = PAGE.read_text("utf-8")
    for cls in KINDS:
        begin, end = marked(cls)
        before, _, rest = page.partition(begin)
        page = before + begin + table(cls) + end + rest.partition(end)[2]
    PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    write()
