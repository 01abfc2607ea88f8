"""MDS shards for tests: those that mosaicml-streaming has written (golden/mds), and a writer of a few lines.

``python -m tests.data.shards.mosaic DIRECTORY`` writes the golden files, where mosaicml-streaming is installed.
"""

import io
import json
import shutil
import sys
from decimal import Decimal
from pathlib import Path
from struct import pack

import numpy as np
from PIL import Image

GOLDEN = Path(__file__).parent / "golden" / "mds"
INTEGERS = [f"{kind}{bits}" for kind in ("uint", "int") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "float32", "float64"]
PLAIN = ["bytes", "str", "int", "json", "str_int", "str_float", "str_decimal", "pil", "jpeg", "png", "jpegarray"]
COLUMNS = {name: name for name in (*PLAIN, *INTEGERS, *FLOATS, "jpeg_array", "pkl")} | {
    "array": "ndarray",
    "array_typed": "ndarray:int16",
    "array_shaped": "ndarray:float32:2,3",
    "list_jpeg": "list[jpeg]",
    "list_png": "list[png]",
    "list_pil": "list[pil]",
}
MODES = ["RGB", "L", "1", "RGBA", "I", "F", "LA", "I;16", "CMYK", "P"]
SMALL = {"text": "str", "label": "int", "image": "bytes"}
SAMPLES = 10


def image(number, mode):
    """Return an image of 5 x 3 pixels."""
    if mode == "I;16":
        return Image.fromarray((np.arange(15, dtype=np.uint16) * 4001 + number).reshape(3, 5))
    pixels = (np.arange(45).reshape(3, 5, 3) * (number + 1) % 251).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


def encoded(kind, of):
    """Return the bytes of an image in a file."""
    file = io.BytesIO()
    of.save(file, format=kind)
    return file.getvalue()


def sample(number):
    """Return a sample with every encoding, as it is given to MDSWriter."""
    sign, dot = 1 - 2 * (number % 2), Image.new("L", (1, 1), 7)
    kinds = ["uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32", "uint64", "int64"]
    axes = (1,) * (number % 3)
    found = {
        "bytes": bytes(range(number)),
        "str": "ä" * number,
        "int": sign * 2 ** (6 * number),
        "json": {"n": number, "list": [number, None, "ü"]},
        "str_int": sign * 10 ** (9 * number),
        "str_float": number / 3,
        "str_decimal": Decimal("-0.1") ** number,
        "array": np.arange(number + 1, dtype=kinds[number]).reshape(*axes, number + 1),
        "array_typed": np.arange(6 * (number + 1), dtype=np.int16).reshape(2, -1) - 3,
        "array_shaped": np.arange(6, dtype=np.float32).reshape(2, 3) / (number + 1),
        "pil": image(number, MODES[number]),
        "jpeg": dot,
        "png": image(number, "RGB"),
        "jpegarray": [encoded("JPEG", dot)] * (2 if number == 1 else 1),
        "jpeg_array": [encoded("JPEG", dot)],
        "list_jpeg": [dot] * (number == 2),
        "list_png": [dot, image(number, "L")][: number % 3],
        "list_pil": [image(number, mode) for mode in MODES[: number % 4]],
        "pkl": {1, number},
    }
    for name in INTEGERS:
        limits = np.iinfo(name)
        found[name] = np.dtype(name).type(limits.max - number if number % 2 else limits.min + number)
    return found | {name: np.dtype(name).type(number / 7) for name in FLOATS}


def small(number):
    """Return a sample of three columns."""
    return {"text": f"text {number}", "label": -number, "image": bytes([number]) * number}


def shard(columns, samples, **config):
    """Return a shard of samples, each the bytes of all columns; ``columns``: encoding and size by name.

    ``config`` replaces parts of the description; ``config=None`` leaves it out.
    """
    names = sorted(columns)
    described = {
        "column_encodings": [columns[name][0] for name in names],
        "column_names": names,
        "column_sizes": [columns[name][1] for name in names],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": None,
        "version": 2,
        **config,
    }
    text = b"" if "config" in config else json.dumps(described, sort_keys=True).encode()
    bodies = []
    for each in samples:
        sizes = [len(each[name]) for name in names if columns[name][1] is None]
        bodies.append(pack(f"<{len(sizes)}I", *sizes) + b"".join(each[name] for name in names))
    start = 8 + 4 * len(bodies) + len(text)
    ends = np.cumsum([start, *map(len, bodies)]).tolist()
    return pack(f"<I{len(ends)}I", len(bodies), *ends) + text + b"".join(bodies)


def described(name, data):
    """Return the entry of a shard in index.json."""
    count, start = int.from_bytes(data[:4], "little"), int.from_bytes(data[4:8], "little")
    file = {"basename": name, "bytes": len(data), "hashes": {}}
    return json.loads(data[8 + 4 * count : start]) | {"raw_data": file, "zip_data": None, "samples": count}


def index(folder, *names):
    """Write the index.json of a folder whose shards have these names."""
    shards = [described(name, (folder / name).read_bytes()) for name in names]
    (folder / "index.json").write_text(json.dumps({"shards": shards, "version": 2}, sort_keys=True))


def raw(number):
    """Return the bytes of each column of a golden sample with every encoding."""
    data = (GOLDEN / "every" / "shard.00000.mds").read_bytes()
    start, stop = np.frombuffer(data[4 + 4 * number : 12 + 4 * number], "<u4").tolist()
    config = json.loads(data[8 + 4 * SAMPLES : int.from_bytes(data[4:8], "little")])
    count = sum(size is None for size in config["column_sizes"])
    sizes = iter(np.frombuffer(data[start : start + 4 * count], "<u4").tolist())
    at, found = start + 4 * count, {}
    for name, size in zip(config["column_names"], config["column_sizes"], strict=True):
        length = next(sizes) if size is None else size
        found[name] = data[at : at + length]
        at += length
    assert at == stop
    return found


def _write(out):
    """Write the golden files with mosaicml-streaming."""
    from streaming import MDSWriter
    from streaming.base.util import merge_index

    shutil.rmtree(out, ignore_errors=True)
    with MDSWriter(columns=COLUMNS, out=f"{out}/every", size_limit=None) as writer:
        for number in range(SAMPLES):
            writer.write(sample(number))
    for kind, hashes in (("plain", ["sha1", "xxh64"]), ("zstd", ["sha1", "xxh64"]), ("gz", []), ("br", [])):
        given = None if kind == "plain" else kind
        how = {"compression": given, "hashes": hashes, "size_limit": 560}
        with MDSWriter(columns=SMALL, out=f"{out}/{kind}", **how) as writer:
            for number in range(20 if hashes else 2):
                writer.write(small(number))
    with MDSWriter(columns=SMALL, out=f"{out}/sha256", size_limit=700, hashes=["sha256"]) as writer:
        for number in range(20):
            writer.write(small(number))
    for part in range(2):
        with MDSWriter(columns=SMALL, out=f"{out}/merged/{part}", size_limit=480) as writer:
            for number in range(part * 10, part * 10 + 10):
                writer.write(small(number))
    merge_index(f"{out}/merged")


if __name__ == "__main__":
    _write(sys.argv[1])
