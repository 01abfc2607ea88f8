"""Random walks: whatever is done to a reader or a writer, in any order, ends as it does with Python's own files."""

import array
import io
import random
from types import SimpleNamespace

import numpy as np
import pytest

from penstock.checkpoint.integrity import BLOCK_BYTES, ChecksummedReader, Checksummer
from penstock.engine.contracts.driver import Attributes
from penstock.engine.read import reader
from penstock.engine.write import parts
from penstock.engine.write.upload import Writer
from penstock.options import ReadOptions, StoreOptions
from penstock.source import open_source
from tests.amounts import SOAK

OPERATIONS = 100_000 if SOAK else 2_000
BLOCK, PART = 64, 100
STORE = StoreOptions(read=ReadOptions(split_bytes=100))


def _lines(rng, size):
    """Return bytes with line ends: many, few or none."""
    alphabet = rng.choice([b"ab\n", b"abcdefghijklmnopqrstuvwxyz" * 4 + b"\n", b"x", b"\n"])
    return bytes(rng.choices(alphabet, k=size))


def _near(rng, size, unit):
    """Return a number of bytes that is likely to lie at an edge."""
    edge = rng.choice([0, unit, 2 * unit, size // 2, size])
    return max(0, rng.choice([edge, edge + rng.randint(-2, 2), rng.randint(0, size + 5)]))


def _integer(rng, number):
    """Return a number as one of the kinds of integers that fit it."""
    kinds = [int, int, np.int64] + [kind for kind in (np.int8, np.uint8, np.int32) if number <= np.iinfo(kind).max]
    return rng.choice(kinds)(number) if number >= 0 else number


def _filled(verb, kind, size):
    def call(file):
        buffer = kind(size)
        got = getattr(file, verb)(buffer)
        return got, bytes(memoryview(buffer).cast("B")) if size else b""

    return call


def _some_lines(count):
    def call(file):
        return [line for line, _ in zip(file, range(count), strict=False)]

    return call


def _next_byte(file, size):
    if isinstance(file, io.BytesIO):
        return file.getvalue()[file.tell() :][:1]
    return file.peek(size)[:1]


def _reading(rng, size, unit):
    """Draw one thing to do to a file of ``size`` bytes: its name, and a function of the file."""
    number, kind = _near(rng, size, unit), rng.choice([bytearray, lambda n: np.zeros((n, 1), np.uint8)])
    whole = _integer(rng, number)
    draws = {
        "read": lambda file: file.read(whole),
        "read all": lambda file: file.read(rng_all),
        "read1": lambda file: file.read1(whole),
        "readinto": _filled("readinto", kind, number),
        "readinto1": _filled("readinto1", kind, number),
        "readline": lambda file: file.readline(),
        "readline up to": lambda file: file.readline(whole),
        # BytesIO's own stops one line earlier than all other files' where lines end on the hint.
        "readlines": lambda file: (io.IOBase if isinstance(file, io.BytesIO) else type(file)).readlines(file, number),
        "lines": _some_lines(number % 7),
        "next": lambda file: next(file, None),
        "peek": lambda file: _next_byte(file, whole),
        "seek": lambda file: file.seek(whole),
        "seek from the end": lambda file: file.seek(-min(number, size), np.int8(io.SEEK_END)),
        "seek on": lambda file: file.seek(_integer(random.Random(number), number), io.SEEK_CUR),
        "tell": lambda file: file.tell(),
        "float": lambda file: file.seek(1.0),
        "no number": lambda file: file.read("1"),
        "negative": lambda file: file.seek(-1 - number),
        "nowhere": lambda file: file.seek(0, 7),
        "read-only": lambda file: file.readinto(bytes(number)),
    }
    rng_all = rng.choice([None, -1, -7])
    heavy = ("read", "readinto", "readline", "seek", "seek on", "lines", "next", "readline up to")
    name = rng.choice([*draws, *heavy, *heavy])
    return f"{name} {number}", draws[name]


def _outcome(call, file):
    try:
        return call(file)
    except (TypeError, ValueError) as error:
        return type(error)


def _walk(rng, file, data, unit, steps):
    model, trail = io.BytesIO(data), []
    for _ in range(steps):
        name, call = _reading(rng, len(data), unit)
        trail.append(name)
        assert _outcome(call, file) == _outcome(call, model), trail[-8:]
        assert file.tell() == model.tell(), trail[-8:]


@pytest.fixture
def _small(monkeypatch):
    monkeypatch.setattr(reader, "_BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(parts, "_FIRST_BYTES", 16)


@pytest.mark.usefixtures("_small")
def test_reader_matches_bytesio_under_random_operations(seed):
    rng, left = random.Random(seed), OPERATIONS
    while left > 0:
        steps = min(left, rng.choice([5, 50, 200]))
        data = _lines(rng, rng.choice([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 10 * BLOCK, 999]))
        source, key = open_source(f"memory://fuzz/{steps}", STORE)
        source.put(key, data)
        with source.open_read(key) as file:
            _walk(rng, file, data, BLOCK, steps)
        left -= steps


def test_checksummed_reader_matches_bytesio_under_random_operations(seed):
    rng = random.Random(seed)
    data = _lines(rng, 1000) * (3 * BLOCK_BYTES // 1000) + b"the end"
    sealing = Checksummer()
    sealing.update(memoryview(data))
    source, key = open_source("memory://fuzz/checksums")
    source.put(key, data)
    with ChecksummedReader(source.open_read(key), sealing.checksums(), source.url(key)) as file:
        _walk(rng, file, data, BLOCK_BYTES, OPERATIONS // 20)


def _written(rng):
    """Draw something to write: a buffer of any kind and shape, with a size around a part's."""
    data = rng.randbytes(_near(rng, 3 * PART, PART))
    shaped = np.frombuffer(data[: len(data) // 4 * 4], np.uint8)
    return rng.choice(
        [
            *(data, bytearray(data), memoryview(data), memoryview(data + data)[: len(data)], shaped, b""),
            *(shaped.view(">i4"), shaped.reshape(-1, 4), shaped.reshape(2, -1), np.zeros((0, 3)), np.zeros((2, 0))),
            *(array.array("i", [1, -2]), array.array("d"), np.float32(1.5), np.zeros(2, "i1,f8"), memoryview(shaped)),
            *("text", None, 3, [b"x"], memoryview(data * 2)[::2] if len(data) > 1 else None),
        ]
    )


def _wrote(file, data):
    try:
        return file.write(data)
    except (TypeError, ValueError, BufferError):
        return "refused"


@pytest.mark.usefixtures("_small")
def test_writer_publishes_same_bytes_as_bytesio_under_random_writes(seed):
    rng, left = random.Random(seed), OPERATIONS
    source, _ = open_source("memory://fuzz/written")
    options = SimpleNamespace(part_bytes=PART, buffer_bytes=2 * PART, content_type="")
    while left > 0:
        steps = min(left, rng.choice([0, 1, 3, 30]))
        left -= max(1, steps)
        model = io.BytesIO()
        with Writer(source._fetcher(), "written", options, Attributes()) as file:
            for _ in range(steps):
                data = _written(rng)
                if rng.random() < 0.1:
                    file.writelines([b"a", b"", b"bc\n"]), model.writelines([b"a", b"", b"bc\n"])
                elif (wanted := _wrote(model, data)) == "refused":
                    with pytest.raises((TypeError, ValueError, BufferError)):
                        file.write(data)
                        pytest.fail(repr(data))
                    assert not file.closed
                else:
                    assert file.write(data) == wanted, repr(data)
                assert file.tell() == model.tell()
        assert source.open_read("written").read() == model.getvalue()
