"""Every listener hears everything; a listener that breaks is dropped, never the work."""

import pytest

import penstock as ps
from penstock.errors import Unusable
from penstock.events import Listed, emit, listening, subscribe
from penstock.events import listeners as room


@pytest.fixture(autouse=True)
def _no_listener_is_left():
    assert not listening(), "another test left a listener behind"
    yield
    room._listeners = ()


def test_every_listener_hears_until_it_unsubscribes():
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


def test_trap_14_a_broken_listener_breaks_no_storage():
    heard = []

    def broken(event):
        heard.append(event)
        raise AttributeError("another version of telemetry")

    subscribe(broken)
    subscribe(heard.append)
    emit(Listed("s3://b/", 1))
    emit(Listed("s3://b/", 2))
    assert [each.count for each in heard] == [1, 1, 2]


@pytest.mark.parametrize("listener", [None, [], "print", Listed("s3://b/", 1)])
def test_a_listener_that_cannot_be_called_is_refused(listener):
    with pytest.raises(Unusable, match="function that takes an event"):
        subscribe(listener)
    assert not listening()


def test_a_listener_that_breaks_while_bytes_are_read_costs_no_byte(tmp_path):
    (tmp_path / "key").write_bytes(b"bytes")

    def broken(_event):
        raise AttributeError("another version of telemetry")

    subscribe(broken)
    with ps.open(f"file://{tmp_path}/key") as file:
        assert file.read() == b"bytes"
    assert not listening()
