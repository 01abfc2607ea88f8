"""``penstock bench``: a line for each step, for people and for programs; a page; and nothing is left after Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from penstock.testing.faults import FaultServer

QUICK = ("--seconds", "0.05")


@pytest.fixture
def server():
    with FaultServer.within() as running:
        running.make("bucket")
        yield running


@pytest.fixture
def there(server, monkeypatch):
    """Have commands ask the server."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


def test_a_bucket_is_measured_line_by_line_and_left_as_it_was(penstock, there, tmp_path):
    there.put("bucket", "train/0", bytes(3000))
    page = tmp_path / "page.html"
    done = penstock("bench", *QUICK, "--html", str(page), "s3://bucket/train/")
    assert (done.returncode, done.stderr) == (0, "")
    steps = [line.split("  ")[0] for line in done.stdout.splitlines() if line[0] in "✓✗-"]
    assert steps == ["✓ list", "✓ write small", "✓ write large", "✓ read small", "✓ read large", "✓ delete"]
    assert "limited by " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("This machine: ")
    assert "read small" in page.read_text()
    assert [*there.objects("bucket")] == ["train/0"]
    assert there.settings.secret_key not in done.stdout + page.read_text()


def test_programs_get_lines_of_json_and_the_transform_of_the_working_directory(penstock, there, tmp_path, monkeypatch):
    (tmp_path / "training.py").write_text("def decode(sample): return len(sample.read())\n")
    monkeypatch.chdir(tmp_path)
    there.put("bucket", "train/0", bytes(3000))
    done = penstock("bench", *QUICK, "--json", "--read-only", "--transform", "training:decode", "s3://bucket/train/")
    assert (done.returncode, done.stderr) == (0, "")
    *records, machine = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["name"] for each in records][:5] == ["list", "write", "read small", "read large", "decode"]
    assert records[1]["outcome"] == records[3]["outcome"] == "skipped"
    assert records[2]["bytes_per_s"] > 0
    assert records[2]["binds"]
    assert machine["name"] == "machine"
    assert machine["cores"] > 0
    assert "An epoch of such objects is bound by" in machine["epoch"]


def test_the_exit_code_is_the_first_failures(penstock, there, tmp_path):
    done = penstock("bench", *QUICK, "s3://no-such-bucket-here/")
    assert done.returncode == 1
    assert "✗ list" in done.stdout
    assert penstock("bench", "--seconds", "0", "s3://bucket/").returncode == 2
    assert penstock("bench", "--transform", "nowhere:x", "s3://bucket/").returncode == 2
    assert penstock("bench", "--html", str(tmp_path / "no" / "page"), "s3://bucket/").returncode == 2
    there.put("bucket", "train/0", bytes(3000))
    done = penstock(
        "bench", *QUICK, "--read-only", "--transform", "tests.cli.commands.test_bench:broken", "s3://bucket/train/"
    )
    assert done.returncode == 1
    assert "✗ decode             ValueError: no image" in done.stdout


def broken(_sample):
    raise ValueError("no image")


def test_ctrl_c_leaves_nothing_behind_and_an_older_page_as_it_was(start, there, tmp_path):
    (tmp_path / "page.html").write_text("before")
    process = start("bench", "--seconds", "600", "--html", str(tmp_path / "page.html"), "s3://bucket/")
    while len(there.seen("put")) < 10:
        with pytest.raises(subprocess.TimeoutExpired):  # it lives; and the server, in this process, has its turn
            process.wait(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert there.objects("bucket") == {}
    assert there.uploads("bucket") == []
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("page.html", "before")]
