"""Shards of images, classes and texts, and what both libraries yield from them."""

from __future__ import annotations

import io
import tarfile

import pytest
import webdataset

import penstock.compat.webdataset as wds


def png(number):
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (4, 3), number).save(out, "PNG")
    return out.getvalue()


def write(path, files):
    with tarfile.open(path, "w") as tar:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Return the pattern of three shards of 40 samples, with files that webdataset leaves out."""
    folder = tmp_path_factory.mktemp("shards")
    for shard in range(3):
        files = [("README", b"no dot"), ("__meta__/a.json", b"{}")]
        for number in range(shard * 40, shard * 40 + 40):
            key = f"./dir.x/{number:03}"
            files += [(f"{key}.PNG", png(number)), (f"{key}.cls", str(number % 10).encode())]
            files += [(f"{key}.seg.txt", f"text {number}".encode())]
        write(folder / f"train-{shard}.tar", files)
    return f"{folder}/train-{{0..2}}.tar"


def without_path(sample):
    return {name: value for name, value in sample.items() if name != "__local_path__"}


def both(shards, change=lambda dataset: dataset, **options):
    """Return what both libraries yield."""
    theirs = change(webdataset.WebDataset(shards, shardshuffle=False, **options).map(without_path))
    return list(change(wds.WebDataset(shards, shardshuffle=False, **options))), list(theirs)


def keys(dataset):
    return [sample["__key__"] for sample in dataset]
