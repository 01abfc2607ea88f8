"""Record of the public names and their signatures: `make api` writes it to public_api.txt beside this file."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from tests.test_public_docstrings import PUBLIC, listed

__all__ = ["RECORD", "changes", "entries", "members", "record"]

RECORD = Path(__file__).with_suffix(".txt")
_WIDTH = 120


def record() -> str:
    """Return a line for each public name, method and property; a long signature takes one for each argument."""
    found: set[str] = set()
    for module in PUBLIC:
        home = importlib.import_module(module)
        for name in listed(module):
            found.update(members(f"{module}.{name}", getattr(home, name)))
    return "".join(f"{each}\n" for each in sorted(found))


def members(name: str, value: Any) -> list[str]:
    """Return the entries of a function, or of a class with what it defines itself."""
    if not inspect.isclass(value):
        return [_called(name, value)]
    bases = ", ".join(each.__name__ for each in value.__bases__ if each is not object)
    found = [f"class {name}({bases})" if bases else f"class {name}"]
    if not issubclass(value, BaseException) and not getattr(value, "_is_protocol", False):
        found.append(_called(name, value))
    fields = {each.name for each in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    for member, raw in vars(value).items():
        plain = getattr(raw, "__func__", raw)
        if member.startswith("_"):
            continue
        if inspect.isfunction(plain):
            found.append(_called(f"{name}.{member}", plain))
        elif member not in fields and inspect.isdatadescriptor(raw):
            found.append(f"{name}.{member}")
    return found


def _called(name: str, value: Any) -> str:
    """Return how a function or class is called."""
    try:
        signature = inspect.signature(value)
    except ValueError:
        # A class whose constructor is written in C.
        return f"{name}(...)"
    own = [each for each in signature.parameters.values() if not each.name.startswith("_")]
    if inspect.isclass(value):
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    text = f"{name}{_plain(str(signature.replace(parameters=own)))}"
    if len(text) <= _WIDTH:
        return text
    result = text.rpartition(") -> ")[2] if ") -> " in text else ""
    inner = [f"    {_plain(str(each))}," for each in own]
    keyword = next((at for at, each in enumerate(own) if each.kind is each.KEYWORD_ONLY), None)
    if keyword is not None and not any(each.kind is each.VAR_POSITIONAL for each in own):
        inner.insert(keyword, "    *,")
    return "\n".join([f"{name}(", *inner, f") -> {result}" if result else ")"])


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
