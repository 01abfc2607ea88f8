"""Objects are found by name, path, size, age and kind, on every kind of store."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ConfigError, Unusable

NAMES = {"a.png": 10, "x/b.png": 2000, "x/b.txt": 5, "x/y/c.png": 30, "x-y/d": 1}


@pytest.fixture(params=["file", "memory"])
def root(request, tmp_path):
    url = str(tmp_path / "t") if request.param == "file" else f"memory://{tmp_path.name}/t"
    for name, size in NAMES.items():
        with ps.open(f"{url}/{name}", "wb") as file:
            file.write(bytes(size))
    return url


def names(root, **wanted):
    found = list(ps.find(root, **wanted))
    assert all(each.url.endswith(each.key) for each in found)
    return [each.url.partition("/t/")[2] for each in found]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["a.png", "x-y/d", "x/b.png", "x/b.txt", "x/y/c.png"]),
        ({"name": "*.png"}, ["a.png", "x/b.png", "x/y/c.png"]),
        ({"name": ["b.*", "d"]}, ["x-y/d", "x/b.png", "x/b.txt"]),
        ({"path": "x/*.png"}, ["x/b.png"]),
        ({"path": "x/**", "name": "*.png"}, ["x/b.png", "x/y/c.png"]),
        ({"larger_bytes": 10, "smaller_bytes": 30}, ["a.png", "x/y/c.png"]),
        ({"larger_bytes": np.int64(10), "smaller_bytes": np.float64(30)}, ["a.png", "x/y/c.png"]),
        ({"name": "*.PNG"}, []),
        ({"newer_s": 3600}, ["a.png", "x-y/d", "x/b.png", "x/b.txt", "x/y/c.png"]),
        ({"older_s": 3600}, []),
        ({"kind": "marker"}, []),
        ({"kind": "folder"}, ["x-y/", "x/y/", "x/"]),
        ({"kind": "folder", "name": "x*"}, ["x-y/", "x/"]),
        ({"kind": "folder", "path": "*/y"}, ["x/y/"]),
        ({"kind": "folder", "larger_bytes": 2000}, ["x/"]),
    ],
)
def test_find_returns_exactly_the_matching_entries(root, wanted, found):
    assert names(root, **wanted) == found


def test_ages_are_counted_from_now(tmp_path):
    for name, age_s in (("new", 0), ("old", 7200)):
        (tmp_path / name).write_text(name)
        stamp = time.time() - age_s
        os.utime(tmp_path / name, (stamp, stamp))
    assert [each.key.rpartition("/")[2] for each in ps.find(tmp_path, older_s=3600)] == ["old"]
    assert [each.key.rpartition("/")[2] for each in ps.find(tmp_path, newer_s=3600)] == ["new"]


def test_markers_and_folders_of_a_store():
    for name in ("m/dir/", "m/dir/x", "m/empty/", "m/none"):
        with ps.open(f"memory://markers/{name}", "wb") as file:
            file.write(b"" if name.endswith("/") else b"1")
    url = "memory://markers/m"
    assert [each.key for each in ps.find(url, kind="marker")] == ["m/dir/", "m/empty/"]
    assert [each.key for each in ps.find(url)] == ["m/dir/x", "m/none"]
    assert [(each.key, each.size) for each in ps.find(url, kind="folder")] == [("m/dir/", 1), ("m/empty/", 0)]
    assert [each.key for each in ps.find("memory://markers", name="x")] == ["m/dir/x"]


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"kind": "directory"}, Unusable),
        ({"larger_bytes": -1}, Unusable),
        ({"older_s": float("nan")}, Unusable),
        ({"larger_bytes": "5"}, Unusable),
        ({"larger_bytes": True}, Unusable),
        ({"newer_s": "1d"}, Unusable),
        ({"path": "[z-a]"}, ConfigError),
        ({"size": 3}, TypeError),
    ],
)
def test_invalid_find_criteria_are_refused_immediately(wanted, error):
    with pytest.raises(error):
        ps.find("memory://markers/m", **wanted)
