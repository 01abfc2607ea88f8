"""Everyday calls run through few files of Penstock: whoever reads along opens that many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.edges.launch import program

if TYPE_CHECKING:
    from collections.abc import Mapping

# Files whose functions run in any thread each time the call is repeated: lower a limit when a file goes.
MOST = {"open_read": 27, "from_prefix": 39, "loader_epoch": 43, "zarr_open": 50, "zarr_epoch": 50}


@pytest.fixture(scope="module")
def steps() -> Mapping[str, Mapping[str, int]]:
    ended = program(Path(__file__).with_name("steps_program.py"))
    assert not ended.returncode, ended.stderr
    found: Mapping[str, Mapping[str, int]] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize("call", MOST)
def test_call_runs_through_few_files(steps, call):
    files = steps[call]
    assert len(files) <= MOST[call], f"{call} runs through {len(files)} files, more than {MOST[call]}: {[*files]}"
