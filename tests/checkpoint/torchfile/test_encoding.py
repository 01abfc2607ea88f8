"""What torch refuses with weights only is carried as plain values, or refused when it is saved, by its path."""

from __future__ import annotations

import io
import random
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from enum import Enum, Flag, IntEnum
from pathlib import Path, PosixPath, PurePosixPath, PureWindowsPath
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import torch

import penstock as ps
from penstock.checkpoint.torchfile.encoding import decode_value, encode_value
from penstock.errors import CheckpointError, NotFound, Unusable


class Color(Enum):
    RED = "red"


class Around:
    class Shade(IntEnum):
        DARK = 3


class Bits(Flag):
    A = 1
    B = 2


VALUES = {
    "scalars": [np.float32(1.5), np.int64(-3), np.bool_(1), np.str_("ü"), np.str_(""), np.complex64(1j), np.float16(2)],
    "dates of NumPy": [np.datetime64("2026-01-01T00:00", "s"), np.timedelta64(3, "D")],
    "python's generator": random.Random(3).getstate(),
    "numpy's generator": np.random.RandomState(3).get_state(),
    "another generator": {name: getattr(np.random, name)(3).state for name in ("PCG64", "MT19937", "Philox", "SFC64")},
    "dates": [
        datetime.fromisoformat("2026-03-01T02:30:00.000007"),
        datetime(2026, 1, 1, tzinfo=UTC),
        date(1, 1, 1),
        time(1, 2, 3, 4),
    ],
    "zones": [
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        time(1, tzinfo=timezone(timedelta(hours=-3))),
    ],
    "durations": [timedelta(-3, 4, 5), timedelta.max],
    "paths": [Path("/a/ü"), PurePosixPath("b/../c")],
    "enumerations": [Color.RED, Around.Shade.DARK],
    "ranges": [range(3), range(9, 1, -2), slice(None), slice(1, np.int8(3), None)],
    "no bytes": [b"", b"x", np.bytes_(b"")],
    "sets": [{1, "a"}, {np.int64(3)}, frozenset({1, (2, Path("x"))})],
    "queues": [deque([1, np.int64(2)], maxlen=3), deque()],
    "defaults": [defaultdict(kind, {"a": kind()}) for kind in (list, int, float, dict, set)] + [defaultdict()],
    "keys": [
        {np.int64(3): 1, Color.RED: [Path("x")], Path("y"): 2, (np.float32(1), "a"): 3, "b": 4, 5: 6},
        Counter([np.int64(7), np.int64(7)]),
        defaultdict(int, {date(2026, 1, 1): np.int8(1)}),
    ],
    "nests": OrderedDict(a=[(np.float64(1), {"b": {1: date(2026, 1, 1)}})], c=torch.Size([3])),
}
ARRAYS = [
    np.arange(6.0).reshape(2, 3),
    np.arange(6).reshape(2, 3).T,
    np.array(7, "<u2"),
    np.empty((3, 0)),
    np.array(["a", "bc"]),
]


def carried(value):
    file = io.BytesIO()
    torch.save(encode_value(value, "state"), file)
    file.seek(0)
    return decode_value(torch.load(file, weights_only=True))


@pytest.mark.parametrize("value", [np.bytes_(b"ab\0"), np.bytes_(b"\0"), np.str_("a\0\0"), np.str_("\0ü\ud800\0")])
def test_a_numpy_text_keeps_the_zeros_at_its_end(value):
    (found,) = carried([value])
    # NumPy's repr and comparison ignore them.
    assert (type(found), [*found]) == (type(value), [*value])


@pytest.mark.parametrize("name", VALUES)
def test_encoded_value_is_restored_unchanged(name):
    assert repr(carried(VALUES[name])) == repr(VALUES[name])


def test_arrays_are_restored_with_dtype_shape_and_writable_memory():
    for one, other in zip(carried(ARRAYS), ARRAYS, strict=True):
        assert (one.dtype, one.shape, one.flags.writeable) == (other.dtype, other.shape, True)
        assert np.array_equal(one, other)


LARGE = {
    "float64": np.random.default_rng(7).random(100_000),
    "turned": np.arange(40_000, dtype="<i4").reshape(200, 200).T,
    "big-endian": np.arange(9_000, dtype=">f8"),
    "dates": np.arange("1970-01-01", "2026-01-01", dtype="datetime64[D]"),
    "words": np.array(["many words", ""] * 1_000),
    "flags": np.arange(10_000) % 3 == 0,
    "complex": np.exp(1j * np.arange(5_000)),
    "one": np.array("x" * 5_000),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_array_comes_back_writable_with_dtype_and_shape(name):
    (found,) = carried([LARGE[name]])
    assert (found.dtype, found.shape, found.flags.writeable) == (LARGE[name].dtype, LARGE[name].shape, True)
    assert np.array_equal(found, LARGE[name])


def test_a_large_array_is_saved_as_its_own_bytes_and_no_more():
    file = io.BytesIO()
    torch.save(encode_value([LARGE["float64"]], "state"), file)
    assert LARGE["float64"].tobytes() in file.getvalue()
    assert len(file.getvalue()) < LARGE["float64"].nbytes + 4_000


def test_an_array_may_share_memory_with_a_tensor_of_another_dtype():
    tensor = torch.arange(10_000)
    found = carried({"tensor": tensor, "array": tensor.numpy(), "bytes": tensor.view(torch.uint8).numpy()})
    assert np.array_equal(found["array"], tensor.numpy())
    assert found["bytes"].tobytes() == tensor.numpy().tobytes()


def test_a_large_array_that_is_only_readable_is_saved_without_a_warning(tmp_path):
    np.save(tmp_path / "a.npy", LARGE["float64"])
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    (found,) = carried([mapped])
    assert (type(found), found.flags.writeable) == (np.ndarray, True)
    assert np.array_equal(found, mapped)


def test_a_file_in_memory_keeps_its_position():
    file = io.BytesIO(b"bytes")
    file.seek(2)
    again = carried([file])[0]
    assert (again.read(), again.getvalue()) == (b"tes", b"bytes")


def test_plain_state_is_encoded_without_copy_and_shared_values_stay_shared():
    model = torch.nn.Linear(2, 2)
    state = {
        "model": model.state_dict(),
        "optimizer": torch.optim.Adam(model.parameters()).state_dict(),
        "c": Counter("a"),
    }
    assert encode_value(state, "state") is state
    shared = [np.int64(1)]
    again = carried({"a": shared, "b": shared})
    assert again["a"] is again["b"]
    metadata = OrderedDict(a=np.int64(1))
    metadata._metadata = {"version": 1}
    assert carried(metadata)._metadata == {"version": 1}


class Custom:
    pass


class RunDir(PosixPath):
    pass


def local():
    class Local(Enum):
        A = 1

    return Local.A


def attributed():
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.scale = np.float64(0.1)
    return parameter


def around():
    value = [Custom()]
    value.insert(0, {"again": value})
    return value


Named = namedtuple("Named", "a")  # noqa: PYI024  what has to be found by its name
Renamed = Enum("Color", ["RED"])


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"x": [0, 1, 2, Custom()]}, r"state\['x'\]\[3\] is a .*Custom"),
        ({"x": Named(np.int64(1))}, r"state\['x'\] is a .*Named"),
        ({"f": [defaultdict(Custom)]}, r"state\['f'\]\[0\] is a collections.defaultdict"),
        ([Bits.A | Bits.B], r"state\[0\] is a .*Bits"),
        ({"o": np.array([None])}, r"state\['o'\] is a numpy.ndarray"),
        ({"k": {Bits.A | Bits.B: 1}}, r"state\['k'\] is a builtins.dict, and needs"),
        ([torch.nn.Linear(1, 1)], r"state\[0\] is a torch.nn"),
        (Custom, r"state is a builtins.type"),
        (("penstock.value", "range"), "tuple that begins"),
        ([RunDir("a")], r"state\[0\] is a .*RunDir, and needs"),
        ([local()], r"state\[0\] is a .*Local, and"),
        ([Renamed.RED], r"state\[0\] is a .*Color, and"),
        ({"a": [1, lambda: 1]}, r"state\['a'\]\[1\] is a builtins.function, and cannot be pickled"),
        ([torch.channels_last], r"state\[0\] is a torch.memory_format, and cannot be pickled"),
        ([1, 1 << 2040], r"state\[1\] is a builtins.int, and cannot be read"),
        (around(), r"state\[0\] is a builtins.dict, and needs .*Custom"),
        ({"p": [attributed()]}, r"state\['p'\]\[0\] is a torch.nn.parameter.Parameter, and needs numpy"),
        ({"p": [torch.nn.UninitializedParameter()]}, r"state\['p'\]\[0\] is .*Parameter, .*no values before the first"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_value_that_only_code_can_rebuild_is_refused_with_its_path(value, path):
    with pytest.raises(Unusable, match=path):
        encode_value(value, "state")


def mkldnn():
    return torch.rand(3, 3).to_mkldnn()


def four_bits():
    return torch.zeros(4, dtype=torch.uint8).view(torch.int4)


@pytest.mark.parametrize("make", [mkldnn, four_bits])
@pytest.mark.parametrize(
    "save",
    [
        lambda state, folder: ps.save(state, folder / "a.pt"),
        lambda state, folder: ps.CheckpointManager(folder).save(1, state),
        lambda state, folder: ps.CheckpointManager(folder).save(1, state, weights_only=False),
        lambda state, folder: ps.AsyncCheckpointer(ps.CheckpointManager(folder)).save(1, state),
    ],
    ids=["save", "manager", "manager of all", "background"],
)
def test_tensor_that_torch_cannot_save_is_refused_with_its_path(tmp_path, save, make):
    with pytest.raises(Unusable, match=r"\['x'\]\[0\] is a torch.Tensor, and cannot be pickled"):
        save({"x": [make(), torch.ones(2)]}, tmp_path)


def test_refusal_of_a_save_within_an_except_block_is_not_the_handled_error(tmp_path):
    with pytest.raises(Unusable, match=r"state\['x'\]"):
        try:
            ps.load(tmp_path / "none.pt")
        except NotFound:
            ps.save({"x": lambda: None}, tmp_path / "a.pt")


def test_a_tuple_may_begin_with_anything():
    first = torch.ones(2)
    for value in ((first, np.int64(1)), (np.ones(2), 1), (np.str_("penstock.value"), 1), ([],), ()):
        assert repr(carried([value])) == repr([value])
        assert repr(decode_value([value])) == repr([value])  # as it was saved by torch alone


def test_paths_of_another_system_come_back_without_its_files():
    other = ("penstock.value", "path", "WindowsPath", "a\\b")
    assert decode_value([other, PureWindowsPath("c")]) == [PureWindowsPath("a/b"), PureWindowsPath("c")]
    assert carried([PureWindowsPath("a/b")]) == [PureWindowsPath("a/b")]


def test_undecodable_values_are_kept_with_a_short_warning():
    lost = ("penstock.value", "enum", "no.such.module", "Color", "RED")
    expected = r"loader\[0\]\['x'\] \(LookupError: import no.such.module before .*loader\[3\].*\); and 6 more"
    with pytest.warns(UserWarning, match=expected):
        decode_value([{"x": lost}, 1, *[("penstock.value", number) for number in range(8)]], "loader")


def test_a_state_too_deep_is_refused():
    value: list = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(Unusable, match="too deep"):
        encode_value(value, "state")
    with pytest.raises(CheckpointError, match="too deep"):
        decode_value(value)


def test_a_key_that_cannot_be_one_stays_the_tuple_it_was_saved_as():
    key = ("penstock.value", "array", "|u1", (1,), b"1")
    with pytest.warns(UserWarning, match="left as the tuples"):
        assert decode_value({key: 1}) == {key: 1}


# What a file says stands for a value is made into that value, or left: nothing else is made, and nothing is run.


def test_an_array_as_penstock_saved_it_before_it_saved_buffers_is_read():
    value = ("penstock.value", "array", "<f8", (2, 1), np.arange(2.0).tobytes())
    assert decode_value([value])[0].tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize(
    "said",
    [
        ("no such kind", 1),
        (),
        (["range"],),
        ("range", "x"),
        ("array", "O", (1,), b"12345678"),
        ("array", "<f8", (1 << 40,), b"12345678"),
        ("array", "<f8", (1 << 40,), b""),
        ("array", "(100000,100000)f8", (1,), b""),
        ("scalar", "<f8", b"1234567812345678"),
        ("scalar", "|V8", b"12345678"),
        ("enum", "os", "system", "x"),
        ("enum", "builtins", "eval", "x"),
        ("enum", "no.such.module", "Color", "RED"),
        ("path", "_local", "x"),
        ("datetime", "yesterday", 0, None),
        ("datetime", "2026-01-01", 0, "../../etc/passwd"),
        ("frozenset", ([],)),
        ("set", ("penstock.value", "range", 0, 10**12, 1)),
        ("frozenset", ("penstock.value", "range", 0, 10**12, 1)),
        ("bytes", 1 << 34),
        ("deque", ("penstock.value", "range", 0, 10**12, 1), None),
        ("defaultdict", "eval", {}),
        ("defaultdict", "list", 1),
        ("file", 1 << 34, 0),
        ("array", "|u1", (1,), 1 << 34),
        ("array", "O", (1,), torch.zeros(8, dtype=torch.uint8)),
        ("array", "<f8", (2,), torch.zeros(8, dtype=torch.uint8)),
        ("array", "<f8", (1,), torch.zeros(1, dtype=torch.float64)),
        ("array", "|u1", (1 << 40,), torch.zeros(1, dtype=torch.uint8).expand(1 << 40)),
        ("array", "|u1", (8,), torch.zeros(8, dtype=torch.uint8, device="meta")),
        ("scalar", "<f8", torch.zeros(8, dtype=torch.uint8)),
        ("file", torch.zeros(8, dtype=torch.uint8), 0),
    ],
    ids=repr,
)
def test_a_pickle_makes_nothing_else(said):
    value = ("penstock.value", *said)
    with pytest.warns(UserWarning, match=r"left as the tuples .*: state\['a'\]\[0\] \("):
        found = decode_value({"a": [value], "model": 1})
    assert found["a"][0] is value
    assert found["model"] == 1
