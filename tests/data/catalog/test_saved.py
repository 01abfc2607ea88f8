"""A catalog comes back out of a file as it went in, and a file that is anything else is refused, whatever it says."""

import hashlib
import io
import itertools
import json
import random
import struct
import tracemalloc
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import events
from penstock.data import node_copy
from penstock.data.catalog import saved
from penstock.data.catalog.catalog import Catalog, Entry
from penstock.data.catalog.columns.table import TableBuilder
from penstock.errors import ChecksumMismatch, Damaged, InvalidURL, ManifestError, NotFound, Unusable
from tests.children import python
from tests.data.catalog.large import objects, peak_of, samples
from tests.refusals import refused

_START = struct.Struct("<16sQ32s")
ENTRIES = [
    Entry("pets/cat.jpg", 10, "cat", "e1"),
    Entry("pets/dog é 🐶.jpg", 0, {"name": ["Rex", None]}, ""),
    Entry("pets/cat.jpg", 10, 0, "e1"),
    Entry("pets/unknown", -1, None, "é3"),
    Entry("pets/", (1 << 63) - 1, "", "e"),
]
_entries = st.lists(
    st.builds(
        Entry,
        key=st.text("aé/\0\udce9", max_size=5),
        size=st.integers(-1, (1 << 63) - 1),
        label=st.none() | st.integers() | st.text(max_size=3),
        etag=st.text("ab", max_size=3),
        offset=st.just(-1),
    )
    | st.builds(
        Entry,
        key=st.text("aé/", max_size=2),
        size=st.integers(0, 1 << 62),
        label=st.none(),
        etag=st.text("a", max_size=1),
        offset=st.integers(0, (1 << 62) - 1),
    ),
    max_size=9,
)


def _url():
    return f"memory://bucket/{uuid.uuid4().hex}/train.catalog"


def _put(data):
    url = _url()
    with ps.open(url, "wb") as writer:
        writer.write(data)
    return url


def _pets():
    return Catalog.build("memory://bucket/", "pets/", ENTRIES)


def _bytes(catalog):
    url = _url()
    catalog.save(url)
    return ps.open(url).read()


def _parts(data):
    """Return the header, as a dict, and the columns of a file."""
    _, length, _ = _START.unpack_from(data)
    return json.loads(data[_START.size : _START.size + length]), data[_START.size + length :]


def _sealed(header, columns):
    """Make a file whose digests are right, whatever is in it."""
    if isinstance(header, dict):
        header = json.dumps({**header, "sha256": hashlib.sha256(columns).hexdigest()}).encode()
    return _START.pack(b"\x89penstock.cat\r\n\x1a", len(header), hashlib.sha256(header).digest()) + header + columns


def _refused(data, why=None, kind=ManifestError):
    url = _put(data)
    error = refused(kind, why, Catalog.open, url)
    assert error.url == url
    return error


class TestRoundTrip:
    @given(_entries, st.lists(st.slices(9), max_size=2))
    def test_saved_catalogs_and_slices_open_with_equal_entries_and_digest(self, entries, slices):
        catalog = Catalog.build("memory://bucket/", "", entries)
        for each in slices:
            catalog, entries = catalog[each], entries[each]
        url = _url()
        catalog.save(url)
        opened = Catalog.open(url)
        assert list(opened) == entries
        assert (opened.root, opened.base) == (catalog.root, catalog.base)
        assert opened.sizes.tolist() == catalog.sizes.tolist()
        assert opened.__dict__["digest"] == Catalog.build("memory://bucket/", "", entries).digest

    def test_place_labels_and_versions_travel(self):
        url = _url()
        _pets().save(url)
        opened = Catalog.open(url)
        assert list(opened) == ENTRIES
        assert repr(opened) == "<Catalog of 5 objects under memory://bucket/pets/>"
        assert opened.span(0).etag == "e1"

    def test_saved_slice_size_is_proportional_to_its_rows(self):
        catalog = Catalog.build("memory://bucket/", "", [Entry(f"{i:06}", i, i, "e" * 32) for i in range(70_000)])
        whole, part = len(_bytes(catalog)), _bytes(catalog[::-2])
        assert whole * 0.45 < len(part) < whole * 0.55
        assert list(Catalog.open(_put(part)))[::777] == list(catalog[::-2])[::777]
        assert len(_bytes(catalog[10:20])) < 2000

    def test_save_replaces_an_existing_catalog_file(self):
        url = _url()
        _pets().save(url)
        _pets()[:2].save(url)
        assert len(Catalog.open(url)) == 2

    def test_local_files_too(self, tmp_path):
        _pets().save(tmp_path / "train.catalog")
        assert list(Catalog.open(str(tmp_path / "train.catalog"), root="memory://bucket/pets/")) == ENTRIES

    def test_opened_catalog_is_saved_with_identical_bytes(self):
        data = _bytes(_pets())
        assert _bytes(Catalog.open(_put(data))) == data


def _vector(header, columns, *which):
    """Return one vector of a file, by its role, its name and its part."""
    found = next(each for each in header["vectors"] if (each["role"], each["name"], each["part"]) == which)
    return columns[found["offset"] : found["offset"] + found["bytes"]]


def test_saved_header_describes_the_stored_vectors():
    data = _bytes(_pets())
    header, columns = _parts(data)
    assert (len(data) - len(columns)) % 64 == 0
    assert [header[name] for name in ("format", "version", "objects", "keys")] == ["penstock catalog", 3, 5, 5]
    texts = (("bases", "<u8"), ("ends", "|u1"), ("texts", "|u1"))
    assert [(each["role"], each["part"], each["dtype"]) for each in header["vectors"]] == [
        ("size", "numbers", "<i8"),
        *((role, *part) for role in ("key", "etag", "label") for part in texts),
    ]
    assert struct.unpack("<5q", _vector(header, columns, "size", "", "numbers")) == tuple(each.size for each in ENTRIES)
    assert _vector(header, columns, "key", "", "texts").decode() == "".join(entry.key for entry in ENTRIES)
    assert _vector(header, columns, "key", "", "ends")[-1] == len(_vector(header, columns, "key", "", "texts"))
    assert _vector(header, columns, "etag", "", "texts").decode() == "".join(entry.etag for entry in ENTRIES)


def test_the_form_is_the_same_for_ever():
    # A catalog of last year must open: another form is another version.
    pets = Catalog.build("s3://bucket/", "pets/", ENTRIES)
    assert (
        hashlib.sha256(_bytes(pets)).hexdigest() == "85142077888c1fa468ff1bd74f334f9e015e0cfdbfcb0eba28c201b30ee4d98b"
    )


def _wide():
    entries = [Entry("pets/a.tar", number, None, "e", 10 * number) for number in range(5)]
    catalog = Catalog.build("memory://bucket/", "pets/", [*entries, Entry("pets/b", 7)])
    return catalog.with_labels([*"xyxyxy"]).with_columns(weight=[0.5] * 6, split=[*"aabbab"])


def _summed():
    sums = ["0123456789abcdef" * 2, "89abcdef01234567" * 2 + "-3", "another", "f" * 32]
    return Catalog.build("memory://bucket/", "", [Entry("k" * n, n, None, etag) for n, etag in enumerate(sums)])


def test_saved_header_describes_ranges_classes_and_columns():
    header, columns = _parts(_bytes(_wide()))
    assert [header[name] for name in ("version", "objects", "keys")] == [3, 6, 2]
    found = [(each["role"], each["name"], each["part"], each["dtype"]) for each in header["vectors"]]
    assert [each for each in found if each[0] not in ("size", "key", "etag")] == [
        ("object", "", "numbers", "|u1"),
        ("offset", "", "numbers", "|i1"),
        *(("class", "", *part) for part in (("numbers", "|u1"), ("ends", "<u8"), ("texts", "|u1"))),
        ("column", "weight", "numbers", "<f8"),
        *(("column", "split", *part) for part in (("numbers", "|u1"), ("ends", "<u8"), ("texts", "|u1"))),
    ]
    for each in header["vectors"]:
        assert each["offset"] % 64 == 0
    assert header["vectors"][-1]["offset"] + header["vectors"][-1]["bytes"] == len(columns)


FILES = {
    "ranges": lambda: _bytes(_wide()),
    "sums": lambda: _bytes(_summed()),
}


@pytest.mark.parametrize("name", FILES)
class TestVectors:
    def test_any_bit_that_flips_is_noticed(self, name, seed):
        whole, draw = bytearray(FILES[name]()), random.Random(seed)
        for _ in range(100):
            at, bit = draw.randrange(len(whole)), 1 << draw.randrange(8)
            whole[at] ^= bit
            _refused(bytes(whole), kind=Damaged)
            whole[at] ^= bit

    @pytest.mark.parametrize(
        "change",
        [
            *({name: value} for name in ("offset", "bytes") for value in (-1, 1 << 62, 7, None, "8", 1.5, True)),
            *({"dtype": value} for value in ("O", "|b1", "<u2", "<u8", "<f4", "|S1", None, [])),
            *({"part": value} for value in ("numbers", "texts", "ends", "bases", "lower", "upper", "other", None, [])),
            *({"role": value} for value in ("size", "key", "etag", "label", "class", "offset", "other", None, {})),
            {"name": "x"},
            {"name": None},
            {"more": 1},
        ],
        ids=str,
    )
    def test_a_vector_that_lies_is_refused_and_believed_in_nothing(self, name, change, monkeypatch):
        whole = FILES[name]()
        header, columns = _parts(whole)
        asked = []
        region = node_copy.Region
        monkeypatch.setattr(node_copy, "Region", lambda size: asked.append(size) or region(size))
        for number, each in enumerate(header["vectors"]):
            vector = {**each, **change}
            if vector == each or (each["role"] == "column" and change.keys() <= {"dtype", "name"}):
                continue  # another column may be what is meant
            if change.get("part") in ("lower", "upper") and each["part"] in ("lower", "upper"):
                continue  # another ETag, and as good
            vectors = [vector if at == number else other for at, other in enumerate(header["vectors"])]
            _refused(_sealed({**header, "vectors": vectors}, columns))
            assert all(size <= len(whole) + 1000 for size in asked)

    def test_vectors_that_are_missing_are_refused(self, name):
        header, columns = _parts(FILES[name]())
        for drop in range(len(header["vectors"])):
            vectors = header["vectors"][:drop]
            stop = vectors[-1]["offset"] + vectors[-1]["bytes"] if vectors else 0
            left_out = name == "sums" and drop in (4, 5)  # ETags, or what follows them, may be
            if not left_out and not any(each["role"] == "column" for each in header["vectors"][drop - 1 :]):
                _refused(_sealed({**header, "vectors": vectors}, columns[:stop]))

    @pytest.mark.parametrize("field", ["objects", "keys"])
    @pytest.mark.parametrize("value", [-2, -1, 0, 1, 5, 1 << 60, "2", None, 2.0, True, [2]])
    def test_another_number_of_objects_or_keys_is_refused(self, name, field, value):
        header, columns = _parts(FILES[name]())
        assert (type(header[field]), header[field]) != (type(value), value)
        _refused(_sealed({**header, field: value}, columns))


@pytest.mark.parametrize(
    ("role", "part", "at", "value"),
    [
        ("object", "numbers", 0, b"\x02"),
        ("offset", "numbers", 1, b"\xfe"),
        ("class", "numbers", 0, b"\x02"),
        ("class", "ends", 0, b"\x01"),
        ("size", "numbers", 0, b"\xfe"),
        ("key", "texts", 0, b"x"),
    ],
)
def test_values_that_contradict_the_table_are_refused(role, part, at, value):
    header, columns = _parts(_bytes(_wide()))
    start = next(each["offset"] for each in header["vectors"] if (each["role"], each["part"]) == (role, part)) + at
    _refused(_sealed(header, columns[:start] + value + columns[start + 1 :]))


def test_many_ranges_of_one_long_key_are_refused_before_their_names_are_joined():
    """A file of 160 kB made 6.7 GiB of them, in three minutes."""
    header, columns = _parts(_bytes(Catalog.build("memory://bucket/", "", [Entry("k", 5, None, "", 0)] * 5000)))
    at = next(each for each in header["vectors"] if (each["role"], each["part"]) == ("key", "texts"))
    long = b"k" * 30_016
    columns = columns[: at["offset"]] + long + columns[at["offset"] + 64 :]
    at["bytes"] = len(long)
    for before, each in itertools.pairwise(header["vectors"]):
        each["offset"] = -(-(before["offset"] + before["bytes"]) // 64) * 64
    _refused(_sealed(header, columns), "key is too long")


def test_excessive_key_count_without_key_bytes_is_refused():
    header, columns = _parts(_bytes(Catalog.build("memory://bucket/", "", [Entry("k", 5, None, "", 0)] * 9)))
    vectors, kept = [], b""
    for each in header["vectors"]:
        if each["role"] not in ("key", "etag", "label"):
            kept += bytes(-len(kept) % 64)
            vectors.append({**each, "offset": len(kept)})
            kept += columns[each["offset"] : each["offset"] + each["bytes"]]
    _refused(_sealed({**header, "keys": 1 << 60, "vectors": vectors}, kept), "keys for 9 objects")


def test_a_small_catalog_costs_a_head_and_a_get():
    url, seen = _url(), []
    _pets().save(url)
    stop = events.subscribe(seen.append)
    Catalog.open(url)
    stop()
    assert len([each for each in seen if isinstance(each, events.RangeRead)]) == 1


def test_keys_are_read_into_the_memory_they_stay_in(tmp_path):
    keys = (hashlib.sha256(b"%d" % i).hexdigest() for i in range(300_000))
    catalog = Catalog.build("memory://bucket/", "", (Entry(key, 1) for key in keys))
    url = tmp_path / "large.catalog"
    catalog.save(url)
    tracemalloc.start()
    try:
        opened = Catalog.open(url, root="memory://bucket/")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(opened) == 300_000
    assert opened._table.keys.parts["texts"].values.nbytes > 18 << 20
    assert peak < 10 << 20


@pytest.mark.parametrize(
    ("make", "small"),
    [
        pytest.param(samples, 60_000, id="samples in shards"),
        pytest.param(lambda count: samples(count, "parquet"), 60_000, id="samples in row groups"),
        pytest.param(objects, 20_000, id="objects"),
        pytest.param(lambda count: objects(count, mixed=True), 20_000, id="objects with keys of any length"),
        pytest.param(lambda count: objects(count).with_columns(place=range(count)), 20_000, id="a column"),
        pytest.param(lambda count: _pairs(count, 1), 20_000, id="samples of two objects"),
        pytest.param(lambda count: _pairs(count, 3), 20_000, id="samples without some objects"),
    ],
)
def test_opening_needs_little_memory_beyond_what_is_kept(make, small):
    peaks, kept = list[int](), list[int]()
    for count in (small, 4 * small):
        file = io.BytesIO()
        saved.save(file, make(count)._saved())
        file.size = len(file.getvalue())
        file.seek(0)
        opened, peak = peak_of(lambda file=file: saved.load(file))
        assert opened.table.rows == count
        peaks.append(peak)
        kept.append(file.size)
    assert peaks[1] - peaks[0] < 0.3 * (kept[1] - kept[0]), (peaks, kept)


def _pairs(count, step):
    """Return samples of two objects, of which the second is in each sample whose number is a multiple of ``step``."""
    second = objects(count, ".json")[::step]
    return Catalog.join({"jpg": objects(count), "json": second}, missing="none")


class TestElsewhere:
    def test_a_copy_elsewhere_has_the_same_digest(self):
        url = _url()
        _pets()[:4].save(url)
        moved = Catalog.open(url, root="memory://copy/a/b")
        assert [entry.key for entry in moved] == ["a/b/" + entry.key.removeprefix("pets/") for entry in ENTRIES[:4]]
        assert (moved.root, moved.base) == ("memory://copy/", "a/b/")
        assert [entry.label for entry in moved] == [entry.label for entry in ENTRIES[:4]]
        assert moved.digest == Catalog.open(url).digest

    def test_versions_are_not_those_of_a_copy(self):
        url = _url()
        _pets().save(url)
        assert {entry.etag for entry in Catalog.open(url, root="memory://copy/")} == {""}


class TestDamage:
    @given(st.data())
    def test_any_bit_that_flips_is_noticed(self, data):
        whole = bytearray(_bytes(_pets()))
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        _refused(bytes(whole), kind=Damaged)

    @given(st.data())
    def test_any_end_that_is_missing_is_noticed(self, data):
        whole = _bytes(_pets())
        _refused(whole[: data.draw(st.integers(0, len(whole) - 1))])

    def test_catalog_file_with_trailing_bytes_is_refused(self):
        _refused(_bytes(_pets()) + b"\0", "were written")

    @given(st.binary(max_size=100))
    def test_arbitrary_bytes_are_refused_as_a_catalog(self, data):
        _refused(data)
        _refused(b"\x89penstock.cat\r\n\x1a" + data)

    def test_columns_of_another_catalog_are_noticed(self):
        one, other = _bytes(_pets()), _bytes(_pets()[::-1])
        _refused(one[:-200] + other[-200:], kind=ChecksumMismatch)

    def test_manifest_text_is_refused_as_not_a_catalog(self):
        assert "not a catalog" in str(_refused(b"train/0/0000.png zero\n"))

    @pytest.mark.parametrize(
        ("version", "advice"),
        [(4, "newer"), (1, "list the objects again"), (2, "list the objects again"), (3.0, ""), (None, "")],
    )
    def test_unsupported_catalog_version_is_reported_by_number(self, version, advice):
        header, columns = _parts(_bytes(_pets()))
        _refused(_sealed({**header, "version": version}, columns), f"version {version}, only version 3.*{advice}")


def _hostile():
    """Yield files whose digests are right and that lie otherwise, by name."""
    header, columns = _parts(_bytes(_pets()))
    table = header["vectors"]

    def vector(number, **changes):
        return [{**each, **changes} if at == number else each for at, each in enumerate(table)]

    yield "no objects", {**header, "objects": 0}, columns
    yield "many objects", {**header, "objects": 1 << 60}, columns
    yield "negative objects", {**header, "objects": -1}, columns
    yield "half an object", {**header, "objects": 5.0}, columns
    yield "true objects", {**header, "objects": True}, columns
    yield "objects in words", {**header, "objects": "5"}, columns
    for number in range(len(table)):
        for change in ({"offset": 1 << 62}, {"offset": -8}, {"bytes": 1 << 62}, {"bytes": -1}, {"dtype": "O"}):
            yield f"vector {number}, {change}", {**header, "vectors": vector(number, **change)}, columns
    yield "fewer objects than none", {**header, "objects": -1, "keys": -1, "vectors": []}, b""
    yield "fewer vectors", {**header, "vectors": table[:-1]}, columns
    yield "no vectors", {**header, "vectors": []}, columns
    yield "null vectors", {**header, "vectors": None}, columns
    yield "vectors of nothing", {**header, "vectors": [None]}, columns
    yield "vectors in another order", {**header, "vectors": table[::-1]}, columns
    yield "no root", {**header, "root": None}, columns
    yield "a base of numbers", {**header, "base": 7}, columns
    yield "no digest", {key: value for key, value in header.items() if key != "digest"}, columns
    yield "more bytes", header, columns + b"\0" * 8
    yield "no bytes", header, b""
    sizes, bases, ends, _ = (each["offset"] for each in table[:4])
    for name, at, word in (
        ("sizes below -1", sizes, struct.pack("<q", -2)),
        ("keys that begin late", ends, b"\x01"),
        ("keys that end early", ends + len(ENTRIES), b"\x03"),
        ("keys that run backwards", ends + 2, b"\x01"),
        ("keys that end beyond", ends + len(ENTRIES), b"\xff"),
        ("keys of a negative length", ends + 1, b"\xff"),
        ("keys in a block that begins late", bases, struct.pack("<Q", 1)),
        ("keys in a block that begins beyond", bases, struct.pack("<Q", 1 << 40)),
    ):
        yield name, header, columns[:at] + word + columns[at + len(word) :]
    for name, text in (
        ("a list", b"[]"),
        ("a number", b"1" * 10_000),
        ("deep", b"[" * 100_000),
        ("not text", b"\xff"),
        ("empty", b""),
        ("version only", b'{"version": 3}'),
    ):
        yield f"a header that is {name}", text, columns


@pytest.mark.parametrize(("header", "columns"), [pytest.param(*each, id=name) for name, *each in _hostile()])
def test_a_file_that_lies_is_refused_and_believed_in_nothing(header, columns, monkeypatch):
    data = _sealed(header, columns)
    asked = []
    region = node_copy.Region
    monkeypatch.setattr(node_copy, "Region", lambda size: asked.append(size) or region(size))
    _refused(data)
    assert all(size <= len(data) for size in asked)


def test_a_header_longer_than_any_is_not_read():
    start = _START.pack(b"\x89penstock.cat\r\n\x1a", 2 << 20, b"\0" * 32)
    _refused(start + b" " * (3 << 20), "header of 2097152 bytes")


def test_a_label_that_is_not_json_is_refused_where_it_is_read():
    header, columns = _parts(_bytes(_pets()))
    opened = Catalog.open(_put(_sealed(header, columns.replace(b'"cat"', b'"cat\x00'))))
    assert opened[1] == ENTRIES[1]
    for read in (lambda: opened.label(0), lambda: opened[:2].filter(labels="cat")):
        refused(ManifestError, r"pets/cat\.jpg", read)


class TestPlaces:
    def test_no_file_and_no_key(self):
        with pytest.raises(NotFound):
            Catalog.open("memory://nothing/x.catalog")
        with pytest.raises(InvalidURL):
            Catalog.open("memory://nothing/")
        with pytest.raises(InvalidURL):
            _pets().save("memory://nothing/")

    def test_a_store(self, bucket):
        for key in ("a", "b/c", "b/é 🐶"):
            bucket.client.put_object(Bucket=bucket.name, Key=f"train/{key}", Body=key.encode())
        catalog = ps.Catalog.scan(f"{bucket.url}train/", exclude="a", store=bucket.store)
        catalog.save(f"{bucket.url}lists/train.catalog", store=bucket.store)
        bucket.client.put_object(Bucket=bucket.name, Key="train/later", Body=b"")
        opened = ps.Catalog.open(f"{bucket.url}lists/train.catalog", store=bucket.store)
        assert list(opened) == list(catalog)
        assert [entry.key for entry in opened] == ["train/b/c", "train/b/é 🐶"]
        assert opened.digest == catalog.digest
        assert opened[0].etag

    def test_a_large_catalog_in_a_store(self, bucket):
        catalog = Catalog.build(bucket.url, "", (Entry(f"{i:090}", i, None, f"{i:032}") for i in range(150_000)))
        catalog.save(f"{bucket.url}large", store=bucket.store)
        opened = ps.Catalog.open(f"{bucket.url}large", store=bucket.store)
        assert list(opened) == list(catalog)


class TestScan:
    def test_scan_applies_include_and_exclude_patterns(self, tmp_path):
        for name in ("a/1.jpg", "a/2.txt", "b/3.jpg"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(name)
        catalog = ps.Catalog.scan(f"{tmp_path}/", include="**/*.jpg", exclude=["b/*"])
        assert [entry.key.rpartition("/")[2] for entry in catalog] == ["1.jpg"]
        assert catalog.digest == ps.Catalog.scan(f"{tmp_path}/", include="a/*.jpg").digest

    def test_empty_listing_raises_unless_allow_empty_is_set(self, tmp_path):
        error = refused(NotFound, "allow_empty", ps.Catalog.scan, f"{tmp_path}/none/")
        assert error.url.endswith("/none/")
        empty = ps.Catalog.scan(f"{tmp_path}/none/", allow_empty=True)
        empty.save(tmp_path / "empty.catalog")
        assert list(ps.Catalog.open(tmp_path / "empty.catalog")) == []


def test_a_writer_that_dies_leaves_the_catalog_that_was_there(tmp_path):
    _pets().save(tmp_path / "train.catalog")
    script = """
        import os, sys
        from penstock.data.catalog.catalog import Catalog, Entry
        from penstock.engine.write.upload import Writer
        write = Writer.write
        Writer.write = lambda *some: (write(*some), os._exit(9)) if len(some[1]) > 1 << 20 else write(*some)
        Catalog.build("memory://bucket/", "", (Entry(os.urandom(50).hex(), i) for i in range(99_999))).save(sys.argv[1])
    """
    assert python(script, str(tmp_path / "train.catalog")).returncode == 9
    assert list(Catalog.open(tmp_path / "train.catalog", root="memory://bucket/pets/")) == ENTRIES


def test_a_header_that_loading_would_refuse_is_not_written():
    file = io.BytesIO()
    table = TableBuilder().freeze()
    with pytest.raises(Unusable, match="limited to 1048576 bytes"):
        saved.save(file, saved.Saved("s3://bucket/", "b" * (1 << 20), "", table))
    assert file.getvalue() == b""
