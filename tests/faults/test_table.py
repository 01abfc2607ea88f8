"""Each fault against each verb: the right result or the right error, soon, and only whole objects in the bucket.

PENSTOCK_WRITE_DOCS=1 writes docs/faults.md anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.testing.faults import FAULTS
from tests.faults.cases import Case, everything
from tests.faults.expectations import ALWAYS, ONCE, allowed, page

WRITE = os.environ.get("PENSTOCK_WRITE_DOCS") == "1"  # read before the tests' environment is made clean
PAGE = Path(__file__).parents[2] / "docs/faults.md"
CASES = everything()
# Three attempts, each given up after two seconds without progress (one is too few on a busy machine: the server may not
# get to run); libcurl's averages need six more to come down.
DEADLINE_S = 60


def name(case):
    words = f"{case.fault}-{case.column.replace(' ', '_')}-{'always' if case.always else 'once'}"
    return words if case.dialect == "s3" else f"{case.dialect.rpartition('.')[2]}-{words}"


@pytest.fixture(scope="module")
def outcomes(played):
    return {name(case): case for case in played}


@pytest.mark.parametrize("case", CASES, ids=name)
def test_a_fault_and_a_verb(case: Case, outcomes):
    case = outcomes[name(case)]
    assert case.wrong == []
    assert case.seconds < DEADLINE_S
    assert case.outcome in allowed(case)


def test_every_fault_has_its_rows():
    assert list(ONCE) == list(FAULTS)
    assert [fault for fault in FAULTS if fault in ALWAYS] == list(ALWAYS)


def test_faults_page_matches_the_generated_page():
    if WRITE:
        PAGE.write_text(page(), "utf-8")
    assert PAGE.read_text("utf-8") == page(), "PENSTOCK_WRITE_DOCS=1 pytest tests/faults/test_table.py writes it anew"
