"""The public face is what `__all__` says: all of it there, nothing else in sight, and every name in the manual."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import penstock
from penstock.errors import MissingExtra, require_extras

ROOT = Path(__file__).parents[1]
PAGES = [page for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))) if page.exists()]


def test_names_are_sorted_and_unique():
    assert list(penstock.__all__) == sorted(set(penstock.__all__))


def test_every_name_is_there():
    assert [name for name in penstock.__all__ if not hasattr(penstock, name)] == []


def test_nothing_else_is_in_sight():
    seen = {name for name in dir(penstock) if not name.startswith("_")}
    rooms = {name for name in seen if isinstance(getattr(penstock, name), ModuleType)}
    assert seen - rooms == {name for name in penstock.__all__ if not name.startswith("_")}


def test_the_version_is_the_package_s():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert penstock.__version__ == project["version"]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        penstock.no_such_name  # noqa: B018  looking it up is the test


@pytest.mark.parametrize("name", [name for name in penstock.__all__ if not name.startswith("_")])
def test_every_name_is_documented(name):
    mention = re.compile(rf"\b(?:ps|penstock)\.{name}\b|`{name}\b")
    assert any(mention.search(page.read_text("utf-8")) for page in PAGES), f"no page mentions ps.{name}"


def test_looking_around_loads_no_torch():
    look = "import sys, penstock; dir(penstock); penstock.StoreOptions; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", look], check=True)


# Only the standard library and the plain dependencies: what `pip install .` without brackets gives.
BARE = """
import importlib, json, sys, tempfile

class Absent:
    there = sys.stdlib_module_names | {"penstock", "numpy", "pycurl", "xxhash"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.there and not name.startswith("_"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import penstock as ps

def outcome(make):
    try:
        make()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["", ""]

folder = tempfile.mkdtemp()
run = ps.CheckpointManager(f"{folder}/run/")
verbs = {
    "ps.save": lambda: ps.save({}, f"{folder}/x"),
    "ps.load": lambda: ps.load(f"{folder}/x"),
    "CheckpointManager.save": lambda: run.save(1, {}),
    "CheckpointManager.across": lambda: run.across(None),
    "AsyncCheckpointer": lambda: ps.AsyncCheckpointer(run).save(1, {}),
    "ps.save_safetensors": lambda: ps.save_safetensors({}, f"{folder}/x"),
}
found = {f"ps.{name}": outcome(lambda: getattr(ps, name)) for name in ps.__all__}
found |= {name: outcome(lambda: importlib.import_module(name)) for name in sys.argv[1:]}
found |= {name: outcome(verb) for name, verb in verbs.items()}
print(json.dumps(found))
"""
TORCH = {
    "ps.BatchSampler",
    "ps.DataLoader",
    "ps.IterableDataset",
    "ps.MapDataset",
    "ps.Mix",
    "ps.ZarrDataset",
    "ps.concat",
}
TORCH |= {
    "ps.save",
    "ps.load",
    "ps.save_safetensors",
    "ps.TokenDataset",
    "ps.PackedBatch",
    "ps.VideoDataset",
    "ps.Clip",
    "ps.AudioDataset",
    "ps.AudioClip",
    "ps.LeRobotDataset",
}


def _documented():
    """Return every module of ours that the manual names, as ``penstock.…`` or as ``ps.…``."""
    texts = [page.read_text("utf-8") for page in PAGES]
    found = {name for text in texts for name in re.findall(r"\b(?:penstock|ps)((?:\.[a-z_][a-z0-9_]*)+)", text)}
    named = {f"penstock{name}" for name in found}
    source = ROOT / "src"
    there = (source.joinpath(*name.split(".")) for name in named)
    return sorted(
        ".".join(path.relative_to(source).parts)
        for path in there
        if path.with_suffix(".py").exists() or (path / "__init__.py").exists()
    )


def test_without_optional_libraries_every_name_is_there_or_names_its_extra():
    modules = _documented()
    assert {"penstock.interop.fsspec", "penstock.compat.s3torchconnector", "penstock.checkpoint.dcp"} <= {*modules}
    run = subprocess.run([sys.executable, "-c", BARE, *modules], check=True, capture_output=True, text=True)
    found = {name: outcome for name, outcome in json.loads(run.stdout).items() if outcome[0]}
    assert {kind for kind, _ in found.values()} == {"MissingExtra"}, found
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = {name: re.search(r"pip install 'penstock\[(\w+)\]'$", text) for name, (_, text) in found.items()}
    assert all(named.values()), found
    assert {match[1] for match in named.values()} <= {*extras}
    assert {name for name, match in named.items() if name.startswith("ps.") and match[1] == "torch"} == TORCH
    assert named["ps.Path"][1] == "path"
    assert named["penstock.interop.fsspec"][1] == "fsspec"
    assert named["penstock.checkpoint.lightning"][1] == "lightning"
    assert named["CheckpointManager.save"][1] == "torch"


def test_a_library_that_is_there_and_broken_is_quoted():
    text = r"^a page needs torn: pip install 'penstock\[x\]' \(libx\.so is missing\)$"
    with pytest.raises(MissingExtra, match=text), require_extras("a page needs torn", torn="x"):
        raise ImportError("libx.so is missing")
    with pytest.raises(ModuleNotFoundError, match=r"penstock\.nowhere"), require_extras("a page needs torn", torn="x"):
        import penstock.nowhere  # noqa: F401


def test_every_extra_for_users_is_in_the_manual():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    rows = "".join(re.findall(r"(?m)^\| `.*", (ROOT / "docs" / "compatibility.md").read_text("utf-8")))
    assert [extra for extra in extras if f"`{extra}`" not in rows] == []


def test_the_face_a_type_checker_sees_has_every_name_from_its_home():
    tree = ast.parse((ROOT / "src" / "penstock" / "__init__.py").read_text("utf-8"))
    checking = next(
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imports = [node for node in checking.body if isinstance(node, ast.ImportFrom)]
    typed = {name.name: node.module.removeprefix("penstock.") for node in imports for name in node.names}
    public = {name for name in penstock.__all__ if not name.startswith("_")}
    assert {*penstock._HOMES} == public
    assert {name: typed.get(name) for name in public} == penstock._HOMES


def test_a_type_checker_finds_the_mistakes_of_a_program_and_no_others():
    program = Path(__file__).with_name("user_program.py")
    lines = program.read_text("utf-8").splitlines()
    marked = {number: found[1] for number, line in enumerate(lines, 1) if (found := re.search(r"# error: (\S+)", line))}
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(program)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    seen = {int(line): code for line, code in re.findall(r"user_program\.py:(\d+): error: .*\[(\S+)\]", told.stdout)}
    assert seen == marked, told.stdout + told.stderr
