"""Quantities that could never work are refused when options are made."""

from dataclasses import fields

import pytest

from penstock.errors import ConfigError
from penstock.options import ReadOptions, RetryOptions, TransportOptions, WriteOptions


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, each.name)
        for kind in (TransportOptions, RetryOptions, ReadOptions)
        for each in fields(kind)
        if each.type in ("int", "float")
    ],
)
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_quantities_are_positive(kind, name, value):
    with pytest.raises(ConfigError, match=rf"{kind.__name__}\.{name} must be (positive|a whole number, got a float)"):
        kind(**{name: value})


@pytest.mark.parametrize("words", ["job\r\nx-amz-acl: public-read", "job\0", "jöb"])
def test_invalid_user_agent_extra_raises_config_error(words):
    with pytest.raises(ConfigError, match="printable ASCII"):
        TransportOptions(user_agent_extra=words)


def test_a_buffer_holds_two_parts():
    with pytest.raises(ConfigError, match="part_bytes must be positive"):
        WriteOptions(part_bytes=0)
    with pytest.raises(ConfigError, match="two parts"):
        WriteOptions(part_bytes=5 << 20, buffer_bytes=(10 << 20) - 1)
    assert WriteOptions(part_bytes=5 << 20, buffer_bytes=10 << 20)
