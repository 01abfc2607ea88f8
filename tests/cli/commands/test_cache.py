"""``penstock cache``: filled from a store, listed, verified, emptied; told as text and as JSON."""

import json
import signal
import subprocess
from contextlib import suppress

import pytest

import penstock as ps
from penstock.cli.commands.cache import CacheRow, as_json, as_long, as_url
from penstock.testing.faults import FAULTS, FaultServer, Match

COUNT = 6


@pytest.fixture(scope="module")
def server():
    with FaultServer.within() as found:
        for number in range(COUNT):
            found.put("cached", f"a/{number}", b"%d" % number * 2000)
        found.put("cached", "b/ü\n", b"x" * 10)
        yield found


@pytest.fixture
def run(penstock, server, tmp_path):
    """Run a command with a cache in a directory of this test's own."""

    def command(*words, **variables):
        near = {"PENSTOCK_CACHE": str(tmp_path / "near"), "PENSTOCK_CACHE_SIZE": "16 MiB", "XDG_CONFIG_HOME": "/none"}
        return penstock("cache", *words, **(server.environment | near | variables))

    server.heal()
    return command


def rows(text):
    return [json.loads(line) for line in text.splitlines()]


def test_a_cache_is_warmed_listed_verified_and_emptied(run, server, tmp_path):
    assert run("ls").returncode == 1
    done = run("warm", "s3://cached/a", "s3://cached/b", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    (row,) = rows(done.stdout)
    assert row == {
        "fetched": COUNT + 1,
        "fetched_bytes": COUNT * 2000 + 10,
        "present": 0,
        "missing": 0,
        "left_out": 0,
        "failed": 0,
        "nodes": 1,
    }
    before = len(server.seen("get"))
    done = run("warm", "s3://cached/a")
    assert (done.returncode, done.stderr) == (0, f"read 0 parts, 0 bytes; {COUNT} were there\n")
    assert len(server.seen("get")) == before

    listed = run("ls", "s3://cached/a/")
    assert listed.stdout.splitlines() == [f"s3://cached/a/{number}" for number in range(COUNT)]
    assert listed.stderr.startswith(f"{COUNT} objects; the cache holds ")
    found = rows(run("ls", "--json").stdout)
    assert [each["url"] for each in found] == [*listed.stdout.splitlines(), "s3://cached/b/ü\n"]
    assert {(each["size"], each["cached"]) for each in found} == {(2000, 2000), (10, 10)}
    assert all(each["stored"] >= each["size"] and each["used"] and each["kept"] for each in found)
    assert run("ls", "s3://other/").returncode == 1

    assert rows(run("verify", "--json").stdout) == [{"entries": COUNT + 1, "size": COUNT * 2000 + 10, "damaged": 0}]
    done = run("clear", "s3://cached/a/")
    assert done.stderr.startswith(f"removed {COUNT} parts, ")
    assert [each["url"] for each in rows(run("ls", "--json").stdout)] == ["s3://cached/b/ü\n"]
    assert rows(run("clear", "--json").stdout)[0]["entries"] == 1
    assert not [each for each in (tmp_path / "near").rglob("*") if each.is_file()]


def test_interrupted_cache_warm_exits_with_130_and_the_next_run_completes(run, start, server, tmp_path, monkeypatch):
    for name, value in (server.environment | {"PENSTOCK_CACHE": str(tmp_path / "near")}).items():
        monkeypatch.setenv(name, value)
    server.fail(FAULTS["stall"], when=Match(verb="get", key="a/5", times=None))
    before = len(server.seen("get", "cached"))
    process = start("cache", "warm", "s3://cached/a")
    while len(server.seen("get", "cached")) < before + COUNT:
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(process.wait(0.02))
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told.startswith("read ")) == (130, True)
    server.heal()
    (row,) = rows(run("warm", "s3://cached/a", "--json").stdout)
    assert row["fetched"] + row["present"] == COUNT
    assert row["fetched"] >= 1
    assert len(run("ls").stdout.splitlines()) == COUNT


def test_cache_verify_removes_damaged_entry_and_exits_with_5(run, tmp_path):
    assert run("warm", "s3://cached/a").returncode == 0
    entry = max((tmp_path / "near").rglob("*"), key=lambda each: each.stat().st_size if len(each.name) > 20 else 0)
    data = bytearray(entry.read_bytes())
    data[7] ^= 1
    entry.write_bytes(data)
    done = run("verify")
    assert (done.returncode, done.stderr.endswith("; 1 damaged, and removed\n")) == (5, True)
    assert run("verify").returncode == 0
    assert run("warm", "s3://cached/a").stderr == f"read 1 part, {2000 / 1024:.3g} KiB; {COUNT - 1} were there\n"


def test_catalog_warm_reports_failures_and_insufficient_cache_space(run, server, tmp_path):
    catalog = ps.Catalog.scan("s3://cached/", store=server.store)
    catalog.save("s3://cached/c.catalog", store=server.store)
    server.fail(FAULTS["denied"], when=Match(verb="get", key="a/3", times=None))
    done = run("warm", "--catalog", "s3://cached/c.catalog")
    assert done.returncode == 3
    assert "a/3" in done.stderr.splitlines()[0]
    assert done.stderr.splitlines()[1].endswith("; 1 failed")
    # "Try later" is the code of failures that a retry can fix, all of them.
    server.fail(FAULTS["503"], when=Match(verb="get", key="a/4", times=None))
    words = ("--catalog", "s3://cached/c.catalog", "-o", "retry.attempts=1")
    mixed = run("warm", *words, PENSTOCK_CACHE=f"{tmp_path}/other")
    assert (mixed.returncode, mixed.stderr.splitlines()[2].endswith("; 2 failed")) == (3, True)
    server.heal()
    for number in range(8):
        server.put("large", f"{number}", bytes(1 << 20))
    done = run("warm", "s3://large/", PENSTOCK_CACHE_SIZE="4 MiB")
    assert (done.returncode, "left out: the cache is full" in done.stderr) == (6, True)


def test_cache_warm_without_a_directory_advises_setting_penstock_cache(run, tmp_path):
    done = run("warm", "s3://cached/a", PENSTOCK_CACHE="")
    assert (done.returncode, "set PENSTOCK_CACHE" in done.stderr) == (2, True)
    done = run("warm", "s3://cached/a", "--cache", str(tmp_path / "other"), PENSTOCK_CACHE="")
    assert done.returncode == 0
    listed = run("ls", "--cache", str(tmp_path / "other"), PENSTOCK_CACHE="")
    assert len(listed.stdout.splitlines()) == COUNT


def test_the_cache_of_a_profile_is_found(run, server, tmp_path):
    (tmp_path / "penstock.toml").write_text(
        f"[profiles.x]\nprovider = 's3'\noptions.endpoint = '{server.endpoint}'\ncache.path = 'own'\n"
    )
    config = {"PENSTOCK_CONFIG": str(tmp_path / "penstock.toml"), "PENSTOCK_CACHE": ""}
    assert run("warm", "--store", "x", "s3://cached/a", **config).returncode == 0
    assert len(run("ls", "--store", "x", **config).stdout.splitlines()) == COUNT
    assert (tmp_path / "own").is_dir()


def test_unusable_cache_directory_is_reported_on_at_most_one_line(run, tmp_path):
    (tmp_path / "near").write_bytes(b"a file")
    for words in (["verify"], ["clear"], ["ls"]):
        done = run(*words)
        assert done.returncode in (1, 2)
        assert len(done.stderr.splitlines()) <= 1


def test_rows_are_shown_as_url_in_columns_and_as_json():
    row = CacheRow("s3://b/k", "e", 7, 7, 4096, 0.0, 1.5)
    assert as_url(row) == "s3://b/k"
    assert as_long(row) == "     4 KiB     7 bytes  1970-01-01T00:00:00Z  s3://b/k"
    assert as_long(CacheRow("u", "", -1)).split()[:3] == ["0", "bytes", "-"]
    assert json.loads(as_json(CacheRow("u", "", -1)))["size"] is None


def test_help_and_behaviour_agree_on_the_directory_that_none_names(penstock, server, tmp_path):
    """What reads looks into the user's own; nothing is written where no program would look for it."""
    nothing = {"PENSTOCK_CACHE": "", "HOME": str(tmp_path), "XDG_CACHE_HOME": "", "XDG_CONFIG_HOME": "/none"}
    for command in ("ls", "verify", "clear"):
        done = penstock("cache", command, **(server.environment | nothing))
        assert done.returncode == (1 if command == "ls" else 0), done.stderr
    assert str(tmp_path / ".cache" / "penstock") in penstock("cache", "ls", **(server.environment | nothing)).stderr
    done = penstock("cache", "warm", "s3://cached/a", **(server.environment | nothing))
    assert (done.returncode, "this store has no cache" in done.stderr) == (2, True)
    assert [*tmp_path.iterdir()] == []
    said = " ".join(penstock("cache", "--help").stdout.replace("│", " ").split())
    assert "ls, verify and clear look into ~/.cache/penstock, and warm is refused" in said
    assert "Name the cache" in " ".join(penstock("cache", "warm", "--help").stdout.split())


@pytest.mark.parametrize("command", ["ls", "verify", "clear"])
def test_cache_path_that_names_a_file_exits_with_2(penstock, tmp_path, command):
    (tmp_path / "file").write_bytes(b"x")
    done = penstock("cache", command, "--cache", str(tmp_path / "file"))
    assert (done.returncode, "choose a directory" in done.stderr) == (2, True), done.stderr
