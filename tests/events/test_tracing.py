"""Each request and operation that begins ends once, on any way out; requests name the operation they belong to."""

from __future__ import annotations

import random
import signal
import threading
from contextlib import suppress

import pytest

import penstock as ps
from penstock.errors import PenstockError
from penstock.events import OperationEnded, OperationStarted, RequestEnded, RequestStarted, operation, subscribe
from penstock.options import ReadOptions, RetryOptions, TransportOptions, WriteOptions
from penstock.source import open_source
from penstock.testing.clock import no_waiting
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from penstock.values import Span
from tests.children import forked, python
from tests.events.ledger import Ledger

PART = 64 << 10
KEYS = [f"key/{number}" for number in range(6)]
QUICK_FAULTS = [each for each in FAULTS if each not in ("stall", "stall-body", "slow", "drip", "503-after")]


@pytest.fixture
def ledger():
    heard = Ledger()
    stop = subscribe(heard)
    yield heard
    stop()


@pytest.fixture(scope="module")
def server():
    with FaultServer.within(Settings(least_part_bytes=PART)) as made:
        for number, key in enumerate(KEYS):
            made.put("bucket", key, bytes([number]) * (number + 1) * 30_000)
        yield made


@pytest.fixture
def source(server):
    yield opened(server)
    server.heal()


def opened(server, **changes):
    store = ps.S3Options(
        endpoint=server.endpoint,
        region=server.settings.region,
        access_key=server.settings.access_key,
        secret_key=server.settings.secret_key,
        retry=RetryOptions(attempts=4, **changes),
        read=ReadOptions(split_bytes=50_000),
        write=WriteOptions(part_bytes=5 << 20),
        transport=TransportOptions(connections=4),
    )
    return open_source("s3://bucket/", store)[0]


def spans(source) -> list[Span]:
    return [Span(meta.key, 0, meta.size, meta.etag, whole=True) for meta in source.page("key/").entries]


def written(source, key: str, size: int, *, broken: bool) -> None:
    with source.open_write(key) as file:
        file.write(bytes(size))
        if broken:
            raise OSError("the disk that is read from broke")


def abandoned(source) -> None:
    ahead = source.lookahead(iter(spans(source)))
    next(ahead)


WORK = {
    "read": lambda source: source.read_many(spans(source)),
    "read into": lambda source: source.read_into(Span(KEYS[5], 0, 180_000), bytearray(180_000)),
    "look ahead": lambda source: list(source.lookahead(iter(spans(source)))),
    "look ahead and drop it": abandoned,
    "scatter": lambda source: list(source.scatter([(Span(KEYS[1], 0, 60_000), bytearray(60_000))], 1 << 20)),
    "list": lambda source: list(source.pages("key/")),
    "list and stop": lambda source: next(iter(source.pages("key/"))),
    "stat": lambda source: source.stat_many([*KEYS, "missing"]),
    "put": lambda source: source.put("put", b"small"),
    "publish": lambda source: source.publish("new", b"small"),
    "upload": lambda source: written(source, "upload", 11 << 20, broken=False),
    "upload that breaks": lambda source: written(source, "upload", 11 << 20, broken=True),
    "copy": lambda source: source.copy(KEYS[0], "copied"),
    "delete": lambda source: source.delete(["copied", "new"]),
}


def test_random_work_with_random_faults_ends_each_beginning_once(server, source, ledger, seed):
    drawn = random.Random(seed)
    with no_waiting():
        for _ in range(60):
            server.heal()
            for _ in range(drawn.randrange(3)):
                server.fail(FAULTS[drawn.choice(QUICK_FAULTS)], when=Match(nth=drawn.randrange(1, 6)))
            with suppress(PenstockError, OSError):
                WORK[drawn.choice(sorted(WORK))](source)
        server.heal()
        source.head(KEYS[0])  # the I/O thread has answered what was called off before it
    ledger.check()
    assert len(ledger.of(RequestStarted)) > 60
    assert {event.outcome for event in ledger.of(RequestEnded)} >= {"done", "failed"}


@pytest.mark.parametrize("name", [name for name in WORK if "break" not in name])
def test_requests_name_the_operation_they_belong_to(server, source, ledger, name):
    found = spans(source)
    server.put("bucket", "copied", b"there")
    with suppress(PenstockError):
        WORK[name](source)
    server.heal()
    source.head(KEYS[0])
    ledger.check()
    ids = {event.id for event in ledger.of(OperationStarted)}
    lone = [event.verb for event in ledger.of(RequestStarted) if event.parent not in ids]
    assert set(lone) <= {"list", "head"}, "only the test's own requests belong to no operation"
    assert found
    assert ids


def test_successful_operations_end_as_done_and_their_requests_report_byte_counts(source, ledger):
    source.put("put", b"12345")
    assert source.read(Span("put", 0, 5)) == b"12345"
    ledger.check()
    assert [(event.kind, event.outcome, event.url) for event in ledger.of(OperationEnded)] == [
        ("put", "done", "s3://bucket/put"),
        ("read", "done", "s3://bucket/put"),
    ]
    put, read = ledger.of(RequestEnded)
    assert (put.verb, put.status, put.sent_bytes, put.received_bytes) == ("put", 200, 5, 0)
    assert (read.verb, read.status, read.sent_bytes, read.received_bytes) == ("read", 206, 0, 5)
    assert 0 < read.first_byte_s <= read.elapsed_s


def test_a_run_s_saves_and_restores_are_operations(server, ledger):
    run = ps.CheckpointManager("s3://bucket/run/", store=server.store)
    run.save(1, {"weight": [1.0]})
    assert run.restore() == {"weight": [1.0]}
    ps.save([2.0], "s3://bucket/one.pt", store=server.store)
    assert ps.load("s3://bucket/one.pt", store=server.store) == [2.0]
    ledger.check()
    outer = {event.id: (event.kind, event.url) for event in ledger.of(OperationStarted) if not event.parent}
    assert [kind for kind, _ in outer.values()] == ["save", "restore", "upload", "load"]
    assert {url for kind, url in outer.values() if kind == "save"} == {"s3://bucket/run/000000000001/"}
    assert {event.outcome for event in ledger.of(OperationEnded) if not event.parent} == {"done"}
    assert all(event.parent for event in ledger.of(RequestStarted))


def test_a_request_that_is_tried_again_keeps_its_id(server, source, ledger):
    server.fail(FAULTS["503"], FAULTS["500"], when=Match(verb="get"))
    with no_waiting():
        assert len(source.read(Span(KEYS[0], 0, 30_000))) == 30_000
    ledger.check()
    ends = ledger.of(RequestEnded)
    assert len({event.id for event in ends}) == 1
    assert [(event.attempt, event.outcome, event.status) for event in ends] == [
        (1, "failed", 503),
        (2, "failed", 500),
        (3, "done", 206),
    ]
    assert ends[0].error.startswith("Throttled: ")


def test_ctrl_c_ends_running_operations_as_cancelled(server, source, ledger):
    """The server is silent: without the interrupt this would take 20 s."""
    server.fail(FAULTS["stall"], when=Match(verb="get"))
    main = threading.main_thread().ident

    def interrupt(event):
        if isinstance(event, RequestStarted) and event.verb == "read":
            signal.pthread_kill(main, signal.SIGINT)

    stop = subscribe(interrupt)
    with pytest.raises(KeyboardInterrupt):
        source.read(Span(KEYS[0], 0, 30_000))
    stop()
    source.head(KEYS[0])
    ledger.check()
    (ended,) = ledger.of(OperationEnded)
    assert (ended.outcome, ended.error) == ("cancelled", "KeyboardInterrupt")
    assert ledger.of(RequestEnded)[0].outcome == "cancelled"


def test_the_users_own_error_is_named_and_its_text_is_not(source, ledger):
    with pytest.raises(ValueError, match="hunter2"), operation("read", source.url, "key"):
        raise ValueError("password=hunter2")
    assert [event.error for event in ledger.of(OperationEnded)] == ["ValueError"]


def test_operations_started_before_subscription_emit_no_events_to_a_late_listener(source):
    ahead = source.lookahead(iter([Span(key, 0, 10) for key in KEYS]))
    next(ahead)
    late = Ledger()
    stop = subscribe(late)
    assert len(list(ahead)) == len(KEYS) - 1
    stop()
    assert not late.of(RequestStarted, RequestEnded, OperationStarted, OperationEnded)


def test_without_a_listener_nothing_is_named_nor_recorded():
    def refuse(key):
        raise AssertionError(key)

    with operation("read", refuse, "key") as scope:
        assert scope is operation("list", refuse, "other")
        assert scope.run(len, [1]) == 1


def test_a_forked_child_ends_nothing_of_its_parents_and_keeps_its_own_account(source, ledger):
    ahead = source.lookahead(iter([Span(key, 0, 10) for key in KEYS]))
    next(ahead)
    scope = operation("read", source.url, "key")

    def child() -> None:
        nonlocal ahead
        # Counted here, where no other thread runs: in the parent, requests may still be answered.
        before = len(ledger.heard)
        ahead = None
        scope.end()
        assert len(ledger.heard) == before, "an end of the parent's"
        ledger.heard.clear()
        source.read(Span(KEYS[0], 0, 10))
        ledger.check()
        assert len(ledger.of(RequestStarted)) == 1

    with forked(child) as status:
        assert status() == 0
    scope.end()
    assert len(list(ahead)) == len(KEYS) - 1
    ledger.check()


SCRIPT = """
import atexit
import threading

@atexit.register  # before Penstock's own are: so it runs last
def account():
    ledger.check()
    print(sorted({f"{type(event).__name__} {event.outcome}" for event in ledger.heard if hasattr(event, "outcome")}))

from penstock.events import RequestStarted, subscribe
from penstock.source import open_source
from penstock.testing.faults import FAULTS, FaultServer, Match
from penstock.engine.transport import loop
from penstock.values import Span
from tests.events.ledger import Ledger

ledger, begun = Ledger(), threading.Event()
subscribe(ledger)
subscribe(lambda event: begun.set() if isinstance(event, RequestStarted) else None)
"""

EXITING = """
held = FaultServer.within()
server = held.__enter__()
server.put("bucket", "key", b"bytes")
server.fail(FAULTS["stall"], when=Match(verb="get", times=None))
source = open_source("s3://bucket/", server.store)[0]
ahead = source.lookahead(iter([Span("key", 0, 5)]))
threading.Thread(target=next, args=(ahead, None), daemon=True).start()
begun.wait(30)
file = source.open_write("other")
file.write(b"never closed")
"""

BROKEN = """
with FaultServer.start() as server:
    server.put("bucket", "key", b"bytes")
    server.fail(FAULTS["stall"], when=Match(verb="get", times=None))
    source = open_source("s3://bucket/", server.store)[0]

    def broken(self, now):
        raise SystemError("planted")

    def break_it(event):
        if isinstance(event, RequestStarted):
            loop._Loop._accept = broken

    subscribe(break_it)
    try:
        source.read_many([Span("key", 0, 5), Span("key", 1, 5)])
    except Exception as error:
        print(type(error).__name__)
"""


def test_interpreter_exit_ends_open_operations_as_cancelled():
    done = python(SCRIPT + EXITING)
    assert done.stdout == "['OperationEnded cancelled', 'RequestEnded cancelled']\n", done.stderr


def test_dying_io_thread_ends_its_open_operations_as_failed():
    done = python(SCRIPT + BROKEN)
    assert done.stdout == "Bug\n['OperationEnded failed', 'RequestEnded failed']\n", done.stderr
