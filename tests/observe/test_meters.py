"""Counts are read when metrics are collected; quantiles are of what came since."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from penstock.events import count_cache
from penstock.observe.board import COUNTS
from penstock.observe.otel_sink import observe
from tests.children import forked
from tests.observe.reads import keys_of, read_one, source_of


@pytest.fixture
def reader():
    return InMemoryMetricReader()


def collected(reader):
    data = reader.get_metrics_data()
    return {
        metric.name: {tuple(point.attributes.values()): point.value for point in metric.data.data_points}
        for resource in (data.resource_metrics if data is not None else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_counts_by_host_and_quantiles_since_the_last_collection(tmp_path, reader):
    source, keys = source_of(tmp_path), keys_of(tmp_path)
    end = observe(MeterProvider([reader], shutdown_on_exit=False).get_meter("tests"), "mine")

    def read():
        for key in keys * 4:
            read_one(source, key)

    read()
    before = collected(reader)
    assert {f"mine.{each.name}" for each in COUNTS} <= before.keys()
    assert "mine.first_byte_seconds" not in collected(reader)  # nothing came since
    read()
    after = collected(reader)
    assert after["mine.requests"]["file",] - before["mine.requests"]["file",] == 40
    assert after["mine.received_bytes"]["file",] - before["mine.received_bytes"]["file",] == 400
    median, high = (after["mine.first_byte_seconds"]["file", share] for share in (0.5, 0.99))
    assert 0 < median <= high
    end()
    assert collected(reader) == {}


def test_forked_child_reports_nothing_through_parent_instruments(tmp_path, reader):
    source, keys = source_of(tmp_path), keys_of(tmp_path)
    end = observe(MeterProvider([reader], shutdown_on_exit=False).get_meter("tests"), "mine")
    read_one(source, keys[0])

    def work():
        read_one(source, keys[0])
        assert collected(reader) == {}

    with forked(work) as status:
        assert status() == 0
    assert collected(reader)["mine.requests"]
    end()


def test_attributes_are_those_of_each_metric(tmp_path, reader):
    source, keys = source_of(tmp_path), keys_of(tmp_path)
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("tests")
    end = observe(meter, "mine", {"cluster": "one"})
    read_one(source, keys[0])
    found = collected(reader)
    assert ("one", "file") in found["mine.requests"]
    assert ("one", "file", 0.95) in found["mine.first_byte_seconds"]
    assert {key[0] for points in found.values() for key in points} == {"one"}
    end()


def test_caches_are_counted_by_directory(reader, tmp_path):
    count_cache(str(tmp_path)).hit_bytes += 7
    end = observe(MeterProvider([reader], shutdown_on_exit=False).get_meter("tests"), "mine")
    assert collected(reader)["mine.cache_hit_bytes"][str(tmp_path),] == 7
    end()
