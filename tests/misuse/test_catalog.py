"""What hurried users write with catalogs and manifests, and the word that tells them what to do instead."""

from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import InvalidURL, ManifestError, NotFound, UnknownScheme

MISUSES = [
    # what is written, the error, a word of its text
    (lambda m: ps.Catalog.open(f"{m}train/"), NotFound, "no such"),
    (ps.Catalog.open, InvalidURL, "names a bucket"),
    (lambda m: ps.Catalog.open(f"{m}train/0.png"), ManifestError, "Catalog.save writes one"),
    (lambda m: ps.Catalog.open(f"{m}list.txt"), ManifestError, "Catalog.save writes one"),
    (lambda _: ps.Catalog.open("local.catalog"), ManifestError, "pass root="),
    (lambda _: ps.MapDataset.from_catalog("local.catalog"), ManifestError, "pass root="),
    (lambda m: ps.Catalog.open(f"{m}none.catalog"), NotFound, "none.catalog"),
    (lambda m: ps.Catalog.scan(f"{m}trian/"), NotFound, "allow_empty=True"),
    (lambda m: ps.Catalog.scan(f"{m}train/*.png"), NotFound, "include="),
    (lambda m: ps.Catalog.scan(f"{m}train/", include="*.jpg"), NotFound, "include="),
    (lambda _: ps.Catalog.scan(Path("s3://bucket/train/")), InvalidURL, "pathlib drops a slash"),
    (lambda _: ps.Catalog.scan("gs://bucket/train/"), UnknownScheme, "s3://"),
    (lambda m: ps.MapDataset.from_manifest(f"{m}train/"), NotFound, "no such"),
    (lambda m: ps.MapDataset.from_manifest(f"{m}empty.txt"), NotFound, "allow_empty=True"),
    (lambda m: ps.MapDataset.from_manifest(f"{m}local.txt"), ManifestError, "file:///"),
    (lambda m: ps.MapDataset.from_manifest(f"{m}header.csv"), ManifestError, "header must name one of key, url, path"),
    (lambda m: ps.MapDataset.from_manifest(f"{m}array.jsonl"), ManifestError, "line 1"),
]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return the URL of a bucket with a few objects and manifests; the working directory holds a catalog of it."""
    monkeypatch.chdir(tmp_path)
    url = f"memory://{tmp_path.name}/"
    files = {
        "train/0.png": b"bytes",
        "list.txt": b"train/0.png\n",
        "empty.txt": b"",
        "local.txt": b"file:///etc/passwd\n",
        "header.csv": b"image,label\ntrain/0.png,1\n",
        "array.jsonl": b'["train/0.png"]\n',
    }
    for name, data in files.items():
        with ps.open(url + name, "wb") as file:
            file.write(data)
    ps.Catalog.scan(f"{url}train/").save("local.catalog")
    return url


@pytest.mark.parametrize(("write", "error", "word"), MISUSES, ids=[f"{i}-{m[2]}" for i, m in enumerate(MISUSES)])
def test_it_is_refused_with_a_word(place, write, error, word):
    with pytest.raises(error) as caught:
        write(place)
    assert word in str(caught.value)
