"""Arrays by URL."""

from __future__ import annotations

import io

import numpy as np

from penstock.compat import multistorageclient as msc


def test_an_array_is_saved_and_loaded(base):
    msc.numpy.save(f"{base}/a.npy", np.arange(4))
    for file in (f"{base}/a.npy", msc.Path(f"{base}/a.npy")):
        assert msc.numpy.load(file).tolist() == [0, 1, 2, 3]
    assert msc.numpy.load(file=f"{base}/a.npy", mmap_mode="r").tolist() == [0, 1, 2, 3]
    assert msc.numpy.load(f"{base}/a.npy", "r")[1:].tolist() == [1, 2, 3]


def test_an_archive_of_arrays_is_loaded(base):
    file = io.BytesIO()
    np.savez(file, x=np.arange(3), y=np.ones(2))
    msc.write(f"{base}/a.npz", file.getvalue())
    with msc.numpy.load(f"{base}/a.npz") as found:
        assert (found["x"].tolist(), found["y"].tolist()) == ([0, 1, 2], [1, 1])


def test_raw_bytes_are_mapped(base):
    msc.write(f"{base}/raw", np.arange(6, dtype="<i4").tobytes())
    found = msc.numpy.memmap(f"{base}/raw", dtype="<i4", shape=(2, 3))
    assert (found.tolist(), found.mode) == ([[0, 1, 2], [3, 4, 5]], "r")


def test_open_files_go_to_numpy():
    file = io.BytesIO()
    msc.numpy.save(file, np.arange(2))
    file.seek(0)
    assert msc.numpy.load(file).tolist() == [0, 1]
