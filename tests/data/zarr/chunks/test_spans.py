"""The chunks that an epoch needs are named before any is read: the same ones as it then reads, each once."""

import pytest

import penstock as ps
from penstock.errors import ChecksumMismatch
from penstock.source import Source
from penstock.values import PAUSE
from tests.data.zarr.stores import LAYOUTS, SHARDED, SPATIAL, numbered, write

VALUES = numbered((21, 6, 8))
DIMS = ("time", "y", "x")


@pytest.fixture(autouse=True)
def _no_small_arrays(monkeypatch):
    """Read these small arrays chunk by chunk, as large ones are."""
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_BYTES", 0)


def read_by(samples):
    """Return the spans that an iteration over ``samples`` reads, in order."""
    read, lookahead = [], Source.lookahead

    def noting(self, wanted, workers=1):
        return lookahead(self, (read.append(span) or span for span in wanted), workers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Source, "lookahead", noting)
        list(samples)
    return [span for span in read if span is not PAUSE]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_epoch_reads_exactly_the_spans_listed_in_advance(tmp_path, layout):
    write(tmp_path / "a", VALUES, DIMS, **LAYOUTS[layout])
    dataset = ps.ZarrDataset(str(tmp_path / "a"), shuffle=True, seed=3)
    named = list(dataset.spans()[1])
    assert sorted(named, key=str) == sorted(read_by(dataset), key=str)
    assert len({*named}) == len(named) > 1


def test_batches_are_named_in_the_order_in_which_they_are_read(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **SPATIAL)
    dataset = ps.ZarrDataset(str(tmp_path / "a"), shuffle=True, seed=3)
    batched = dataset.batched(4)
    for epoch in range(2):
        source, spans = batched.spans()
        named = list(spans)
        assert source.root == "file:///"
        assert batched.coming().epoch == epoch
        assert named == read_by(batched)


def test_arrays_that_are_kept_and_chunks_of_two_stores_are_named(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **SPATIAL)
    write(tmp_path / "height", VALUES[0], ("y", "x"), chunks=(4, 5))
    urls = {name: str(tmp_path / name) for name in ("a", "height")}
    named = list(ps.ZarrDataset(urls, patch={"y": 3}).spans()[1])
    assert sum("/height/" in span.key for span in named) == 4
    assert sum("/a/" in span.key for span in named) == 7 * 2 * 2


def test_samples_that_are_left_out_need_no_chunks(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **SPATIAL)
    dataset = ps.ZarrDataset(str(tmp_path / "a"))
    _, spans = dataset.spans([[0, 1], [2]])
    assert len(list(spans)) == 4
    _, spans = dataset.spans([])
    assert not list(spans)


def test_chunks_of_a_shard_that_were_never_written_are_not_named(tmp_path):
    values = VALUES.copy()
    values[:8] = 0
    write(tmp_path / "a", values, DIMS, **SHARDED, fill_value=0)
    dataset = ps.ZarrDataset(str(tmp_path / "a"))
    _, spans = dataset.spans()
    assert len(list(spans)) == (21 - 8 + 1) // 2 * 2


def test_a_damaged_index_is_an_error(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **SHARDED)
    path = tmp_path / "a/c/0/0/0"
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    _, spans = ps.ZarrDataset(str(tmp_path / "a")).spans()
    with pytest.raises(ChecksumMismatch, match="index"):
        list(spans)
