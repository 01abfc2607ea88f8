"""``os.path`` and ``os.makedirs`` by URL."""

from __future__ import annotations

from penstock.compat import multistorageclient as msc


def test_exists_isdir_and_isfile_distinguish_objects_from_directories(tmp_path):
    for name in ("a/b", "c"):
        msc.write(f"{tmp_path}/{name}", b"")
    paths = [f"file://{tmp_path}/{name}" for name in ("a", "c", "none")]
    assert [msc.os.path.exists(each) for each in paths] == [True, True, False]
    assert [msc.os.path.isdir(each) for each in paths] == [True, False, False]
    assert [msc.os.path.isfile(each) for each in paths] == [False, True, False]
    msc.os.makedirs(tmp_path / "d" / "e", exist_ok=True)
    assert (tmp_path / "d" / "e").is_dir()
    assert msc.os.exists(f"{tmp_path}/d")
