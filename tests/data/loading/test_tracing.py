"""Workers' requests belong to the trace of the loop that iterates, epoch by epoch; waits are ranges of the profiler."""

from __future__ import annotations

import pytest
import torch
from opentelemetry import context as contexts

import penstock as ps
from penstock.data.loading.stats import WAIT_RANGE, TraceSlot, profile_waits
from penstock.events import listeners
from penstock.observe import OpenTelemetry, to
from tests.children import forked
from tests.data.datasets.transforms import number, numbered
from tests.observe.exports import providers, setup_in, spans_of

COUNT, BATCH = 12, 4


@pytest.fixture
def folder(tmp_path):
    return numbered(tmp_path / "data", COUNT)


@pytest.fixture(autouse=True)
def _no_context_is_left():
    token = contexts.attach(contexts.Context())
    yield
    contexts.detach(token)
    listeners._entered.clear()


@pytest.mark.parametrize("workers", [{}, {"num_workers": 2, "persistent_workers": True}])
def test_requests_of_each_epoch_are_in_the_trace_of_its_loop(tmp_path, folder, workers):
    out = tmp_path / "out"
    if workers:
        workers["multiprocessing_context"] = "fork"
    with to(OpenTelemetry(metrics=False, setup=setup_in(out))):
        tracer = providers(out)[0].get_tracer("training")
        loader = ps.DataLoader(ps.MapDataset.from_prefix(folder, transform=number), BATCH, **workers)
        for epoch in range(2):
            with tracer.start_as_current_span(f"epoch {epoch}"):
                assert len([*loader]) == COUNT // BATCH
        assert len([*loader]) == COUNT // BATCH  # in no span
        del loader
    spans = spans_of(out)
    epochs = {span["name"]: span["context"] for span in spans if span["name"].startswith("epoch")}
    reads = [span for span in spans if span["name"] == "penstock.request read"]
    assert len(reads) == 3 * COUNT
    for context in epochs.values():
        mine = [span for span in reads if span["context"]["trace_id"] == context["trace_id"]]
        assert len(mine) == COUNT
        parents = {span["context"]["span_id"]: span["parent_id"] for span in spans}
        assert {parents[span["parent_id"]] for span in mine} == {context["span_id"]}
    if workers:
        assert len({span["pid"] for span in reads}) == 2


def test_forked_rank_has_its_own_trace_slot_memory():
    entered = []
    stop = listeners.context_of(lambda: context, entered.append)
    try:
        slot, context = TraceSlot(), b"parent"
        slot.write()

        def work():
            nonlocal context
            context = b"rank"
            slot.write()
            slot.enter()
            assert entered == [b"rank"]

        with forked(work) as status:
            assert status() == 0
        slot.enter()
        assert entered == [b"parent"]
    finally:
        stop()


def test_without_a_trace_a_worker_enters_none():
    entered = []
    stop = listeners.context_of(lambda: b"", entered.append)
    slot = TraceSlot()
    slot.write()
    slot.enter()
    stop()
    assert entered == [b""]


def test_waits_are_ranges_of_torchs_profiler_and_cost_nothing_else(folder):
    loader = ps.DataLoader(ps.MapDataset.from_prefix(folder, transform=number), BATCH)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        assert len([*loader]) == COUNT // BATCH
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts[WAIT_RANGE] == COUNT // BATCH + 1
    assert [*profile_waits("abc")] == ["a", "b", "c"]
    assert [*profile_waits([None])] == [None]
