"""Rows of Parquet files are those that pyarrow reads, of any type; hostile files are bounded and refused by name."""

import io
import random
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import penstock as ps
from penstock.data.shards import parquet as module
from penstock.data.shards.format import UnitPiece
from penstock.data.shards.parquet import ParquetFormat
from penstock.data.unpacking import UNPACKED_VARIABLE
from penstock.errors import Damaged, ManifestError, Unsupported, Unusable
from tests.amounts import examples
from tests.data.shards.archives import walked
from tests.data.test_parquet import encrypted

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def written(columns, **options):
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    file = io.BytesIO()
    parquet.write_table(table, file, **options)
    return file.getvalue()


def units(form, data):
    """Return the format with its schema, and each unit: its first row, its rows and its pieces."""
    found, asks = walked(form, data)
    assert len(asks) <= 2
    ends = [0, *found.units.ends.tolist()]
    firsts = [*found.units.firsts.tolist(), len(found.offsets)]
    ranges = [*zip(found.units.starts.tolist(), found.units.stops.tolist(), strict=True)]
    cut = [
        [UnitPiece(start, memoryview(data)[start:stop]) for start, stop in ranges[low:high]]
        for low, high in pairwise(ends)
    ]
    assert found.offsets.tolist() == [*range(len(found.offsets))]
    return form.having(found.schema), [*zip(firsts, firsts[1:], cut, strict=False)]


@pytest.mark.parametrize("count", [3, 500])
def test_a_footer_is_parsed_once_for_the_row_groups_of_a_file_however_long_it_is(count, monkeypatch):
    texts = [f"{number:04}" + "x" * 1500 for number in range(count)]
    form, found = units(ParquetFormat(), written({"text": texts}, row_group_size=1))
    assert (len(found[0][-1][-1].data) > 1 << 20) == (count == 500)
    parsed, read = [], module._metadata
    monkeypatch.setattr(module, "_metadata", lambda footer: parsed.append(len(footer)) or read(footer))
    for first, _, pieces in found[:3]:
        assert form.row(form.decode(pieces, first), 0).values["text"] == texts[first]
    assert len(parsed) == 1


def plain(value):
    if isinstance(value, memoryview):
        assert (value.format, value.readonly) == ("B", True)
        return bytes(value)
    return value.tolist() if isinstance(value, np.ndarray) else value


def rows(form, data):
    """Return all rows, decoded unit by unit."""
    form, found = units(form, data)
    made = []
    for first, stop, pieces in found:
        unit = form.decode(pieces, first)
        made += [form.row(unit, number) for number in range(stop - first)]
    return [
        bytes(each) if isinstance(each, memoryview) else {name: plain(value) for name, value in each.values.items()}
        for each in made
    ]


def images(table):
    """Return the rows of a table as Python's, with the bytes of images in place of their structs."""
    found = table.to_pylist()
    for name in table.column_names:
        if table.schema.field(name).type == IMAGE:
            for row in found:
                row[name] = None if row[name] is None else row[name]["bytes"]
    return found


TYPES = {
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.uint8(): st.integers(0, 255),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=5),
    pa.large_string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=20),
    pa.large_binary(): st.binary(max_size=20),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.timestamp("us", tz="UTC"): st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    pa.list_(pa.int32()): st.lists(st.integers(0, 9), max_size=4),
    pa.list_(pa.string()): st.lists(st.text(max_size=3), max_size=3),
    pa.list_(pa.list_(pa.float32())): st.lists(st.lists(st.just(0.5), max_size=2), max_size=2),
    pa.struct([("a", pa.int8()), ("b", pa.list_(pa.binary()))]): st.fixed_dictionaries(
        {"a": st.none() | st.integers(0, 5), "b": st.lists(st.binary(max_size=3), max_size=2)}
    ),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from(["red", "green", ""]),
    pa.null(): st.none(),
    IMAGE: st.fixed_dictionaries({"bytes": st.binary(max_size=9), "path": st.none() | st.text(max_size=3)}),
}


@st.composite
def tables(draw):
    count = draw(st.integers(0, 30))
    columns = {}
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from([*TYPES]))
        values = draw(st.lists(st.none() | TYPES[kind], min_size=count, max_size=count))
        columns[draw(st.sampled_from(["a", "b.c", "d"])) + str(number)] = pa.array(values, kind)
    return pa.table(columns)


@given(tables(), st.data())
@settings(max_examples=examples(150))
def test_rows_are_those_that_pyarrow_reads(table, data):
    options = {
        "row_group_size": data.draw(st.integers(1, 20)),
        "compression": data.draw(st.sampled_from(["none", "snappy", "zstd", "gzip"])),
        "use_dictionary": data.draw(st.booleans()),
        "data_page_version": data.draw(st.sampled_from(["1.0", "2.0"])),
        "data_page_size": data.draw(st.sampled_from([20, 1 << 20])),
        "write_page_checksum": data.draw(st.booleans()),
    }
    assert rows(ParquetFormat(), written(table, **options)) == images(table)
    names = data.draw(st.lists(st.sampled_from(table.column_names), min_size=1, unique=True))
    found = rows(ParquetFormat(names), written(table, **options))
    assert found == images(table.select(names))
    assert not found or [*found[0]] == names


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("nulls", [False, True])
def test_rows_with_large_bytes_are_those_that_pyarrow_reads(compression, nulls, seed):
    draw = random.Random(seed)
    count = 230
    blobs = [draw.randbytes(draw.randrange(9000)) for _ in range(count)]
    columns = {
        "blob": pa.array([None if nulls and at % 50 == 7 else each for at, each in enumerate(blobs)], pa.binary()),
        "image": pa.array([{"bytes": each, "path": f"{at}.png"} for at, each in enumerate(reversed(blobs))], IMAGE),
        "large": pa.array(blobs, pa.large_binary()),
        "small": pa.array([each[:3] for each in blobs], pa.binary()),
        "number": pa.array(range(count), pa.uint16()),
    }
    table = pa.table(columns)
    data = written(table, compression=compression, row_group_size=100, data_page_size=50_000)
    assert rows(ParquetFormat(), data) == images(table)
    assert rows(ParquetFormat(fields=("image",)), data) == images(table.select(["image"]))
    assert rows(ParquetFormat(fields="large"), data) == blobs


def test_large_bytes_are_views_of_the_pages_that_were_read():
    table = {"image": pa.array([{"bytes": bytes([at]) * 5000, "path": None} for at in range(9)], IMAGE)}
    data = written(table, compression="none", use_dictionary=False, write_statistics=False)
    form, [(first, _, pieces)] = units(ParquetFormat(), data)
    copied = [bytearray(each.data) for each in pieces]
    lent = [UnitPiece(piece.start, memoryview(body).toreadonly()) for piece, body in zip(pieces, copied, strict=True)]
    unit = form.decode(lent, first)
    for body in copied[:-1]:
        body[:] = body.replace(bytes([3]) * 5000, bytes([4]) * 5000)
    assert form.row(unit, 3).values["image"] == bytes([4]) * 5000


def test_footer_is_parsed_once_for_the_row_groups_of_a_file(monkeypatch):
    data = written({"a": [*range(1000)]}, row_group_size=10)
    form, found = units(ParquetFormat(), data)
    parsed = []
    metadata = parquet.read_metadata
    monkeypatch.setattr(parquet, "read_metadata", lambda *given: parsed.append(1) or metadata(*given))
    for first, _, pieces in found:
        assert form.row(form.decode(pieces, first), 0).values == {"a": first}
    assert len(found) == 100
    assert len(parsed) <= 1


def test_single_column_is_its_bytes_or_its_text():
    data = written({"a": [b"x", b""], "t": ["ä", "b"], "i": pa.array([{"bytes": b"y", "path": "p"}] * 2, IMAGE)})
    assert rows(ParquetFormat("a"), data) == [b"x", b""]
    assert rows(ParquetFormat("t"), data) == ["ä".encode(), b"b"]
    assert rows(ParquetFormat("i"), data) == [b"y", b"y"]
    with pytest.raises(Unusable, match=r"'n' is of the type int64.*fields=\('n',\)"):
        rows(ParquetFormat("n"), written({"n": [1]}))
    with pytest.raises(Damaged, match="'t' has no value in row 1"):
        rows(ParquetFormat("t"), written({"t": ["a", None]}))


def test_views_of_texts_and_bytes_are_texts_and_bytes(tmp_path):
    image = pa.struct([("bytes", pa.binary_view()), ("path", pa.string_view())])
    view = {"a": pa.array(["ä"], pa.string_view()), "i": pa.array([{"bytes": b"y"}], image)}
    (tmp_path / "0.parquet").write_bytes(written(view))
    (tmp_path / "1.parquet").write_bytes(written({"a": ["b"], "i": pa.array([{"bytes": b"z"}], IMAGE)}))
    assert [(row["a"], row["i"].read()) for row in ps.MapDataset.from_shards(tmp_path)] == [("ä", b"y"), ("b", b"z")]
    assert [row.read() for row in ps.MapDataset.from_shards(tmp_path, fields="a")] == ["ä".encode(), b"b"]


def test_image_without_bytes_is_refused_by_row_and_path():
    data = written({"i": pa.array([{"bytes": b"y"}, None, {"path": "cat.jpg"}], IMAGE)}, row_group_size=2)
    form, [(_, _, pieces), (first, _, last)] = units(ParquetFormat(), data)
    unit = form.decode(pieces, 0)
    assert [form.row(unit, number).values["i"] for number in range(2)] == [b"y", None]
    with pytest.raises(Damaged, match=r"'i' of row 2 has no bytes, only the path 'cat\.jpg'.*embed_external_files"):
        form.row(form.decode(last, first), 0)


def test_only_the_wanted_columns_and_the_footer_are_fetched():
    draw = random.Random(0)
    table = {name: [draw.randbytes(900) for _ in range(100)] for name in "abcde"}
    data = written(table, row_group_size=50, compression="none", use_dictionary=False)
    _, found = units(ParquetFormat(("b", "e")), data)
    assert len(found) == 2
    for _, _, pieces in found:
        assert [round(len(each.data), -4) for each in pieces[:2]] == [50_000, 50_000]
        assert pieces[2].start + len(pieces[2].data) == len(data)
        assert len(pieces[2].data) < 20_000


def test_footer_beyond_the_first_request_takes_one_more():
    table = pa.table({f"column-{number}": [number] * 8 for number in range(200)})
    data = written(table, row_group_size=1)
    _, asks = walked(ParquetFormat(), data)
    assert asks[0].start == len(data) - (64 << 10) == asks[1].stop
    assert rows(ParquetFormat(("column-7",)), data) == [{"column-7": 7}] * 8


def test_files_without_rows_have_no_samples():
    schema = pa.schema([("a", pa.int64())])
    file = io.BytesIO()
    parquet.ParquetWriter(file, schema).close()
    assert parquet.ParquetFile(file).metadata.num_row_groups == 0
    assert rows(ParquetFormat(), file.getvalue()) == []
    assert rows(ParquetFormat(), written(schema.empty_table())) == []
    with parquet.ParquetWriter(file := io.BytesIO(), schema) as writer:
        for values in ([1], [], [2, 3], []):
            writer.write_table(pa.table({"a": values}, schema))
    assert rows(ParquetFormat(), file.getvalue()) == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_unknown_and_nameless_columns_are_refused():
    with pytest.raises(Unusable, match="unknown column 'z'; columns are a, b"):
        walked(ParquetFormat(("a", "z")), written({"a": [1], "b": [2]}))
    with pytest.raises(Damaged, match="the same name: a, a"):
        walked(ParquetFormat(), written(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])))


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ({"a": ["x"], "b": [1]}, "'a' has the type string in this file, and has the type int64 in the files before"),
        ({"b": [1]}, "'a' is missing in this file"),
        ({"a": [1], "b": [1], "c": [1]}, "'c' has the type int64 in this file, and is missing in the files before"),
    ],
    ids=["type", "missing", "more"],
)
def test_files_with_other_columns_are_refused_by_column_and_name(tmp_path, second, says):
    (tmp_path / "0.parquet").write_bytes(written({"a": [1], "b": [1]}))
    (tmp_path / "1.parquet").write_bytes(written(second))
    with pytest.raises(Unusable, match=f"(?s){says}.*1.parquet"):
        ps.Catalog.from_shards(tmp_path)
    assert len(ps.Catalog.from_shards(tmp_path, fields=("b",))) == 2


def test_order_of_columns_and_width_of_texts_may_differ(tmp_path):
    (tmp_path / "0.parquet").write_bytes(written({"a": ["x"], "b": [1]}))
    (tmp_path / "1.parquet").write_bytes(written({"b": [2], "a": pa.array(["y"], pa.large_string())}))
    dataset = ps.MapDataset.from_shards(tmp_path)
    assert [(sample["a"], sample["b"]) for sample in dataset] == [("x", 1), ("y", 2)]
    assert dataset.catalog.format.columns == (("a", "string"), ("b", "int64"))


@pytest.mark.parametrize("plaintext", [False, True])
def test_encrypted_files_are_refused(plaintext):
    properties = encrypted("b", plaintext=plaintext)
    file = io.BytesIO()
    with parquet.ParquetWriter(
        file, pa.schema([("a", pa.int64()), ("b", pa.int64())]), encryption_properties=properties
    ) as writer:
        writer.write_table(pa.table({"a": [1], "b": [2]}))
    with pytest.raises(Unsupported, match="encrypted"):
        walked(ParquetFormat(), file.getvalue())


def test_page_whose_checksum_does_not_match_is_damaged():
    data = written({"a": [b"0123456789" * 20] * 3}, compression="none", use_dictionary=False, write_page_checksum=True)
    at = data.index(b"6789" + (200).to_bytes(4, "little") + b"0123")
    with pytest.raises(Damaged, match=r"(?i)crc"):
        rows(ParquetFormat(), data[:at] + b"x" + data[at + 1 :])


@pytest.mark.parametrize("size", [0, 3, 11, 12, 100])
def test_other_files_are_refused(size):
    with pytest.raises(Damaged):
        walked(ParquetFormat(), b"x" * size)
    data = written({"a": [1]})
    with pytest.raises(Damaged):
        walked(ParquetFormat(), data[:size])
    with pytest.raises(Damaged, match="footer"):
        walked(ParquetFormat(), data[:-8] + (1 << 31).to_bytes(4, "little") + b"PAR1")


def test_damage_anywhere_is_an_error_of_ours_or_other_values(seed):
    draw = random.Random(seed)
    table = {
        "a": [*range(50)],
        "t": [f"text {at % 7}" for at in range(50)],
        "l": [[at] * 3 for at in range(50)],
        "i": pa.array([{"bytes": draw.randbytes(40), "path": "p"} for _ in range(50)], IMAGE),
    }
    data = written(table, row_group_size=20, compression="none")
    refused = 0
    for _ in range(examples(600)):
        damaged = bytearray(data)
        for _ in range(draw.choice((1, 1, 8))):
            at = draw.choice((draw.randrange(len(data)), draw.randrange(len(data) - 1500, len(data))))
            damaged[at] ^= 1 << draw.randrange(8)
        try:
            rows(ParquetFormat(), bytes(damaged))
        except (Damaged, Unsupported, Unusable, ValueError, TypeError, IndexError):
            refused += 1
    assert refused


def test_text_that_every_row_repeats_is_bounded(monkeypatch):
    monkeypatch.setenv(UNPACKED_VARIABLE, "64MiB")
    # 16 MB that a dictionary repeats 100,000 times: 1.6 TB as plain values.
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), pa.array([b"x" * (16 << 20)]))
    data = written({"a": column}, compression="zstd", dictionary_pagesize_limit=64 << 20)
    assert len(data) < 10_000
    form, [(first, _, pieces)] = units(ParquetFormat(), data)
    with pytest.raises(Damaged, match="at most 67108864 bytes once unpacked"):
        form.decode(pieces, first)


def test_page_of_zeros_is_bounded(monkeypatch):
    data = written({"a": [bytes(80 << 20)]}, compression="zstd", use_dictionary=False)
    [row] = rows(ParquetFormat(), data)
    assert len(row["a"]) == 80 << 20
    monkeypatch.setenv(UNPACKED_VARIABLE, "64MiB")
    with pytest.raises(Damaged, match=r"a row group of .* bytes must take at most 67108864 bytes"):
        rows(ParquetFormat(), data)


def test_more_rows_than_an_index_may_hold_are_refused(monkeypatch):
    data = written({"a": pa.nulls(3_000_000, pa.int8())}, compression="zstd")
    assert len(data) < 10_000
    assert len(walked(ParquetFormat(), data)[0].offsets) == 3_000_000
    monkeypatch.setenv(UNPACKED_VARIABLE, "64MiB")
    with pytest.raises(Damaged, match="the index of 3000000 rows"):
        walked(ParquetFormat(), data)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()], ids=str)
def test_texts_in_lists_stay_in_their_dictionary_and_are_counted(monkeypatch, kind):
    words = [f"{number}" * 50 for number in range(300)]
    values = [words[at % 300 : at % 300 + 9] for at in range(4000)]
    data = written({"a": pa.array(values, pa.list_(kind)), "b": [*range(4000)]}, row_group_size=4000)
    expected = [[each if kind == pa.string() else each.encode() for each in row] for row in values]
    assert [[*row["a"]] for row in rows(ParquetFormat(), data)] == expected
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), pa.array(["x" * (1 << 20)], kind))
    data = written({"a": pa.ListArray.from_arrays(pa.array([0, 5000]), long)}, dictionary_pagesize_limit=64 << 20)
    monkeypatch.setenv(UNPACKED_VARIABLE, "64MiB")
    with pytest.raises(Damaged, match="once unpacked"):
        rows(ParquetFormat(), data)


def test_arguments_from_a_hostile_catalog_are_refused():
    for columns in (5, [5], [["a"]], [["a", 5]], "ab"):
        with pytest.raises(Unusable, match="columns must be pairs"):
            ParquetFormat(columns=columns)
    with pytest.raises(Unusable, match="fields must be"):
        ParquetFormat(fields=(5,))
    assert ParquetFormat(columns=[["a", "int64"]]) == ParquetFormat(columns=(("a", "int64"),))


def test_forked_workers_decode_after_their_parent_has(tmp_path):
    data = written({"a": [*range(3000)], "b": [b"x" * 300] * 3000}, row_group_size=100)
    (tmp_path / "0.parquet").write_bytes(data)
    dataset = ps.MapDataset.from_shards(tmp_path, transform=lambda sample: sample["a"])
    assert [*dataset] == [*range(3000)]
    assert sorted(parquet.read_table(tmp_path / "0.parquet")["a"].to_pylist()) == [*range(3000)]
    loader = ps.DataLoader(dataset, 50, shuffle=ps.order.Lanes(), collate_fn=list, num_workers=2)
    for _ in range(2):
        assert sorted(each for batch in loader for each in batch) == [*range(3000)]


def test_footer_whose_rows_are_not_those_of_its_row_groups_is_damaged(tmp_path):
    data = bytearray(written({"key": ["a"] * 100}, row_group_size=50))
    # The third field of the footer is 100, a number of Thrift; the fourth is a list.
    at = data.rindex(b"\x16\xc8\x01\x19")
    data[at + 1 : at + 3] = b"\xc6\x01"
    with pytest.raises(Damaged, match="the footer declares 99 rows, but its row groups have 100"):
        walked(ParquetFormat(), bytes(data))
    (tmp_path / "manifest.parquet").write_bytes(data)
    with pytest.raises(ManifestError, match="the footer declares 99 rows"):
        ps.MapDataset.from_manifest(tmp_path / "manifest.parquet")
