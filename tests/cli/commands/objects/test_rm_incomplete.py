"""What a killed writer leaves in a store can be seen, and freed, and a younger upload is left alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest


@pytest.fixture
def uploads(bucket):
    for key in ("run/a", "run/ü b", "other"):
        bucket.client.create_multipart_upload(Bucket=bucket.name, Key=key)
    return bucket


def left(bucket):
    found = bucket.client.list_multipart_uploads(Bucket=bucket.name).get("Uploads", [])
    return sorted(each["Key"] for each in found)


def test_old_ones_under_the_prefix_go_and_others_stay(penstock, uploads):
    url = uploads.url
    begun = uploads.client.list_multipart_uploads(Bucket=uploads.name)["Uploads"][0]["Initiated"]
    if datetime.now(UTC) - begun < timedelta(hours=1):  # moto says 2010 of every upload
        young = penstock("rm", "--incomplete", f"{url}run/", bucket=uploads)
        assert (young.returncode, young.stdout) == (1, "")
    planned = penstock("rm", "--incomplete", "--older-than", "0", "--dry-run", f"{url}run/", bucket=uploads)
    assert (planned.returncode, planned.stdout) == (0, f"{url}run/a\n{url}run/ü b\n")
    assert left(uploads) == ["other", "run/a", "run/ü b"]
    done = penstock("rm", "--incomplete", "--older-than", "0", f"{url}run/", bucket=uploads)
    assert (done.returncode, done.stderr) == (0, "aborted 2 uploads\n")
    assert left(uploads) == ["other"]


def test_files_aside_of_killed_writers(penstock, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / f".penstock-{0:032x}").write_bytes(b"half")
    (tmp_path / "run" / "whole").write_bytes(b"whole")
    done = penstock("rm", "--incomplete", "--older-than", "0", f"{tmp_path}/run/")
    assert done.returncode == 0
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["whole"]


def test_incomplete_uploads_of_unknown_age_are_reported_and_kept(penstock, container):
    for key in ("run/a", "run/b"):
        container.client.get_blob_client(key).stage_block("AAAA", b"x")
    told = penstock("rm", "--incomplete", "--older-than", "0", f"{container.url}run/", **container.account.environment)
    assert (told.returncode, told.stdout) == (1, "")
    assert f"left 2, the store does not report their age (Azure deletes them after a week): {container.url}run/a" in (
        told.stderr
    )
    uncommitted = container.client.list_blobs(include=["uncommittedblobs"])
    assert [each.name for each in uncommitted] == ["run/a", "run/b"]
