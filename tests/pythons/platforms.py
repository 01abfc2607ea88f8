"""Run the tests of the core and of Zarr without torch: on other Pythons, and on the lowest versions that are admitted.

    python -m tests.pythons.platforms [NAME…]

`make platforms` runs this. Names are versions of Python, and `lowest`; default: all. A Python that the machine lacks is
named and skipped; with PENSTOCK_REQUIRE_PYTHONS=1, or that names it, it is a failure.
"""

from __future__ import annotations

import subprocess
import sys
from time import monotonic

from tests.pythons.environments import ROOT, clean, environment, lowest, pins, project, supported
from tests.pythons.package import each_python

__all__ = ["EXTRAS", "TESTS", "main"]

# Extras whose libraries the tests below use.
EXTRAS = ("fsspec", "parquet", "zarr", "cli")
TOOLS = ("pytest", "pytest-xdist", "pytest-asyncio", "hypothesis")
# Quick tests that need neither torch nor a server of another project: options, files, memory, the web, requests and
# retries, catalogs, shards, Zarr's formats, zarr and fsspec over Penstock.
TESTS = (
    *("tests/test_errors.py", "tests/test_values.py", "tests/test_tree.py", "tests/test_histogram.py"),
    *("tests/options", "tests/stores/test_urls.py", "tests/stores/local", "tests/stores/test_memory.py"),
    *("tests/stores/web/test_driver.py", "tests/engine/read/test_reader.py", "tests/data/test_region.py"),
    *("tests/data/catalog/discovery/test_parquet.py", "tests/data/shards/test_tar.py"),
    *(f"tests/data/zarr/format/test_{name}.py" for name in ("codecs", "steps", "layout", "references")),
    *("tests/interop/fsspec/test_files.py", "tests/interop/zarr/test_store.py"),
    "tests/interop/zarr/test_documents.py",
)


def main(*names: str) -> None:
    """Run the tests in each environment; ends the process at the first that fails."""
    known = [*supported(), "lowest"]
    if wrong := [each for each in names if each not in known]:
        sys.exit(f"cannot test on {', '.join(wrong)}: one of {', '.join(known)}")
    wanted = names or known
    # On the developer's Python, `make test` runs all tests with the pins.
    running = f"{sys.version_info[0]}.{sys.version_info[1]}"
    pinned = pins((ROOT / "constraints.txt").read_text("utf-8"))
    extras = project()["optional-dependencies"]
    libraries = [*project()["dependencies"], *(each for extra in EXTRAS for each in extras[extra])]

    def check(version: str, python: str) -> None:
        if version in (names or [each for each in known if each != running]):
            _test(f"core-{version}", environment(f"core-{version}", python, [*libraries, *TOOLS], pinned))
        if version == running and "lowest" in wanted:
            least = lowest(libraries, pinned)
            _test("core-lowest", environment("core-lowest", python, [*libraries, *TOOLS], least))

    each_python(check)


def _test(name: str, python: str) -> None:
    began_s = monotonic()
    command = [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "--no-header", *TESTS]
    done = subprocess.run(command, cwd=ROOT, env=clean(), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name}: the tests failed:\n{done.stdout}{done.stderr}")
    print(f"{name}: {done.stdout.strip().splitlines()[-1]} ({monotonic() - began_s:.0f} s)", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
