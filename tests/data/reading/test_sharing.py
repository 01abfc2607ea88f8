"""Blocks that several workers of a loader need are requested once, and never mixed up, whoever dies or gives up."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import threading
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.reading import sharing
from penstock.data.reading.sharing import BlockBoard, SharedReads
from penstock.engine.buffer import Buffer
from penstock.errors import Cancelled, Damaged
from penstock.testing.faults import FAULTS, FaultServer, Match
from penstock.values import Span
from tests.amounts import examples
from tests.data.shards.archives import tar

FORK = multiprocessing.get_context("fork")
pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]


@pytest.fixture(scope="module")
def server():
    draw = random.Random(0)
    with FaultServer.start() as server:
        for shard in range(8):
            members = [(f"{shard}{at:03}.bin", draw.randbytes(draw.randrange(8000))) for at in range(60)]
            server.put("bucket", f"set/{shard}.tar", tar(members))
        yield server


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """Workers of a busy machine are slow, and not dead."""
    monkeypatch.setattr(sharing, "_VOID_NS", 600 * 10**9)


def content(sample):
    return sample.key, bytes(sample["bin"].data)


def loader_of(server, order, workers, **options):
    dataset = ps.MapDataset.from_shards("s3://bucket/set/", store=server.store, transform=content)
    return ps.DataLoader(dataset, 16, shuffle=order, num_workers=workers, collate_fn=list, **options)


def read_bytes(server, since):
    ranges = [each.headers.get("range", "") for each in server.seen("get", "bucket")[since:]]
    ends = [each.removeprefix("bytes=").split("-") for each in ranges if each]
    return sum(int(stop) - int(start) + 1 for start, stop in ends)


ORDERS = [
    ps.order.BlockShuffle(block_bytes=40_000, window_blocks=20),
    ps.order.Lanes(block_bytes=40_000, window_blocks=10, lanes=2),
]


@pytest.mark.parametrize(
    ("order", "counts"), [(ORDERS[0], (0, 1, 2, 4, 8)), (ORDERS[1], (0, 4))], ids=["blocks", "lanes"]
)
def test_workers_read_a_set_once_and_make_the_same_batches(server, order, counts):
    total = sum(map(len, server.objects("bucket").values()))
    expected = list(loader_of(server, order, 0))
    for workers in counts:
        loader = loader_of(server, order, workers)
        # Without the headers that were read to open the set.
        since = len(server.seen("get", "bucket"))
        assert list(loader) == expected
        read = read_bytes(server, since)
        assert 0.9 * total < read <= 1.1 * total
        report = loader.report()
        assert report.read_bytes == read
        assert report.used_bytes == pytest.approx(total, rel=0.3)
        assert "MiB read for" in str(report)


@pytest.mark.parametrize(
    "options",
    [{"multiprocessing_context": "spawn"}, {"persistent_workers": True}, {"prefetch": 1}],
    ids=["spawn", "persistent", "one-ahead"],
)
def test_spawned_persistent_and_short_of_breath_workers_share_too(server, options):
    alone, loader = loader_of(server, ORDERS[0], 0), loader_of(server, ORDERS[0], 2, **options)
    total = sum(map(len, server.objects("bucket").values()))
    for _ in range(1 if "multiprocessing_context" in options else 2):
        expected = list(alone)
        since = len(server.seen("get", "bucket"))
        assert list(loader) == expected
        assert read_bytes(server, since) <= 1.1 * total


def test_an_iteration_after_one_that_was_given_up_waits_for_no_worker_of_that(server):
    loader = loader_of(server, ORDERS[0], 3)
    expected = list(loader_of(server, ORDERS[0], 0))
    batches = iter(loader)
    assert next(batches) == expected[0]
    batches.close()
    assert list(loader) == expected


def test_an_error_of_a_shared_read_is_raised_and_others_read_by_themselves(server):
    expected = list(loader_of(server, ORDERS[0], 0))
    server.fail(*[FAULTS["503"]] * 6, when=Match(verb="get"))
    try:
        assert list(loader_of(server, ORDERS[0], 4)) == expected
    finally:
        server.heal()


class Below:
    """A ``Fetching`` whose reads end when the test says so."""

    def __init__(self):
        self.reads, self.sent, self.cancelled = [], [], []

    def prepare_reads(self, wanted, owner):
        found = [
            SimpleNamespace(
                span=span, owner=owner, complete=False, error=None, attempts=1, retries=0, version=span.etag, data=b""
            )
            for span, _ in wanted
        ]
        for each in found:
            each.take = partial(self._take, each)
        self.reads += found
        return found

    @staticmethod
    def _take(read):
        if read.error is not None:
            raise read.error
        return read.data

    def send_reads(self, reads):
        self.sent += reads

    def cancel_reads(self, reads):
        self.cancelled += reads
        for read in list(reads):
            self.end(read, error=Cancelled("cancelled"))

    stop_reads = cancel_reads

    def concurrency(self):
        return 8

    def end(self, read, data=b"", error=None):
        read.data, read.error, read.complete = data, error, True
        read.owner.finished(read)


class Owner:
    def __init__(self):
        self.ended = threading.Semaphore(0)

    def finished(self, _read):
        self.ended.release()

    def wait(self):
        assert self.ended.acquire(timeout=60)


SPAN = Span("key", 10, 14, "etag")


@pytest.fixture
def two():
    """Return the layers of two workers, which are threads of this process here, and what is below each."""
    board = BlockBoard(1 << 16)
    belows = [Below(), Below()]
    return [(SharedReads(below, sharing._Desk(board), "s3://bucket/"), below) for below in belows]


def start(layer, owner, span=SPAN):
    reads = layer.prepare_reads([(span, None)], owner)
    layer.send_reads(reads)
    return reads[0]


def test_the_second_who_needs_a_block_gets_the_bytes_of_the_first(two):
    (first, below), (second, other) = two
    owners = Owner(), Owner()
    leading, following = start(first, owners[0]), start(second, owners[1])
    assert (len(below.sent), len(other.sent)) == (1, 0)
    below.end(below.sent[0], b"data")
    for owner, read in zip(owners, (leading, following), strict=True):
        owner.wait()
        assert (read.complete, read.take()) == (True, b"data")
    assert (leading.attempts, following.attempts) == (1, 0)
    assert (leading.size_bytes, following.size_bytes, following.version) == (4, 4, "etag")
    third = start(second, Owner())
    assert third.complete
    assert third.take() == b"data"
    assert not start(second, Owner(), SPAN._replace(etag="another")).complete


@pytest.mark.parametrize("how", ["error", "cancelled", "stopped"])
def test_the_second_reads_by_itself_where_the_first_fails_or_gives_up(two, how):
    (first, below), (second, other) = two
    owners = Owner(), Owner()
    leading, following = start(first, owners[0]), start(second, owners[1])
    if how == "error":
        below.end(below.sent[0], error=Damaged("broken"))
        owners[0].wait()
        with pytest.raises(Damaged, match="broken"):
            leading.take()
    else:
        (first.cancel_reads if how == "cancelled" else first.stop_reads)([leading])
        owners[0].wait()
        assert below.cancelled == below.sent
        with pytest.raises(Cancelled):
            leading.take()
    while not other.sent:
        assert not following.complete
    other.end(other.sent[0], b"mine")
    owners[1].wait()
    assert (following.take(), following.attempts) == (b"mine", 1)


def test_a_read_that_waits_for_another_worker_can_be_cancelled(two):
    (first, below), (second, other) = two
    owners = Owner(), Owner()
    start(first, owners[0])
    following = start(second, owners[1])
    second.cancel_reads([following])
    owners[1].wait()
    with pytest.raises(Cancelled):
        following.take()
    below.end(below.sent[0], b"data")
    owners[0].wait()
    assert not other.sent


def test_reads_of_unknown_versions_or_sizes_and_into_buffers_are_not_shared(two):
    (first, below), (second, other) = two
    wanted = [(Span("key", 0, 4), None), (Span("key", 0, None, "etag"), None), (SPAN, Buffer.allocate(4))]
    for layer in (first, second):
        layer.send_reads(layer.prepare_reads(wanted, Owner()))
    assert len(below.sent) == len(other.sent) == 3
    assert first.concurrency() == 8


def test_the_claim_of_a_worker_that_died_is_void_at_once(two):
    _, (second, other) = two
    board = second._desk.board

    def claim_and_die():
        board.take(second._name(SPAN))
        os._exit(0)

    child = FORK.Process(target=claim_and_die)
    child.start()
    child.join()
    start(second, Owner())
    assert len(other.sent) == 1


def test_the_claim_of_a_worker_that_was_stopped_is_void_after_a_while(two, monkeypatch):
    (first, below), (second, other) = two
    first.prepare_reads([(SPAN, None)], Owner())  # and never sent, or confirmed
    monkeypatch.setattr(sharing, "_VOID_NS", 1)
    start(second, Owner())
    assert (len(below.sent), len(other.sent)) == (0, 1)


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 300)), max_size=80), st.sampled_from([256, 1000, 4096]))
def test_a_board_returns_the_bytes_that_were_put_there_or_none(steps, ring_bytes):
    board, last = BlockBoard(ring_bytes), dict[int, bytes]()
    for number, (block, size) in enumerate(steps):
        name = block, -block
        found = board.take(name)
        if found.data is not None:
            assert found.data == last[block]
            assert not found.mine
            continue
        assert found.mine
        assert not board.take(name).mine  # being read now
        last[block] = bytes([number % 256]) * size
        board.put(name, last[block])
        again = board.take(name)
        assert again.data == (last[block] if size * 4 <= ring_bytes else None)
        if again.mine:
            board.drop(name)


def _put_and_take(board, seed, wrong):
    draw = random.Random(seed)
    for _ in range(400):
        block = draw.randrange(40)
        data = bytes([block]) * (200 + 37 * block)
        found = board.take((block, 7))
        if found.mine:
            board.put((block, 7), data)
        elif found.data not in (None, data):
            wrong.value += 1


def test_processes_that_put_and_take_at_once_never_see_the_bytes_of_another_block(seed):
    board, wrong = BlockBoard(1 << 13), FORK.Value("i", 0)
    children = [FORK.Process(target=_put_and_take, args=(board, seed + number, wrong)) for number in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert wrong.value == 0


def test_a_pickled_board_is_left_out_unless_a_worker_is_started():
    assert pickle.loads(pickle.dumps(BlockBoard(1 << 12))) is None


def test_only_a_worker_shares(two):
    (layer, _), _ = two
    source = SimpleNamespace(address=lambda key: ("s3", "bucket", key))
    assert sharing.layer_of(source) is None
    try:
        sharing.enter_board(layer._desk.board)
        desk = sharing._desk[0]
        sharing.enter_board(layer._desk.board)
        assert sharing._desk[0] is desk
        assert isinstance(sharing.layer_of(source)(Below()), SharedReads)
        child = FORK.Process(target=lambda: os._exit(int(sharing.layer_of(source) is not None)))
        child.start()
        child.join()
        assert child.exitcode == 0
    finally:
        sharing.enter_board(None)
    assert sharing.layer_of(source) is None
