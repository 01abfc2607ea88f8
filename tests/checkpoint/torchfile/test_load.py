"""Loading is ``torch.load``, whatever was saved: the same objects, each byte compared, within a bound of memory."""

from __future__ import annotations

import io
import textwrap
import zipfile
from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest
import torch

import penstock as ps
from penstock.checkpoint.torchfile.archive import Archive, archive
from penstock.checkpoint.torchfile.load import COPIED_BYTES, StoragePrefetch, load_torchfile, storages
from penstock.errors import CheckpointError, ChecksumMismatch
from penstock.events import RangeRead, subscribe
from penstock.testing.faults import FaultServer, Settings
from tests.checkpoint.torchfile.files import saved, stored
from tests.children import PEAK_KIB, forked, python

MIB = 1 << 20


def loaded(body, *, map_location=None, weights_only=True):
    return load_torchfile(*stored(body), map_location=map_location, weights_only=weights_only)


def alike(one, other) -> bool:
    """Say whether two objects are the same in every respect that a file can hold."""
    kinds = (kind for kind in ALIKE if isinstance(one, kind))
    return type(one) is type(other) and ALIKE[next(kinds, object)](one, other)


def same_dict(one, other) -> bool:
    extra = getattr(one, "__dict__", {}) == getattr(other, "__dict__", {})
    return extra and list(one) == list(other) and all(alike(one[key], other[key]) for key in one)


def same_tensor(one, other) -> bool:
    about = ("dtype", "layout", "shape", "requires_grad", "device", "is_quantized")
    if any(getattr(one, name) != getattr(other, name) for name in about):
        return False
    if one.is_quantized:
        return repr(one) == repr(other)
    if one.layout is not torch.strided:
        return torch.equal(one.to_dense(), other.to_dense())
    if (one.stride(), one.storage_offset()) != (other.stride(), other.storage_offset()):
        return False
    whole = [each.detach().resolve_conj().resolve_neg().contiguous().view(-1) for each in (one, other)]
    return torch.equal(*(each.view(torch.uint8) for each in whole)) and one.is_conj() == other.is_conj()


ALIKE = {
    torch.Tensor: same_tensor,
    torch.UntypedStorage: lambda one, other: one.tolist() == other.tolist(),
    torch.TypedStorage: lambda one, other: one.tolist() == other.tolist(),
    torch.nn.Module: lambda one, other: repr(one) == repr(other) and alike(one.state_dict(), other.state_dict()),
    dict: same_dict,
    (list, tuple): lambda one, other: len(one) == len(other) and all(map(alike, one, other)),
    np.ndarray: lambda one, other: one.dtype == other.dtype and np.array_equal(one, other),
    object: lambda one, other: one == other,
}


class Odd:
    """Looks at its tensor while it is made, and opens another file in its own."""

    def __init__(self) -> None:
        self.tensor = torch.arange(1000)
        self.total = int(self.tensor.sum())

    def __eq__(self, other) -> bool:
        return alike(self.__dict__, other.__dict__)

    __hash__ = None

    def __getstate__(self):
        return {"tensor": self.tensor, "inner": saved({"inside": torch.arange(77)})}

    def __setstate__(self, state):
        self.tensor = state["tensor"]
        self.total = int(self.tensor.sum())
        assert torch.load(io.BytesIO(state["inner"]))["inside"].tolist() == list(range(77))


Named = namedtuple("Named", "a b")  # noqa: PYI024  what torch has to find by its name
base = torch.arange(100, dtype=torch.float32)
conjugate = torch.view_as_complex(torch.arange(20.0).reshape(10, 2)).conj()
model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3))
tied = torch.nn.Linear(4, 4)

SAFE = {
    "state": model.state_dict(),
    "parameters": {"p": torch.nn.Parameter(torch.ones(3)), "q": torch.nn.Parameter(torch.ones(3), requires_grad=False)},
    "graded": torch.ones(3, requires_grad=True),
    "tied": {"a": tied.weight, "b": tied.weight, "c": tied.weight.detach()},
    "views": [base, base[10:20], base[::3], base.reshape(10, 10).T, base[50:50]],
    "complex": [torch.view_as_complex(torch.ones(4, 2)), conjugate],
    "negative": conjugate.imag,
    "dtypes": [torch.arange(5).to(each) for each in (torch.bool, torch.bfloat16, torch.half, torch.int8, torch.uint16)],
    "float8": [torch.arange(5).float().to(each) for each in (torch.float8_e4m3fn, torch.float8_e5m2)],
    "empty": [torch.empty(0), torch.empty(0, 3), torch.empty(3, 0, dtype=torch.int8), {}, [], ""],
    "scalar": torch.tensor(7),
    "storage": torch.arange(9.0).untyped_storage(),
    "nests": OrderedDict(a=[(torch.ones(2), None), {"b": {1: torch.zeros(2), (1, 2): "ü"}}], c={1.5, 2}),
    "plain": {"i": 3, "big": 1 << 70, "f": 0.1, "s": "€", "none": None, "b": b"bytes", "shape": torch.Size([1, 2])},
    "nothing": None,
    "optimizer": torch.optim.Adam(model.parameters()).state_dict(),
    "large": {"a": torch.arange(9 * MIB, dtype=torch.int32), "b": torch.ones(3), "c": torch.arange(3 * MIB)},
}
UNSAFE = {
    "module": model,
    "nested": {"m": torch.nn.ModuleList([model, torch.nn.Embedding(10, 4)]), "o": Odd()},
    "numpy": {"scalar": np.float32(3.5), "array": np.arange(1000), "tensor": torch.ones(3)},
    "named": Named(torch.ones(3), torch.zeros(3)),
    "default": defaultdict(list, {"a": [torch.ones(2)]}),
    "odd first": [Odd(), torch.arange(MIB), Odd(), torch.ones(36 * MIB, dtype=torch.int8), torch.ones(3)],
}


@pytest.mark.filterwarnings("ignore:TypedStorage")
@pytest.mark.parametrize("name", SAFE)
def test_saved_state_loads_the_same_as_with_torch_load(name):
    body = saved(SAFE[name])
    assert alike(loaded(body), torch.load(io.BytesIO(body)))
    assert alike(loaded(body, weights_only=False), torch.load(io.BytesIO(body), weights_only=False))


@pytest.mark.filterwarnings("ignore:torch.quantize_per", "ignore:TypedStorage", "ignore:Sparse CSR")
def test_so_do_quantized_and_sparse_tensors():
    whole = torch.quantize_per_tensor(torch.arange(10.0), 0.1, 3, torch.qint8)
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([0, 1])
    channels = torch.quantize_per_channel(torch.rand(2, 3), scales, zeros, 0, torch.quint8)
    body = saved([whole, channels, torch.eye(5).to_sparse(), torch.eye(5).to_sparse_csr()])
    assert alike(loaded(body), torch.load(io.BytesIO(body)))


@pytest.mark.parametrize("name", UNSAFE)
def test_so_do_objects_of_other_code_that_look_at_their_tensors_or_open_files(name):
    body = saved(UNSAFE[name])
    assert alike(loaded(body, weights_only=False), torch.load(io.BytesIO(body), weights_only=False))


def test_tensors_that_share_memory_still_share_it_after_load():
    one = loaded(saved({**SAFE["tied"], "views": SAFE["views"]}))
    one["views"][0][10] = 77
    assert one["views"][1][0] == one["views"][0].reshape(10, 10).T[0, 1] == 77
    assert one["a"] is one["b"]
    assert one["a"].data_ptr() == one["c"].data_ptr()


def test_both_servers_and_files_give_the_same(bucket, tmp_path):
    for url, store in ((f"{bucket.url}ü 1.pt", bucket.store), (f"{tmp_path}/a.pt", None)):
        ps.save(SAFE["large"], url, store=store)
        assert alike(ps.load(url, store=store), SAFE["large"])


PLACES = {
    "none": None,
    "text": "cpu",
    "device": torch.device("cpu"),
    "table": {"cpu": "cpu", "cuda:0": "cpu"},
    "itself": lambda storage, _: storage,
    "whatever": lambda _storage, _location: None,
    "copied": lambda storage, _: storage.clone(),
    "meta": "meta",
    "meta device": torch.device("meta"),
    "meta table": {"cpu": "meta"},
    "meta function": lambda storage, _: torch.UntypedStorage(storage.nbytes(), device="meta"),
}


@pytest.mark.parametrize("name", PLACES)
def test_map_location_places_tensors_as_torch_load_does(name):
    body = saved([SAFE["state"], SAFE["views"], SAFE["tied"], SAFE["empty"]])
    ours, own = loaded(body, map_location=PLACES[name]), torch.load(io.BytesIO(body), map_location=PLACES[name])
    if "meta" in name:
        assert [each.device.type for each in ours[1]] == ["meta"] * 5
        assert [each.shape for each in ours[1]] == [each.shape for each in own[1]]
    else:
        assert alike(ours, own)


def test_a_function_for_places_is_asked_once_for_each_storage_and_sees_its_bytes():
    body = saved([torch.arange(10), torch.empty(0), torch.arange(2 * MIB), *([base] * 3)])
    asked = [[], []]

    def note(into):
        return lambda storage, location: into.append((storage.nbytes(), storage[:99].tolist(), location))

    loaded(body, map_location=note(asked[0]))
    torch.load(io.BytesIO(body), map_location=note(asked[1]))
    assert asked[0] == asked[1] != []


def test_invalid_map_location_raises_the_same_error_as_torch_load():
    body = saved(torch.ones(3))
    for place in ("nowhere", {"cpu": "nowhere"}, lambda _, __: 1 / 0, *([] if torch.cuda.is_available() else ["cuda"])):
        with pytest.raises((RuntimeError, ZeroDivisionError)) as own:
            torch.load(io.BytesIO(body), map_location=place)
        with pytest.raises(own.type) as ours:
            loaded(body, map_location=place)
        assert str(ours.value) == str(own.value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_tensors_are_restored_to_the_gpu_by_default(tmp_path):
    state = {
        "a": torch.arange(40 * MIB, device="cuda", dtype=torch.int32),
        "b": torch.ones(3, device="cuda"),
        "c": base,
    }
    ps.save(state, f"{tmp_path}/a.pt")
    assert alike(ps.load(f"{tmp_path}/a.pt"), state)
    assert {each.device.type for each in ps.load(f"{tmp_path}/a.pt", map_location="cuda").values()} == {"cuda"}
    assert {each.device.type for each in ps.load(f"{tmp_path}/a.pt", map_location="cpu").values()} == {"cpu"}
    lazy = ps.load(f"{tmp_path}/a.pt", lazy=True)["a"].load("cuda")
    assert torch.equal(lazy, state["a"])


@pytest.mark.filterwarnings("ignore:.*torch.jit", "ignore:.*TorchScript")
def test_other_formats_are_loaded_too():
    state = {"a": torch.arange(MIB), "b": [base, base[3:]]}
    assert alike(loaded(saved(state, _use_new_zipfile_serialization=False)), state), "before torch 1.6"
    compressed, stored_again = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved(state))) as old:
        for file, how in ((compressed, zipfile.ZIP_DEFLATED), (stored_again, zipfile.ZIP_STORED)):
            with zipfile.ZipFile(file, "w", how) as new:
                for info in old.infolist():
                    new.writestr(info.filename, old.read(info))
    assert alike(loaded(compressed.getvalue()), state)
    assert alike(loaded(stored_again.getvalue()), state)
    script = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(3, 3)), script)
    assert isinstance(loaded(script.getvalue(), weights_only=False), torch.jit.ScriptModule)


def test_bytes_in_the_other_order_come_out_right():
    body = saved({"a": torch.arange(100), "b": torch.arange(10, dtype=torch.int16)})
    swapped = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(body)) as old, zipfile.ZipFile(swapped, "w") as new:
        for info in old.infolist():
            data = b"big" if info.filename.endswith("byteorder") else old.read(info)
            if "/data/" in info.filename:
                data = np.frombuffer(data, np.int64 if info.filename.endswith("0") else np.int16).byteswap().tobytes()
            new.writestr(info.filename, data)
    assert alike(loaded(swapped.getvalue()), torch.load(io.BytesIO(body)))


@pytest.mark.filterwarnings("ignore:.*CRC")
def test_files_without_sums_load_and_nothing_is_compared():
    torch.serialization.set_crc32_options(False)
    try:
        body = bytearray(saved({"a": torch.arange(1000, dtype=torch.int32)}))
    finally:
        torch.serialization.set_crc32_options(True)
    assert alike(loaded(bytes(body)), {"a": torch.arange(1000, dtype=torch.int32)})
    body[bytes(body).index(torch.arange(100, 200, dtype=torch.int32).numpy().tobytes())] += 1
    assert loaded(bytes(body))["a"][100] == 101


@pytest.fixture
def torchs_own_reads(monkeypatch):
    """Have torch read storages by itself, as it does where a file names what nobody knows."""
    monkeypatch.setattr(Archive, "plain", property(lambda _: False))


@pytest.mark.usefixtures("torchs_own_reads")
def test_storages_that_torch_reads_by_itself_are_the_same_and_compared():
    body = saved([SAFE["large"], torch.arange(COPIED_BYTES // 4 + 1, dtype=torch.int32), SAFE["views"], SAFE["empty"]])
    assert alike(loaded(body), torch.load(io.BytesIO(body)))
    damaged = bytearray(body)
    damaged[len(body) - 4 * MIB] ^= 1
    with pytest.raises(ChecksumMismatch, match="record 'data/3'"):
        loaded(bytes(damaged))


@pytest.mark.usefixtures("torchs_own_reads")
def test_ctrl_c_within_a_read_of_torchs_own_is_not_forgotten(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(StoragePrefetch, "take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loaded(saved(SAFE["state"]))


def test_many_small_tensors_share_requests(tmp_path):
    state = {str(number): torch.full((100,), number) for number in range(2000)}
    ps.save({"state": state, "odd": Odd()}, f"{tmp_path}/odd.pt")
    ps.save(state, f"{tmp_path}/a.pt")
    for name, odd in (("a", False), ("odd", True)):
        reads: list[int] = []
        leave = subscribe(lambda event, to=reads: to.append(event.size_bytes) if isinstance(event, RangeRead) else None)
        found = ps.load(f"{tmp_path}/{name}.pt", weights_only=not odd)
        leave()
        assert alike(found["state"] if odd else found, state)
        assert len(reads) < 8


def test_a_storage_of_another_size_than_its_record_is_an_error():
    body = saved(torch.arange(4, dtype=torch.int32))
    assert body.count(b"IntStorage") == 1
    with pytest.raises(CheckpointError, match="32 bytes"):
        loaded(rewritten(body, "data.pkl", lambda data: data.replace(b"IntStorage", b"LongStorage")))


def rewritten(body, record, change) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(body)) as old, zipfile.ZipFile(file, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            new.writestr(info.filename, change(data) if info.filename.endswith(f"/{record}") else data)
    return file.getvalue()


def test_memory_stays_within_the_state_and_256_mib(tmp_path):
    """Half of that is looked for, at 192 MiB: what holds two thirds of a state twice is found."""
    ps.save({str(number): torch.full((64 * MIB,), number, dtype=torch.uint8) for number in range(3)}, tmp_path / "a.pt")
    ps.save({"one": torch.ones(192 * MIB, dtype=torch.uint8)}, tmp_path / "b.pt")
    script = f"""
    import sys, torch, penstock as ps
    from penstock.checkpoint.torchfile.archive import Archive
    {textwrap.indent(PEAK_KIB, "    ").strip()}
    ps.save([torch.ones(3)], "memory://warm/a.pt")
    ps.load("memory://warm/a.pt")
    forget_peak()
    before = peak_kib()
    for way in ("straight", "copied"):
        if way == "copied":
            Archive.plain = False
        for url in sys.argv[1:]:
            forget_peak()
            state = ps.load(url)
            print(peak_kib() - before, sum(int(each[-1]) for each in state.values()))
            del state
    """
    done = python(script, f"{tmp_path}/a.pt", f"{tmp_path}/b.pt", limit_s=100)
    assert done.returncode == 0, done.stderr
    grown, found = zip(*(map(int, line.split()) for line in done.stdout.splitlines()), strict=True)
    assert found == (3, 1, 3, 1)
    assert 190 << 10 < min(grown) <= max(grown) < (192 + 128) << 10


def test_so_does_memory_while_saving(monkeypatch):
    script = f"""
    import sys, torch, penstock as ps
    {textwrap.indent(PEAK_KIB, "    ").strip()}
    state = {{str(number): torch.full((64 * 1024 * 1024,), number, dtype=torch.uint8) for number in range(3)}}
    ps.save([torch.ones(3)], "s3://bucket/warm.pt")
    forget_peak()
    before = peak_kib()
    ps.save(state, "s3://bucket/a.pt")
    print(peak_kib() - before)
    """
    with FaultServer.start() as server:
        server.make("bucket")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        done = python(script, limit_s=100)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 128 << 10


def test_a_load_after_a_fork_and_one_before_it(bucket):
    ps.save(SAFE["large"], f"{bucket.url}a.pt", store=bucket.store)
    assert alike(ps.load(f"{bucket.url}a.pt", store=bucket.store), SAFE["large"])

    def child() -> None:
        found = ps.load(f"{bucket.url}a.pt", store=bucket.store)["a"]
        assert np.array_equal(found.numpy(), SAFE["large"]["a"].numpy())  # torch's own threads stay behind at a fork

    with forked(child) as status:
        assert status() == 0


INTERRUPTED = """
import signal, threading, torch, penstock as ps
from penstock.events import RangeRead, subscribe
seen = threading.Event()

def note(event):
    if isinstance(event, RangeRead) and event.size_bytes > 1 << 20 and not seen.is_set():
        seen.set()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # from here: nothing comes too late for it

subscribe(note)
kept = []
empty = torch.empty
def noted(*sizes, **options):
    made = empty(*sizes, **options)
    kept.append(made)
    return made
torch.empty = noted
try:
    ps.load("s3://bucket/a.pt")
    print("loaded", flush=True)
except KeyboardInterrupt:
    before = [each.clone() for each in kept]
    torch.empty = empty
    ps.stat("s3://bucket/a.pt")
    small = ps.load("s3://bucket/b.pt")
    same = all(torch.equal(*each) for each in zip(before, kept))
    print("unharmed" if same and before and small == [1] else "written to", flush=True)
"""


def test_after_ctrl_c_while_loading_nothing_writes(monkeypatch):
    with FaultServer.start(Settings(latency_ms=100)) as server:
        server.make("bucket")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        ps.save([torch.ones(32 * MIB, dtype=torch.uint8) for _ in range(4)], "s3://bucket/a.pt", store=server.store)
        ps.save([1], "s3://bucket/b.pt", store=server.store)
        done = python(INTERRUPTED)
    assert (done.returncode, done.stdout) == (0, "unharmed\n"), done.stderr


# Storages of a file come in order, or out of it, each compared with its CRC-32.


def test_by_way_of_stages_the_same_bytes_arrive():
    """What a GPU gets its storages by, on the way to the CPU."""
    state = [torch.arange(5 * MIB), torch.ones(3), torch.empty(0), torch.arange(2 * MIB)]
    source, of = stored(saved(state))
    opened = archive(source, of)
    got = list(storages(source, of, opened.uses, lambda _: torch.device("cpu")))
    assert [each.numpy().tobytes() for each in got] == [each.numpy().tobytes() for each in state]


def test_a_damaged_storage_is_named_and_those_before_it_are_given_out():
    state = [torch.arange(100), torch.arange(100, 300), torch.arange(300, 400)]
    body = bytearray(saved(state))
    body[body.index(state[1].numpy().tobytes())] ^= 1
    source, of = stored(bytes(body))
    found = storages(source, of, archive(source, of).uses)
    assert next(found).numpy().tobytes() == state[0].numpy().tobytes()
    with pytest.raises(ChecksumMismatch, match="record 'data/1'"):
        next(found)


def test_a_storage_out_of_turn_is_read_at_once_and_costs_no_other_its_turn():
    state = [torch.full((100,), number) for number in range(3)]
    source, of = stored(saved(state))
    opened = archive(source, of)
    records = [use.record for use in opened.uses]
    prefetch = StoragePrefetch(source, opened, opened.uses)
    for number in (2, 0, 1, 2, 0):
        assert prefetch.take(records[number]).numpy().tobytes() == state[number].numpy().tobytes()
    prefetch.close()


def test_read_inside_a_storage_is_served_only_after_its_beginning():
    source, of = stored(saved([torch.arange(100)]))
    opened = archive(source, of)
    (record,) = (use.record for use in opened.uses)
    prefetch, view = StoragePrefetch(source, opened, opened.uses), memoryview(bytearray(16))
    assert prefetch.serve(record.start + 8, view) == 0
    assert prefetch.serve(record.start, view) == 16
    assert prefetch.serve(record.start + 8, view) == 16
    assert view.cast("q").tolist() == [1, 2]
    assert prefetch.serve(record.stop - 8, view) == 8, "the storage ends there"
    assert prefetch.serve(record.stop, view) == 0
    prefetch.close()
