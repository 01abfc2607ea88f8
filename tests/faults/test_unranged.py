"""A server that ignores Range costs one transfer and one copy of an object, however it is read: docs/faults.md."""

import io

import pytest
import torch

import penstock as ps
from penstock.fetch.reading import reader
from penstock.testing.servers import Scripted
from tests.children import PEAK_KIB
from tests.faults.expectations import UNRANGED
from tests.fetch.store import Unranged

SIZE = 128 << 20
peak = {}
exec(PEAK_KIB, peak)  # noqa: S102  the very functions that scripts measure with


def _checkpoint():
    file = io.BytesIO()
    torch.save({f"layer{number}": torch.full((SIZE >> 3,), number, dtype=torch.uint8) for number in range(8)}, file)
    return file.getvalue()


@pytest.fixture(scope="module")
def data():
    line = b"x" * 1023 + b"\n"
    return {"lines": line * (SIZE // len(line)), "checkpoint": _checkpoint()}


def _read(store):
    return ps.open("s3://bucket/lines", store=store).read()


def _lines(store):
    assert sum(1 for _ in ps.open("s3://bucket/lines", store=store)) == SIZE >> 10


def _load(store):
    return ps.load("s3://bucket/checkpoint", store=store)


WAYS = dict(zip(UNRANGED, [_read, _lines, _load], strict=True))


@pytest.mark.parametrize("way", UNRANGED)
def test_an_object_is_sent_and_held_once(way, data, monkeypatch):
    monkeypatch.setattr(reader, "_BLOCK_BYTES", 256 << 10)  # eight are held beside, by every file
    most_sent, most_held = UNRANGED[way]
    script = Unranged(data)
    with Scripted(script) as server:
        store = ps.S3Options(
            endpoint=server.url, region="us-east-1", anonymous=True, read=ps.ReadOptions(split_bytes=4 << 20)
        )
        peak["forget_peak"]()
        before = peak["peak_kib"]()
        result = WAYS[way](store)
        held = (peak["peak_kib"]() - before) * 1024 - (SIZE if result else 0)
    assert script.sent <= most_sent * SIZE
    assert held <= most_held * SIZE
    if isinstance(result, dict):
        assert [(tensor == number).all().item() for number, tensor in enumerate(result.values())] == [True] * 8
