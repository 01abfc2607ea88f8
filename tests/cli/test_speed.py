"""Measuring: rates of what the store has, or of what was written for it and is deleted."""

from __future__ import annotations

import re

import pytest

from penstock.cli.doctor import examine

SPEEDS = ["speed of list", "speed of small objects", "speed of large objects"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("penstock.cli.speed._SECONDS", 0.2)
    monkeypatch.setattr("penstock.cli.speed._WRITTEN", 20)


def speeds(findings):
    return {each.name: each for each in findings if each.name in SPEEDS}


def test_an_empty_store_is_measured_with_objects_that_are_deleted(strict):
    found = speeds(examine("s3://bucket", strict.store, speed=True))
    assert list(found) == SPEEDS
    assert {each.outcome for each in found.values()} == {"passed"}, found
    patterns = (
        r"[\d,]+ keys/s \(\d+ keys\)",
        r"[\d,.e+]+ objects/s, [\d.]+ MiB/s",
        r"[\d,.]+ ranges/s, [\d.]+ [MG]iB/s",
    )
    for pattern, each in zip(patterns, found.values(), strict=True):
        assert re.fullmatch(pattern, each.detail), each.detail
    assert strict.objects("bucket") == {}


def test_own_objects_are_read_and_nothing_is_written_with_read_only(strict):
    strict.put("bucket", "train/small", bytes(1000))
    strict.put("bucket", "train/large", bytes(17 << 20))
    found = speeds(examine("s3://bucket/train/", strict.store, read_only=True, speed=True))
    assert [each.outcome for each in found.values()] == ["passed"] * 3, found
    assert {each.method for each in strict.seen()} <= {"GET", "HEAD"}


def test_sizes_that_a_read_only_store_lacks_are_skipped(strict):
    strict.put("bucket", "train/small", bytes(1000))
    found = speeds(examine("s3://bucket/train/", strict.store, read_only=True, speed=True))
    assert [each.outcome for each in found.values()] == ["passed", "passed", "skipped"]
    assert found[SPEEDS[2]].detail == "no objects of this size below the URL"


def test_an_interrupt_while_measuring_leaves_nothing_behind(strict):
    finding = examine("s3://bucket", strict.store, speed=True)
    assert any(each.name == SPEEDS[1] for each in finding)
    assert len(strict.objects("bucket")) > 20
    finding.close()
    assert strict.objects("bucket") == {}


def test_a_cache_does_not_answer_for_the_store(strict, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    strict.put("bucket", "train/small", bytes(1000))
    found = speeds(examine("s3://bucket/train/", strict.store, read_only=True, speed=True))
    assert len(strict.seen("get")) > 20, found
    assert not [*tmp_path.iterdir()]


def test_nothing_is_measured_without_being_asked_for(strict):
    assert speeds(examine("s3://bucket", strict.store)) == {}
