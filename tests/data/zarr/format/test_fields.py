"""Fields are checked, and what is wrong is told with its place, in few words."""

from __future__ import annotations

import pytest

from penstock.data.zarr.format.layout import DocumentFields
from penstock.errors import Damaged, Unsupported


def test_an_error_names_field_value_and_url():
    fields = DocumentFields({"grid": {"shape": [-1]}}, "s3://b/zarr.json")
    with pytest.raises(
        Damaged, match=r"'grid.shape' should be a list of whole numbers from 0 on: \[-1\] \[s3://b/zarr.json\]"
    ):
        fields.mapping("grid").sizes("shape", 0)
    assert "'x' is None: not yet" in str(fields.unsupported("x", "not yet"))
    assert "missing" in str(fields.damaged("x", "there"))


def test_an_error_does_not_quote_a_long_value():
    fields = DocumentFields({"shape": ["x" * 10_000] * 10_000})
    with pytest.raises(Damaged) as caught:
        fields.sizes("shape", 0)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("value", [None, 3, "12", [1.0], [True], [-1], ["1"], [1 << 63], {"a": 1}, [[1]]])
def test_sizes_are_lists_of_whole_numbers(value):
    with pytest.raises(Damaged):
        DocumentFields({"shape": value}).sizes("shape", 0)


def test_more_dimensions_than_numpy_has_are_unsupported():
    assert len(DocumentFields({"shape": [1] * 32}).sizes("shape", 1)) == 32
    with pytest.raises(Unsupported, match="32 dimensions"):
        DocumentFields({"shape": [1] * 33}).sizes("shape", 1)


def test_extensions_are_names_or_named_configurations():
    fields = DocumentFields({"codecs": ["bytes", {"name": "zstd", "configuration": {"level": 1}}, {"name": "crc32c"}]})
    found = [(name, dict(configuration.values)) for name, configuration in fields.extensions("codecs")]
    assert found == [("bytes", {}), ("zstd", {"level": 1}), ("crc32c", {})]
    assert fields.extensions("none") == []


@pytest.mark.parametrize(
    "value", ["bytes", 3, [3], [{}], [{"name": 3}], [{"name": "zstd", "configuration": []}], [None]]
)
def test_invalid_extension_metadata_raises_damaged(value):
    with pytest.raises(Damaged):
        DocumentFields({"codecs": value}).extensions("codecs")


@pytest.mark.parametrize("value", [".", "/"])
def test_a_word_is_one_of_several(value):
    assert DocumentFields({"separator": value}).chosen("separator", (".", "/"), "?") == value
    assert DocumentFields({}).chosen("separator", (".", "/"), "?") == "?"
    for other in ("..", 3, ["."], "\\"):
        with pytest.raises(Damaged, match=r"'\.' or '/'"):
            DocumentFields({"separator": other}).chosen("separator", (".", "/"), "?")
