"""Libraries that take a file read objects and, where they write from the first byte to the last, write them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import tarfile
import zipfile

import h5py
import imageio.v3 as imageio
import numpy as np
import pandas as pd
import pyarrow.csv
import pyarrow.parquet
import pytest
import soundfile
import tifffile
import torch
import xarray
from PIL import Image

import penstock as ps
from penstock.errors import Unusable
from penstock.testing.faults import FaultServer

ARRAY = np.arange(600, dtype=np.uint8).reshape(20, 30) * 7
TABLE = pd.DataFrame({"key": ["a", "é"], "size": [1, 2]})
WAVE = np.sin(np.arange(4000, dtype=np.float32))


@pytest.fixture(scope="module")
def server():
    with FaultServer.within() as server:
        server.make("bucket")
        yield server


@pytest.fixture
def opened(server, request):
    """Return ``ps.open`` of an object of the test's own."""
    url = f"s3://bucket/{request.node.name}"

    def opened(mode, **arguments):
        return ps.open(url, mode, store=server.store, **arguments)

    return opened


def _tar(file):
    with tarfile.open(fileobj=file, mode="w") as archive:
        info = tarfile.TarInfo("note")
        info.size = 5
        archive.addfile(info, io.BytesIO(b"hello"))


def _zip(file):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("note", b"hello")


def _untar(file):
    with tarfile.open(fileobj=file) as archive:
        return archive.extractfile("note").read()


def _gzip(file):
    with gzip.open(file, "wb") as packed:
        packed.write(b"hello")


def _gunzip(file):
    with gzip.open(file) as packed:
        return packed.read()


def _hdf(file):
    with h5py.File(file, "w") as archive:
        archive["array"] = ARRAY


def _unhdf(file):
    with h5py.File(file) as archive:
        return archive["array"][5:9, 3].tolist()


def _netcdf(file):
    data = xarray.Dataset({"array": (("y", "x"), ARRAY)})
    file.write(bytes(data.to_netcdf(engine="h5netcdf")))


def _unnetcdf(file):
    with xarray.open_dataset(file, engine="h5netcdf") as data:
        return data["array"].to_numpy().tolist()


def _parquet(file):
    pyarrow.parquet.write_table(pyarrow.Table.from_pandas(TABLE), file)


def _rows(file):
    return [*csv.reader(file)]


WRITERS = {  # a name: what writes to a file as it comes, what reads from it, and what is read
    "csv": ("w", lambda f: csv.writer(f).writerow(["é", 1]), "r", _rows, [["é", "1"]]),
    "json": ("w", lambda f: json.dump({"é": 1}, f), "r", json.load, {"é": 1}),
    "json-bytes": ("w", lambda f: json.dump({"é": 1}, f, ensure_ascii=False), "rb", json.load, {"é": 1}),
    "pickle": ("wb", lambda f: pickle.dump({"a": [1] * 9}, f, 5), "rb", pickle.load, {"a": [1] * 9}),
    "numpy": ("wb", lambda f: np.save(f, ARRAY), "rb", lambda f: np.load(f).tolist(), ARRAY.tolist()),
    "npz": ("wb", lambda f: np.savez(f, a=ARRAY), "rb", lambda f: np.load(f)["a"].tolist(), ARRAY.tolist()),
    "numpy-text": ("w", lambda f: np.savetxt(f, [1.5]), "r", lambda f: float(np.loadtxt(f)), 1.5),
    "torch": ("wb", lambda f: torch.save(torch.arange(9), f), "rb", lambda f: torch.load(f).tolist(), [*range(9)]),
    "zip": ("wb", _zip, "rb", lambda f: zipfile.ZipFile(f).read("note"), b"hello"),
    "tar": ("wb", _tar, "rb", _untar, b"hello"),
    "gzip": ("wb", _gzip, "rb", _gunzip, b"hello"),
    "pandas-csv": ("w", lambda f: TABLE.to_csv(f, index=False), "r", lambda f: pd.read_csv(f).size, 4),
    "pandas-csv-bytes": ("wb", lambda f: TABLE.to_csv(f, index=False), "rb", lambda f: pd.read_csv(f).size, 4),
    "pandas-parquet": ("wb", TABLE.to_parquet, "rb", lambda f: pd.read_parquet(f).equals(TABLE), True),
    "pandas-json": ("wb", TABLE.to_json, "rb", lambda f: pd.read_json(f).size, 4),
    "pandas-pickle": ("wb", TABLE.to_pickle, "rb", lambda f: pd.read_pickle(f).equals(TABLE), True),
    "parquet": ("wb", _parquet, "rb", lambda f: pyarrow.parquet.read_table(f, columns=["size"]).num_rows, 2),
    "arrow-csv": ("w", lambda f: TABLE.to_csv(f, index=False), "rb", lambda f: pyarrow.csv.read_csv(f).num_rows, 2),
    "pillow": ("wb", lambda f: Image.fromarray(ARRAY).save(f, "PNG"), "rb", lambda f: Image.open(f).size, (30, 20)),
    "imageio": (
        *("wb", lambda f: imageio.imwrite(f, ARRAY, extension=".png")),
        *("rb", lambda f: imageio.imread(f).tolist(), ARRAY.tolist()),
    ),
}
READERS = {  # what goes back to the beginning while it writes: into memory, and then at once
    "h5py": (_hdf, _unhdf, ARRAY[5:9, 3].tolist()),
    "h5netcdf": (_netcdf, _unnetcdf, ARRAY.tolist()),
    "soundfile": (
        lambda f: soundfile.write(f, WAVE, 16000, format="WAV", subtype="FLOAT"),
        lambda f: soundfile.read(f, dtype="float32")[0].tolist(),
        WAVE.tolist(),
    ),
    "soundfile-part": (
        lambda f: soundfile.write(f, WAVE, 16000, format="FLAC"),
        lambda f: soundfile.SoundFile(f).seek(100),
        100,
    ),
    "tifffile": (lambda f: tifffile.imwrite(f, ARRAY), lambda f: tifffile.imread(f).tolist(), ARRAY.tolist()),
    "pillow-tiff": (
        lambda f: Image.fromarray(ARRAY).save(f, "TIFF"),
        lambda f: np.asarray(Image.open(f)).tolist(),
        ARRAY.tolist(),
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_file_written_by_a_library_is_read_back_by_it(name, opened):
    write_mode, write, read_mode, read, wanted = WRITERS[name]
    with opened(write_mode) as file:
        write(file)
    with opened(read_mode) as file:
        assert read(file) == wanted


@pytest.mark.parametrize("name", WRITERS)
def test_failed_library_write_leaves_no_object_in_the_bucket(name, opened, server):
    write_mode, write, *_ = WRITERS[name]
    before = server.objects("bucket")
    with pytest.raises(ZeroDivisionError), opened(write_mode) as file:
        write(file)
        raise ZeroDivisionError
    assert server.objects("bucket") == before


@pytest.mark.parametrize("name", READERS)
def test_file_from_a_library_is_read_after_upload_as_bytes(name, opened):
    write, read, wanted = READERS[name]
    whole = io.BytesIO()
    write(whole)
    with opened("wb") as file:
        file.write(whole.getvalue())
    with opened("rb") as file:
        assert read(file) == wanted


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # libsndfile does not hear of errors
def test_a_library_that_goes_back_publishes_nothing(opened, server):
    before = server.objects("bucket")
    with pytest.raises(io.UnsupportedOperation, match="written sequentially"), opened("wb") as file:
        tifffile.imwrite(file, ARRAY)
    with pytest.raises(Unusable, match=r"io\.BytesIO"), opened("wb") as file:
        soundfile.write(file, WAVE, 16000, format="FLAC")
    assert server.objects("bucket") == before
