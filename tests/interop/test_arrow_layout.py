"""A range of a Parquet file is told by its columns, and leads to the same columns of other row groups."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.interop.arrow import Layout

COLUMNS, GROUPS = 4, 6


@pytest.fixture(scope="module")
def metadata():
    file = io.BytesIO()
    table = pa.table({f"c{n}": [str(i * n) for i in range(600)] for n in range(COLUMNS)})
    pq.write_table(table, file, row_group_size=100)
    return pq.read_metadata(file)


def _range(metadata, group, first, last=None):
    columns = [metadata.row_group(group).column(number) for number in (first, first if last is None else last)]
    starts = [column.dictionary_page_offset or column.data_page_offset for column in columns]
    return starts[0], starts[1] + columns[1].total_compressed_size


def test_chunks_are_found(metadata):
    layout = Layout(metadata)
    for group in range(GROUPS):
        assert layout.place(*_range(metadata, group, 2)) == (group, (2,))
        assert layout.place(*_range(metadata, group, 1, 3)) == (group, (1, 2, 3))


def test_range_without_exact_column_chunks_has_no_place_in_the_layout(metadata):
    layout, (start, stop) = Layout(metadata), _range(metadata, 1, 2)
    for other in ((start, stop - 1), (start + 1, stop), (start - 1, stop), (0, 4), (stop, stop), (0, 10**9)):
        assert layout.place(*other) is None


def test_the_same_columns_elsewhere(metadata):
    layout = Layout(metadata)
    assert [*layout.ahead(0, [(2,)])] == [_range(metadata, group, 2) for group in range(GROUPS)]
    both = [_range(metadata, group, *which) for group in (3, 4, 5) for which in ((1, 2), (0,))]
    assert [*layout.ahead(3, [(1, 2), (0,)])] == both
    assert [*layout.ahead(3, [(1, 2), (0,)])] == both
    assert next(layout.ahead(-1, [(3,)])) == _range(metadata, 0, 3)
    assert [*layout.ahead(GROUPS, [(3,)])] == [*layout.ahead(0, [])] == []


def test_file_with_one_row_group_has_no_place_in_the_layout():
    file = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), file)
    assert Layout(pq.read_metadata(file)).place(4, 30) is None
