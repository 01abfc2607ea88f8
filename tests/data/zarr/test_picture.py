"""Pictures of chunks: each touched chunk has a cell, in text and in SVG."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from penstock.data.zarr.plan import picture, render_picture, svg


def test_two_dimensions_are_rows_and_columns_the_longer_one_across():
    drawn = picture("t2m", ("time", "lat", "lon"), (4, 2, 1), [(0, 0, 0), (3, 1, 0)])
    assert render_picture(drawn).splitlines() == ["t2m: lat down, time across", "█···", "···█"]


def test_picture_wraps_one_dimension_and_groups_many_chunks_per_cell():
    drawn = picture("", ("time",), (70,), [(0,), (69,)])
    lines = render_picture(drawn).splitlines()
    assert lines[0] == "the array: time, row by row"
    assert [len(line.rstrip()) for line in lines[1:]] == [64, 6]
    assert (lines[1][0], lines[2][5]) == ("█", "█")
    many = picture("", ("time",), (100_000,), [(99_999,)])
    assert many.cells.shape == (24, 64)
    assert many.cells.max() == 1
    assert "(a cell is 66 chunks)" in render_picture(many)
    wide = picture("", ("y", "x"), (1000, 3000), [(999, 2999)])
    assert wide.cells[-1, -1] == 1


def test_arrays_of_one_chunk_and_of_no_dimensions():
    assert render_picture(picture("a", ("x",), (1,), [(0,)])).splitlines()[1] == "█"
    assert render_picture(picture("a", (), (), [()])).splitlines()[1] == "█"


def test_the_svg_is_well_formed_and_names_are_escaped():
    found = ET.fromstring(svg(picture("<a&b>", ("y", "x"), (2, 3), [(1, 2)])))  # noqa: S314  our own
    rects = [each for each in found if each.tag.endswith("rect")]
    assert len(rects) == 6
    assert len({each.get("fill") for each in rects}) == 2
    assert "<a&b>" in "".join(found.itertext())
