"""Commands on a web server: what they list and copy where sizes are known and where they are not."""

from __future__ import annotations

import json

import pytest

import penstock as ps


@pytest.mark.parametrize("form", ["index", "rounded", "json"])
def test_files_are_listed_measured_and_copied(penstock, served, tmp_path, form):
    (served.folder / "in" / "ü").mkdir(parents=True)
    contents = {"a b.txt": b"x" * 20_000, "ü/c%.txt": b"c"}
    for name, data in contents.items():
        (served.folder / "in" / name).write_bytes(data)
    root = f"{served.roots[form]}in/"
    done = penstock("cp", "-r", root, f"{tmp_path}/out/")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "a b.txt").read_bytes() == contents["a b.txt"]
    assert (tmp_path / "out" / "ü" / "c%25.txt").read_bytes() == b"c"
    listed = [json.loads(line) for line in penstock("ls", "--json", root).stdout.splitlines()]
    assert [each["key"] for each in listed] == ["in/a b.txt", "in/ü/c%25.txt"]
    assert [each["size"] for each in listed] == [None if form == "rounded" else 20_000, 1]
    total = json.loads(penstock("du", "--json", root).stdout.splitlines()[-1])
    assert (total["kind"], total["size"], total["objects"]) == ("total", 20_001, 2)
    assert penstock("stat", f"{root}a%20b.txt").returncode == 0


def test_failed_web_commands_never_print_the_query_string(penstock, served, tmp_path):
    (served.folder / "x").write_bytes(b"content")
    root = served.roots["bare"]
    for words in (
        ("cp", str(tmp_path), f"{root}y?sig=hushhush"),
        ("rm", f"{root}x?sig=hushhush"),
        ("ls", root),
        ("cat", f"{root}none?sig=hushhush"),
    ):
        done = penstock(*words)
        assert done.returncode not in (0, 70), words
        assert "hushhush" not in done.stderr
    ps.copy(f"{root}x?sig=hushhush", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"content"
