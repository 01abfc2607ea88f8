"""Lengths of documents as corpora have them, and token files in which each token has its number."""

import numpy as np

from tests.data.tokens.files import CODES, index

# Mean and sigma of the logarithms; chat is cut at 16,384.
KINDS = {"web": (700, 1.1), "code": (1500, 1.5), "chat": (450, 0.9), "books": (100_000, 0.7)}
MIXED = {"web": 60, "code": 20, "books": 10, "chat": 10}  # parts of a hundred, by tokens


def corpus(kind, tokens, seed=0):
    draw = np.random.default_rng(seed)
    if kind == "mixed":
        parts = [corpus(each, tokens * part // 100, seed + at) for at, (each, part) in enumerate(MIXED.items())]
        return draw.permutation(np.concatenate(parts))
    mean, sigma = KINDS[kind]
    found = draw.lognormal(np.log(mean) - sigma**2 / 2, sigma, max(tokens // mean, 1))
    found = np.maximum(found, 1).astype(np.int64) + 1
    return np.minimum(found, 16_384) if kind == "chat" else found


def write_numbered(folder, files, dtype="i4"):
    """Write Megatron's pairs of documents with these lengths; token number t of all files has the value t."""
    first, item = 0, np.dtype(dtype).itemsize
    for number, lengths in enumerate(files):
        total = int(np.sum(lengths))
        np.arange(first, first + total, dtype=dtype).tofile(folder / f"{number}.bin")
        begins = (np.cumsum(lengths) - lengths) * item
        (folder / f"{number}.idx").write_bytes(index(lengths, begins, range(len(lengths) + 1), CODES[dtype]))
        first += total
    return np.concatenate([np.asarray(each, np.int64) for each in files])
