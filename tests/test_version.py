"""The version is one, wherever a user, an installer or a store's log meets it."""

import re
import tomllib
from pathlib import Path

import penstock as ps
from penstock.version import VERSION


def test_package_version_matches_pyproject():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    assert ps.__version__ == VERSION == project["version"]


def test_the_version_is_one_that_installers_can_order():
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?", VERSION), VERSION
