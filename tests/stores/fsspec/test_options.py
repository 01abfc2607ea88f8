"""Options of fsspec's filesystems: taken as they are, and shown nowhere."""

import pytest

from penstock.errors import ConfigError
from penstock.stores.fsspec.options import FsspecOptions


def test_storage_options_are_not_shown_and_can_be_compared():
    one, two = (FsspecOptions(storage_options={"key": "hush", "client_kwargs": {"a": []}}) for _ in range(2))
    assert "hush" not in repr(one)
    assert one == two
    assert hash(one) == hash(two)
    assert one != FsspecOptions()


@pytest.mark.parametrize("wrong", ["key", {1: 2}, [("a", "b")]])
def test_invalid_storage_options_raise_config_error(wrong):
    with pytest.raises(ConfigError, match="storage_options"):
        FsspecOptions(storage_options=wrong)
