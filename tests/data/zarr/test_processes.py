"""Arrays in several processes: workers of each start method, pickles, a Ctrl-C, and the memory of one process."""

import multiprocessing
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from tests.data.zarr.stores import DIMS, LAYOUTS, VALUES, write

MIB = 1 << 20


@pytest.fixture
def url(tmp_path, nothing_kept):  # noqa: ARG001
    write(tmp_path / "a.zarr", VALUES, DIMS, **LAYOUTS["sharded"])
    return str(tmp_path / "a.zarr")


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_worker_processes_of_each_start_method_deliver_the_same_batches_as_threads(url, method):
    dataset = ps.ZarrDataset(url, shuffle=True, window_bytes=2000)
    next(iter(dataset))  # the parent has threads, connections and decoded chunks by now
    dataset.set_epoch(0)
    loader = ps.DataLoader(dataset, 4, num_workers=2, multiprocessing_context=method, timeout=120)
    found = [batch.numpy() for batch in loader]
    wanted = [batch.numpy() for batch in ps.DataLoader(ps.ZarrDataset(url, shuffle=True, window_bytes=2000), 4)]
    assert [each.tobytes() for each in found] == [each.tobytes() for each in wanted]


def test_a_pickled_dataset_reads_the_same(url):
    dataset = ps.ZarrDataset(url, shuffle=True, window_bytes=2000, output="numpy")
    again = pickle.loads(pickle.dumps(dataset))
    first, second = ([each.tobytes() for each in some] for some in (dataset, again))
    assert first == second
    assert sorted(first) == sorted(each.tobytes() for each in VALUES)


def test_an_interrupted_epoch_leaves_no_thread(url):
    first = threading.active_count()
    list(ps.DataLoader(ps.ZarrDataset(url), 4, decode_threads=2))  # the I/O thread stays
    before = {*threading.enumerate()}
    assert len(before) <= first + 2
    batches = iter(ps.DataLoader(ps.ZarrDataset(url, shuffle=True), 2, decode_threads=2))
    with pytest.raises(KeyboardInterrupt):
        for _ in batches:
            signal.raise_signal(signal.SIGINT)
    del batches
    for thread in {*threading.enumerate()} - before:
        thread.join(60)
        assert not thread.is_alive(), thread.name


LIMIT, MARGIN = 16 * MIB, 24 * MIB  # the margin: threads' stacks, and what the C library's allocator keeps


def _kib(field: str) -> int:
    return int(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0])


def _grown(url: str, work: str) -> None:
    """Print the rows of an epoch, or of random access, and by how many KiB it raises this process's memory.

    A small epoch comes before.
    """
    small = ps.ZarrDataset(f"{url}/small", output="numpy")
    [*ps.DataLoader(small, 8, decode_threads=2)], small.as_map()[0]
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: proc(5)
    rows, before = 0, _kib("VmRSS")
    dataset = ps.ZarrDataset(f"{url}/large", shuffle=True, window_bytes=4 * MIB, memory_bytes=LIMIT, output="numpy")
    if work == "epoch":
        for batch in ps.DataLoader(dataset, 8, decode_threads=2):
            rows += len(batch)
    else:
        samples = dataset.as_map()
        order = np.random.default_rng(2).permutation(len(samples))
        for begin in range(0, len(order), 64):  # the chunks of 64 samples are more than fit
            rows += sum(1 for _ in samples.__getitems__(order[begin : begin + 64].tolist()))
    print(rows, _kib("VmHWM") - before)


@pytest.mark.parametrize("work", ["epoch", "map"])
@pytest.mark.skipif(sys.platform != "linux", reason="/proc says what a process has held")
def test_an_epoch_and_samples_by_number_stay_below_their_memory(tmp_path, work):
    values = np.random.default_rng(1).random((3072, 64, 128), dtype="f4")  # 96 MiB
    write(tmp_path / "large", values, DIMS, chunks=(16, 64, 128), compressors=None)
    write(tmp_path / "small", values[:320], DIMS, chunks=(16, 64, 128), compressors=None)
    code = f"from tests.data.zarr.test_processes import _grown; _grown({str(tmp_path)!r}, {work!r})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    rows, grown_kib = map(int, done.stdout.split())
    assert rows == len(values)
    assert 1024 * grown_kib < LIMIT + MARGIN, f"{grown_kib} KiB"
