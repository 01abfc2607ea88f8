"""A server that ignores Range: its objects are fetched once, front to back, however they are read."""

import pytest

from penstock.engine.budget import Budget
from penstock.engine.buffer import Buffer
from penstock.engine.contracts.driver import Abilities
from penstock.engine.contracts.exchange import Exchange, Request, Response
from penstock.engine.fetch.fetcher import Fetcher
from penstock.engine.read import reader
from penstock.engine.read.lookahead import Lookahead
from penstock.engine.read.reader import Reader, read_into, read_many, scatter, start_reads
from penstock.engine.waiting import Inbox
from penstock.errors import Bug, Cancelled, Changed, Truncated, Unreachable, Unusable
from penstock.options import ReadOptions, RetryOptions
from penstock.values import ObjectMeta, Span
from tests.engine.fetch.store import Gate, serving, serving_whole

MIB = 1 << 20
SIZE = 6 * MIB
DATA = bytes(range(251)) * (SIZE // 251) + bytes(SIZE % 251)
OPTIONS = ReadOptions(split_bytes=MIB, ahead_bytes=8 * MIB)


@pytest.fixture
def ignoring():
    with serving_whole({"key": DATA, "other": DATA}, read=OPTIONS) as served:
        yield served


def _span(start, stop, **more):
    return Span("key", start, stop, **({"etag": "e1"} | more))


def _pieces(count=24):
    return [_span(SIZE * at // count, SIZE * (at + 1) // count) for at in range(count)]


def _into_place(engine):
    memory = bytearray(SIZE)
    read_into(engine, _span(0, SIZE), Buffer.borrow(memory))
    assert memory == DATA


def _at_once(engine):
    assert b"".join(read_many(engine, _pieces())) == DATA


def _scattered(engine):
    memory = [bytearray(span.stop - span.start) for span in _pieces()]
    places = zip(_pieces(), map(Buffer.borrow, memory), strict=True)
    assert [*scatter(engine, places, Budget(2 * MIB, 99))] == _pieces()
    assert b"".join(memory) == DATA


def _ahead(engine):
    assert b"".join(Lookahead(engine, iter(_pieces()), Budget(2 * MIB, 8))) == DATA


def _as_lines(engine):
    assert b"".join(Reader(lambda: engine, ObjectMeta("key", SIZE, "e1"), "s3://bucket/key")) == DATA


def _as_a_file(engine):
    file = Reader(lambda: engine, ObjectMeta("key", SIZE, "e1"), "s3://bucket/key")
    assert file.read(10) + file.read() == DATA


WAYS = [_into_place, _at_once, _scattered, _ahead, _as_lines, _as_a_file]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
def test_an_object_is_fetched_once(ignoring, way, monkeypatch):
    script, server, engine = ignoring
    monkeypatch.setattr(reader, "_BLOCK_BYTES", MIB // 4)
    way(engine)
    bodies = [each for each in server.received if each.method == "GET"]
    assert len(bodies) <= 2, "the first showed that the server ignores Range"
    # What the network holds of an answer that was hung up on counts as well: up to a few MiB on loopback.
    assert script.sent - SIZE < 6 * MIB
    before = script.sent
    way(engine)
    assert script.sent - before <= 1.01 * SIZE, "by now it is known"


def test_range_support_of_a_store_is_probed_only_once():
    with serving({"key": DATA}, read=OPTIONS, ranges=None) as (server, engine):
        for _ in range(2):
            for way in WAYS[:4]:
                way(engine)
        small = [each.range for each in server.received if each.range[1] - each.range[0] < 5000]
    assert small == [(1, 4097)]


def test_a_single_read_asks_nothing_beforehand():
    with serving({"key": DATA}, read=OPTIONS, ranges=None) as (server, engine):
        read_many(engine, [_span(5, 10)])
        read_many(engine, [_span(0, 10), _span(20, 30)])
        assert [each.range for each in server.received[:1]] == [(5, 10)]
        assert len(server.received) == 3


def test_ranged_reads_resume_once_the_server_supports_ranges_again(ignoring):
    script, server, engine = ignoring
    _at_once(engine)
    script.heeds = True
    other = [span._replace(key="other") for span in _pieces()]
    assert b"".join(read_many(engine, other)) == DATA
    assert server.received[-1].range == (0, SIZE), "the whole is asked for as a range, which may be heeded"
    read_many(engine, [_span(7, 70)])
    assert server.received[-1].range == (7, 70)


def test_an_object_beyond_the_bound_is_refused_in_pieces_and_read_from_front_to_back():
    options = ReadOptions(split_bytes=MIB, ahead_bytes=SIZE - 1)
    with serving_whole({"key": DATA}, read=options) as (_, _, engine):
        with pytest.raises(Unusable, match=r"ignores Range.* the limit is 5 MiB \(ReadOptions.ahead_bytes\)"):
            _at_once(engine)
        _into_place(engine)


def test_several_objects_share_the_bound_and_all_are_read(ignoring):
    _, server, engine = ignoring  # two of them are more than it holds
    spans = [span._replace(key=key) for span in _pieces(6) for key in ("key", "other")]
    assert read_many(engine, spans) == [DATA[span.start : span.stop] for span in spans]
    assert sum(each.method == "HEAD" for each in server.received) == 2


def test_another_version_and_a_span_beyond_the_end_are_refused(ignoring):
    _, _, engine = ignoring
    _at_once(engine)
    with pytest.raises(Truncated, match="were asked for"):
        read_many(engine, [_span(SIZE - 5, SIZE + 5)])
    with pytest.raises(Changed):
        read_many(engine, [_span(5, 10, etag="e0")])


def test_a_read_without_a_version_gets_the_present_one(ignoring):
    _, server, engine = ignoring
    for _ in range(2):
        assert read_many(engine, [_span(5, 10, etag=""), _span(15, 20, etag="")]) == [DATA[5:10], DATA[15:20]]
    assert sum(each.method == "HEAD" for each in server.received) == 2


def test_a_body_that_breaks_off_is_read_anew():
    broken = []

    def fault(received, answer, send):
        if received.range != (0, SIZE) or len(broken) == 2:
            return False
        broken.append(1)
        send(answer[: SIZE // 2])
        return True  # and the connection is closed

    with serving_whole({"key": DATA}, fault, read=OPTIONS) as (_, _, engine):
        _at_once(engine)
        _into_place(engine)
    assert len(broken) == 2


def test_reads_that_are_called_off_end_and_the_others_do_not():
    gate = Gate(lambda received: received.range == (0, SIZE))
    with serving_whole({"key": DATA}, gate, read=OPTIONS) as (_, _, engine):
        inbox = Inbox()
        wanted, unwanted = start_reads(engine, _pieces(8)[:2], inbox), start_reads(engine, _pieces(8)[2:], inbox)
        gate.wait_for(1)
        engine.cancel_reads(unwanted)
        for read in unwanted:
            inbox.wait(read)
            assert isinstance(read.error, Cancelled)
        assert not any(read.complete for read in wanted)
        gate.opened.set()
        for read, span in zip(wanted, _pieces(8), strict=False):
            inbox.wait(read)
            assert read.take() == DATA[span.start : span.stop]


class _Sized:
    """A driver whose objects have 100 bytes, at a store that ignores ranges."""

    abilities = Abilities(ranges=False)

    def url(self, key):
        return f"s3://bucket/{key}"

    def prepare(self):
        pass

    def head(self, key):
        return Exchange(Request("HEAD", key), lambda _response: ObjectMeta(key, 100, "e1"))


class _Taking:
    """A transport that only keeps what it is given."""

    def __init__(self):
        self.calls = []

    def submit(self, calls):
        self.calls += calls


@pytest.mark.parametrize("fault", [Cancelled("closing"), Unreachable("gone"), None], ids=["end", "fault", "none"])
def test_an_object_that_waits_for_room_when_its_transport_ends_ends_its_readers(fault):
    transport = _Taking()
    engine = Fetcher(_Sized(), transport, RetryOptions(), ReadOptions(ahead_bytes=150))  # room for one
    reads = start_reads(engine, [Span(key, 5, 10, "e1") for key in ("one", "other")], Inbox())
    for read in reads:
        with pytest.raises(Unusable, match="ignores Range") as unranged:
            read.request()
        assert read.done(Response(fault=unranged.value)) is None
    one, other = transport.calls[2:]
    for whole, wait_s in ((one, 0.0), (other, 0.05)):
        whole.request()
        assert whole.done(Response(200)) == pytest.approx(wait_s), "the second one has no room"
    with pytest.raises(Unusable, match="no request is due") as woken:
        other.request()
    assert other.done(Response(fault=woken.value)) > 0, "there is still none"
    assert other.done(Response(fault=fault)) is None
    assert [read.complete for read in reads] == [False, True]
    assert type(reads[1].error) is type(fault or Bug(""))
