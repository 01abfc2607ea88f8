"""The columns of versions 1 and 2 lie one after another; whole files of both are opened in ``test_saved``."""

from penstock.data.catalog.storage.older import Shape, layout


def test_a_layout_names_every_byte_once():
    shape = Shape(5, 7, 0, 3, 2)
    columns = layout(shape)
    lengths = [each["bytes"] for each in columns]
    assert lengths == [40, 24, 0, 48, 7, 0, 3]
    assert [each["offset"] for each in columns] == [sum(lengths[:number]) for number in range(len(columns))]
    assert shape.size_bytes == sum(lengths)
