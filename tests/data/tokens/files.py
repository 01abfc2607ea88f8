"""Token files as their writers write them, byte for byte."""

import struct

import numpy as np

CODES = {"u1": 1, "i1": 2, "i2": 3, "i4": 4, "i8": 5, "f8": 6, "f4": 7, "u2": 8}
LLMC = {"u2": (20240520, 1), "u4": (20240801, 7)}


def megatron(documents, dtype="u2", *, modes=False):
    """Return the .bin and the .idx of documents, each a list of sequences of tokens.

    The layout of IndexedDatasetBuilder: ``finalize`` writes what ``add_document`` and ``end_document`` collected.
    """
    arrays = [np.asarray(sequence, dtype) for document in documents for sequence in document]
    lengths = [len(each) for each in arrays]
    pointers = np.cumsum([0, *(each.nbytes for each in arrays)])[: len(arrays)]
    borders = np.cumsum([0, *map(len, documents)])
    return b"".join(each.tobytes() for each in arrays), index(lengths, pointers, borders, CODES[dtype], modes=modes)


def index(lengths, pointers, borders, code=8, *, magic=b"MMIDIDX\0\0", version=1, modes=False, sequences=None):  # noqa: PLR0913  the fields of the file
    """Return an .idx with these values, whether or not they fit together."""
    count = len(lengths) if sequences is None else sequences
    return b"".join(
        [
            magic,
            struct.pack("<Q", version),
            struct.pack("<B", code),
            struct.pack("<Q", count),
            struct.pack("<Q", len(borders)),
            np.array(lengths, dtype=np.int32).tobytes(order="C"),
            np.array(pointers, dtype=np.int64).tobytes(order="C"),
            np.array(borders, dtype=np.int64).tobytes(order="C"),
            np.zeros(len(lengths), dtype=np.int8).tobytes() if modes else b"",
        ]
    )


def llmc(tokens, dtype="u2", *, count=None, version=None):
    """Return a file of llm.c: 256 int32, of which three are used, and the tokens."""
    header = np.zeros(256, dtype=np.int32)
    header[:3] = LLMC[dtype][0], LLMC[dtype][1] if version is None else version, len(tokens) if count is None else count
    return header.tobytes() + np.asarray(tokens, dtype).tobytes()


def cut(array, length, stride):
    """Return the windows of a file or a document."""
    return [array[at : at + length] for at in range(0, len(array) - length + 1, stride)]
