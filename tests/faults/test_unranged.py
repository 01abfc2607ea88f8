"""A server that ignores Range costs one transfer and one copy of an object, however it is read: docs/faults.md."""

import pytest

from tests.children import PEAK_KIB, python
from tests.faults.expectations import UNRANGED

# In a process of its own: what other tests have left in memory would count.
MEASURE = (
    PEAK_KIB
    + """
import io, sys
import torch
import penstock as ps
from penstock.engine.read import reader
from penstock.testing.servers import Scripted
from tests.engine.fetch.store import Unranged

SIZE = 80 << 20

def checkpoint():
    file = io.BytesIO()
    torch.save({f"layer{number}": torch.full((10 << 20,), number, dtype=torch.uint8) for number in range(8)}, file)
    return file.getvalue()

def read(store):
    return ps.open("s3://bucket/object", store=store).read()

def lines(store):
    assert sum(1 for _ in ps.open("s3://bucket/object", store=store)) == SIZE >> 10

def load(store):
    return ps.load("s3://bucket/object", store=store)

way = [read, lines, load][int(sys.argv[1])]
script = Unranged({"object": checkpoint() if way is load else (b"x" * 1023 + b"\\n") * (SIZE >> 10)})
reader._BLOCK_BYTES = 256 << 10  # eight are held beside, by every file
with Scripted(script) as server:
    read_options = ps.ReadOptions(split_bytes=4 << 20)
    store = ps.S3Options(endpoint=server.url, region="us-east-1", anonymous=True, read=read_options)
    forget_peak()
    before = peak_kib()
    result = way(store)
    held = (peak_kib() - before) * 1024 - (SIZE if result else 0)
if way is load:
    assert [(tensor == number).all().item() for number, tensor in enumerate(result.values())] == [True] * 8
if way is read:
    assert result == script.data["object"]
print(script.sent / SIZE, held / SIZE)
"""
)


@pytest.mark.parametrize("way", UNRANGED)
def test_an_object_is_sent_and_held_once(way):
    most_sent, most_held = UNRANGED[way]
    ended = python(MEASURE, str([*UNRANGED].index(way)), limit_s=100)
    assert ended.returncode == 0, ended.stderr
    sent, held = map(float, ended.stdout.split())
    assert sent <= most_sent
    assert held <= most_held
