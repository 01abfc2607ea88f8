"""Grammar of docstrings and messages: which texts a reader who is not a native speaker has to read twice."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Text", "docstrings", "faults", "messages", "names_of_tests"]

BEGINNINGS = ("what", "who", "whatever", "whoever", "it", "one", "those", "that")
PHRASES = {
    "is no": "is not a …",
    "are no": "are not …",
    "is none": "does not exist",
    "is told": "is reported, receives",
    "are told": "are reported, receive",
    "heed": "support, honour",
    "is meant": "intended, must be",
    "are meant": "intended, must be",
    "said": "a participle: given, passed, named",
    "by now": "already",
    "of its own": "separate, its …",
    "of their own": "separate, their …",
    "of one's own": "separate",
    "as it is told": "as configured",
    "other than": "different from",
    "another one": "a different …",
}
_PHRASE = re.compile(r"\b(" + "|".join(PHRASES) + r")\b", re.IGNORECASE)
_CODE = re.compile(r"``[^`]*``|`[^`]*`")


class Text(NamedTuple):
    """A docstring or a message of one module, with the line where it begins."""

    line: int
    words: str


def docstrings(tree: ast.Module) -> Iterator[Text]:
    """Yield the docstrings of a module, of its classes and of its functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            words = ast.get_docstring(node)
            if words:
                yield Text(node.body[0].lineno, words)


def messages(tree: ast.Module) -> Iterator[Text]:
    """Yield the literal texts that ``raise`` statements pass to their exceptions; ``{}`` stands for a value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for argument in node.exc.args[:1]:
                words = _literal(argument)
                if words:
                    yield Text(node.lineno, words)


def names_of_tests(tree: ast.Module) -> Iterator[Text]:
    """Yield the names of a module's tests, as words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Text(node.lineno, node.name.removeprefix("test_").replace("_", " "))


def faults(text: str) -> list[str]:
    """Return what is odd about a docstring or a message: its first word, and phrases that HOUSE rules out."""
    plain = _CODE.sub("x", text)
    first = re.match(r"\W*(\w+)", plain)
    found = [f"begins with {first[1]!r}"] if first and first[1].lower() in BEGINNINGS else []
    return found + [
        f"{each[1]!r}: write {PHRASES[each[1].lower()]!r}" for each in _PHRASE.finditer(" ".join(plain.split()))
    ]


def _literal(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values)
    return ""
