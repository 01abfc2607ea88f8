"""Build the sdist and, from it, the wheel; check both, and install the wheel in a bare environment of each Python.

    python -m tests.pythons.package [TAG]

`make package` runs this; with the tag of a release, it refuses what must not be released under that name. A Python that
the machine lacks is named and skipped; with PENSTOCK_REQUIRE_PYTHONS=1, or that names it, it is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from packaging.version import Version

from tests.pythons.environments import ROOT, Missing, clean, environment, interpreter, pins, pip, project, supported

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["complaints", "each_python", "main", "unreleasable"]

# Modules of extras; a bare environment has none of them.
OPTIONAL = ("torch", "typer", "rich", "fsspec", "zarr", "pyarrow", "botocore", "google", "azure", "upath")


def main(tag: str = "") -> None:
    """Build and check; ends the process at the first failure."""
    if tag and (found := unreleasable(tag, project()["version"], (ROOT / "CHANGELOG.md").read_text("utf-8"))):
        sys.exit("\n".join(found))
    pinned = pins((ROOT / "constraints.txt").read_text("utf-8"))
    backend = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    tools = environment("package", sys.executable, ["build", "twine", *backend], pinned)
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    _run(tools, "-m", "build", "--no-isolation", "--outdir", str(dist), ".")
    _run(tools, "-m", "twine", "check", "--strict", *map(str, sorted(dist.iterdir())))
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    tracked = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    with zipfile.ZipFile(wheel) as whl, tarfile.open(sdist) as tar:
        found = complaints(whl.namelist(), tar.getnames(), tracked)
    if found:
        sys.exit("\n".join(found))
    each_python(lambda version, python: _bare(version, python, wheel, pinned))


def each_python(check: Callable[[str, str], object]) -> None:
    """Call ``check`` with each supported version and its interpreter; name those that the machine lacks."""
    for version in supported():
        try:
            python = interpreter(version)
        except Missing as missing:
            required = os.environ.get("PENSTOCK_REQUIRE_PYTHONS", "").split()
            if required == ["1"] or version in required:
                sys.exit(f"cannot check Python {version}: {missing}")
            print(f"Python {version} skipped: {missing}", flush=True)
        else:
            check(version, python)


def unreleasable(tag: str, version: str, changelog: str) -> list[str]:
    """Return why the version of pyproject.toml cannot be released with this tag."""
    found = [] if tag == f"v{version}" else [f"the tag must be v{version}, the version of pyproject.toml, got {tag}"]
    if Version(version).is_devrelease:
        found.append(f"{version} is a version between releases: set it in pyproject.toml and version.py")
    heading = f"## {version} ("
    dated = [line for line in changelog.splitlines() if line.startswith(heading) and "unreleased" not in line]
    return found if dated else [*found, f"CHANGELOG.md has no entry {heading}DATE)"]


def complaints(wheel: list[str], sdist: list[str], tracked: list[str]) -> list[str]:
    """Return what is wrong with the lists of files of both, given the tracked files."""
    sources = {each.removeprefix("src/") for each in tracked if each.startswith("src/")}
    code = {each for each in wheel if ".dist-info/" not in each}
    found = [f"not in the wheel: {each}" for each in sorted(sources - code)]
    found += [f"in the wheel, and not tracked: {each}" for each in sorted(code - sources)]
    packed = {str(PurePosixPath(*PurePosixPath(each).parts[1:])) for each in sdist}
    found += [f"not in the sdist: {each}" for each in sorted({*tracked} - packed) if _packed(each)]
    return found + [f"in the sdist, and not tracked: {each}" for each in sorted(packed - {*tracked, "PKG-INFO"})]


def _packed(path: str) -> bool:
    """Return whether a tracked file belongs into the sdist: a user can build and test from it."""
    return not path.startswith((".github/", "recipe/")) and path not in ("Dockerfile", ".dockerignore")


def _bare(version: str, python: str, wheel: Path, pinned: list[str]) -> None:
    own = environment(f"bare-{version}", python, project()["dependencies"], pinned)
    pip(own, "install", "--force-reinstall", "--no-deps", str(wheel))
    pip(own, "check")
    program = (ROOT / "tests" / "pythons" / "bare.py").read_text("utf-8")
    with tempfile.TemporaryDirectory() as folder:
        _run(own, "-I", "-c", program, project()["version"], *OPTIONAL, folder=folder)


def _run(python: str, *words: str, folder: str = str(ROOT)) -> None:
    own = clean(NO_COLOR="1")
    done = subprocess.run([python, *words], cwd=folder, env=own, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}")
    print(done.stdout.strip().splitlines()[-1], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
