"""``penstock cp``: from anywhere to anywhere, each object whole or not at all."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from dataclasses import replace

import pytest

import penstock as ps
from penstock.testing.faults import FAULTS, Match
from tests.terminal import read_all
from tests.trees import contents, plant

MIB = 1 << 20
NAMES = {"zero": 0, "a b/ü+%&=~?#.txt": 10, "日本/🙂 [x]*.bin": 2000, "long": 40 * MIB}


@pytest.fixture
def faulty(s3_process, request):
    """Give a test a bucket of its own on the fault server, and a server without faults after it."""
    s3_process.bucket = f"b{abs(hash(request.node.name))}"
    s3_process.make(s3_process.bucket)
    yield s3_process
    s3_process.heal()


@pytest.fixture
def tree(tmp_path, seed):
    return plant(tmp_path / "tree", NAMES, seed)


def waiting(process, condition):
    """Wait for a condition while the process lives."""
    while not condition():
        assert process.poll() is None, process.communicate()


@pytest.mark.parametrize("dest", ["-", "/dev/stdout", "/dev/stderr"])
def test_standard_output_is_refused_as_a_place_for_copies(penstock, tmp_path, dest):
    (tmp_path / "file").write_bytes(b"x")
    # As root, and with output into a file, a copy would replace /dev/stdout: only a dry run is safe here.
    done = penstock("cp", "--dry-run", f"{tmp_path}/file", dest)
    assert (done.returncode, done.stdout) == (2, "")
    assert "penstock cat writes to standard output" in done.stderr


def test_a_tree_goes_up_across_and_down_again(penstock, bucket, tree, tmp_path):
    for words in (
        (str(tree), f"{bucket.url}up"),
        (f"{bucket.url}up/", f"{bucket.url}across/"),
        (f"{bucket.url}across", str(tmp_path / "down") + "/"),
    ):
        done = penstock("cp", "-r", *words, bucket=bucket)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert done.stderr.startswith("copied 4 objects, 40 MiB in ")
    assert contents(tmp_path / "down" / "across") == contents(tree)
    assert {path.name for path in (tmp_path / "down").rglob(".*")} == set()
    sizes = {each["Key"]: each["Size"] for each in bucket.client.list_objects_v2(Bucket=bucket.name)["Contents"]}
    assert sizes == {f"{place}/{name}": size for place in ("across", "up") for name, size in NAMES.items()}


def test_a_thousand_small_objects_both_ways(penstock, faulty, tmp_path):
    for number in range(1000):
        path = tmp_path / "in" / f"{number % 7}" / f"{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"object {number}")
    done = penstock("cp", "-r", f"{tmp_path}/in/", f"s3://{faulty.bucket}", bucket=faulty)
    assert done.returncode == 0, done.stderr
    assert faulty.objects(faulty.bucket) == contents(tmp_path / "in")
    done = penstock("cp", f"s3://{faulty.bucket}/**", f"{tmp_path}/out/", bucket=faulty)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "out") == contents(tmp_path / "in")


def test_globs_choose_and_keep_names_from_the_first_wildcard_on(penstock, faulty, tmp_path):
    for key in ["t/a/1.png", "t/a/2.jpg", "t/b/x/3.png", "t/[1].png", "t/1.png"]:
        faulty.put(faulty.bucket, key, key.encode())
    url = f"s3://{faulty.bucket}/t"
    assert penstock("cp", f"{url}/**/*.png", f"{tmp_path}/deep", bucket=faulty).returncode == 0
    assert set(contents(tmp_path / "deep")) == {"1.png", "[1].png", "a/1.png", "b/x/3.png"}
    assert penstock("cp", f"{url}/*/[!2].png", f"{tmp_path}/flat/", bucket=faulty).returncode == 0
    assert set(contents(tmp_path / "flat")) == {"a/1.png"}
    assert penstock("cp", f"{url}/[1].png", f"{tmp_path}/literal", bucket=faulty).returncode == 0  # as it is there
    assert (tmp_path / "literal").read_text() == "t/[1].png"
    done = penstock("cp", f"{url}/*.gif", f"{tmp_path}/none/", bucket=faulty)
    assert (done.returncode, done.stderr) == (1, f"penstock: no object matches [{url}/*.gif]\n")


@pytest.mark.parametrize("command", ["cp", "mv"])
def test_ambiguous_or_conflicting_destination_is_refused_and_nothing_changes(penstock, faulty, tmp_path, command):
    faulty.put(faulty.bucket, "p/x", b"there")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dir").mkdir()
    prefix, folder = f"s3://{faulty.bucket}/p", f"file://{tmp_path}/dir"
    for words, described in [
        ((f"{tmp_path}/file", prefix), f"{prefix} is a prefix: write {prefix}/ to copy into it"),
        ((f"{tmp_path}/file", folder), f"{folder} is a directory: write {folder}/ to copy into it"),
        (("-r", f"{prefix}/", f"{tmp_path}/file"), "the destination is a file"),
        ((prefix, f"{tmp_path}/new"), f"this is a whole tree: pass -r for all objects below [{prefix}/]"),
        (("-r", str(tmp_path), f"{tmp_path}/dir/"), "the destination is inside the source"),
    ]:
        done = penstock(command, *words, bucket=faulty)
        assert (done.returncode, done.stdout) == (2, "")
        assert described in done.stderr
    assert faulty.objects(faulty.bucket) == {"p/x": b"there"}
    assert set(contents(tmp_path)) == {"file"}
    assert penstock(command, f"{tmp_path}/file", f"{prefix}/", bucket=faulty).returncode == 0
    assert faulty.objects(faulty.bucket)["p/file"] == b"mine"


@pytest.mark.parametrize("command", ["cp", "mv"])
def test_a_missing_source_or_bucket_ends_it_before_anything_is_done(penstock, faulty, tmp_path, command):
    (tmp_path / "here").write_text("x")
    for words, missing in [
        ((f"{tmp_path}/here", f"{tmp_path}/gone", f"s3://{faulty.bucket}"), f"file://{tmp_path}/gone"),
        ((f"{tmp_path}/here", "s3://no-such-bucket/x"), "s3://no-such-bucket/x"),
        ((f"s3://{faulty.bucket}/gone", f"{tmp_path}/"), f"s3://{faulty.bucket}/gone"),
        ((f"s3://{faulty.bucket}/gone*", f"{tmp_path}/"), f"s3://{faulty.bucket}/gone*"),
        (("-r", f"s3://{faulty.bucket}/gone/", f"{tmp_path}/"), f"s3://{faulty.bucket}/gone/"),
    ]:
        done = penstock(command, *words, bucket=faulty)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert missing in done.stderr
    assert faulty.objects(faulty.bucket) == {}
    assert set(contents(tmp_path)) == {"here"}


def test_hostile_keys_never_leave_the_destination(penstock, faulty, tmp_path):
    hostile = ["t/../../../out", "t//abs", "t/data/", "t/" + "x" * 300, "t/a/b", "t/./dot", "t/nul\0"]
    for key in [*hostile, "t/a", "t/ok", "t/marker/"]:
        faulty.put(faulty.bucket, key, b"" if key == "t/marker/" else b"x")
    done = penstock("cp", "-r", "--json", f"s3://{faulty.bucket}/t/", f"{tmp_path}/deep/down/", bucket=faulty)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    key = len(f"s3://{faulty.bucket}/")
    assert {line["source"][key:] for line in lines if line["status"] == "failed"} == set(hostile)
    assert {line["source"][key:]: line["note"] for line in lines if line["status"] == "skipped"} == {
        "t/marker/": "a directory's marker"
    }
    assert done.returncode == 2
    assert set(contents(tmp_path)) == {"deep/down/ok", "deep/down/a"}


def test_copy_failures_are_reported_and_the_worst_sets_the_exit_code(penstock, faulty, tmp_path):
    for key in ["1", "2", "3", "4"]:
        faulty.put(faulty.bucket, key, b"x")
    faulty.fail(FAULTS["denied"], when=Match(verb="get", key="2", times=None))
    (tmp_path / "4").mkdir()
    done = penstock("cp", f"s3://{faulty.bucket}/*", f"{tmp_path}/", bucket=faulty)
    assert done.returncode == 3  # 2 is denied, which is worse than a directory in the way of 4
    assert done.stderr.count("penstock: ") == 2
    assert "copied 2 objects, 2 bytes" in done.stderr
    assert done.stderr.endswith("2 failed\n")
    assert set(contents(tmp_path)) == {"1", "3"}


def test_fail_fast_stops_at_the_first(penstock, faulty, tmp_path):
    for number in range(200):
        faulty.put(faulty.bucket, f"{number:03}", b"x")
    faulty.fail(FAULTS["denied"], when=Match(verb="get", times=None))
    words = ("--fail-fast", f"s3://{faulty.bucket}/*", f"{tmp_path}/")
    done = penstock("cp", *words, bucket=faulty)
    assert done.returncode == 3
    assert done.stderr.count("penstock: ") == 1
    assert len(faulty.seen("get", faulty.bucket)) < 100


def test_resume_skips_unchanged_objects_and_copies_the_rest(penstock, faulty, tmp_path):
    for name in ["same", "other", "newer", "short", "gone"]:
        (tmp_path / name).write_text(f"1 {name}")
        os.utime(tmp_path / name, (1e9, 1e9))
    url = f"s3://{faulty.bucket}/"
    assert penstock("cp", "-r", f"{tmp_path}/", url, bucket=faulty).returncode == 0
    faulty.put(faulty.bucket, "short", b"1")
    assert penstock("rm", f"{url}gone", bucket=faulty).returncode == 0
    (tmp_path / "newer").write_text("2 newer")
    os.utime(tmp_path / "newer", (4e9, 4e9))
    before = len(faulty.seen("put", faulty.bucket))
    done = penstock("cp", "-r", "--resume", "--json", f"{tmp_path}/", url, bucket=faulty)
    status = {line["dest"][len(url) :]: line["status"] for line in map(json.loads, done.stdout.splitlines())}
    assert status == dict.fromkeys(["newer", "short", "gone"], "copied") | dict.fromkeys(["same", "other"], "skipped")
    assert len(faulty.seen("put", faulty.bucket)) == before + 3


def test_resume_compares_etags_where_both_are_of_the_content(penstock, faulty):
    other = f"{faulty.bucket}-2"
    for place, key, data in [
        (faulty.bucket, "a", b"1"),
        (faulty.bucket, "b", b"2"),
        (other, "a", b"1"),
        (other, "b", b"3"),
    ]:
        faulty.put(place, key, data)
    done = penstock("cp", "--resume", f"s3://{faulty.bucket}/*", f"s3://{other}/", bucket=faulty)
    assert "copied 1 object, 1 byte" in done.stderr
    assert done.stderr.endswith("1 skipped\n")
    assert faulty.objects(other) == {"a": b"1", "b": b"2"}


def test_dry_run_prints_every_copy_and_writes_nothing(penstock, faulty, tmp_path):
    for name in ["1", "2 3"]:
        (tmp_path / name).write_text("x")
    done = penstock("cp", "-r", "--dry-run", f"{tmp_path}/", f"s3://{faulty.bucket}/d/", bucket=faulty)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [
        f"file://{tmp_path}/{name} -> s3://{faulty.bucket}/d/{name}" for name in ["1", "2 3"]
    ]
    assert faulty.objects(faulty.bucket) == {}


def test_file_links_are_followed_and_directory_links_are_reported_as_skipped(penstock, faulty, tmp_path):
    (tmp_path / "t" / "real").mkdir(parents=True)
    (tmp_path / "t" / "real" / "file").write_text("x")
    (tmp_path / "t" / "to-file").symlink_to("real/file")
    (tmp_path / "t" / "to-dir").symlink_to("real")
    (tmp_path / "t" / "to-none").symlink_to("nowhere")
    done = penstock("cp", "-r", f"{tmp_path}/t/", f"s3://{faulty.bucket}/", bucket=faulty)
    assert done.returncode == 0
    assert f"penstock: left out: a link to a directory [{tmp_path}/t/to-dir]" in done.stderr
    assert f"penstock: left out: a link to no file [{tmp_path}/t/to-none]" in done.stderr
    assert set(faulty.objects(faulty.bucket)) == {"real/file", "to-file"}


@pytest.mark.parametrize("command", ["cp", "mv"])
def test_a_file_that_is_written_to_on_its_way_up_is_an_error_and_stays(start, faulty, tmp_path, command):
    path = tmp_path / "log"
    path.touch()
    os.truncate(path, 160 * MIB)  # more than is held on its way while no part gets through
    faulty.fail(FAULTS["500"], when=Match(verb="part", bucket=faulty.bucket, times=None))
    process = start(command, str(path), f"s3://{faulty.bucket}/", bucket=faulty)
    waiting(process, lambda: len(faulty.seen("part", faulty.bucket)) >= 1)
    with path.open("ab") as file:
        file.write(b"more")
    faulty.heal()
    error, sums = process.communicate(timeout=60)[1].splitlines()
    assert process.returncode == 1
    assert path.name in error
    assert sums.endswith("; 1 failed")
    assert faulty.objects(faulty.bucket) == {}
    assert faulty.uploads(faulty.bucket) == []
    assert path.stat().st_size == 160 * MIB + 4


def test_a_small_file_that_is_written_to_after_it_was_read_is_not_deleted(start, faulty, tmp_path):
    path = tmp_path / "log"
    path.write_text("first")
    faulty.fail(FAULTS["500"], when=Match(verb="put", bucket=faulty.bucket, times=None))
    process = start("mv", str(path), f"s3://{faulty.bucket}/", bucket=faulty)
    waiting(process, lambda: len(faulty.seen("put", faulty.bucket)) >= 1)
    path.write_text("first, and second")
    faulty.heal()
    error, _ = process.communicate(timeout=60)[1].splitlines()
    assert process.returncode == 1
    assert "written to while it was copied" in error
    assert faulty.objects(faulty.bucket) == {"log": b"first"}
    assert path.read_text() == "first, and second"


# Two parts of one size: side by side either may be the first to find the disk full.
@pytest.mark.parametrize(("size", "writing"), [(4 * MIB, 4 * MIB), (32 * MIB, 16 * MIB)], ids=["put", "stream"])
def test_full_disk_keeps_the_old_file_and_reports_required_bytes(penstock, faulty, disk, size, writing):
    (disk / "x").write_bytes(b"old" * 1000)
    faulty.put(faulty.bucket, "x", bytes(size))
    done = penstock("cp", f"s3://{faulty.bucket}/x", f"{disk}/", bucket=faulty)
    assert done.returncode == 6
    error, sums = done.stderr.splitlines()
    assert error.startswith(f"penstock: No space left on device: cannot write {writing} bytes, ")
    assert (f"; the whole object takes {size} [" in error) == (size != writing)
    assert f"{disk}/x]" in error
    assert sums.endswith("; 1 failed")
    assert contents(disk) == {"x": b"old" * 1000}


def test_a_full_disk_ends_it_and_it_can_be_taken_up_again(penstock, faulty, disk):
    for number in range(300):
        faulty.put(faulty.bucket, f"{number:03}", b"%d" % number * 10_000)
    url = f"s3://{faulty.bucket}/*"
    done = penstock("cp", url, f"{disk}/", bucket=faulty)
    assert done.returncode == 6
    assert done.stderr.count("No space left on device") == 1
    assert len(faulty.seen("get", faulty.bucket)) < 250  # nobody went on to read what has no room
    there = contents(disk)
    assert 0 < len(there) < 150
    assert there.items() <= faulty.objects(faulty.bucket).items()
    subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
    assert penstock("cp", "--resume", url, f"{disk}/", bucket=faulty).returncode == 0
    assert contents(disk) == faulty.objects(faulty.bucket)


def test_a_full_store_ends_it_too(penstock, faulty, tmp_path):
    full = replace(FAULTS["denied"], status=507, code="XMinioStorageFull")
    faulty.fail(full, when=Match(verb="put", times=None))
    for number in range(100):
        (tmp_path / f"{number}").write_text("x")
    done = penstock("cp", "-r", f"{tmp_path}/", f"s3://{faulty.bucket}/", bucket=faulty)
    assert (done.returncode, done.stderr.count("the store is full")) == (6, 1)
    assert len(faulty.seen("put", faulty.bucket)) < 90


def test_ctrl_c_leaves_no_part_of_an_upload(start, faulty, tmp_path):
    (tmp_path / "large").write_bytes(bytes(64 * MIB))
    faulty.fail(FAULTS["stall"], when=Match(verb="part", bucket=faulty.bucket, nth=2, times=None))
    process = start("cp", f"{tmp_path}/large", f"s3://{faulty.bucket}/", bucket=faulty)
    waiting(process, lambda: len(faulty.seen("part", faulty.bucket)) >= 1)
    assert faulty.uploads(faulty.bucket) == ["large"]
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.stderr.read() == ""
    assert faulty.uploads(faulty.bucket) == []
    assert faulty.objects(faulty.bucket) == {}


def test_ctrl_c_leaves_no_part_of_a_download(start, faulty, tmp_path):
    faulty.put(faulty.bucket, "large", bytes(128 * MIB))
    # Pieces go side by side and arrive in any order: with nine answers the first three, which are written, are there.
    faulty.fail(FAULTS["stall-body"], when=Match(verb="get", bucket=faulty.bucket, nth=10, times=None))
    process = start("cp", f"s3://{faulty.bucket}/large", f"{tmp_path}/", bucket=faulty)
    waiting(process, lambda: list(tmp_path.iterdir()))  # being written, aside
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.stderr.read() == ""
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_among_many_leaves_whole_ones_and_can_be_taken_up_again(start, penstock, faulty, tmp_path):
    for number in range(300):
        (tmp_path / f"{number}").write_bytes(b"%d" % number * 1000)
        os.utime(tmp_path / f"{number}", (1e9, 1e9))
    url = f"s3://{faulty.bucket}/"
    faulty.fail(FAULTS["stall"], when=Match(verb="put", bucket=faulty.bucket, nth=100, times=1000))
    process = start("cp", "-r", f"{tmp_path}/", url, bucket=faulty)
    waiting(process, lambda: len(faulty.seen("put", faulty.bucket)) >= 100)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    there = faulty.objects(faulty.bucket)
    assert 0 < len(there) < 300
    assert there.items() <= contents(tmp_path).items()
    faulty.heal()
    done = penstock("cp", "-r", "--resume", f"{tmp_path}/", url, bucket=faulty)
    assert f"{len(there)} skipped" in done.stderr
    assert faulty.objects(faulty.bucket) == contents(tmp_path)


def test_ctrl_c_among_many_downloads_leaves_whole_files_and_none_aside(start, penstock, faulty, tmp_path):
    for number in range(300):
        faulty.put(faulty.bucket, f"{number:03}", b"%d" % number * 5000)
    faulty.fail(FAULTS["stall-body"], when=Match(verb="get", bucket=faulty.bucket, nth=150, times=1000))
    process = start("cp", f"s3://{faulty.bucket}/*", f"{tmp_path}/out/", bucket=faulty)
    waiting(process, lambda: len(faulty.seen("get", faulty.bucket)) >= 150 and (tmp_path / "out").exists())
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    said = re.fullmatch(r"interrupted: copied (\d+) objects, [^\n]*\n", process.stderr.read())
    assert said
    assert 0 < int(said[1]) <= len([*(tmp_path / "out").iterdir()])  # some may have ended since they were counted
    there = contents(tmp_path / "out")
    assert not [name for name in there if ".penstock-" in name]
    assert 0 < len(there) < 300
    assert there.items() <= faulty.objects(faulty.bucket).items()
    faulty.heal()
    done = penstock("cp", "--resume", f"s3://{faulty.bucket}/*", f"{tmp_path}/out/", bucket=faulty)
    assert f"{len(there)} skipped" in done.stderr
    assert contents(tmp_path / "out") == faulty.objects(faulty.bucket)


def test_a_terminal_sees_a_bar(start, faulty, tmp_path):
    faulty.put(faulty.bucket, "x", bytes(100_000))
    faulty.fail(FAULTS["slow"], when=Match(verb="get", bucket=faulty.bucket))  # a second: what is quick shows none
    terminal, side = pty.openpty()
    process = start("cp", f"s3://{faulty.bucket}/x", f"{tmp_path}/", bucket=faulty, stderr=side)
    os.close(side)
    shown = read_all(terminal)
    assert process.wait() == 0
    assert "copying" in shown
    assert "━" in shown
    assert "copied 1 object, 97.7 KiB" in shown


@pytest.mark.parametrize("size", [0, 10, 20 * MIB], ids=["empty", "small", "parts"])
def test_type_and_metadata_go_along(penstock, bucket, size):
    """Between buckets, through this machine, and within one, on the server's side: for the store is the same."""
    client, other = bucket.client, f"{bucket.name}-other"
    client.create_bucket(Bucket=other)
    described = {"ContentType": "x/y; charset=z", "Metadata": {"made-by": "hand, and eye"}}
    client.put_object(Bucket=bucket.name, Key="t/a ü", Body=b"x" * size, **described)
    for words in [("-r", f"{bucket.url}t/", f"s3://{other}/"), (f"s3://{other}/a ü", f"s3://{other}/b")]:
        done = penstock("cp", *words, bucket=bucket)
        assert done.returncode == 0, done.stderr
    ps.copy(f"s3://{other}/a ü", f"{bucket.url}c", store=bucket.store)
    for place, key in [(other, "a ü"), (other, "b"), (bucket.name, "c")]:
        found = client.head_object(Bucket=place, Key=key)
        assert found["ContentLength"] == size
        assert found["ContentType"] == described["ContentType"]
        assert described["Metadata"].items() <= found["Metadata"].items()


def test_content_type_is_derived_from_the_file_name(penstock, faulty, tmp_path):
    types = {"ü.png": "image/png", "a.tar.gz": "application/octet-stream", "none": "application/octet-stream"}
    for name in types:
        (tmp_path / name).write_text("x")
    url = f"s3://{faulty.bucket}/"
    assert penstock("cp", "-r", f"{tmp_path}/", url, bucket=faulty).returncode == 0
    assert {name: ps.stat(url + name, store=faulty.store).content_type for name in types} == types
