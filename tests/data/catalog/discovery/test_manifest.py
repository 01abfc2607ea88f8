"""A manifest is read in whatever form it has, and what cannot be understood is said by line."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.catalog.discovery.manifest import read_manifest, resolve_key
from penstock.data.catalog.rows import Entry
from penstock.errors import ManifestError
from penstock.stores.urls import Location, parse
from tests.refusals import refused

BUCKET = parse("s3://bucket/")


def _read(text, name="manifest", parser=None):
    return list(read_manifest(text if isinstance(text, bytes) else text.encode(), name, BUCKET, parser))


def _is_relative(key):
    """Say whether a line with this key is no URL (soak drew ``A://``)."""
    return re.match("[A-Za-z][A-Za-z0-9+.-]*://", key) is None


class TestLines:
    def test_a_key_and_perhaps_a_label(self):
        assert _read("a/1.jpg\nb.jpg cat\nc.jpg \t big  dog \n") == [
            Entry("a/1.jpg"),
            Entry("b.jpg", label="cat"),
            Entry("c.jpg", label="big  dog"),
        ]

    @pytest.mark.parametrize("text", ["a\nb", "a\nb\n", "a\r\nb\r\n", "\n\na\n \t\nb\n\n", "\ufeffa\nb"])
    def test_ends_of_lines_blanks_and_a_byte_order_mark_change_nothing(self, text):
        assert _read(text) == [Entry("a"), Entry("b")]

    @pytest.mark.parametrize(
        "key", ["#no-comment", "a,b", "a\u2028b", "a\x0cb", "a\x85b", "caf\u00e9", "..", "//x", '"q"', "a\rb"]
    )
    def test_keys_are_taken_literally(self, key):
        assert _read(f"{key} label\n{key}") == [Entry(key, label="label"), Entry(key)]

    def test_blank_manifest_text_has_no_entries(self):
        assert _read("") == _read("\ufeff") == _read("\r\n \n") == []

    def test_repeats_stay(self):
        assert _read("a\na\n") == [Entry("a"), Entry("a")]

    @pytest.mark.parametrize(("name", "data"), [("list.txt", b"fine\ncaf\xe9\n"), ("m.csv", b"key\n\xff\n")])
    def test_text_that_is_not_utf8_raises_with_its_line_number(self, name, data):
        refused(ManifestError, rf"{name}, line 2: not UTF-8", _read, data, name)

    def test_txt_manifest_with_json_or_csv_text_is_read_as_keys(self):
        assert _read("{key}\nkey,label\n", "list.TXT") == [Entry("{key}"), Entry("key,label")]

    @given(
        st.lists(
            st.tuples(
                st.text(st.characters(exclude_characters=" \t\n\r\0", codec="utf-8"), min_size=1).filter(_is_relative),
                st.none() | st.just("x y"),
            )
        )
    )
    def test_any_key_without_spaces_survives(self, pairs):
        text = "".join(f"{key} {label}\n" if label else f"{key}\n" for key, label in pairs)
        if not text.startswith("\ufeff"):
            assert _read(text, "x.txt") == [Entry(key, label=label) for key, label in pairs]


class TestCsv:
    def test_columns_in_any_order_empty_cells_are_absent(self):
        text = 'size,key,label,etag\r\n5,a b.jpg,cat,"""e1"""\r\n,"c,d.jpg",,\r\n'
        assert _read(text, "m.csv") == [Entry("a b.jpg", 5, "cat", "e1"), Entry("c,d.jpg")]

    def test_without_a_label_column_the_rest_is_the_label(self):
        assert _read("url,split,Score\na,train,\n", "m.csv") == [Entry("a", label={"split": "train", "Score": None})]
        assert _read("path,label,split\na,7,train\n", "m.csv") == [Entry("a", label="7")]
        assert _read("path\na\n", "m.csv") == [Entry("a")]

    @pytest.mark.parametrize("name", ["m.tsv", "manifest"])
    def test_tabs_separate_the_cells_of_a_tsv(self, name):
        text = 'key\tlabel\tsize\na, b.jpg\t3\t5\n"c\td"\t\t\n'
        assert _read(text, name) == [Entry("a, b.jpg", 5, "3"), Entry("c\td")]
        refused(ManifestError, "line 1: the header must name one of", _read, "a.jpg\t3\n", "m.tsv")

    def test_cells_may_hold_line_ends(self):
        assert _read('key,label\n"a\nb",x\n', "m.csv") == [Entry("a\nb", label="x")]

    def test_csv_manifest_is_recognized_by_its_header(self):
        assert _read("\ufeffkey,label\na,b\n") == [Entry("a", label="b")]

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("name,label\na,b\n", "line 1: the header must name one of"),
            ("key,url\na,b\n", "line 1: the header must name one of"),
            ("key,size,size\na,1,1\n", "line 1: a column occurs twice"),
            ("key,label\n\na,b,c\n", "line 3: 3 cells for 2 columns"),
            ("key,size\na,1\nb,big\n", "line 3: a size must be a whole number"),
            ("key,size\na,-1\n", "line 2: a size must be a whole number"),
            ("key,size\na,9223372036854775808\n", "line 2: a size must be a whole number"),
            ("key,label\n,b\n", "line 2: needs one of key, url, path; it has none"),
            ('key\n"a\n', "line 2: unexpected end of data"),
            (f"key,label\n{'x' * 200_000},y\n", "line 2: field larger than field limit"),
        ],
    )
    def test_malformed_row_raises_manifest_error_with_its_line_number(self, text, why):
        refused(ManifestError, f"m.csv, {why}", _read, text, "m.csv")

    def test_good_lines_come_before_the_bad_one(self):
        entries = read_manifest(b"key,size\na,1\nb,x\n", "m.csv", BUCKET)
        assert next(entries) == Entry("a", 1)
        refused(ManifestError, "line 3", next, entries)


class TestJsonLines:
    def test_objects_with_the_same_names(self):
        text = '{"key": "a b", "size": 5, "label": [1, null], "etag": "e"}\n\n'
        text += '{"url": "s3://bucket/c", "size": null, "w": 1}\n'
        for name in ("m.jsonl", "m.ndjson", "s3://bucket/m"):
            assert _read(text, name) == [Entry("a b", 5, [1, None], "e"), Entry("c", label={"w": 1})]

    @pytest.mark.parametrize(
        ("line", "why"),
        [
            ("[1]", "expected a JSON object"),
            ('{"key"', "not JSON"),
            ("[" * 100_000, "not JSON"),
            ('{"key": 5}', "a key must be a string"),
            ('{"key": ""}', "a key must be a string"),
            ('{"key": "\\ud800"}', "surrogates"),
            ('{"label": 5}', "needs one of"),
            ('{"key": "a", "path": "b"}', "needs one of key, url, path; it has key, path"),
            ('{"key": "a", "size": 1.5}', "a size must be"),
            ('{"key": "a", "size": true}', "a size must be"),
            ('{"key": "a", "etag": 1}', "an etag must be"),
        ],
    )
    def test_malformed_line_raises_manifest_error_with_its_line_number(self, line, why):
        error = refused(ManifestError, f"m.jsonl, line 2: .*{why}", _read, f'{{"key": "fine"}}\n{line}\n', "m.jsonl")
        assert error.url == "m.jsonl"


class TestOwnParser:
    def test_custom_parser_yields_keys_or_key_label_pairs(self):
        """The parser of Alibaba's OSS connector, as its manual prints it."""

        def manifest_parser(reader):
            lines = reader.read().decode("utf-8").strip().split("\n")
            for line in lines:
                items = line.strip().split(" ")
                if len(items) >= 2:
                    yield (items[0], items[1])
                else:
                    yield (items[0], "")

        assert _read("a.png label1\nb.png\n", "m.csv", manifest_parser) == [
            Entry("a.png", label="label1"),
            Entry("b.png", label=""),
        ]

    def test_bare_keys_will_do(self):
        assert _read("a;b", parser=lambda reader: reader.read().decode().split(";")) == [Entry("a"), Entry("b")]

    @pytest.mark.parametrize("item", [5, ("a", "b", "c"), None, ["a", "b"], (1, "label"), ""])
    def test_invalid_parser_item_raises_with_its_item_number(self, item):
        refused(ManifestError, "manifest, item 2: ", _read, "", parser=lambda _: ["fine", item])

    def test_its_own_errors_pass(self):
        with pytest.raises(ZeroDivisionError):
            _read("", parser=lambda _: (1 / 0 for _ in "x"))


class TestResolving:
    @pytest.mark.parametrize(
        ("text", "folder", "key"),
        [
            ("a.jpg", "train/", "train/a.jpg"),
            ("a.jpg", "train", "train/a.jpg"),
            ("a.jpg", "", "a.jpg"),
            ("/a.jpg", "train/", "train//a.jpg"),
            ("../../a.jpg", "train/", "train/../../a.jpg"),
            ("a:b", "", "a:b"),
            ("a//b?c#d%20", "t/", "t/a//b?c#d%20"),
            ("s3://bucket/x/../y?z%20#f", "train/", "x/../y?z%20#f"),
            ("S3://bucket//x", "train/", "/x"),
        ],
    )
    def test_names_are_joined_and_never_changed(self, text, folder, key):
        assert resolve_key(text, Location("s3", "bucket", folder)) == key

    @pytest.mark.parametrize(
        "text",
        [
            "s3://other/a",
            "gs://bucket/a",
            "file:///etc/passwd",
            "s3://bucket",
            "s3://bucket/",
            "s3://Bucket/a",
            "s3:///a",
            "http://u:p@h/x",
        ],
    )
    def test_urls_naming_no_object_in_the_bucket_are_refused(self, text):
        with pytest.raises(ManifestError):
            resolve_key(text, Location("s3", "bucket", "train/"))

    def test_local_files_have_no_bucket(self):
        assert resolve_key("file:///data/a", Location("file", "", "data")) == "data/a"


class TestRanges:
    def test_offset_and_size_make_a_range(self):
        data = b"key,offset,size\na.tar,512,10\na.tar,0,0\nb.jpg,,7\n"
        assert [(each.key, each.offset, each.size) for each in read_manifest(data, "m.csv", BUCKET)] == [
            ("a.tar", 512, 10),
            ("a.tar", 0, 0),
            ("b.jpg", -1, 7),
        ]

    @pytest.mark.parametrize(
        ("row", "word"),
        [
            ('"offset": 5', "needs its size"),
            ('"offset": -5, "size": 1', "an offset must be a whole number"),
            ('"offset": 1.5, "size": 1', "an offset must be a whole number"),
            ('"offset": 9223372036854775807, "size": 1', "needs its size, and must end below"),
        ],
    )
    def test_half_a_range_is_refused_by_its_line(self, row, word):
        with pytest.raises(ManifestError, match=f"line 1: .*{word}"):
            list(read_manifest(f'{{"key": "a", {row}}}\n'.encode(), "m.jsonl", BUCKET))
