"""Processes of a node share one copy of bytes, checked once, and have their own wherever that cannot be done."""

import fcntl
import multiprocessing
import os
import pickle
import signal
import sys
from contextlib import ExitStack

import pytest

import penstock as ps
from penstock import events
from penstock.data import node_copy
from penstock.data.catalog.columns.table import Table
from penstock.data.node_copy import node_region
from tests.children import forked, in_child
from tests.data.catalog.large import samples

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory with seals is Linux's")
DIGEST = b"d" * 32
SIZE = 5000


@pytest.fixture(autouse=True)
def node(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_NODE", str(tmp_path / "node"))
    monkeypatch.setattr(node_copy, "LEAST_BYTES", 1000)
    return tmp_path / "node"


def filled(byte=b"x"):
    """Return a region as a caller fills it, and whether it was there."""
    with node_region(DIGEST, SIZE) as (region, there):
        if not there:
            region.view[:SIZE] = byte * SIZE
    return region, there


def record(node):
    return node / f"copy-{DIGEST.hex()}"


def check_own(byte=b"y"):
    """Check that this process gets a copy that it may fill."""
    region, there = filled(byte)
    assert not there
    assert region.view[:SIZE] == byte * SIZE


def check_shared():
    region, there = filled(b"y")
    assert there
    assert region.view[:SIZE] == b"x" * SIZE


def check_shared_by(first):
    second, there = filled(b"z")
    assert there
    assert second.view == first.view


def test_second_process_maps_the_copy_of_the_first():
    first, there = filled()
    assert not there
    in_child(check_shared)
    check_shared()
    assert first.view[:SIZE] == b"x" * SIZE


def test_copy_cannot_be_changed_or_shortened_by_those_that_map_it(node):
    first, _ = filled()
    second, there = filled()
    assert there
    assert second.view.readonly
    descriptor = int(record(node).read_text().split()[1])
    for size in (0, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, size)
    with pytest.raises(PermissionError):
        os.pwrite(descriptor, b"y", 0)
    assert first.view == second.view


def _report(region, pipe):
    pipe.send((region.view.readonly, bytes(region.view[:SIZE])))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("mine", [True, False])
def test_worker_maps_the_copy_and_a_pickle_holds_the_bytes(method, mine):
    first, _ = filled()
    region = first if mine else filled()[0]
    processes = multiprocessing.get_context(method)
    here, there = processes.Pipe()
    worker = processes.Process(target=_report, args=(region, there))
    worker.start()
    assert here.poll(60)
    readonly, seen = here.recv()
    worker.join()
    assert seen == b"x" * SIZE
    assert readonly is (not mine or method != "fork")
    assert pickle.loads(pickle.dumps(region)).view == region.view


def test_copy_ends_with_the_process_that_made_it():
    in_child(filled)
    check_own()


def test_copy_outlives_its_maker_where_it_is_mapped():
    ready, tell = os.pipe()
    done, finish = os.pipe()

    def make():
        kept = filled()
        os.write(tell, b"x")
        os.read(done, 1)
        del kept

    with forked(make) as status:
        os.read(ready, 1)
        region, there = filled(b"y")
        os.write(finish, b"x")
        assert status() == 0
    assert there
    assert region.view[:SIZE] == b"x" * SIZE


def test_killed_maker_leaves_the_work_to_the_next():
    ready, tell = os.pipe()

    def make():
        with node_region(DIGEST, SIZE) as (region, _):
            region.view[:100] = b"x" * 100
            os.write(tell, str(os.getpid()).encode())
            signal.pause()

    with forked(make) as status:
        os.kill(int(os.read(ready, 20)), signal.SIGKILL)
        # Waits for the lock, if the child has not ended.
        check_own()
        assert status() == -signal.SIGKILL


def test_stopped_maker_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(node_copy, "_PATIENCE_S", 0.2)
    ours, theirs = os.pipe()

    def stop():
        with node_region(DIGEST, SIZE):
            os.write(theirs, os.getpid().to_bytes(8, "little"))
            os.kill(os.getpid(), signal.SIGSTOP)

    with forked(stop) as status:
        maker = int.from_bytes(os.read(ours, 8), "little")
        check_own()
        os.kill(maker, signal.SIGCONT)
        assert status() == 0


def test_many_processes_fill_the_copy_once():
    ready, tell = os.pipe()
    done, finish = os.pipe()

    def take():
        kept, there = filled()
        os.write(tell, b"shared " if there else b"filled ")
        # All hold the copy until the last has it.
        os.read(done, 1)
        assert kept.view[:SIZE] == b"x" * SIZE

    with ExitStack() as stack:
        statuses = [stack.enter_context(forked(take)) for _ in range(6)]
        told = b""
        while told.count(b" ") < 6:
            told += os.read(ready, 100)
        os.write(finish, b"x" * 6)
        assert [status() for status in statuses] == [0] * 6
    assert sorted(told.split()) == [b"filled", *[b"shared"] * 5]


def test_failed_check_leaves_no_copy():
    with pytest.raises(ZeroDivisionError), node_region(DIGEST, SIZE):
        raise ZeroDivisionError
    in_child(check_own)


def test_other_contents_have_other_copies():
    kept = filled()
    with node_region(b"e" * 32, SIZE) as (_, there):
        assert not there
    with node_region(DIGEST, SIZE + 1) as (_, there):
        assert not there
    assert kept[0].view[:SIZE] == b"x" * SIZE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1",
        "-1 0",
        "0 0",
        "1 2 3",
        "999999999999 3",
        "{me} 0",
        "{me} 99999",
        "{me} {other}",
        "{me} {loose}",
        "\xff",
    ],
)
def test_record_of_no_such_copy_is_replaced(node, text):
    kept = filled()
    other = os.memfd_create("penstock", os.MFD_ALLOW_SEALING)
    os.ftruncate(other, SIZE + 32)
    fcntl.fcntl(other, fcntl.F_ADD_SEALS, 0x17)
    loose = os.memfd_create("penstock")
    os.pwrite(loose, b"z" * SIZE + DIGEST, 0)
    record(node).write_text(text.format(me=os.getpid(), other=other, loose=loose), "latin-1")
    del kept
    region, there = filled(b"y")
    assert not there
    check_shared_by(region)
    os.close(other)
    os.close(loose)


class TestOwnCopy:
    def test_without_a_node(self, monkeypatch):
        monkeypatch.setenv("PENSTOCK_NODE", "off")
        filled()
        in_child(check_own)

    def test_of_few_bytes(self, monkeypatch, node):
        monkeypatch.setattr(node_copy, "LEAST_BYTES", SIZE + 1)
        check_own()
        assert not node.exists()

    @pytest.mark.parametrize("mode", [0o755, 0o777])
    def test_where_others_may_enter_the_directory(self, node, mode):
        node.mkdir()
        node.chmod(mode)
        check_own()
        check_own()
        assert not record(node).exists()

    def test_where_the_record_is_somebody_elses(self, node):
        node.mkdir(0o700)
        record(node).touch()
        record(node).chmod(0o666)
        check_own()
        check_own()

    @pytest.mark.parametrize("kind", ["link", "pipe", "folder", "twice"])
    def test_where_the_record_is_another_kind_of_file(self, node, kind):
        node.mkdir(0o700)
        if kind == "link":
            record(node).symlink_to("/etc/passwd")
        elif kind == "pipe":
            os.mkfifo(record(node), 0o600)
        elif kind == "folder":
            record(node).mkdir(0o700)
        else:
            record(node).touch(0o600)
            (node / "other").hardlink_to(record(node))
        check_own()
        check_own()

    @pytest.mark.parametrize("call", ["pwrite", "open"])
    def test_on_a_full_disk(self, monkeypatch, call):
        true = getattr(os, call)

        def fail(*arguments, **options):
            if call != "open" or (arguments[1] & os.O_CREAT and "dir_fd" in options):
                raise OSError(28, "No space left on device")
            return true(*arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(node_copy.os, call, fail)
            check_own()
        check_own()

    def test_where_memory_cannot_be_sealed(self, monkeypatch):
        monkeypatch.setattr(node_copy.Region, "seal", lambda _: (_ for _ in ()).throw(OSError(22, "Invalid argument")))
        kept = filled()
        check_own()
        assert kept[0].view[:SIZE] == b"x" * SIZE


def test_records_of_ended_processes_are_removed(node):
    def make():
        with node_region(b"f" * 32, SIZE):
            pass

    in_child(make)
    assert {each.name for each in node.iterdir()} == {f"copy-{(b'f' * 32).hex()}"}
    kept = filled()
    assert {each.name for each in node.iterdir()} == {record(node).name}
    assert kept[0].size == SIZE + len(DIGEST)


def _open(url, pipe):
    read, checks = [], []
    check = Table.check
    Table.check = lambda table: checks.append(1) or check(table)
    stop = events.subscribe(read.append)
    catalog = ps.Catalog.open(url, root="memory://bucket/train/")
    stop()
    bytes_read = sum(each.size_bytes for each in read if isinstance(each, events.RangeRead))
    pipe.send((catalog.digest, catalog[17], catalog[-1], bytes_read, len(checks)))


def test_second_process_that_opens_a_catalog_reads_only_its_header(tmp_path):
    catalog = samples(200_000)
    url = tmp_path / "train.catalog"
    catalog.save(url)
    processes = multiprocessing.get_context("spawn")
    opened = ps.Catalog.open(url, root="memory://bucket/train/")
    for _ in range(2):
        here, there = processes.Pipe()
        worker = processes.Process(target=_open, args=(url, there))
        worker.start()
        there.close()
        assert here.poll(120)
        digest, *entries, bytes_read, checks = here.recv()
        worker.join()
        assert digest == catalog.digest
        assert entries == [opened[17], opened[-1]]
        assert bytes_read <= 64 << 10 < url.stat().st_size // 10
        assert checks == 0
