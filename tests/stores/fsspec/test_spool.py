"""Parts are put together in a file, in any order, and nothing of it stays."""

from pathlib import Path

import pytest

from penstock.errors import NotFound
from penstock.stores.fsspec.driver import Spool


def test_parts_are_written_where_they_belong():
    spool = Spool()
    upload = spool.begin("key")
    spool.write(upload, b"56", 5)
    spool.write(upload, memoryview(b"01234"), 0)
    with open(spool.path(upload), "rb") as file:
        assert file.read() == b"0123456"
    assert [each.key for each in spool] == ["key"]
    assert Path(upload).stat().st_mode & 0o077 == 0
    for _ in range(2):
        spool.end(upload)
    assert not Path(upload).exists()
    with pytest.raises(NotFound):
        spool.path(upload)
    with pytest.raises(NotFound):
        spool.write("/etc/passwd", b"x", 0)
