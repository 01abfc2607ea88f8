"""``penstock du``: sums by what comes next in the keys."""

from __future__ import annotations

import io
import json
import sys

from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.commands.objects.du import SizeRow, _groups, _lines
from penstock.values import ObjectMeta

SIZES = {"t/a": 1, "t/b!": 2, "t/b/1": 10, "t/b/x/2": 20, "t/é/3": 100, "t/z": 3, "u": 1000}


def rows(text):
    return [(row["kind"], row["url"], row["objects"], row["size"]) for row in map(json.loads, text.splitlines())]


def test_a_line_for_each_prefix_one_for_the_rest_and_one_for_all(penstock, bucket):
    for key, size in SIZES.items():
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=bytes(size))
    done = penstock("du", "--json", f"{bucket.url}t/", bucket=bucket)
    assert (done.returncode, done.stderr) == (0, "")
    url = f"{bucket.url}t/"
    total = ("total", url, 6, 136)
    assert rows(done.stdout) == [
        ("prefix", f"{url}b/", 2, 30),
        ("prefix", f"{url}é/", 1, 100),
        ("objects", url, 3, 6),
        total,
    ]
    assert rows(penstock("du", "-s", "--json", url, bucket=bucket).stdout) == [total]
    assert rows(penstock("du", "--depth", "2", "--json", bucket.url, bucket=bucket).stdout) == [
        ("prefix", f"{url}b/", 2, 30),
        ("prefix", f"{url}é/", 1, 100),
        ("prefix", url, 6, 136),
        ("objects", bucket.url, 1, 1000),
        ("total", bucket.url, 7, 1136),
    ]


def test_a_tree_shows_the_largest_first_with_its_share(penstock, tmp_path):
    for key, size in SIZES.items():
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
    done = penstock("du", "-d", "2", f"{tmp_path}/")
    assert done.stdout.splitlines() == [
        f"  1.11 KiB  100% ████████████████████            7  file://{tmp_path}/",
        " 136 bytes   12% ██▍                             6  ├─ t/",
        " 100 bytes    9% █▊                              1  │  ├─ é/",
        "  30 bytes    3% ▌                               2  │  ├─ b/",
        "   6 bytes    1% ▏                               3  │  └─ (objects)",
        "1000 bytes   88% █████████████████▋              1  └─ (objects)",
    ]
    assert len(penstock("du", "-s", f"{tmp_path}/").stdout.splitlines()) == 1


def test_a_tree_without_unicode_is_made_of_ascii(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    total = SizeRow("total", "u/", 0, 1, 1, [SizeRow("prefix", "u/a/", 1, 1, 1)])
    assert [*_lines(total, 1, "", "")][1] == f"    1 byte  100% {'#' * 20}            1  `- a/"


def test_many_small_prefixes_share_a_line(penstock, tmp_path):
    for number in range(60):
        (tmp_path / f"{number:02}").mkdir()
        (tmp_path / f"{number:02}" / "x").write_bytes(bytes(100 - number))
    lines = penstock("du", f"{tmp_path}/").stdout.splitlines()
    assert len(lines) == 52
    assert lines[1].endswith("├─ 00/")
    assert lines[-1].endswith("10  └─ (10 smaller prefixes)")


def test_objects_alone_are_one_line(penstock, tmp_path):
    (tmp_path / "x").write_bytes(b"x")
    assert len(penstock("du", f"{tmp_path}/").stdout.splitlines()) == 1


def test_nothing_there_ends_with_1(penstock, tmp_path):
    done = penstock("du", f"{tmp_path}/none")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == f"penstock: no object's URL begins with this; a path without s3:// is local [file://{tmp_path}/none]\n"
    )


@given(keys=st.lists(st.text("ab/!", min_size=1, max_size=6), unique=True).map(sorted), size=st.integers(0, 9))
def test_each_object_is_counted_once_and_in_all(keys, size):
    loose, total = SizeRow("objects", ""), SizeRow("total", "")
    groups = list(_groups([ObjectMeta(key, size) for key in keys], (0, 1), str, (loose, total)))
    assert (total.objects, total.size_bytes) == (len(keys), size * len(keys))
    assert sum(group.objects for group in groups) + loose.objects == total.objects
    assert [group.url for group in groups] == sorted({key[: key.index("/") + 1] for key in keys if "/" in key})
