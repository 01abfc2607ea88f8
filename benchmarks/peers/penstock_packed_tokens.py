"""Penstock over files of tokens: rows of whole documents with their labels, in lanes."""

import struct
import time

import numpy as np
from meter import BUCKET, Meter
from ours import ready

import penstock as ps

LENGTH = 2048
_MEAN, _SIGMA = 700, 1.1  # tokens of a document of web text


def index(path, seed):
    """Write Megatron's index of documents next to a file of tokens of 2 bytes."""
    tokens = path.stat().st_size // 2
    draw = np.random.default_rng(seed)
    lengths = draw.lognormal(np.log(_MEAN) - _SIGMA**2 / 2, _SIGMA, 2 * tokens // _MEAN + 100).astype("<i4") + 1
    ends = np.cumsum(lengths, dtype="<i8")
    count = int(np.searchsorted(ends, tokens)) + 1
    lengths = np.diff(np.minimum(ends[:count], tokens), prepend=0).astype("<i4")
    begins = 2 * (np.cumsum(lengths, dtype="<i8") - lengths)
    header = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, count, count + 1)
    documents = np.arange(count + 1, dtype="<i8")
    path.with_suffix(".idx").write_bytes(header + lengths.tobytes() + begins.tobytes() + documents.tobytes())


def train(meter):
    """Iterate over an epoch of rows; afterwards, compare the sums of all tokens with those of the files."""
    for number, key in enumerate(meter.keys):
        index(meter.path(key), number)
    urls = [f"s3://{BUCKET}/{key}" for key in meter.keys]
    dataset = ps.TokenDataset.from_shards(urls, length=LENGTH, pack="best-fit", store=ready(meter))
    meter.told |= {"padding": dataset.padding}
    sums = np.zeros(2, np.int64)
    meter.after = lambda: compare(meter, dataset, sums)
    with meter:
        loader = ps.DataLoader(dataset, meter.batch, shuffle=ps.order.Lanes())
        began = time.perf_counter()
        for batch in loader:
            meter.told.setdefault("first_s", time.perf_counter() - began)
            sums += sum(map(sum, batch.seq_lens)), int(batch.tokens.numpy().sum())
            meter.step()
        stats = loader.stats().total
        meter.told |= {"requests": stats.requests, "wire_bytes": stats.size_bytes}


def compare(meter, dataset, sums):
    """Compare the number and the sum of the tokens of all rows with those of the files, and count the files."""
    whole = sum(int(np.fromfile(meter.path(key), np.uint16).sum(dtype=np.int64)) for key in meter.keys)
    if sums.tolist() != [dataset.tokens, whole]:
        raise SystemExit(f"the rows have {sums} tokens and their sum, the files {dataset.tokens} and {whole}")
    for key in meter.keys:
        meter.count(key)


train(Meter())
