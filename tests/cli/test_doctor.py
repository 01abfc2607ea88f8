"""A whole examination: every step is told, nothing is left behind, and the first obstacle ends it with what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

import penstock as ps
from penstock.cli.doctor import examine
from penstock.errors import InvalidURL, Unauthenticated
from penstock.testing.faults import FAULTS, Match

WRITTEN = ["write", "write only what is new", "replace a version", "write in parts", "copy"]
READ = ["look up", "read", "read a range", "hold a read to a version"]
REACHED = ["settings", "name resolution", "connection", "clock", "credentials", "list"]


def told(findings):
    return {each.name: each.outcome for each in findings}


def test_a_good_store_passes_every_step_and_is_left_as_it_was(bucket):
    found = list(examine(bucket.url + "runs", bucket.store))
    # Not all servers tell their name.
    assert [each.name for each in found if each.name != "server"] == [*REACHED, *WRITTEN, *READ, "delete"]
    assert {each.outcome for each in found if each.name != "replace a version"} == {"passed"}, found
    assert not list(ps.list(bucket.url, store=bucket.store))
    assert not bucket.client.list_multipart_uploads(Bucket=bucket.name).get("Uploads")


def test_store_ignoring_conditional_writes_is_warned_about_and_still_works(careless):
    found = told(examine("s3://bucket", careless.store))
    assert [name for name, outcome in found.items() if outcome == "warned"] == WRITTEN[1:3]
    assert found["read"] == found["delete"] == "passed"
    assert careless.objects("bucket") == {}


def test_read_only_examination_sends_only_get_and_head_requests(strict):
    strict.put("bucket", "train/0.bin", bytes(range(256)) * 100)
    found = told(examine("s3://bucket/train/", strict.store, read_only=True))
    assert list(found) == [*REACHED[:4], "server", *REACHED[4:], *READ]
    assert {name for name, outcome in found.items() if outcome != "passed"} == {"clock"}, "it tells no time"
    assert {each.method for each in strict.seen()} <= {"GET", "HEAD"}


def test_ctrl_c_in_the_middle_leaves_nothing_behind(strict):
    finding = examine("s3://bucket", strict.store)
    assert any(each.name == "write in parts" for each in finding)
    assert strict.objects("bucket")
    finding.close()
    assert strict.objects("bucket") == {}


def test_a_store_that_refuses_to_write_is_examined_no_further_and_asked_to_delete(strict):
    strict.fail(*[FAULTS["denied"]] * 50, when=Match(verb="put"))
    *_, last = examine("s3://bucket", strict.store)
    assert (last.name, last.outcome) == ("write", "failed")
    assert "AccessDenied" in last.detail


def test_missing_credentials_are_reported_with_advice_for_public_buckets(moto_server):
    store = ps.S3Options(endpoint=moto_server.endpoint)
    moto_server.client().create_bucket(Bucket="public-place")
    *_, last = examine("s3://public-place", store)
    assert (last.name, last.outcome) == ("credentials", "failed")
    assert isinstance(last.error, Unauthenticated)
    assert "this bucket is public: pass anonymous=True" in last.detail
    *_, last = examine("s3://no-such-place-at-all", store)
    assert "public" not in last.detail.replace("reads public data", "")


def test_wrong_secret_fails_the_list_step_with_the_store_error_code(ceph_server):
    store = replace(ceph_server.store, secret_key="wrong-wrong-wrong")
    found = {each.name: each for each in examine("s3://any-bucket", store)}
    assert found["list"].outcome == "failed"
    assert "SignatureDoesNotMatch" in found["list"].detail


@pytest.mark.parametrize("url", ["memory://place/runs", "{tmp}/runs"])
def test_stores_without_a_network_have_no_host_and_no_credentials(url, tmp_path):
    found = list(examine(url.format(tmp=tmp_path)))
    assert [each.name for each in found] == ["settings", "list", *WRITTEN, *READ, "delete"]
    assert {each.outcome for each in found} == {"passed"}, found


def test_unusable_settings_are_a_finding_and_an_invalid_url_raises():
    (settings,) = examine("s3://bucket", ps.S3Options(profile="nobody"))
    assert settings.outcome == "failed"
    assert "nobody" in settings.detail
    with pytest.raises(InvalidURL):
        list(examine("s3://"))
