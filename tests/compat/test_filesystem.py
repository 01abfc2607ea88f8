from __future__ import annotations

from pathlib import Path

import pytest

from penstock.compat.filesystem import ObjectFileSystem
from penstock.errors import NotFound, Unusable
from penstock.options import StoreOptions


@pytest.fixture
def files():
    return ObjectFileSystem(StoreOptions())


@pytest.mark.parametrize("root", ["memory://files/", "disk"])
def test_objects_are_files_of_any_store(files, tmp_path, root):
    root = Path(tmp_path) if root == "disk" else root
    one, other = files.concat_path(root, "a b"), files.concat_path(root, "c")
    with files.create_stream(one, "wb") as stream:
        stream.write(b"bytes")
    files.rename(one, other)
    assert (files.exists(one), files.exists(other)) == (False, True)
    with files.create_stream(other, "rb") as stream:
        assert stream.read() == b"bytes"
    files.rm_file(other)
    assert not files.exists(other)
    with pytest.raises(NotFound), files.create_stream(other, "rb"):
        pass
    for kind in (Unusable, ValueError):
        with pytest.raises(kind, match="'r'"), files.create_stream(other, "r"):
            pass
    assert files.init_path(root) == str(root)
    files.mkdir(root)


def test_validate_checkpoint_id_accepts_only_openable_locations():
    assert ObjectFileSystem.validate_checkpoint_id("memory://files/x")
    assert not ObjectFileSystem.validate_checkpoint_id("s3://")
    assert not ObjectFileSystem.validate_checkpoint_id(3)
    assert ObjectFileSystem.validate_checkpoint_id(Path("x"))
