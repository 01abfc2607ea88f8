"""The benchmark of many small objects runs, and its server lists as S3 does."""

from __future__ import annotations

import pytest

import penstock as ps
from benchmarks import bulk
from benchmarks.server import FILES, missing, serve
from tests.conftest import REQUIRE_SERVERS

KEYS = ["a", "a b/+%&.bin", "a/b/c", "a/b/d", "a/e", "b/ü/x", "b.txt", "c/d"]


@pytest.fixture
def source(tmp_path):
    if message := missing():
        (pytest.fail if REQUIRE_SERVERS else pytest.skip)(message)
    (tmp_path / "data").mkdir()
    with serve(tmp_path) as server:
        yield ps.S3Options(endpoint=server.plain, access_key="key", secret_key="secret", region="us-east-1")


def test_listings_are_those_of_s3(source):
    keys = [key for key in KEYS if key != "a"]  # a file system's own limit: a file and a folder have no one name
    for key in keys:
        with ps.open(f"s3://{FILES}/{key}", "wb", store=source) as writer:
            writer.write(key.encode())
    found = [*ps.list(f"s3://{FILES}/", store=source)]
    assert [each.key for each in found] == sorted(keys)
    assert [each.size for each in found] == [len(each.key.encode()) for each in found]
    for each in found:
        assert ps.stat(each.url, store=source).etag == each.etag
        assert ps.open(each.url, store=source).read() == each.key.encode()
    for prefix in ("a/", "a", "b/ü/", "x"):
        wanted = [key for key in sorted(keys) if key.startswith(prefix)]
        assert [each.key for each in ps.list(f"s3://{FILES}/{prefix}", store=source)] == wanted


def test_many_pages_and_folders(source, tmp_path):
    keys = [f"{number % 7}/{number:04}" for number in range(2345)]
    for key in keys:
        path = tmp_path / FILES / key
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert [each.key for each in ps.list(f"s3://{FILES}/", store=source)] == sorted(keys)
    path = ps.Path(f"s3://{FILES}/", store=source)
    assert sorted(each.name for each in path.iterdir()) == [*"0123456"]


@pytest.mark.usefixtures("source")
def test_bulk_benchmark_without_other_tools_reports_every_penstock_run(capsys):
    bulk.main(["--objects", "20", "--rounds", "2", "--only"])
    assert capsys.readouterr().out.count("penstock") == 15
