"""Catalogs and manifests of strangers: each is read as it says, or refused with ``Damaged``, its URL and its line."""

import json
import random
import uuid

import pytest

import penstock as ps
from penstock.data.catalog.catalog import Catalog, Entry
from penstock.data.catalog.discovery.manifest import read_manifest
from penstock.errors import Damaged, ManifestError
from penstock.stores.urls import parse
from tests.data.catalog.test_saved import _bytes, _parts, _put, _sealed
from tests.refusals import refused

BUCKET = parse("s3://bucket/")
GOOD = '{"key": "fine"}\n'

LINES = {  # in a .jsonl, as its second line -> a word of what is said
    '{"key": "\\ud800"}': "surrogates",
    '{"key": "a", "etag": "\\ud800"}': "surrogates",
    '{"key": "a\\u0000b"}': "NUL",
    '{"key": "a", "key": "b"}': "occurs twice",
    '{"key": "a", "label": {"x": 1, "x": 2}}': "occurs twice",
    '{"key": "a", "size": 9223372036854775808}': "whole number",
    '{"key": "a", "size": -1}': "whole number",
    '{"key": "a", "size": NaN}': "whole number",
    '{"key": "a", "size": 1e400}': "whole number",
    '{"key": "a", "size": false}': "whole number",
    '{"key": "a", "size": "٣.5"}': "whole number",
    '{"key": "a", "size": ' + "9" * 5000 + "}": "not JSON",
    '{"key": "a", "size": "' + "9" * 5000 + '"}': "digits",
    '{"key": ["a"]}': "a key must be a string",
    '{"key": ' + "[" * 900 + "]" * 900 + "}": "a key must be a string",
    '{"key": ' + "[" * 100_000 + "}": "not JSON",
    '{"key": "' + "k" * 1025 + '"}': "1024 bytes",
    '{"key": "s3://other/a"}': "is not in",
    '{"key": "file:///etc/passwd"}': "is not in",
    '{"key": "s3://bucket/"}': "names no object",
    '{"key": "a"': "not JSON",
    "\ufeff" + GOOD.strip(): "not JSON",
}
FILES = {  # name -> bytes, a word
    "utf-16.jsonl": (GOOD.encode("utf-16"), "not UTF-8"),
    "utf-16-le.txt": ("a\nb\n".encode("utf-16-le"), "NUL"),
    "utf-32.csv": ("key\na\n".encode("utf-32"), "not UTF-8"),
    "latin.txt": (b"caf\xe9\n", "line 1: not UTF-8"),
    "cesu.txt": (b"\xed\xa0\x80\n", "line 1: not UTF-8"),
    "nul.txt": (b"a\0b\n", "line 1: 'a\\\\x00b' contains a NUL"),
    "nul.csv": (b"key,label\na\0b,c\n", "line 2: 'a\\\\x00b' contains a NUL"),
    "quote.csv": (b'key,label\n"a,b\nc,d\n', "unexpected end of data"),
    "stray.csv": (b'key,label\n"a"b,c\n', "line 2"),
    "field.csv": (b"key,label\na," + b"x" * 200_000 + b"\n", "line 2: field larger"),
    "columns.csv": (b"key,label\n" + b"," * 10_000 + b"x\n", "line 2: 10001 cells"),
    "header.csv": (b"x" * 100_000 + b"\n", "the header must name"),
    "key.txt": (b"k" * (1 << 20), "1024 bytes"),
}


def _read(data, name, base=BUCKET):
    return list(read_manifest(data, name, base))


@pytest.mark.parametrize("line", [pytest.param(line, id=f"{i}: {line[:40]}") for i, line in enumerate(LINES)])
def test_a_line_is_refused_by_its_number(line):
    with pytest.raises(ManifestError, match=LINES[line]) as caught:
        _read(f"{GOOD}{line}\n".encode("utf-8", "surrogatepass"), "s3://bucket/m.jsonl")
    assert "s3://bucket/m.jsonl, line 2" in str(caught.value)
    assert caught.value.url == "s3://bucket/m.jsonl"
    assert len(str(caught.value)) < 1000, "what a stranger wrote is not quoted whole"


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_refused(name):
    data, why = FILES[name]
    error = refused(ManifestError, why, _read, data, name)
    assert error.url == name
    assert len(str(error)) < 1000


def test_unusual_but_valid_keys_are_read_unchanged():
    lines = ['{"key": "+AGEA-", "label": NaN}', '{"key": "../x"}', '{"key": "a\\u001b[31m"}', '{"key": "/etc/passwd"}']
    found = _read("\n".join(lines).encode(), "m.jsonl")
    assert [entry.key for entry in found] == ["+AGEA-", "../x", "a\x1b[31m", "/etc/passwd"]


class TestWhereLocalFilesAreNamed:
    @pytest.mark.parametrize(
        "key", ["file:///etc/passwd", "FILE:///etc/passwd", "/etc/passwd", "../x", "a/../../x", "..", "file:///data/x"]
    )
    @pytest.mark.parametrize("home", ["s3://bucket/m.jsonl", "memory://bucket/m.jsonl"])
    def test_a_manifest_in_a_bucket_names_none_outside_of_base(self, key, home):
        with pytest.raises(ManifestError, match=r"line 1: .*only below base="):
            _read(json.dumps({"key": key}).encode(), home, parse("/data/"))

    def test_relative_keys_resolve_below_the_local_base_directory(self):
        assert _read(b"a/b\n..c\n", "s3://bucket/m.txt", parse("/data"))[0].key == "data/a/b"

    def test_a_local_one_names_any(self):
        text = b"x\n../y\n/abs/z\nfile:///abs/w\n"
        keys = [entry.key for entry in _read(text, "file:///data/m.txt", parse("/data/"))]
        assert keys == ["data/x", "data/../y", "abs/z", "abs/w"]

    def test_the_constructors_hold_to_it(self, tmp_path):
        (tmp_path / "file").write_bytes(b"bytes")
        root = f"memory://{uuid.uuid4().hex}/"
        with ps.open(f"{root}m.txt", "wb") as file:
            file.write(f"file://{tmp_path}/file\n".encode())
        for base in (None, tmp_path):
            refused(ManifestError, "line 1", ps.MapDataset.from_manifest, f"{root}m.txt", base=base)
        assert ps.MapDataset.from_manifest(f"{root}m.txt", parser=lambda _: ["file"], base=tmp_path)[0].data == b"bytes"


@pytest.mark.parametrize("items", [None, 5, [None], [("a",)], [b"a"], [("a", "b", "c")], ["\ud800"], [""], [("", 1)]])
def test_a_parser_that_gives_something_else(items):
    refused(ManifestError, r"m\.psv", list, read_manifest(b"", "m.psv", BUCKET, lambda _: items))


class TestCatalogs:
    @pytest.fixture
    def saved(self):
        return _bytes(Catalog.build("memory://bucket/", "pets/", [Entry(f"pets/{i}", i, i, "e") for i in range(50)]))

    def test_each_flip_is_noticed(self, saved, seed):
        draw = random.Random(seed)
        for _ in range(400):
            damaged = bytearray(saved)
            damaged[draw.randrange(len(saved))] ^= 1 << draw.randrange(8)
            url = _put(bytes(damaged))
            with pytest.raises(Damaged) as caught:
                Catalog.open(url)
            assert caught.value.url == url

    @pytest.mark.parametrize(
        ("changes", "why"),
        [
            ({"digest": "0" * 64}, "catalog digest does not match"),
            ({"digest": ""}, "catalog digest does not match"),
            ({"base": "pets/1"}, "is not below"),
            ({"base": "x" * 100_000}, "is not below"),
            ({"base": "\ud800"}, "surrogates"),
            ({"base": ""}, "catalog digest does not match"),
            ({"root": ""}, "empty URL"),
            ({"root": "memory://"}, "no bucket"),
            ({"root": "memory://bucket/pets/"}, "must be a bucket"),
            ({"root": "/"}, "must be a bucket"),
            ({"root": "ftp://bucket/"}, "unknown scheme"),
            ({"root": "memory://user:password@bucket/"}, "credentials"),
        ],
    )
    def test_catalog_header_contradicting_its_content_raises_on_open(self, saved, changes, why):
        header, columns = _parts(saved)
        url = _put(_sealed({**header, **changes}, columns))
        error = refused(ManifestError, why, Catalog.open, url)
        assert error.url == url

    @pytest.mark.parametrize("root", ["file:///", "s3://bucket/", "memory://other/"])
    def test_objects_elsewhere_need_root(self, root):
        catalog = Catalog.build(root, "etc/", [Entry("etc/passwd", 5, None, "e")])
        url = _put(_bytes(catalog))
        error = refused(ManifestError, f"pass root='{root}etc/'", Catalog.open, url)
        assert error.url == url
        refused(ManifestError, "root=", ps.MapDataset.from_catalog, url)
        for said in (f"{root}etc/", f"{root}etc"):
            assert list(Catalog.open(url, root=said)) == list(catalog), "versions stay where they were listed"

    def test_a_local_copy_is_not_left(self, tmp_path):
        for name in ("../x", "a/../../x", ".."):
            url = _put(_bytes(Catalog.build("memory://b/", "p/", [Entry(f"p/{name}", 1)])))
            error = refused(ManifestError, "is outside of its directory", Catalog.open, url, root=tmp_path)
            assert error.url == url
        assert Catalog.open(url, root="memory://c/")[0].key == ".."

    def test_sizes_add_up_beyond_63_bits(self):
        catalog = Catalog.build("memory://b/", "", [Entry("a", (1 << 63) - 1)] * 5 + [Entry("b", 7)])
        assert catalog.total_bytes == 5 * ((1 << 63) - 1) + 7
