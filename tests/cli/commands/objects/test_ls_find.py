"""The command find: URLs, or JSON, of what is wanted; code 1 where there is nothing."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def tree(tmp_path):
    for name, size in (("a.png", 10), ("x/b.png", 5000), ("x/c", 1)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    return tmp_path


def test_find_prints_only_urls_matching_the_filters(penstock, tree):
    done = penstock("find", str(tree), "--name", "*.png", "--larger", "4k", "--newer", "1h")
    assert (done.returncode, done.stdout) == (0, f"file://{tree}/x/b.png\n"), done.stderr
    done = penstock("find", str(tree), "--type", "folder", "--json")
    assert [json.loads(line)["url"] for line in done.stdout.splitlines()] == [f"file://{tree}/x/"]


def test_nothing_and_wrong_uses(penstock, tree):
    for words, code, said in (
        (("--older", "1h"), 1, "no object has the requested name, size and age"),
        (("--type", "marker"), 1, "no object's URL begins with this"),
        (("--type", "link"), 2, "object, marker, folder"),
        (("--larger", "big"), 2, "like 10k or 4MiB"),
    ):
        done = penstock("find", str(tree), *words)
        assert (done.returncode, done.stdout) == (code, "")
        assert said in done.stderr
