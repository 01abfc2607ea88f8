"""What hurried users write with catalogs and manifests, and the word that tells them what to do instead."""

from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import InvalidURL, ManifestError, NotFound, UnknownScheme, Unusable

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
    (lambda _: ps.Catalog.scan("swift://bucket/train/"), UnknownScheme, "s3://"),
    (lambda m: ps.MapDataset.from_manifest(f"{m}train/"), NotFound, "no such"),
    (lambda m: ps.MapDataset.from_manifest(f"{m}empty.txt"), NotFound, "allow_empty=True"),
    (lambda m: ps.MapDataset.from_manifest(f"{m}local.txt"), ManifestError, "file:///"),
    (lambda m: ps.MapDataset.from_manifest(f"{m}header.csv"), ManifestError, "header must name one of key, url, path"),
    (lambda m: ps.MapDataset.from_manifest(f"{m}array.jsonl"), ManifestError, "line 1"),
    (lambda m: ps.Catalog.scan(m, labels="folder"), Unusable, "exclude=['"),
    (lambda m: ps.Catalog.scan(m, labels=["cat"]), Unusable, "a pattern with one group"),
    (lambda m: ps.Catalog.scan(f"{m}train/", labels=True), Unusable, "a pattern with one group"),
    (lambda m: ps.Catalog.scan(f"{m}train/", labels=r"\d+"), Unusable, "has 0 groups"),
    (lambda m: ps.MapDataset.from_prefix(m, labels=r"(\d+)\.png"), Unusable, "exclude=['array.jsonl']"),
    (lambda m: ps.Catalog.scan(m).split(1), Unusable, "split(1, 5)"),
    (lambda m: ps.Catalog.scan(m).split(1.0), Unusable, "their sum must be 1"),
    (lambda m: ps.Catalog.scan(m).split(0), Unusable, "counts are 1 or more"),
    (lambda m: ps.Catalog.scan(m).split(1.5), Unusable, "their sum must be 1"),
    (lambda m: ps.Catalog.scan(m).split(90, 10), Unusable, "make 6 together"),
    (lambda m: ps.Catalog.scan(m).split("90%"), Unusable, "a fraction (0.9) or a count (540)"),
    (lambda m: ps.Catalog.scan(m).split([0.9, 0.1]), Unusable, "a fraction (0.9) or a count (540)"),
    (lambda m: ps.Catalog.scan(m).split(0.9, by="label"), Unusable, "with_labels"),
    (lambda m: ps.Catalog.scan(m).split(1e-12), Unusable, "pass counts"),
    (lambda m: ps.Catalog.scan(m).labels, Unusable, "with_labels"),
    (lambda m: ps.Catalog.scan(m).filter(mask=[True, False]), Unusable, "one for each object"),
    (lambda m: ps.Catalog.scan(m).filter(mask=[0, 1] * 3), Unusable, "compare (sizes > 0)"),
    (lambda m: ps.Catalog.scan(m).filter(size=100), Unusable, "(least, most) in bytes"),
    (lambda m: ps.Catalog.scan(m)["train/0.png"], Unusable, "catalog[[3, 5]]"),
    (lambda m: ps.Catalog.scan(m)[["train/0.png"]], Unusable, "filter(include=…)"),
    (lambda m: ps.Catalog.scan(m)[[0, 6]], IndexError, "index 6 is outside a catalog of 6 objects"),
    (lambda m: ps.Catalog.scan(m).with_columns(weight=[1.0]), Unusable, "one for each, in order"),
    (lambda m: ps.Catalog.scan(m).with_columns(weight=[1.0] * 5 + [None]), Unusable, "fill gaps first"),
    (lambda m: ps.Catalog.scan(m) + ps.Catalog.scan("more/", labels="folder"), Unusable, "a catalog has one bucket"),
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
    Path("more/cat").mkdir(parents=True)
    Path("more/cat/1.png").write_bytes(b"bytes")
    return url


@pytest.mark.parametrize(("write", "error", "word"), MISUSES, ids=[f"{i}-{m[2]}" for i, m in enumerate(MISUSES)])
def test_invalid_catalog_call_raises_with_expected_message(place, write, error, word):
    with pytest.raises(error) as caught:
        write(place)
    assert word in str(caught.value)
