"""JSON lines: each line by its place, whatever its end is; bad bytes and bad JSON are refused with their place."""

import json
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.shards import jsonl
from penstock.data.shards.jsonl import JsonlFormat
from penstock.errors import Damaged, Unsupported, Unusable
from tests.amounts import examples
from tests.data.shards.archives import samples, walked
from tests.refusals import refused

MARK = b"\xef\xbb\xbf"
PIECES = [b"\n", b"\r\n", b"\r", b" ", b"\t", b"{}", b"x", "é".encode(), b'{"a": 1}', MARK]


def lines_of(data):
    """Return the first byte and the bytes of lines that are not blank, by Python's own splitting."""
    found, at = [], 0
    for line in data.split(b"\n"):
        first = len(MARK) if not at and data.startswith(MARK) else 0
        if line[first:].strip(b" \t\r\n"):
            found.append((at + first, line[first:].removesuffix(b"\r")))
        at += len(line) + 1
    return found


@given(st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join), st.integers(1, 7))
@settings(max_examples=examples(400))
def test_samples_are_the_lines_that_python_splits(data, block):
    before, jsonl._BLOCK_BYTES = jsonl._BLOCK_BYTES, max(block, 4)
    try:
        found, asks = walked(JsonlFormat(), data)
        assert [*zip(found.offsets.tolist(), samples(JsonlFormat(), data), strict=True)] == lines_of(data)
    finally:
        jsonl._BLOCK_BYTES = before
    assert sum(ask.stop - ask.start for ask in asks) == len(data)
    assert found.offsets.dtype == found.sizes.dtype == np.int64


def test_lines_across_blocks_of_their_real_size():
    lines = [b"%d" % number * size for number, size in enumerate((10, 5 << 20, 4 << 20, 17 << 20, 0, 1, 3))]
    data = b"\r\n".join(lines)
    assert samples(JsonlFormat(), data) == [each for each in lines if each]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n\r\n \n", []),
        (MARK, []),
        (MARK + b"\n", []),
        (MARK + b"a\n" + MARK + b"b", [b"a", MARK + b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\rb\nc", [b"a\rb", b"c"]),
        ("\u2028\x85\n\x0b".encode(), ["\u2028\x85".encode(), b"\x0b"]),
    ],
)
def test_only_a_line_feed_ends_a_line_and_blank_lines_are_left_out(data, expected):
    assert samples(JsonlFormat(), data) == expected


def test_nul_is_refused_with_its_line_and_byte():
    refused(Damaged, "line 3 has a NUL at byte 5", walked, JsonlFormat(), b"a\n\nbc\0\n\0")
    with pytest.raises(Damaged, match=f"line 4 has a NUL at byte {(8 << 20) + 10}"):
        walked(JsonlFormat(), b"a\n\n" + b"b" * (8 << 20) + b"\ncccccc\0"[:8])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (zlib.compress(b"{}", wbits=31), "gzip.*decompress it once"),
        (b"\x28\xb5\x2f\xfd\0\0", "zstd.*decompress it once"),
        ('{"a": 1}'.encode("utf-16"), "UTF-16.*iconv"),
        ('{"a": 1}'.encode("utf-32"), "UTF-32.*iconv"),
    ],
)
def test_other_files_than_lines_of_utf_8_are_refused_with_advice(data, says):
    refused(Unsupported, says, walked, JsonlFormat(), data)


def test_line_is_a_view_of_the_block():
    data = b'{"a": 1}\r\n'
    line = JsonlFormat().sample(memoryview(data))
    assert (line.obj is data, bytes(line)) == (True, b'{"a": 1}')


class TestFields:
    def test_values_are_those_of_json(self):
        rows = [{"text": "é\n\u2028", "label": 1, "more": [1.5, None]}, {"label": True, "text": "", "x": 0}]
        data = "".join(f"{json.dumps(each)}\n" for each in rows).encode()
        found = samples(JsonlFormat(fields=("label", "text")), data)
        assert found == [("", {"label": each["label"], "text": each["text"]}) for each in rows]
        assert [*found[0][1]] == ["label", "text"]

    def test_single_name_is_the_text_itself(self):
        assert samples(JsonlFormat(fields="text"), b'{"text": "\\u00e9"}') == ["é".encode()]
        with pytest.raises(Damaged, match=r"'label' is not text but 3: pass fields=\('label',\)"):
            samples(JsonlFormat(fields="label"), b'{"label": 3}')

    @pytest.mark.parametrize(
        ("line", "says"),
        [
            (b'{"text": 1', "not JSON: Expecting"),
            (b"\xff", "not JSON: 'utf-8'"),
            (b"[" * 100_000, "not JSON: maximum recursion"),
            (b"[1]", "must be a JSON object"),
            (b'{"a": 1, "b": 2}', "no field 'text', only 'a', 'b'"),
            (b'{"text": ' + b"1" * 5000 + b"}", "not JSON: Exceeds the limit"),
        ],
    )
    def test_bad_line_is_refused(self, line, says):
        refused(Damaged, says, JsonlFormat(fields=("text",)).sample, memoryview(line))

    def test_bad_line_names_the_file_and_its_byte(self, tmp_path):
        (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\nrubbish\n')
        dataset = ps.MapDataset.from_shards(tmp_path, fields=("text",))
        assert dataset[0]["text"] == "a"
        with pytest.raises(Damaged, match=r"'rubbish' is not JSON: .*a\.jsonl#bytes=14-21"):
            dataset[1]

    @pytest.mark.parametrize("fields", [5, "", ("a", "a"), ("a", 5)])
    def test_wrong_fields_are_refused(self, fields):
        refused(Unusable, "fields must be", JsonlFormat, fields=fields)


def test_files_of_both_ends_are_found_and_not_mixed_with_compressed_ones(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"1\n2\n")
    (tmp_path / "b.NDJSON").write_bytes(b"3")
    assert [sample.read() for sample in ps.IterableDataset.from_shards(tmp_path)] == [b"1", b"2", b"3"]
    (tmp_path / "c.jsonl.gz").write_bytes(b"")
    refused(Unusable, r"a\.jsonl.*c\.jsonl\.gz.*different formats", ps.Catalog.from_shards, tmp_path)
    refused(Unsupported, r'format="jsonl\.gz" for compressed ones', ps.Catalog.from_shards, tmp_path, format="jsonl")
