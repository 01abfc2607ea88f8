from __future__ import annotations

import sys

import pytest

from tests.pythons import platforms
from tests.pythons.environments import ROOT, project

RUNNING = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def tested(monkeypatch):
    """Return the environments that would be tested, with their constraints; each Python is at hand."""
    found = {}
    monkeypatch.setattr(platforms, "each_python", lambda check: [check(each, each) for each in platforms.supported()])
    monkeypatch.setattr(platforms, "environment", lambda name, *rest: found.update({name: rest[-1]}))
    monkeypatch.setattr(platforms, "_test", lambda *_: None)
    return found


def test_paths_and_extras_exist():
    assert [each for each in platforms.TESTS if not (ROOT / each).exists()] == []
    assert set(platforms.EXTRAS) <= set(project()["optional-dependencies"])


def test_other_pythons_are_tested_with_the_pins_and_the_running_one_with_the_lowest(tested):
    platforms.main()
    others = [each for each in platforms.supported() if each != RUNNING]
    assert sorted(tested) == sorted([*(f"core-{each}" for each in others), "core-lowest"])
    assert "numpy==1.26" in tested["core-lowest"]
    assert any(each.startswith("numpy==2.") for each in tested[f"core-{others[0]}"])


def test_named_environments_alone_are_tested(tested):
    platforms.main(RUNNING)
    assert [*tested] == [f"core-{RUNNING}"]


def test_unknown_environment_is_refused():
    with pytest.raises(SystemExit, match=r"cannot test on 3\.2: one of 3\.11, 3\.12, 3\.13, 3\.14, lowest"):
        platforms.main("3.2")
