"""Writing steps leave nothing once they are cleared, and see an upload in parts and a copy that are not whole."""

from penstock.cli.doctor import body, clear, examine_delete, examine_write
from penstock.options import WriteOptions
from penstock.source import open_source
from penstock.testing.faults import FAULTS, Match


def opened(server):
    from dataclasses import replace

    store = replace(server.store, write=WriteOptions(part_bytes=5 << 20))
    return open_source("s3://bucket", store)[0]


def test_written_objects_are_deleted_after_all_steps_pass(strict):
    source = opened(strict)
    found = list(examine_write(source, "a/stem-"))
    assert {each.outcome for each in found} == {"passed"}, found
    assert strict.objects("bucket")["a/stem-object"] == body()
    assert examine_delete(source, "a/stem-").outcome == "passed"
    assert strict.objects("bucket") == {}
    clear(source, "a/stem-")


def test_refused_upload_completion_is_reported_and_its_parts_are_freed(strict):
    source = opened(strict)
    strict.fail(*[FAULTS["denied"]] * 10, when=Match(verb="complete"))
    found = {each.name: each for each in examine_write(source, "stem-")}
    assert found["write in parts"].outcome == "failed"
    assert found["copy"].outcome == "passed", "the steps after it go on"
    clear(source, "stem-")
    assert strict.uploads("bucket") == []


def test_a_failed_write_ends_the_steps(strict):
    strict.fail(*[FAULTS["denied"]] * 10, when=Match(verb="put"))
    (written,) = examine_write(opened(strict), "stem-")
    assert (written.name, written.outcome) == ("write", "failed")


def test_refused_deletion_is_reported_as_a_failed_step(strict):
    source = opened(strict)
    list(examine_write(source, "stem-"))
    strict.fail(*[FAULTS["denied"]] * 10, when=Match(verb="delete"))
    assert examine_delete(source, "stem-").outcome == "failed"
