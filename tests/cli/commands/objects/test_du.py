"""``penstock du``: sums by what comes next in the keys."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.commands.objects.du import Row, _groups
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
    text = penstock("du", bucket.url, bucket=bucket).stdout
    assert [line.split() for line in text.splitlines()] == [
        ["136", "6", f"{bucket.url}t/"],
        ["1000", "1", bucket.url, "(in", "no", "prefix)"],
        ["1136", "7", bucket.url, "(all)"],
    ]


def test_nothing_there_ends_with_1(penstock, tmp_path):
    done = penstock("du", f"{tmp_path}/none")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == f"penstock: nothing there begins with this URL; a path without s3:// in front is one of this machine [file://{tmp_path}/none]\n"
    )


@given(keys=st.lists(st.text("ab/!", min_size=1, max_size=6), unique=True).map(sorted), size=st.integers(0, 9))
def test_each_object_is_counted_once_and_in_all(keys, size):
    loose, total = Row("objects", ""), Row("total", "")
    groups = list(_groups([ObjectMeta(key, size) for key in keys], 0, str, (loose, total)))
    assert (total.objects, total.size_bytes) == (len(keys), size * len(keys))
    assert sum(group.objects for group in groups) + loose.objects == total.objects
    assert [group.url for group in groups] == sorted({key[: key.index("/") + 1] for key in keys if "/" in key})
