"""Files that only services read (GitHub, conda-forge, PyPI, Docker) agree with the files that the tests read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from tests.pythons.environments import project, supported

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
FORMS = sorted(set(ROOT.glob(".github/ISSUE_TEMPLATE/*.yml")) - {ROOT / ".github/ISSUE_TEMPLATE/config.yml"})
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
# Names of conda-forge that differ from PyPI's.
CONDA = {"xxhash": "python-xxhash"}


def made(text: str) -> list[str]:
    """Return the make targets that a script or workflow runs."""
    return re.findall(r"\bmake ([a-z]+)", re.sub(r"(?m)^\s*#.*", "", text))


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text("utf-8"))["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_runs_targets_that_exist_with_the_least_permissions(workflow):
    text = workflow.read_text("utf-8")
    assert set(made(text)) <= TARGETS
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_to_a_major_version(workflow):
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@(v\d+|release/v\d+)", each)] == []


def test_workflows_run_every_target_of_the_checks():
    checked = set(made((ROOT / ".ci" / "run").read_text("utf-8")))
    assert checked
    assert checked <= {target for each in WORKFLOWS for target in made(each.read_text("utf-8"))}


def test_release_is_checked_before_it_is_published_without_a_token():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))
    publish = workflow["jobs"]["publish"]
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["steps"][-1]["with"] == {"attestations": True}
    assert "make package TAG=" in str(workflow["jobs"]["build"]["steps"])
    assert "secrets." not in str(workflow)


def test_workflows_test_the_supported_pythons():
    text = "".join(each.read_text("utf-8") for each in WORKFLOWS)
    assert sorted(set(re.findall(r"\b3\.1\d\b", text))) == supported()


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.name)
def test_issue_form_has_what_github_requires(form):
    found = yaml.safe_load(form.read_text("utf-8"))
    assert found["name"]
    assert found["description"]
    fields = [each for each in found["body"] if each["type"] != "markdown"]
    assert all(each["attributes"]["label"] for each in fields)
    assert {each["type"] for each in fields} <= {"input", "textarea", "dropdown", "checkboxes"}
    assert len({each["id"] for each in fields}) == len(fields)


def test_conda_recipe_requires_what_the_package_requires():
    text = (ROOT / "recipe" / "meta.yaml").read_text("utf-8")
    run = text.partition("  run:\n")[2].partition("\n\n")[0]
    found = {line.strip().removeprefix("- ") for line in run.splitlines()} - {"python >={{ python_min }}"}
    wanted = map(Requirement, project()["dependencies"])
    assert found == {f"{CONDA.get(each.name, each.name)} {each.specifier}" for each in wanted}
    assert f'version = "{project()["version"]}"' in text
    assert f"summary: {project()['description']}" in text
    (least,) = yaml.safe_load((ROOT / "recipe" / "conda_build_config.yaml").read_text("utf-8"))["python_min"]
    assert least == supported()[0]


def test_citation_names_the_license_of_the_package():
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert found["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= found.keys()
    assert found["license"] == project()["license"]


def test_image_is_of_a_supported_python_and_has_extras_that_exist():
    text = (ROOT / "Dockerfile").read_text("utf-8")
    assert re.search(r"^FROM python:(3\.\d+)-slim$", text, re.MULTILINE)[1] in supported()
    extras = re.search(r"\.whl\)\[([a-z0-9,]+)\]", text)[1].split(",")
    assert set(extras) <= set(project()["optional-dependencies"])
    assert "cli" in extras


def test_commit_hooks_run_tools_of_the_developers_environment():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    names = {Requirement(each).name for each in project()["optional-dependencies"]["dev"]}
    for hook in hooks:
        tool, *words = hook["entry"].split()
        assert tool.removeprefix(".venv/bin/") in names if tool != "make" else {*words} <= TARGETS
