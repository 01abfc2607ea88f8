"""Public names and signatures of the libraries that ``penstock.compat`` stands in for, read from their source.

``python tests/compat/originals.py SITE_PACKAGES`` writes ``originals.json.gz`` beside this file. The libraries are not
imported, so their own dependencies are not needed: ``pip install --no-deps`` is enough.
"""

from __future__ import annotations

import ast
import gzip
import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("originals.json.gz")
# Distribution and version -> package; its drop-in has the same name.
LIBRARIES = {
    ("s3torchconnector", "1.5.0"): "s3torchconnector",
    ("gcs-torch-dataflux", "1.4.0"): "dataflux_pytorch",
    ("osstorchconnector", "1.2.3"): "osstorchconnector",
    ("multi-storage-client", "1.3.1"): "multistorageclient",
    ("zarr-torch-dataset", "0.0.9"): "zarrdataset",
    ("webdataset", "1.0.2"): "webdataset",
    ("mosaicml-streaming", "0.13.0"): "streaming",
}
_LOGGERS = {"log", "logger"}
_SPECIAL = {"__call__", "__enter__", "__exit__", "__getitem__", "__iter__", "__len__", "__next__", "__truediv__"}

Members = dict[str, str | None]  # "" is the constructor, or the function itself; None: an attribute or a value


class Package:
    """A package's modules, by name below it."""

    def __init__(self, folder: Path) -> None:
        self._name = folder.name
        self._trees: dict[str, ast.Module] = {}
        self._packages: set[str] = set()
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self._trees[name] = ast.parse(file.read_text("utf-8"))
            self._packages |= {name} if parts[-1] == "__init__" else set()

    def public(self) -> dict[str, dict[str, Members]]:
        """Return the members of each public name of each public module."""
        modules = [name for name in self._trees if not any(_hidden(part) for part in name.split("."))]
        found = {name: {each: self._members(name, each) for each in self._names(name)} for name in modules}
        return {name: names for name, names in found.items() if names}

    def _names(self, module: str) -> list[str]:
        names: set[str] = set()
        for node in self._trees[module].body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif (
                module in self._packages and isinstance(node, ast.ImportFrom) and self._source(module, node) is not None
            ):
                names |= {each.asname or each.name for each in node.names}
            names |= {each for each in _listed(node) if each in self._bound(module)}
        below = {name for name in self._trees if name.rpartition(".")[0] == module}
        modules = {each for each in names if f"{module}.{each}".lstrip(".") in below and not self._found(module, each)}
        return sorted(each for each in names - modules - _LOGGERS if not each.startswith("_"))

    def _bound(self, module: str) -> set[str]:
        names = {each.name for each in self._trees[module].body if isinstance(each, ast.ClassDef | ast.FunctionDef)}
        for node in ast.walk(self._trees[module]):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names |= {each.asname or each.name for each in node.names}
            if isinstance(node, ast.Assign):
                names |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        return names

    def _source(self, module: str, node: ast.ImportFrom) -> str | None:
        """Return the module below the package that is imported from; None: another package's."""
        if not node.level:
            whole = f"{node.module}."
            return whole.removeprefix(f"{self._name}.").rstrip(".") if whole.startswith(f"{self._name}.") else None
        base = module.split(".") if module else []
        base = base[: len(base) - node.level + (module in self._packages)]
        return ".".join([*base, *filter(None, [node.module])])

    def _found(self, module: str, name: str) -> tuple[str, ast.stmt] | None:
        """Return where a name is defined, and by what; None: nowhere in the package."""
        for node in self._trees.get(module, ast.Module([], [])).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                return module, node
            if isinstance(node, ast.ImportFrom) and (source := self._source(module, node)) is not None:
                for each in node.names:
                    if (each.asname or each.name) == name and source != module:
                        return self._found(source, each.name)
        return None

    def _members(self, module: str, name: str) -> Members:
        found = self._found(module, name)
        if found is None:
            return {"": None}
        home, node = found
        if isinstance(node, ast.ClassDef):
            return self._class(home, node)
        return {"": signature(node.args, bound=False)}  # type: ignore[attr-defined]

    def _class(self, module: str, node: ast.ClassDef) -> Members:
        members: Members = {}
        for base in node.bases:
            found = self._found(module, base.id) if isinstance(base, ast.Name) else None
            if found and isinstance(found[1], ast.ClassDef):
                members |= self._class(found[0], found[1])
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]
        members |= {each.target.id: None for each in fields if not each.target.id.startswith("_")}  # type: ignore[union-attr]
        if any("dataclass" in ast.unparse(each) for each in node.decorator_list):
            members[""] = "(" + ", ".join(map(_field, fields)) + ")"
        for each in node.body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                kinds = {ast.unparse(kind) for kind in each.decorator_list}
                if each.name == "__init__":
                    members[""] = signature(each.args, bound=True)
                elif not each.name.startswith("_") or each.name in _SPECIAL:
                    is_value = any("property" in kind or kind.endswith("setter") for kind in kinds)
                    members[each.name] = None if is_value else signature(each.args, bound="staticmethod" not in kinds)
        members.setdefault("", None)
        return dict(sorted(members.items()))


def _hidden(part: str) -> bool:
    # Programs of mosaicml-streaming that convert data, which nobody imports.
    return part.startswith("_") or part == "convert"


def signature(arguments: ast.arguments, *, bound: bool) -> str:
    """Return parameters and defaults without annotations; without the first one where it is bound."""
    for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]:
        if each is not None:
            each.annotation = None
    text = ast.unparse(arguments)
    return f"({text.partition(',')[2].strip() if bound else text})"


def _field(node: ast.AnnAssign) -> str:
    name = ast.unparse(node.target)
    return name if node.value is None else f"{name}={ast.unparse(node.value)}"


def _listed(node: ast.stmt) -> list[str]:
    if not isinstance(node, ast.Assign) or ast.unparse(node.targets[0]) != "__all__":
        return []
    try:
        return [str(each) for each in ast.literal_eval(node.value)]
    except ValueError:
        return []


def main(site: str) -> None:
    """Write the names and signatures of all libraries."""
    found: dict[str, Any] = {}
    for (distribution, version), package in LIBRARIES.items():
        if not any(Path(site).glob(f"{distribution.replace('-', '_')}-{version}.dist-info")):
            sys.exit(f"{distribution} {version} is not installed in {site}")
        names = Package(Path(site) / package).public()
        found[package] = {"distribution": distribution, "version": version, "modules": names}
    # Without a time, so that the same libraries give the same bytes.
    FILE.write_bytes(gzip.compress(json.dumps(found, ensure_ascii=False).encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1])
