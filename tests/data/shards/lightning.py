"""LitData's chunks for tests: those that LitData has written (golden/litdata), and what they hold.

``python -m tests.data.shards.lightning DIRECTORY`` writes the golden files, where LitData 0.2.76 and zstd are
installed, and compares what LitData's own reader returns of them.
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

GOLDEN = Path(__file__).parent / "golden" / "litdata"
SAMPLES = 7
# Arguments of LitData's writer, by the name of a golden folder.
KINDS = {
    "plain": {},
    "sample": {"compression": "zstd", "compression_level": "sample"},
    "batch": {"compression": "zstd", "compression_batch_size": 2},
    "chunk": {"compression": "zstd", "compression_level": "chunk"},
}
TENSORS = ["float32", "float64", "float16", "uint8", "int8", "int16", "int32", "int64", "bool", "complex64"]


def sample(number):
    """Return a sample of most serializers, as a program gives it to LitData; tensors are arrays."""
    return {
        "index": (-1) ** number * 10**number,
        "image": bytes(range(number)),
        "name": "ä" * number,
        "x": number / 3,
        "ok": number % 2 == 0,
        "matrix": np.arange(6, dtype=np.int16).reshape(2, 3) + number,
        "vector": np.arange(number + 1, dtype=np.float32),
        "pixels": np.arange(60, dtype=np.uint8).reshape(4, 5, 3) + number,
        "tensor": np.full((2, 1), number, TENSORS[number]),
        "flat": np.full(number + 1, number, "float64"),
    }


def nested(number):
    """Return a tuple, lists and dicts."""
    tags = [["a", "ü"], [1, -2], [0.5], [True, False], [{"k": 1, "n": None}, {"k": "x", "n": 0.5}], [None, 1, "x"], []]
    return {"at": number}, bytes([number]), {"tags": tags[number], "d": {"w": None, "s": "t", "n": -1, "y": True}}


def given(number):
    """Return a sample with images and tensors."""
    import torch

    found = sample(number)
    found["pixels"] = Image.fromarray(found["pixels"])
    found["tensor"], found["flat"] = torch.from_numpy(found["tensor"]), torch.from_numpy(found["flat"])
    return found


def labelled(number):
    """Return the commonest sample of images, which LitData writes as a row in Arrow."""
    return {"image": bytes(range(number)), "label": number}


def tagged(number):
    """Return a sample that LitData writes as a row in Arrow, compressed with its batch."""
    name = None if number % 2 else "x"
    return {"text": f"{number}" * 90, "meta": {"width": number / 2, "name": name}, "tags": [number, 1], "ok": True}


def encoded():
    """Return an image in a file."""
    file = io.BytesIO()
    Image.fromarray(sample(1)["pixels"]).save(file, "JPEG")
    return file.getvalue()


def main(folder):
    """Write the golden files."""
    from litdata import StreamingDataset
    from litdata.streaming.serializers import JsonLeaf
    from litdata.streaming.writer import BinaryWriter

    def write(name, samples, **how):
        writer = BinaryWriter(str(folder / name), chunk_size=3, **how)
        for number, each in enumerate(samples):
            writer.add_item(number, each)
        writer.done()
        writer.merge()
        # A time, which would differ each time.
        (folder / name / "index.json").write_text(
            (folder / name / "index.json").read_text().partition(', "updated_at"')[0] + "}"
        )
        # Its reader replaces compressed chunks by what it has decompressed.
        return StreamingDataset(shutil.copytree(folder / name, f"{copies}/{name}"))

    shutil.rmtree(folder, ignore_errors=True)
    copies = tempfile.mkdtemp()
    for kind, how in KINDS.items():
        for number, found in enumerate(write(kind, map(given, range(SAMPLES)), **how)):
            for key, value in sample(number).items():
                same = bytes(found[key]) == value if isinstance(value, bytes) else np.array_equal(found[key], value)
                assert same, (key, found[key])
    trees = map(nested, range(SAMPLES))
    leaves = [(at, body, {key: JsonLeaf(each) for key, each in rest.items()}) for at, body, rest in trees]
    for number, found in enumerate(write("nested", leaves)):
        assert found == nested(number), found
    assert list(write("bytes", [bytes([number]) for number in range(3)])) == [b"\0", b"\1", b"\2"]
    write("pickle", [{"a": {number}, "b": b"x"} for number in range(3)])
    write("rows", [{"a": {"b": number}, "t": "x"} for number in range(3)])
    assert [*write("images", map(labelled, range(SAMPLES)))] == [*map(labelled, range(SAMPLES))]
    assert [*write("texts", map(tagged, range(SAMPLES)), compression="zstd")] == [*map(tagged, range(SAMPLES))]
    picture = Image.open(io.BytesIO(encoded()))
    write("jpeg", [{"jpeg": picture, "many": [picture, picture]}])
    shutil.rmtree(copies)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
