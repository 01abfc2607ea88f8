"""What a dataset consists of is told by a digest, pickles small, and keeps small arrays."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from threading import Barrier

import numpy as np

from penstock.data.zarr.dataset import ZarrDataset
from penstock.testing.faults import FaultServer
from tests.data.zarr.stores import SPATIAL, numbered, write

VALUES = numbered((21, 6, 8))
DIMS = ("time", "y", "x")


def test_digest_depends_on_samples_but_not_on_location_or_shuffle(tmp_path):
    for name in "ab":
        write(tmp_path / name, VALUES, DIMS, **SPATIAL)
    write(tmp_path / "c", VALUES[:20], DIMS, **SPATIAL)

    def digest(name, **arguments):
        return ZarrDataset(str(tmp_path / name), **arguments).contents.digest

    assert digest("a") == digest("b") == digest("a", shuffle=True)
    different = [digest("a"), digest("c"), digest("a", offsets=1), digest("a", dims="y"), digest("a", patch={"y": 3})]
    different += [digest("a", stride=2), digest("a", select={"x": slice(0, 4)}), digest("a", valid=[0, *[1] * 20])]
    assert len({*different}) == len(different)
    contents = ZarrDataset(str(tmp_path / "a")).contents
    assert contents.digest is contents.digest  # each state of a training has it


def test_pickled_contents_read_the_same(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **SPATIAL)
    dataset = ZarrDataset(str(tmp_path / "a"), valid=[0, *[1] * 20])
    first = list(dataset)
    again = pickle.loads(pickle.dumps(dataset.contents))
    assert len(pickle.dumps(dataset.contents)) < 10_000
    assert again.digest == dataset.contents.digest
    assert len(again) == len(first) == 20


def test_an_array_that_all_samples_share_is_read_once(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **SPATIAL)
    write(tmp_path / "height", VALUES[0], ("y", "x"), chunks=(4, 5))
    urls = {name: str(tmp_path / name) for name in ("a", "height")}
    dataset = ZarrDataset(urls, patch={"y": 3})
    kept = dataset.contents.kept[1]
    assert dataset.contents.kept[1] is kept
    for sample, (_, y) in zip(dataset, dataset.contents.arrangement.space.positions(np.arange(42)), strict=True):
        np.testing.assert_array_equal(sample["height"].numpy(), VALUES[0, y : y + 3])


def test_a_sample_is_named_by_its_place(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **SPATIAL)
    assert ZarrDataset(str(tmp_path / "a")).contents.name_of([7]).endswith("/a/ at time=7")


def test_concurrent_threads_read_the_kept_chunks_only_once(tmp_path):
    write(tmp_path / "a", numbered((8, 6), "f4"), ("y", "x"), chunks=(1, 6))
    with FaultServer.within() as server:
        for path in (tmp_path / "a").rglob("*"):
            if path.is_file():
                server.put("bucket", f"a/{path.relative_to(tmp_path / 'a').as_posix()}", path.read_bytes())
        contents = ZarrDataset("s3://bucket/a", store=server.store).contents
        barrier = Barrier(8)

        def ask(_):
            barrier.wait()
            return contents.kept

        with ThreadPoolExecutor(8) as pool:
            found = [*pool.map(ask, range(8))]
        assert all(each is found[0] for each in found)
        assert len([each for each in server.seen("get", "bucket") if "/c/" in each.key]) == 8  # chunks


def test_a_process_that_was_forked_while_another_thread_read_reads_by_itself(tmp_path):
    write(tmp_path / "a", numbered((8, 6), "f4"), ("y", "x"), chunks=(1, 6))
    contents = ZarrDataset(tmp_path / "a").contents
    context = get_context("fork")
    found = context.SimpleQueue()
    with contents._kept.lock:  # as a thread that reads has it
        child = context.Process(target=lambda: found.put(contents.kept[0].tolist()))
        child.start()
    child.join(60)
    alive = child.is_alive()
    child.kill()
    assert not alive
    assert found.get() == numbered((8, 6), "f4").tolist()
