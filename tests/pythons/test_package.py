from __future__ import annotations

import sys

import pytest

from tests.pythons import package
from tests.pythons.environments import Missing

TRACKED = ["README.md", "src/penstock/__init__.py", ".github/workflows/tests.yml"]
WHEEL = ["penstock/__init__.py", "penstock-0.dist-info/METADATA"]
SDIST = ["penstock-0/README.md", "penstock-0/src/penstock/__init__.py", "penstock-0/PKG-INFO"]


def test_complete_distributions_have_no_complaint():
    assert package.complaints(WHEEL, SDIST, TRACKED) == []


@pytest.mark.parametrize(
    ("wheel", "sdist", "complaint"),
    [
        (WHEEL[1:], SDIST, "not in the wheel: penstock/__init__.py"),
        ([*WHEEL, "penstock/x.pyc"], SDIST, "in the wheel, and not tracked: penstock/x.pyc"),
        (WHEEL, SDIST[1:], "not in the sdist: README.md"),
        (WHEEL, [*SDIST, "penstock-0/secret.txt"], "in the sdist, and not tracked: secret.txt"),
    ],
)
def test_missing_and_additional_files_are_named(wheel, sdist, complaint):
    assert package.complaints(wheel, sdist, TRACKED) == [complaint]


def test_tag_of_a_finished_version_with_its_entry_is_released():
    assert package.unreleasable("v0.1.0", "0.1.0", "# Changelog\n\n## 0.1.0 (2027-01-15)\n") == []


@pytest.mark.parametrize(
    ("tag", "version", "changelog", "complaint"),
    [
        ("v0.2.0", "0.1.0", "## 0.1.0 (2027-01-15)", "the tag must be v0.1.0"),
        ("v0.1.0.dev0", "0.1.0.dev0", "## 0.1.0.dev0 (2027-01-15)", "is a version between releases"),
        ("v0.1.0", "0.1.0", "## 0.1.0 (unreleased)", "CHANGELOG.md has no entry ## 0.1.0 (DATE)"),
        ("v0.1.0", "0.1.0", "## 0.0.9 (2027-01-15)", "CHANGELOG.md has no entry ## 0.1.0 (DATE)"),
    ],
)
def test_tag_without_its_version_or_entry_is_refused(tag, version, changelog, complaint):
    (found,) = package.unreleasable(tag, version, changelog)
    assert complaint in found


@pytest.mark.parametrize("required", ["", "3.11 3.12"])
def test_missing_python_is_skipped_by_name(monkeypatch, capsys, required):
    monkeypatch.setenv("PENSTOCK_REQUIRE_PYTHONS", required)
    monkeypatch.setattr(package, "supported", lambda: ["3.11", "3.77"])
    seen = []
    monkeypatch.setattr(package, "interpreter", _found)
    package.each_python(lambda version, python: seen.append((version, python)))
    assert seen == [("3.11", sys.executable)]
    assert capsys.readouterr().out == "Python 3.77 skipped: no Python 3.77\n"


@pytest.mark.parametrize("required", ["1", "3.11 3.77"])
def test_missing_python_is_a_failure_where_it_is_required(monkeypatch, required):
    monkeypatch.setenv("PENSTOCK_REQUIRE_PYTHONS", required)
    monkeypatch.setattr(package, "supported", lambda: ["3.77"])
    monkeypatch.setattr(package, "interpreter", _found)
    with pytest.raises(SystemExit, match=r"cannot check Python 3\.77: no Python 3\.77"):
        package.each_python(lambda *_: None)


def _found(version):
    if version == "3.77":
        raise Missing("no Python 3.77")
    return sys.executable
