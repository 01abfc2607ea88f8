"""``penstock cat``: every byte, in order, in little memory, and quiet when nobody reads on."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from tests.children import PEAK_KIB
from tests.cli.conftest import COMMAND, environment

MIB = 1 << 20


def cat(*words, bucket=None):
    env = environment(bucket) if bucket else None
    return subprocess.run([*COMMAND, "cat", *words], env=env, capture_output=True, check=False, timeout=60)


def test_objects_come_one_after_another(bucket, seed):
    bodies = {"a": b"first\n", "ü z": b"", "c": random.Random(seed).randbytes(20 * MIB)}
    for key, body in bodies.items():
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=body)
    done = cat(*(bucket.url + key for key in bodies), bucket=bucket)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"".join(bodies.values())
    assert (
        cat("--range", f"{8 * MIB - 1}:{16 * MIB + 1}", f"{bucket.url}c", bucket=bucket).stdout
        == bodies["c"][8 * MIB - 1 : 16 * MIB + 1]
    )


def test_a_glob_s_objects_come_in_the_order_of_their_keys(bucket, tmp_path):
    for key, body in {"t/2": b"two ", "t/10": b"ten ", "t/[1]": b"one ", "t/x/3": b"deep", "t/d/": b""}.items():
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=body)
    assert cat(f"{bucket.url}t/*", f"{bucket.url}t/[1]", bucket=bucket).stdout == b"ten two one one "
    assert cat("--range", "1:3", f"{bucket.url}**", bucket=bucket).stdout == b"enwoneee"
    done = cat(f"{bucket.url}t/2", f"{bucket.url}t/*.gif", bucket=bucket)
    assert (done.returncode, done.stdout) == (1, b"two ")
    assert done.stderr == f"penstock: no object matches [{bucket.url}t/*.gif]\n".encode()
    (tmp_path / "b").write_bytes(b"b")
    (tmp_path / "a").write_bytes(b"a")
    assert cat(f"{tmp_path}/../{tmp_path.name}/*").stdout == b"ab"


@pytest.mark.parametrize(
    ("span", "part"),
    [
        ("2:5", b"234"),
        (":3", b"012"),
        ("7:", b"789"),
        (":", b"0123456789"),
        ("4:4", b""),
        ("8:99", b"89"),
        ("20:", b""),
    ],
)
def test_a_range_is_half_open_and_ends_with_the_object(tmp_path, span, part):
    (tmp_path / "digits").write_bytes(b"0123456789")
    done = cat("--range", span, f"{tmp_path}/digits")
    assert (done.returncode, done.stdout, done.stderr) == (0, part, b"")


@pytest.mark.parametrize("span", ["5", "a:b", "-3:", "5:2", "1:2:3", ""])
def test_invalid_range_option_exits_with_2(tmp_path, span):
    done = cat(f"--range={span}", f"{tmp_path}/any")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"START:STOP" in done.stderr


def test_cat_stops_at_the_first_missing_file_and_exits_with_1(tmp_path):
    (tmp_path / "a").write_bytes(b"a")
    done = cat(f"{tmp_path}/a", f"{tmp_path}/b", f"{tmp_path}/a")
    assert (done.returncode, done.stdout) == (1, b"a")
    assert done.stderr.startswith(b"penstock: no such file")
    assert cat("s3://bucket").returncode == 2


def test_a_reader_that_goes_away_ends_it_quietly(start, tmp_path):
    (tmp_path / "long").write_bytes(bytes(MIB))  # more than a pipe holds
    process = start("cat", f"{tmp_path}/long")
    assert process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 141


def test_memory_is_bounded(tmp_path):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(600 * MIB)
    code = f"""{PEAK_KIB}
import atexit, sys
from penstock.cli import main
atexit.register(lambda: print(peak_kib(), file=sys.stderr))
main()
"""
    command = [sys.executable, "-c", code, "cat", f"{tmp_path}/sparse"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True, timeout=100)
    assert int(done.stderr) < 250 * 1024  # the interpreter, and 64 MiB read ahead
