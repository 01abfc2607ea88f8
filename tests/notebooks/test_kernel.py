"""Notebooks: an interrupted loop leaves a kernel that goes on, cells run again, and progress stays in one output."""

import time

import pytest

from tests.notebooks.kernel import Kernel

SETUP = """
import multiprocessing, os, threading, time
import penstock as ps
from penstock import progress
from penstock.testing.faults import FaultServer

running = FaultServer.start()
server = running.__enter__()
os.environ.update(server.environment)
for number in range(60):
    server.put("bucket", f"train/{number % 3}/{number:02}", b"x" * 1000)

def slow(sample):
    time.sleep(0.02)
    return sample.key

def children():
    for _ in range(100):
        if not (found := multiprocessing.active_children()):
            break
        time.sleep(0.05)
    return found
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    found = Kernel(tmp_path_factory.mktemp("kernel"))
    try:
        assert found.run(SETUP).error == ""
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_interrupted_loop_returns_and_the_next_cell_reads_an_epoch(kernel, workers):
    begun = kernel.run(
        f"""
dataset = ps.IterableDataset.from_prefix("s3://bucket/train/", transform=slow, shuffle=True)
loader = ps.DataLoader(dataset, batch_size=4, num_workers={workers}, collate_fn=list)
while True:
    for batch in loader:
        print("going", flush=True)
""",
        interrupt_at="going\n" * 4,
    )
    assert begun.error == "KeyboardInterrupt"
    assert begun.warnings == "", "neither workers nor threads write tracebacks"
    # A quiet machine needs 0.1 s, and 0.8 s more for the first traceback that IPython colours.
    assert begun.ended_s < 10
    left = kernel.run(
        "print(children()); keys = [key for batch in loader for key in batch]; print(len(keys), len({*keys}))"
    )
    assert (left.error, left.text) == ("", "[]\n60 60\n")


def test_cells_that_run_again_leave_the_workers_of_the_last_loader(kernel):
    cell = """
dataset = ps.MapDataset.from_prefix("s3://bucket/train/", transform=slow)
loader = ps.DataLoader(dataset, batch_size=4, num_workers=2, persistent_workers=True, collate_fn=list)
batches = iter(loader)
print(len(next(batches)), len(multiprocessing.active_children()))
"""
    assert [kernel.run(cell).text for _ in range(2)] == ["4 2\n"] * 2


def test_progress_stays_in_one_output_and_is_gone_at_the_end(kernel):
    kernel.run("progress._PATIENCE_S = progress._REDRAW_S = 0.0")
    scanned = kernel.run("catalog = ps.Catalog.scan('s3://bucket/train/')")
    assert (scanned.warnings, scanned.text, scanned.shown) == ("", "", [{"text/plain": ""}])
    cell = """
with progress.bar("moving <b>", 20, 2000) as count:
    threads = [threading.Thread(target=lambda: [count(1, 100) for _ in range(10)]) for _ in range(2)]
    [each.start() for each in threads]
    [each.join() for each in threads]
    {}
"""
    moved = kernel.run(cell.format("print(1)"))
    assert (moved.text, moved.warnings, moved.updates) == ("1\n", "", 21)
    assert moved.shown == [{"text/plain": ""}]
    # Killed within the block: the last state is what stands there.
    held = kernel.run(cell.format("progress._Notebook.close = lambda self: None"))
    (shown,) = held.shown
    assert shown["text/plain"].startswith("moving <b>  20/20  2.0 KiB/2.0 KiB")
    assert shown["text/html"].startswith('<progress value="2000" max="2000"></progress> <code>moving &lt;b&gt;  20/20')
    assert kernel.run(f"os.environ['PENSTOCK_PROGRESS'] = '0'{cell.format('pass')}").shown == []


def test_values_have_tables_and_plots_are_pictures(kernel):
    assert "<table>" in kernel.run("catalog").shown[0]["text/html"]
    drawn = kernel.run("%matplotlib inline\nloader.report().plot();").shown
    assert [each["image/png"][:4] for each in drawn] == ["iVBO"]


def test_a_kernel_that_ends_leaves_no_process(kernel):
    kernel.run("batches = iter(loader); next(batches)")
    kernel.run("running.__exit__(None, None, None)")
    left = kernel.children()
    assert len(left) >= 2, "the workers of the loader"
    kernel.close()
    deadline_s = time.monotonic() + 20
    while any(each.is_running() for each in left) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert [each for each in left if each.is_running()] == []
