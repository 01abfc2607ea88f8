"""``penstock copy-tree``, ``sync --job``, ``jobs``: a tree in parts; jobs are listed, shown, continued and deleted."""

import json

import pytest

from tests.data.shards.archives import tar


@pytest.fixture
def job(penstock, tmp_path):
    (tmp_path / "from").mkdir()
    for number in range(5):
        (tmp_path / "from" / f"{number}").write_bytes(b"x" * number)
    done = penstock("copy-tree", f"{tmp_path}/from", f"{tmp_path}/to", "--job", f"{tmp_path}/jobs/one")
    assert done.returncode == 0, done.stderr
    return tmp_path / "jobs" / "one"


def test_a_job_is_listed_and_shown(penstock, job):
    listed = json.loads(penstock("jobs", "ls", "--json", str(job.parent)).stdout)
    assert (listed["operation"], listed["parts"], listed["parts_done"], listed["objects"]) == ("sync", 1, 1, 5)
    assert "1/1      parts" in penstock("jobs", "ls", str(job.parent)).stdout
    shown = penstock("jobs", "show", str(job))
    assert "1 of 1 done, 0 with failures" in shown.stdout
    assert "copied bytes  10 bytes" in shown.stdout
    record = json.loads(penstock("jobs", "show", "--json", str(job)).stdout)
    assert record["arguments"]["source"].endswith("/from/")
    assert (record["copied"], record["copied_bytes"], record["bytes"], record["failures"]) == (5, 10, 10, [])


def test_a_page_shows_a_job(penstock, job, tmp_path):
    shown = penstock("jobs", "show", str(job), "--html", f"{tmp_path}/job.html")
    assert shown.returncode == 0, shown.stderr
    assert "<h1>sync</h1>" in (tmp_path / "job.html").read_text()
    assert penstock("jobs", "show", str(job), "--html", f"{tmp_path}/no/job.html").returncode == 2


def test_a_job_of_an_unknown_operation_is_refused(penstock, job):
    plan = json.loads((job / "plan.json").read_text())
    (job / "plan.json").write_text(json.dumps(plan | {"operation": "fly"}))
    done = penstock("jobs", "resume", str(job))
    assert done.returncode == 2
    assert "unknown operation 'fly'" in done.stderr


def test_a_job_is_continued(penstock, job, tmp_path):
    (tmp_path / "to" / "3").unlink()
    next((job / "done").rglob("000000.json")).unlink()
    assert "0 of 1 done" in penstock("jobs", "show", str(job)).stdout
    done = penstock("jobs", "resume", str(job))
    assert done.stdout == "1 object copied (3 bytes), 4 unchanged, 1 of 1 part done\n"
    assert (tmp_path / "to" / "3").read_bytes() == b"xxx"


def test_records_are_deleted_and_copies_stay(penstock, job, tmp_path):
    done = penstock("jobs", "rm", str(job))
    assert done.stdout == f"3 records of file://{job}/ deleted\n"
    assert len([*(tmp_path / "to").iterdir()]) == 5
    for words in (("ls", str(job.parent)), ("show", str(job)), ("resume", str(job)), ("rm", str(job))):
        gone = penstock("jobs", *words)
        assert gone.returncode == 1
        assert "no plan of a job found" in gone.stderr


def test_a_sync_in_parts_deletes_and_is_continued(penstock, job, tmp_path):
    words = ["sync", "--delete", f"{tmp_path}/from", f"{tmp_path}/to"]
    (tmp_path / "to" / "old").write_bytes(b"old")
    refused = penstock(*words, "--job", str(job))
    assert (refused.returncode, "job= has a different job" in refused.stderr) == (2, True)
    planned = penstock(*words, "--job", f"{tmp_path}/jobs/two", "--part", "2/2", "--json")
    assert (json.loads(planned.stdout)["deleted"], json.loads(planned.stdout)["parts"]) == (0, 0)
    done = penstock("jobs", "resume", f"{tmp_path}/jobs/two")
    assert done.stdout == "0 objects copied (0 bytes), 5 unchanged, 1 deleted, 1 of 1 part done\n"
    assert not (tmp_path / "to" / "old").exists()
    assert penstock(*words, "--job", str(job), "--dry-run").stderr.startswith("penstock: dry_run=True (--dry-run)")


def test_processes_share_a_tree(penstock, tmp_path):
    (tmp_path / "from").mkdir()
    for number in range(5):
        (tmp_path / "from" / f"{number}").write_bytes(b"x" * number)
    words = ["copy-tree", f"{tmp_path}/from", f"{tmp_path}/to", "--job", f"{tmp_path}/job", "--exclude", "4"]
    first = penstock(*words, "--part", "2/2", "--json")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout) == {
        "copied": 0,
        "copied_bytes": 0,
        "unchanged": 0,
        "deleted": 0,
        "skipped": 0,
        "failed": 0,
        "parts": 0,
        "parts_done": 0,
        "parts_failed": 0,
    }
    second = penstock(*words, "--part", "1/2")
    assert second.stdout == "4 objects copied (6 bytes), 0 unchanged, 1 of 1 part done\n"
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == ["0", "1", "2", "3"]


def test_wrong_words_are_refused(penstock, tmp_path):
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "x").write_bytes(b"")
    trees = ["copy-tree", f"{tmp_path}/from", f"{tmp_path}/to"]
    assert penstock(*trees).returncode == 2
    for words, told in (
        (("--part", "3"), "part must be like 3/16"),
        (("--job", f"{tmp_path}/from/job"), "outside the trees"),
    ):
        done = penstock(*trees, "--job", f"{tmp_path}/job", *words)
        assert done.returncode == 2
        assert told in done.stderr


@pytest.fixture
def trees(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for number in range(5):
            (tmp_path / name / f"{number}").write_bytes(b"x" * number)
    return f"{tmp_path}/one", f"{tmp_path}/two"


def test_a_digest_is_printed(penstock, trees):
    one, two = (json.loads(penstock("verify", tree, "--json").stdout) for tree in trees)
    assert one == two == {"objects": 5, "bytes": 10, "digest": one["digest"], "parts": 1}
    assert penstock("verify", trees[0]).stdout == f"5 objects verified, 10 bytes, digest {one['digest']}\n"


def test_a_difference_has_an_exit_code_and_a_job_is_continued(penstock, trees, tmp_path):
    (tmp_path / "two" / "3").write_bytes(b"y" * 3)
    words = [trees[1], trees[0], "--job", f"{tmp_path}/job"]
    failed = penstock("verify", *words)
    assert failed.returncode != 0
    assert "the bytes are not those of" in failed.stderr
    (tmp_path / "two" / "3").write_bytes(b"x" * 3)
    assert penstock("jobs", "resume", f"{tmp_path}/job").stdout == "5 objects verified, 10 bytes\n"
    assert "verified bytes  10 bytes" in penstock("jobs", "show", f"{tmp_path}/job").stdout


def test_an_index_in_parts_is_continued(penstock, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.tar").write_bytes(tar([("0.jpg", b"x"), ("1.jpg", b"y")]))
    words = ["--format", "tar", f"{tmp_path}/data", f"{tmp_path}/x.catalog", "--job", f"{tmp_path}/job"]
    first = penstock("index", *words, "--part", "2/2")
    assert first.stdout == "the parts of this process are done, and others are left\n", first.stderr
    resumed = penstock("jobs", "resume", f"{tmp_path}/job", "--processes", "2")
    assert resumed.stdout.endswith(": 2 samples, 1 KiB\n"), resumed.stderr
    assert (tmp_path / "x.catalog").exists()
    assert penstock("index", *words, "--refresh").returncode == 2
