"""Which worker process of pytest-xdist runs which tests: a file is never divided, and some folders neither."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest

__all__ = ["ByFile"]

# One worker runs all of such a folder, because its files share what takes long to begin.
WHOLE = (
    "tests/edges/",  # programs are forked from a process that has imported lightning and transformers
    "tests/faults/",  # the table's cases are begun before the tests beside it (tests/faults/conftest.py)
)

# Of the files at the end, the longest: begun last, one of them would run by itself while other workers wait.
FIRST = ("tests/test_examples.py", "tests/testing/test_restarts.py")


class ByFile(LoadScopeScheduling):
    """Gives each worker the next file: those of ``FIRST``, then in the order of collection, not by number of tests."""

    def __init__(self, config: pytest.Config, log=None) -> None:
        config.option.loadscopereorder = False  # the dearest files have few tests
        super().__init__(config, log)

    def _assign_work_unit(self, node) -> None:
        for scope in FIRST:
            if scope in self.workqueue:
                self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        """Return what the test is not to be separated from."""
        whole = (folder for folder in WHOLE if nodeid.startswith(folder))
        return next(whole, nodeid.partition("::")[0])
