"""Reads that pass the cache, by themselves: who is told of the end of a flight, and who has left it."""

from penstock.engine.buffer import Buffer
from penstock.engine.cache.entry import CachedPart
from penstock.engine.cache.layer import CachedRead, FetchedRead, Flight, Missing
from penstock.errors import Cancelled
from penstock.values import Span

SPAN = Span("key", 0, 4, "e")


class Told:
    """An owner that counts, and a read of the store that ends when it is told to."""

    error, attempts, retries, complete, size_bytes = None, 1, 0, False, 4

    def __init__(self):
        self.heard = []

    def finished(self, read):
        self.heard.append(read)

    def check(self):
        pass

    look = check

    def take(self):
        return b"data"


def _flight(owner, keep=lambda _flight, _data: None):
    read = FetchedRead(SPAN, None, owner, keep, print)
    flight = Flight(Missing(SPAN, (CachedPart("b", 0, None),), "e", -1), read, lambda _flight: None, joinable=True)
    flight.read = Told()
    read.begin([flight])
    return flight, read


def test_finished_flight_notifies_each_member_exactly_once():
    owner, kept = Told(), []
    flight, leader = _flight(owner, lambda _flight, data: kept.append(data))
    other = FetchedRead(SPAN, None, owner, lambda _flight, data: kept.append(data), print)
    other.join(flight)
    flight.read.complete = True
    flight.finished(flight.read)
    flight.finished(flight.read)
    assert sorted(map(id, owner.heard)) == sorted(map(id, (leader, other)))
    assert leader.complete and other.complete  # noqa: PT018  both
    assert leader.take() == other.take() == b"data"
    assert (leader.attempts, other.attempts, leader.size_bytes) == (1, 0, 4)


def test_abandoned_member_is_cancelled_and_notified_only_once():
    owner = Told()
    flight, leader = _flight(owner)
    leader.abandon(flight)
    leader.abandon(flight)
    assert owner.heard == [leader]
    assert isinstance(leader.error, Cancelled)
    flight.finished(flight.read)
    assert owner.heard == [leader]


def test_read_is_complete_at_begin_if_its_flight_already_ended():
    read = FetchedRead(SPAN, None, Told(), lambda _flight, _data: None, print)
    flight = Flight(Missing(SPAN, (), "e", -1), read, lambda _flight: None, joinable=True)
    flight.read = Told()
    flight.read.complete = True
    read.begin([flight])
    assert read.complete


def test_cached_read_is_complete_at_once_with_zero_attempts():
    for read in (CachedRead(SPAN, b"data", None), CachedRead(SPAN, None, Buffer.borrow(bytearray(b"data")))):
        read.look()
        read.check()
        assert (read.take(), read.size_bytes, read.attempts, read.retries, read.error) == (b"data", 4, 0, 0, None)
        assert read.complete
    assert CachedRead(SPAN, None, None).take() == b""
