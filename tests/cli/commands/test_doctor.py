"""``penstock doctor``: a line a step, for people and for programs, and the exit code of the first failure."""

from __future__ import annotations

import json


def test_a_good_bucket_is_examined_line_by_line(penstock, bucket):
    done = penstock("doctor", bucket.url + "runs/", bucket=bucket)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("✓ settings")
    assert lines[-1].startswith("✓ delete")
    assert bucket.store.secret_key not in done.stdout
    records = [json.loads(line) for line in penstock("doctor", "--json", bucket.url, bucket=bucket).stdout.splitlines()]
    assert [each["name"] for each in records][:3] == ["settings", "name resolution", "connection"]
    assert set(records[0]) == {"name", "outcome", "detail", "elapsed_s"}


def test_the_exit_code_is_the_first_failures(penstock, bucket):
    missing = penstock("doctor", "--read-only", "s3://no-such-bucket-here/x", bucket=bucket)
    assert missing.returncode == 1
    assert "✗ list" in missing.stdout
    assert "NoSuchBucket" in missing.stdout
    keyless = penstock("doctor", bucket.url, AWS_ENDPOINT_URL=bucket.store.endpoint)
    assert keyless.returncode == 3
    assert "✗ credentials" in keyless.stdout
