from __future__ import annotations

import sys

import pytest

from tests.pythons import environments
from tests.pythons.environments import Missing, interpreter, lowest, pins, project, supported


def test_supported_versions_begin_with_the_least_that_is_required():
    versions = supported()
    assert project()["requires-python"] == f">={versions[0]}"
    assert [int(each.partition(".")[2]) for each in versions] == [*range(11, 11 + len(versions))]


def test_running_interpreter_is_found_by_its_version():
    assert interpreter(f"{sys.version_info[0]}.{sys.version_info[1]}") == sys.executable


def test_interpreter_that_refuses_to_run_is_passed_over(tmp_path, monkeypatch):
    shim = tmp_path / "python3.77"
    shim.write_text("#!/bin/sh\necho 'no such version' >&2\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(Missing, match=r"no Python 3\.77 on the PATH or in .*/versions"):
        interpreter("3.77")


def test_newest_interpreter_of_pyenv_is_taken(tmp_path, monkeypatch):
    for patch in (2, 10):
        python = tmp_path / "versions" / f"3.77.{patch}" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\necho 3.77\n")
        python.chmod(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert "3.77.10" in interpreter("3.77")


def test_lowest_versions_replace_pins_of_the_same_library():
    found = lowest(["numpy>=1.26,<3", "Penstock_Thing[x]>=2"], ["NumPy==2.4.6", "rich==15.0.0"])
    assert found == ["numpy==1.26", "penstock-thing==2", "rich==15.0.0"]


def test_requirement_without_a_lower_bound_is_refused():
    with pytest.raises(ValueError, match="numpy<3 has no lower bound"):
        lowest(["numpy<3"], [])


def test_every_requirement_of_the_project_has_a_lower_bound():
    extras = [each for extra in project()["optional-dependencies"].values() for each in extra]
    assert lowest([*project()["dependencies"], *(each for each in extras if not each.startswith("penstock["))], [])


def test_environment_is_set_up_once_and_again_for_other_requirements(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    calls = []
    monkeypatch.setattr(environments, "pip", lambda _, *words, **__: calls.append(words[1:]))
    monkeypatch.setattr(environments.subprocess, "run", lambda _, **__: (tmp_path / ".venv-x").mkdir())
    for wanted in (["numpy"], ["numpy"], ["numpy", "rich"]):
        own = environments.environment("x", "python3", wanted, ["numpy==2.4.6"])
        assert own == str(tmp_path / ".venv-x" / "bin" / "python")
    assert calls == [("numpy",), ("numpy", "rich")]


def test_pins_are_the_lines_with_a_version():
    assert pins("# a comment\nnumpy==2.4.6\n") == ["numpy==2.4.6"]
