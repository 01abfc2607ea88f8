"""Objects are found by pattern, with the requests that the pattern needs, and no other."""

import glob

import pytest

import penstock as ps
from penstock.errors import ConfigError, InvalidURL, PenstockError
from penstock.testing.faults import FaultServer

KEYS = [
    *("a.txt", "b.csv", "data/1.csv", "data/2.csv", "data/10.csv", "data/x/1.csv", "data/x/y/1.csv", "data/note.txt"),
    *("data2/1.csv", "odd/[1].txt", "odd/*.txt", "odd/a?b#c%20.txt", "odd//twice.txt", "odd/é 1.txt"),
]


@pytest.fixture(scope="module")
def server():
    with FaultServer.within() as server:
        for key in [*KEYS, "data/marker/"]:
            server.put("bucket", key, b"" if key.endswith("/") else b"1")
        yield server


def _found(server, pattern):
    return [each.key for each in ps.glob(f"s3://bucket/{pattern}", store=server.store)]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*", ["a.txt", "b.csv"]),
        ("*.csv", ["b.csv"]),
        ("**", sorted(KEYS)),
        ("data/*.csv", ["data/1.csv", "data/10.csv", "data/2.csv"]),
        ("data/?.csv", ["data/1.csv", "data/2.csv"]),
        ("data/[12].csv", ["data/1.csv", "data/2.csv"]),
        ("data/[!1].csv", ["data/2.csv"]),
        ("data/**/*.csv", ["data/1.csv", "data/10.csv", "data/2.csv", "data/x/1.csv", "data/x/y/1.csv"]),
        ("data/*/1.csv", ["data/x/1.csv"]),
        ("data*/1.csv", ["data/1.csv", "data2/1.csv"]),
        *((none, []) for none in ("data/marker/*", "nothing/*", "missing.txt")),
        ("**/1.csv", ["data/1.csv", "data/x/1.csv", "data/x/y/1.csv", "data2/1.csv"]),
        *((same, [same]) for same in ("a.txt", "odd/a?b#c%20.txt")),
        *(("odd/[[]1].txt", ["odd/[1].txt"]), ("odd/[*].txt", ["odd/*.txt"]), ("odd/é*", ["odd/é 1.txt"])),
        *(("odd//*", ["odd//twice.txt"]), ("odd/*/*", ["odd//twice.txt"])),
    ],
)
def test_patterns(server, pattern, found):
    assert _found(server, pattern) == found


@pytest.mark.parametrize("key", KEYS)
def test_an_escaped_key_is_found_alone(server, key):
    assert _found(server, glob.escape(key)) == [key]
    assert key in _found(server, glob.escape(key[:-1]) + "*")


def test_glob_yields_the_same_entries_as_list(server):
    listed = {each.key: each for each in ps.list("s3://bucket/", store=server.store)}
    for each in ps.glob("s3://bucket/data/**", store=server.store):
        assert each == listed[each.key]
        assert each.url == f"s3://bucket/{each.key}"


@pytest.mark.parametrize(
    ("pattern", "requests"),
    [
        ("data/*.csv", [("GET", "prefix=data%2F", "delimiter")]),
        ("data/1*.csv", [("GET", "prefix=data%2F1", "delimiter")]),
        ("data/**.csv", [("GET", "prefix=data%2F", "")]),
        ("data/x/*/1.csv", [("GET", "prefix=data%2Fx%2F", "")]),
        ("odd/[[]*.txt", [("GET", "prefix=odd%2F%5B", "delimiter")]),
        ("data/1.csv", [("HEAD", "", "")]),
    ],
)
def test_requests(pattern, requests):
    from penstock.testing.servers import Scripted, reply
    from tests.servers.hostile import listing

    def script(received, send):
        return send(reply(200, listing([])) if received.method == "GET" else reply(404)) or True

    with Scripted(script) as other:
        assert [*ps.glob(f"s3://bucket/{pattern}", store=ps.S3Options(endpoint=other.url, anonymous=True))] == []
        asked = [(each.method, each.path) for each in other.received]
    assert [method for method, _ in asked] == [method for method, *_ in requests]
    for (_, path), (_, prefix, delimiter) in zip(asked, requests, strict=True):
        assert prefix in path
        assert ("delimiter" in path) == bool(delimiter)


def test_no_request_before_the_first_object():
    ps.glob("s3://bucket/*", store=ps.S3Options(endpoint="http://127.0.0.1:9", anonymous=True))


@pytest.mark.parametrize(
    ("url", "error", "advice"),
    [
        ("s3://bucket", InvalidURL, "ps.list"),
        ("s3://bucket/data/", InvalidURL, "'\\*\\*' at the end"),
        ("s3://bucket/[z-a]", ConfigError, "z-a"),
        ("s3://*/data", InvalidURL, "cannot be a bucket"),
        ("", InvalidURL, "empty"),
        (3, PenstockError, "int"),
        (["s3://bucket/*"], PenstockError, "list"),
    ],
)
def test_invalid_glob_pattern_is_refused_at_once(url, error, advice):
    with pytest.raises(error, match=advice):
        ps.glob(url)


def test_local_files_and_a_working_directory_with_brackets(tmp_path, monkeypatch):
    here = tmp_path / "[a]*"
    (here / "x").mkdir(parents=True)
    for name in ("1.csv", "2.csv", "x/3.csv"):
        (here / name).write_text("1")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "4.csv").write_text("1")
    monkeypatch.chdir(here)
    for pattern in ("*.csv", "./*.csv", glob.escape(f"{here}/") + "*.csv", f"file://{glob.escape(str(here))}/?.csv"):
        assert [each.key.rpartition("/")[2] for each in ps.glob(pattern)] == ["1.csv", "2.csv"], pattern
    assert [each.url for each in ps.glob("**/3.csv")] == [f"file://{here}/x/3.csv"]
    assert [each.key[-5:] for each in ps.glob(tmp_path / "?" / "*.csv")] == ["4.csv"]
