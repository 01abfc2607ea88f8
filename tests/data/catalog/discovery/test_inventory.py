"""An inventory is read as the listing that it stands for, whichever store wrote it, and is verified."""

import pytest

import penstock as ps
from penstock.errors import ChecksumMismatch, ManifestError, NotFound, Unusable
from tests.refusals import refused

KEYS = ["train/é b+c%20.jpg", "train/a/1.jpg", 'train/a/"2",\n.jpg', "train/b/🐶", "train/\uff5a", "trainer", "other"]
OBJECTS = [(key, 10 + at, f"{at:032x}") for at, key in enumerate(KEYS)]


def _read(manifest, url="memory://bucket/", **options):
    return ps.Catalog.from_inventory(manifest, url, **options)


def _wanted(prefix=""):
    found = [each for each in OBJECTS if each[0].startswith(prefix)]
    return sorted(found, key=lambda each: each[0].encode())


def _rows(catalog):
    return [(entry.key, entry.size, entry.etag) for entry in catalog]


@pytest.mark.parametrize("form", ["CSV", "Parquet"])
def test_amazons_is_the_listing_of_a_prefix(inventory, form):
    manifest = inventory.amazon([OBJECTS[3:], OBJECTS[:3], []][: 3 if form == "CSV" else 2], form)
    whole = _read(manifest)
    assert _rows(whole) == _wanted()
    assert (whole.root, whole.base) == ("memory://bucket/", "")
    part = _read(manifest, "memory://bucket/train/")
    assert (_rows(part), part.base) == (_wanted("train/"), "train/")
    assert _rows(_read(manifest, "memory://bucket/train")) == _wanted("train")
    assert len(_read(manifest, "memory://bucket/train/", include="*/*", exclude="b/*")) == 2
    assert len(_read(manifest, "memory://bucket/none/")) == 0


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("csv", {"header_required": True}),
        ("csv", {"header_required": False, "delimiter": "|"}),
        ("csv", {"delimiter": "\t", "header_required": True}),
        ("parquet", {}),
    ],
)
def test_googles_is_the_listing_of_a_prefix_with_generations(inventory, form, options):
    objects = [(key, size, str(1_700_000 + at)) for at, (key, size, _) in enumerate(OBJECTS)]
    catalog = _read(inventory.google([objects[4:], objects[:4]], form, **options))
    assert _rows(catalog) == sorted(objects, key=lambda each: each[0].encode())


@pytest.mark.parametrize("form", ["CSV", "Parquet"])
def test_older_versions_and_delete_markers_and_directory_markers_are_left_out(inventory, form):
    objects = [("a", 1, "x", "old"), ("a", 2, "y"), ("b", 0, "", "marker"), ("c/", 0, "z"), ("d", 0, "z")]
    assert _rows(_read(inventory.amazon([objects], form))) == [("a", 2, "y"), ("d", 0, "z")]


def test_inventory_digest_equals_the_digest_of_a_scan(inventory, tmp_path):
    for at in range(30):
        (tmp_path / f"{at:02}").write_bytes(bytes(at + 1))
    scanned = ps.Catalog.scan(f"{tmp_path}/")
    listed = _read(inventory.amazon([[(f"x/{at:02}", at + 1, "") for at in range(30)]]), "memory://bucket/x/")
    assert listed.digest == scanned.digest


def test_progress_counts_objects(inventory, monkeypatch):
    from penstock.data.catalog import catalog

    counted = []
    monkeypatch.setattr(catalog, "totals", lambda _: counted.append)
    _read(inventory.amazon([OBJECTS[:4], OBJECTS[4:]]))
    assert counted == [4, 7]


def test_changed_or_missing_inventory_files_raise_errors(inventory):
    manifest = inventory.amazon([OBJECTS])
    with ps.open(inventory.place + "data/0", "rb") as file:
        data = file.read()
    inventory.put("data/0", data[:-1] + bytes([data[-1] ^ 1]))
    error = refused(ChecksumMismatch, "the MD5 of", _read, manifest)
    assert error.url == inventory.place + "data/0"
    inventory.put("data/0", data[:-1])
    refused(ChecksumMismatch, "the manifest says", _read, manifest)
    ps.delete(inventory.place + "data/0")
    with pytest.raises(NotFound):
        _read(manifest)
    with ps.open(manifest, "rb") as file:
        text = file.read()
    inventory.put("manifest.json", text + b" ")
    refused(ChecksumMismatch, r"manifest\.checksum", _read, manifest)


@pytest.mark.parametrize("name", ["a_2026-01-02T00:00_0.csv", "a_2026-01-02T00:00_1.csv"])
def test_googles_file_that_was_cut_off_is_refused_wherever_it_was_cut(inventory, name):
    """Such a file has neither a size nor a checksum in the manifest, which says how many rows there are."""
    objects = [(key, size, str(at)) for at, (key, size, _) in enumerate(OBJECTS)]
    manifest = inventory.google([objects[4:], objects[:4]], header_required=True)
    assert len(_read(manifest)) == len(objects)
    with ps.open(inventory.place + name, "rb") as file:
        lines = file.read().splitlines(keepends=True)
    inventory.put(name, b"".join(lines[:-1]))
    refused(ManifestError, "a file was cut off", _read, manifest)
    inventory.put(name, b"".join(lines)[:-20])
    refused(ManifestError, r"cannot read|rows must have", _read, manifest)


def test_without_a_checksum_beside_it_the_manifest_is_read(inventory):
    manifest = inventory.amazon([OBJECTS])
    ps.delete(inventory.place + "manifest.checksum")
    assert len(_read(manifest)) == len(KEYS)


def test_another_bucket_and_orc_are_refused_by_name(inventory):
    refused(Unusable, "'bucket'", _read, inventory.amazon([OBJECTS]), "memory://buckets/")
    refused(Unusable, "Parquet or CSV", _read, inventory.amazon([], "ORC"))


def test_a_key_listed_twice_is_refused(inventory):
    refused(ManifestError, "twice", _read, inventory.amazon([OBJECTS[:2], OBJECTS[:1]]))
