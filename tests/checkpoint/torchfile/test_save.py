"""A save writes what ``torch.save`` writes, to the byte, though the sums are computed here."""

from __future__ import annotations

import io
import mmap
import threading
import zipfile

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.checkpoint import integrity
from penstock.checkpoint.torchfile import verbs as save
from penstock.checkpoint.torchfile.verbs import dump
from tests.checkpoint.torchfile.test_load import SAFE, UNSAFE

MIB = 1 << 20
NAMES = st.text(max_size=5)
TENSORS = st.builds(
    lambda size, dtype: torch.arange(size).to(dtype),
    st.integers(0, 300),
    st.sampled_from([torch.uint8, torch.float32, torch.bfloat16, torch.int64]),
)
STATES = st.recursive(
    TENSORS | NAMES | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
)


def both(obj) -> tuple[bytes, bytes]:
    ours, own = io.BytesIO(), io.BytesIO()
    torch.save(obj, own)
    dump(obj, ours)
    return ours.getvalue(), own.getvalue()


def test_the_sums_are_computed_here():
    assert integrity.fast() is not None
    assert save._as_tried(torch)


@given(STATES)
def test_any_state_comes_out_as_torch_writes_it(state):
    ours, own = both(state)
    assert ours == own
    assert zipfile.ZipFile(io.BytesIO(ours)).testzip() is None


@pytest.mark.parametrize("name", SAFE | UNSAFE)
def test_each_sample_object_is_saved_byte_identical_to_torch(name):
    ours, own = both((SAFE | UNSAFE)[name])
    assert ours == own


class _Sparse(io.FileIO):
    """A file with a hole where long zeros were written."""

    def write(self, data) -> int:
        return super().write(data) if len(data) < 100_000 else self.seek(len(data), io.SEEK_CUR) and len(data)


def test_file_beyond_4_gib_matches_torch_and_later_records_load(tmp_path):
    zeros = mmap.mmap(-1, (4 << 30) + 5, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # which take no memory, only read
    large = torch.frombuffer(zeros, dtype=torch.uint8)
    state = {"before": torch.ones(3), "large": large, "after": torch.arange(9)}
    with _Sparse(tmp_path / "own.pt", "w") as file:
        torch.save(state, file)
    with _Sparse(tmp_path / "ours.pt", "w") as file:
        dump(state, file)
    own, ours = ((tmp_path / name).open("rb") for name in ("own.pt", "ours.pt"))
    with own, ours:
        assert own.read(MIB) == ours.read(MIB)
        assert own.seek(-1000, io.SEEK_END) == ours.seek(-1000, io.SEEK_END) > 4 << 30
        assert own.read() == ours.read()
    lazy = ps.load(f"{tmp_path}/ours.pt", lazy=True)
    assert lazy["large"].nbytes == (4 << 30) + 5
    assert torch.equal(lazy["before"].load(), state["before"])
    assert torch.equal(lazy["after"].load(), state["after"])


def test_storages_are_written_from_their_own_memory():
    tensor = torch.ones(MIB)
    seen = []

    class File(io.BytesIO):
        def write(self, data) -> int:
            view = memoryview(data)
            if not seen and view.nbytes > 64 << 10:
                tensor[:] = 77  # a copy would not see it
                seen.append(view.cast("B").cast("f")[0])
            return super().write(view)

    dump([tensor], File())
    assert seen == [77]


def test_other_saves_meanwhile_have_their_sums():
    """In other threads, and within this one while its objects are pickled."""
    inner: list[bytes] = []

    class Nested:
        def __reduce__(self):
            file = io.BytesIO()
            torch.save(torch.arange(9), file)
            inner.append(file.getvalue())
            thread = threading.Thread(target=lambda: inner.append(both(torch.arange(5))[1]))
            thread.start()
            thread.join()
            return (str, ("nested",))

    before = torch.serialization.get_crc32_options()
    ours, _ = both([torch.arange(3), Nested()])
    assert len(inner) == 4
    for body in (ours, *inner):
        assert zipfile.ZipFile(io.BytesIO(body)).testzip() is None
    assert torch.serialization.get_crc32_options() is before is True


def test_crc32_option_is_unchanged_after_a_failed_save():
    class Failing(io.BytesIO):
        def write(self, _data) -> int:
            raise OSError("this file takes nothing")

    with pytest.raises((OSError, RuntimeError)):
        dump([torch.ones(3)], Failing())
    with pytest.raises(Exception, match="pickle"):
        dump([lambda: None], io.BytesIO())
    assert torch.serialization.get_crc32_options()


def test_disabled_crc32_option_writes_no_valid_checksums():
    torch.serialization.set_crc32_options(False)
    try:
        ours, own = both([torch.arange(100)])
    finally:
        torch.serialization.set_crc32_options(True)
    assert ours == own
    with pytest.raises(zipfile.BadZipFile):
        zipfile.ZipFile(io.BytesIO(ours)).read("archive/data.pkl")


@pytest.mark.parametrize("lack", ["isal", "version", "another zip", "another pickle"])
def test_where_something_is_otherwise_torch_computes_them(monkeypatch, lack):
    def fails(*_, **__):
        raise AssertionError

    save._as_tried.cache_clear()
    if lack == "isal":
        monkeypatch.setattr(save, "fast", lambda: None)
    elif lack == "version":
        monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.6.0"))
    elif lack == "another zip":
        monkeypatch.setattr(save, "_DESCRIPTOR", b"PK\5\5")
    else:
        monkeypatch.delattr(save._Pickling, "Pickler")
    try:
        if lack != "isal":
            assert not save._as_tried(torch)
        monkeypatch.setattr(save, "_save", fails)
        ours, own = both(SAFE["state"])
    finally:
        monkeypatch.undo()
        save._as_tried.cache_clear()
    assert ours == own


def test_saved_object_passes_the_zip_checksum_test(bucket):
    ps.save(SAFE["large"], f"{bucket.url}a.pt", store=bucket.store)
    body = bucket.client.get_object(Bucket=bucket.name, Key="a.pt")["Body"].read()
    assert zipfile.ZipFile(io.BytesIO(body)).testzip() is None
