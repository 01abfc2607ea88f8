"""``ps.save`` and ``ps.load``: torch's own format, straight to and from the store."""

from __future__ import annotations

import io
import mmap
import pickle
import threading
import zipfile
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.checkpoint import integrity
from penstock.checkpoint.torchfile import verbs as save
from penstock.checkpoint.torchfile.verbs import LazyTensor, dump
from penstock.errors import Changed, CheckpointError, ChecksumMismatch, Forbidden, InvalidURL, NotFound, Unusable
from penstock.events import RangeRead, subscribe
from penstock.testing.faults import FAULTS, FaultServer, Match
from penstock.tree import tree_map
from tests.checkpoint.torchfile.test_load import SAFE, UNSAFE, alike


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


STATE = {
    "large": torch.arange(6_000_000, dtype=torch.float32).reshape(2000, 3000),
    "half": torch.linspace(0, 1, 1001).half(),
    "empty": torch.empty(0, 3),
    "scalar": torch.tensor(7),
}


def test_a_state_comes_back_bit_for_bit(bucket):
    ps.save(STATE, f"{bucket.url}run/ü 1.pt", store=bucket.store)
    assert same(ps.load(f"{bucket.url}run/ü 1.pt", store=bucket.store), STATE)
    assert same(ps.load(f"{bucket.url}run/ü 1.pt", map_location="cpu", store=bucket.store), STATE)


def test_saved_file_is_readable_by_torch_load(bucket):
    ps.save(STATE, f"{bucket.url}a.pt", store=bucket.store)
    body = bucket.client.get_object(Bucket=bucket.name, Key="a.pt")["Body"].read()
    assert same(torch.load(io.BytesIO(body), weights_only=True), STATE)


def test_local_files_and_memory_too(tmp_path):
    for url in (f"{tmp_path}/new/folder/a.pt", "memory://test-torch/a.pt"):
        ps.save(STATE, url)
        assert same(ps.load(url), STATE)


def test_bucket_url_is_refused_for_load_and_save():
    for url in ("s3://bucket", "s3://bucket/", "memory://bucket"):
        for ask in (ps.load, lambda url: ps.load(url, lazy=True), lambda url: ps.save(STATE, url)):
            with pytest.raises(InvalidURL, match="a bucket, not an object"):
                ask(url)


@pytest.mark.parametrize("lazy", [False, True])
def test_truncated_file_is_reported_as_truncated(tmp_path, lazy):
    ps.save(STATE, f"{tmp_path}/a.pt")
    body = (tmp_path / "a.pt").read_bytes()
    for size in (0, 1, 2, 3, 4, 100, len(body) - 1):
        (tmp_path / "a.pt").write_bytes(body[:size])
        with pytest.raises(CheckpointError, match=r"truncated.*/a\.pt\]"):
            ps.load(f"{tmp_path}/a.pt", lazy=lazy)


@pytest.mark.filterwarnings("ignore")
def test_truncated_or_damaged_legacy_file_raises_checkpoint_error(tmp_path):
    """It has no sums: another value may come of a flipped byte, yet what shows is told as damage."""
    file = io.BytesIO()
    torch.save({"a": torch.arange(20), "b": 3}, file, _use_new_zipfile_serialization=False)
    whole = file.getvalue()
    for size in range(0, len(whole), 5):
        (tmp_path / "a.pt").write_bytes(whole[:size])
        for weights_only in (True, False):
            with pytest.raises(CheckpointError, match=r"truncated.*a\.pt"):
                ps.load(f"{tmp_path}/a.pt", weights_only=weights_only)
    for body in (b"a text", b"\x80\x02", whole.replace(b"ctorch._utils", b"Ztorch._utils")):
        (tmp_path / "a.pt").write_bytes(body)
        with pytest.raises(CheckpointError, match=r"torch\.save did not write it.*a\.pt"):
            ps.load(f"{tmp_path}/a.pt")


class Custom:
    """Something that only code can make."""


def test_code_in_a_file_runs_only_when_it_is_asked_for(tmp_path):
    ps.save({"model": Custom()}, f"{tmp_path}/code.pt")
    with pytest.raises(Exception, match=r"[Ww]eights"):
        ps.load(f"{tmp_path}/code.pt")
    assert isinstance(ps.load(f"{tmp_path}/code.pt", weights_only=False)["model"], Custom)


def test_an_object_that_cannot_be_saved_leaves_the_old_one(tmp_path):
    ps.save(STATE, f"{tmp_path}/a.pt")
    with pytest.raises(Exception, match=r"[Pp]ickle"):
        ps.save({"bad": lambda: None}, f"{tmp_path}/a.pt")
    assert same(ps.load(f"{tmp_path}/a.pt"), STATE)
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


def test_nothing_there(bucket):
    with pytest.raises(NotFound):
        ps.load(f"{bucket.url}none.pt", store=bucket.store)


def test_failed_save_raises_the_original_error_instead_of_the_torch_error():
    """torch ends its archive after a write has failed, and that fails too: with a RuntimeError about positions."""
    with FaultServer.start() as server:
        server.make("bucket")
        server.fail(FAULTS["denied"], when=Match(verb="create", times=None))
        with pytest.raises(Forbidden):
            ps.save({"large": torch.zeros(12_000_000)}, "s3://bucket/a.pt", store=server.store)
        with pytest.raises(Unusable, match=r"state\['hook'\] is .*cannot be saved"):
            ps.save({"hook": _Refusing()}, "memory://test-torch/b.pt")


class _Refusing:
    """Something that refuses to be saved, in torch's own words."""

    def __reduce__(self) -> str:
        message = "this cannot be saved"
        raise RuntimeError(message)


@pytest.mark.parametrize("wrong", [{"weights_only": None}, {"weights_only": "no"}, {"lazy": "no"}])
def test_a_load_whose_switch_is_neither_true_nor_false_is_refused(tmp_path, wrong):
    ps.save({"n": 1}, tmp_path / "a.pt")
    with pytest.raises(Unusable, match="must be True or False"):
        ps.load(tmp_path / "a.pt", **wrong)


# Lazily loaded files: the objects at once, each tensor when it is asked for, and verified then.


MIB = 1 << 20
FEW = {"large": torch.arange(3 * MIB), "other": torch.ones(4 * MIB), "small": torch.arange(7)}


def loaded(nest):
    return tree_map(LazyTensor.load, nest, LazyTensor)


@pytest.mark.parametrize("name", [name for name in SAFE if name not in {"storage", "views", "tied", "negative"}])
def test_lazy_load_gives_the_same_tensors_as_full_load(tmp_path, name):
    ps.save(SAFE[name], f"{tmp_path}/a.pt")
    assert alike(loaded(ps.load(f"{tmp_path}/a.pt", lazy=True)), ps.load(f"{tmp_path}/a.pt"))


def test_negated_or_viewed_tensor_loads_lazily_into_its_own_storage(tmp_path):
    ps.save([SAFE["negative"], SAFE["views"][1]], f"{tmp_path}/a.pt")
    for one, other in zip(loaded(ps.load(f"{tmp_path}/a.pt", lazy=True)), ps.load(f"{tmp_path}/a.pt"), strict=True):
        assert torch.equal(one, other)
        assert one.untyped_storage().nbytes() == one.nbytes < other.untyped_storage().nbytes()


def test_lazy_views_get_separate_memory_and_tied_tensors_stay_tied(tmp_path):
    ps.save([*SAFE["views"], SAFE["tied"]], f"{tmp_path}/a.pt")
    *views, tied = ps.load(f"{tmp_path}/a.pt", lazy=True)
    for one, other in zip(views, SAFE["views"], strict=True):
        got = one.load()
        assert torch.equal(got, other)
        assert got.untyped_storage().nbytes() == max(got.nbytes, 0) or got.nbytes == 400
    assert tied["a"] is tied["b"]
    assert tied["a"].parameter
    assert isinstance(tied["a"].load(), torch.nn.Parameter)
    assert torch.equal(tied["c"].load(), SAFE["tied"]["c"])


def test_opening_reads_the_ends_of_the_file_and_loading_one_tensor_its_bytes(bucket):
    ps.save(FEW, f"{bucket.url}a.pt", store=bucket.store)
    reads: list[int] = []
    leave = subscribe(lambda event: reads.append(event.size_bytes) if isinstance(event, RangeRead) else None)
    state = ps.load(f"{bucket.url}a.pt", lazy=True, store=bucket.store)
    assert len(reads) == 2
    assert sum(reads) < 400_000
    assert repr(state["large"]) == (
        "LazyTensor(shape=torch.Size([3145728]), dtype=torch.int64, requires_grad=False, parameter=False)"
    )
    assert (state["large"].nbytes, len(reads)) == (24 * MIB, 2)
    reads.clear()
    assert torch.equal(state["large"].load(), FEW["large"])
    leave()
    assert len(reads) <= 5
    assert sum(reads) == 24 * MIB


def test_damaged_record_raises_only_when_its_tensor_is_loaded(tmp_path):
    ps.save(FEW, f"{tmp_path}/a.pt")
    body = bytearray((tmp_path / "a.pt").read_bytes())
    body[30 * MIB] ^= 1
    (tmp_path / "a.pt").write_bytes(body)
    state = ps.load(f"{tmp_path}/a.pt", lazy=True)
    assert torch.equal(state["large"].load(), FEW["large"])
    with pytest.raises(ChecksumMismatch, match="record 'data/1'"):
        state["other"].load()


def test_lazy_tensor_sent_to_a_worker_stays_bound_to_its_version(bucket):
    ps.save(FEW, f"{bucket.url}a.pt", store=bucket.store)
    one = pickle.loads(ForkingPickler.dumps(ps.load(f"{bucket.url}a.pt", lazy=True, store=bucket.store)["small"]))
    assert torch.equal(one.load(), FEW["small"])
    ps.save({**FEW, "small": torch.arange(8)}, f"{bucket.url}a.pt", store=bucket.store)
    with pytest.raises(Changed):
        one.load()


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:torch.quantize_per", "ignore:TypedStorage")
def test_state_that_cannot_be_loaded_lazily_is_refused(tmp_path):
    quantized = torch.quantize_per_tensor(torch.arange(10.0), 0.1, 3, torch.qint8)
    for state in (UNSAFE["module"], [SAFE["storage"]], torch.eye(3).to_sparse(), quantized, {torch.ones(3)}):
        ps.save(state, f"{tmp_path}/a.pt")
        with pytest.raises(Unusable, match=r"whole.*a\.pt"):
            ps.load(f"{tmp_path}/a.pt", lazy=True, weights_only=False)
    torch.save(SAFE["state"], f"{tmp_path}/old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(Unusable, match="another format"):
        ps.load(f"{tmp_path}/old.pt", lazy=True)


def test_a_device_may_be_named(tmp_path):
    ps.save(FEW, f"{tmp_path}/a.pt")
    state = ps.load(f"{tmp_path}/a.pt", lazy=True)
    assert state["small"].load("cpu").device == torch.device("cpu")
    assert state["small"].load(torch.device("meta")).shape == (7,)


# A save writes what ``torch.save`` writes, to the byte, though the sums are computed here.


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
