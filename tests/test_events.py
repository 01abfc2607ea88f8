"""Whoever listens hears everything; a listener that breaks is dropped, never the work."""

import pytest

from penstock import events
from penstock.events import Listed, emit, listening, subscribe


@pytest.fixture(autouse=True)
def _nobody_listens():
    assert not listening(), "another test left a listener behind"
    yield
    events._listeners = ()


def test_everyone_hears_until_they_stop():
    one, other = [], []
    stop_one, stop_other = subscribe(one.append), subscribe(other.append)
    emit(Listed("s3://b/", 3))
    stop_one()
    emit(Listed("s3://b/", 4))
    stop_other()
    stop_other()
    emit(Listed("s3://b/", 5))
    assert ([each.count for each in one], [each.count for each in other]) == ([3], [3, 4])
    assert not listening()


def test_trap_14_a_broken_sink_breaks_no_storage():
    heard = []

    def broken(event):
        heard.append(event)
        raise AttributeError("another version of telemetry")

    subscribe(broken)
    subscribe(heard.append)
    emit(Listed("s3://b/", 1))
    emit(Listed("s3://b/", 2))
    assert [each.count for each in heard] == [1, 1, 2]


def test_records_are_values():
    assert Listed("s3://b/", 1) == Listed("s3://b/", 1)
    with pytest.raises((AttributeError, TypeError)):
        Listed("s3://b/", 1).count = 2
