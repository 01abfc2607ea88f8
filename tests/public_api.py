"""Record of the public names and their signatures: `make api` writes it to public_api.txt beside this file.

Each contract stands once in it:

- An argument that several signatures share, with one type and default, is written out in a line that begins with
  `any`; the signatures only name it.
- A class that stands under a second name is one line there: `a.b is c.d`.
- A member that implements another library's interface is `name(...)`, with the arguments that it adds.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.test_public_docstrings import PUBLIC, listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

__all__ = ["RECORD", "changes", "entries", "members", "public", "record", "shared_arguments"]

RECORD = Path(__file__).with_suffix(".txt")
# Modules whose protocols a class of ours implements without a base class.
PROTOCOLS = {"penstock.interop.obspec": "obspec"}
_WIDTH = 120
# Signatures that have an argument in common before it is written once.
_SHARED = 3


def public() -> Iterator[tuple[str, Any]]:
    """Yield each public function and class with its name."""
    for module in PUBLIC:
        home = importlib.import_module(module)
        yield from ((f"{module}.{name}", getattr(home, name)) for name in listed(module))


def record() -> str:
    """Return a line for each public name, method and property; a long signature takes several."""
    first: dict[Any, str] = {}
    for name, value in public():
        first.setdefault(value, name)
    found = {f"{name} is {first[value]}" for name, value in public() if first[value] != name}
    shared = shared_arguments(first)
    found.update(f"any {each}" for each in shared)
    for value, name in first.items():
        found.update(members(name, value, shared))
    return "".join(f"{each}\n" for each in sorted(found))


def shared_arguments(values: Iterable[Any]) -> set[str]:
    """Return the arguments, as text, that several signatures of ours have in common; one text for each name."""
    functions = []
    for value in values:
        functions += [each for name, each in _methods(value).items() if _interface(value, name) is None]
        if not inspect.isclass(value) or (_has_signature(value) and _is_own(value)):
            functions.append(value)
    texts = Counter(_plain(str(each)) for function in functions for each in _arguments(function))
    found: dict[str, str] = {}
    for text, count in sorted(texts.items(), key=lambda item: (-item[1], item[0])):
        if count >= _SHARED and ":" in text:
            found.setdefault(text.partition(":")[0], text)
    return {*found.values()}


def members(name: str, value: Any, shared: Collection[str] | None = None) -> list[str]:
    """Return the entries of a function, or of a class with what it defines itself.

    With ``shared`` they are those of the record; without it all signatures are whole.
    """
    if not inspect.isclass(value):
        return [_called(name, value, shared)]
    bases = ", ".join(each.__name__ for each in value.__bases__ if each is not object)
    found = [f"class {name}({bases})" if bases else f"class {name}"]
    if _has_signature(value):
        found.append(_called(name, value, shared) if shared is None or _is_own(value) else f"{name}(...)")
    fields = {each.name for each in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    methods = _methods(value)
    for member, raw in vars(value).items():
        if member in methods:
            theirs = None if shared is None else _interface(value, member)
            found.append(_called(f"{name}.{member}", methods[member], shared, theirs))
        elif not member.startswith("_") and member not in fields and inspect.isdatadescriptor(raw):
            found.append(f"{name}.{member}")
    return found


def _has_signature(value: Any) -> bool:
    """Return whether users construct a class, which they do not with errors and protocols."""
    return not issubclass(value, BaseException) and not getattr(value, "_is_protocol", False)


def _is_own(value: type) -> bool:
    """Return whether the arguments of a class are its own or its bases' of the same package, not another library's."""
    home = next(each for each in value.__mro__ if {"__init__", "__new__"} & {*vars(each)})
    return home is object or _package(home) == _package(value)


def _package(value: type) -> str:
    return value.__module__.partition(".")[0]


def _methods(value: Any) -> dict[str, Any]:
    """Return the public functions that a class defines itself."""
    plain = {name: getattr(raw, "__func__", raw) for name, raw in vars(value).items()} if inspect.isclass(value) else {}
    return {name: each for name, each in plain.items() if not name.startswith("_") and inspect.isfunction(each)}


def _arguments(value: Any) -> list[inspect.Parameter]:
    """Return the public arguments of a function or class; none of a class whose constructor is written in C."""
    try:
        return [each for each in inspect.signature(value).parameters.values() if not each.name.startswith("_")]
    except ValueError:
        return []


def _interface(owner: type, member: str) -> set[str] | None:
    """Return the arguments that another library's interface gives a method; None if it has no such method."""
    protocols = PROTOCOLS.get(owner.__module__)
    bases = [*owner.__mro__[1:-1], *(vars(importlib.import_module(protocols)).values() if protocols else ())]
    foreign = [each for each in bases if inspect.isclass(each) and _package(each) != _package(owner)]
    found = [vars(each)[member] for each in foreign if callable(getattr(each, member, None)) and member in vars(each)]
    if not found:
        return None
    return {each.name for method in found for each in _arguments(getattr(method, "__func__", method))}


def _called(name: str, value: Any, shared: Collection[str] | None = None, theirs: set[str] | None = None) -> str:
    """Return how a function or class is called; of ``theirs``, arguments of another library's, only the rest."""
    try:
        result = str(inspect.signature(value).replace(parameters=[]))[2:]
    except ValueError:
        return f"{name}(...)"
    own = _arguments(value)
    if theirs is not None:
        added = [
            each for each in own if each.name not in theirs and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        ]
        return f"{name}({', '.join(['...', *(_plain(str(each)) for each in added)])})"
    result = "" if inspect.isclass(value) else _plain(result)
    texts = [_plain(str(each)) for each in own]
    texts = [each.partition(":")[0] if shared and each in shared else each for each in texts]
    keyword = next((at for at, each in enumerate(own) if each.kind is each.KEYWORD_ONLY), None)
    if keyword is not None and not any(each.kind is each.VAR_POSITIONAL for each in own):
        texts.insert(keyword, "*")
    positional = sum(each.kind is each.POSITIONAL_ONLY for each in own)
    if positional:
        texts.insert(positional, "/")
    text = f"{name}({', '.join(texts)}){result}"
    if len(text) <= _WIDTH:
        return text
    inner = []
    for bare, some in groupby(texts, key=lambda each: shared is not None and (each.isidentifier() or each == "*")):
        lines = list(some)
        inner += [", ".join(lines)] if bare else lines
    return "\n".join([f"{name}(", *(f"    {each}," for each in inner), f"){result}"])


def _plain(text: str) -> str:
    """Return a signature without the quotes of annotations and the addresses of defaults, with sets in order."""
    text = re.sub(r"(: |-> )(?:'([^']*)'|\"([^\"]*)\")", lambda found: found[1] + (found[2] or found[3] or ""), text)
    text = re.sub(r"\{([^{}:]+)\}", lambda found: f"{{{', '.join(sorted(found[1].split(', ')))}}}", text)
    return re.sub(r"<(\w+)[^\n]*? at 0x[0-9a-f]+>", r"<\1>", text)


def entries(text: str) -> dict[str, list[str]]:
    """Return the lines of each entry of a record, by its name."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if not line.startswith((" ", ")")):
            name = line if line.startswith("class ") else line.partition("(")[0]
        found.setdefault(name, []).append(line)
    return found


def changes(before: str, now: str) -> list[str]:
    """Return the lines that differ between two records, with - and +, below the name that each belongs to."""
    one, other = entries(before), entries(now)
    found: list[str] = []
    for name in sorted(one.keys() | other.keys()):
        left, right = one.get(name, []), other.get(name, [])
        if left != right:
            told = [f"- {each}" for each in left if each not in right]
            told += [f"+ {each}" for each in right if each not in left]
            # Arguments in another order.
            told = told or [*(f"- {each}" for each in left), *(f"+ {each}" for each in right)]
            found += told if len(left) < 2 and len(right) < 2 else [f"  {name}", *told]
    return found


if __name__ == "__main__":
    RECORD.write_text(record(), "utf-8")
