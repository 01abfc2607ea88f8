"""The public face is what `__all__` says: all of it there, nothing else in sight, and every name in the manual."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import penstock

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
