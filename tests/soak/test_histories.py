"""Thousands of histories of a training: each sample counts once, whatever stops it and wherever it goes on."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.data.datasets.transforms import numbered
from tests.data.loading.histories import audit, catalogs, histories, play

HISTORIES = int(os.environ.get("PENSTOCK_SOAK_HISTORIES", "5000"))
MOST = 1000

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:This DataLoader will create")]
drawn = settings(suppress_health_check=list(HealthCheck), print_blob=True, deadline=None)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    return catalogs(numbered(tmp_path_factory.mktemp("soak") / "data", MOST), MOST)


@settings(drawn, max_examples=HISTORIES)
@given(histories(most=MOST))
def test_with_threads(catalog, history):
    audit(history, play(history, catalog(history.samples)), catalog(history.samples))


@settings(drawn, max_examples=max(1, HISTORIES // 10))
@given(histories(most=100, workers=st.integers(0, 4)))
def test_with_forked_workers(catalog, history):
    audit(history, play(history, catalog(history.samples)), catalog(history.samples))


@settings(drawn, max_examples=max(1, HISTORIES // 100))
@given(histories(most=100, workers=st.integers(0, 2), method="forkserver"))
def test_with_workers_of_a_fork_server(catalog, history):
    audit(history, play(history, catalog(history.samples)), catalog(history.samples))
