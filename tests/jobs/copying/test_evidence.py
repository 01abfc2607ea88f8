"""What is at a destination is the object that would be copied there, or that cannot be told."""

from __future__ import annotations

import os
import random
import time
import uuid
from dataclasses import replace

import pytest

from penstock.errors import Changed
from penstock.jobs.copying.copy import CopyJob, copy
from penstock.jobs.copying.evidence import (
    SKEW_S,
    EvidenceRule,
    content_tag,
    is_proven,
    is_there,
    pair_steps,
    part_sizes,
    parts_tag,
    same_time,
    verdict,
)
from penstock.jobs.trees.plan import CopyStep
from penstock.source import open_source
from penstock.values import ObjectMeta
from tests.jobs.carry import carry


@pytest.fixture
def job(bucket):
    source, _ = open_source(bucket.url, bucket.store)
    source.put("a", b"first")
    return CopyJob(source, source.head("a"), source, "b")


def test_a_copy_is_there_by_its_etag_where_both_stores_tell_the_content_s(job):
    assert not carry(is_there(job, surely=False)), "nothing was copied yet"
    job.target.put("b", b"other")
    assert not carry(is_there(job, surely=False)), "the same size, later, and another content"
    carry(copy(job, lambda _: None, stop=None))
    assert carry(is_there(job, surely=True))


def test_a_file_is_read_where_its_time_is_not_proof_enough(tmp_path):
    source, key = open_source(tmp_path / "a")
    target, to = open_source(tmp_path / "b")
    source.put(key, b"first")
    job = CopyJob(source, source.head(key), target, to)
    target.put(to, b"other")  # later than the source, and as long
    os.utime(tmp_path / "b", (time.time() + 5,) * 2)
    assert carry(is_there(job, surely=False))
    assert not carry(is_there(job, surely=True))
    target.put(to, b"first")
    assert carry(is_there(job, surely=True))


def test_an_older_file_that_was_moved_in_the_place_of_the_source_is_not_there(tmp_path):
    (source, key), (target, to) = open_source(tmp_path / "a"), open_source(tmp_path / "b")
    for name, data in (("a", b"first"), ("older", b"other")):
        (tmp_path / name).write_bytes(data)
        os.utime(tmp_path / name, (1e9, 1e9))
    target.put(to, b"first")
    assert carry(is_there(CopyJob(source, source.head(key), target, to), surely=False))
    (tmp_path / "older").rename(tmp_path / "a")
    assert not carry(is_there(CopyJob(source, source.head(key), target, to), surely=False))


@pytest.fixture
def pair(tmp_path, moto_server):
    """Return a function that makes a job of a file and an object, up or down."""
    client = moto_server.client()
    name = f"test-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=name)
    store, _ = open_source(f"s3://{name}/", moto_server.store)
    here, key = open_source(tmp_path / "file")

    def make(*, up, theirs, mine, **metadata):
        (tmp_path / "file").write_bytes(mine)
        store.put("k", theirs, metadata=metadata)
        ends = (here, key, store, "k") if up else (store, "k", here, key)
        return CopyJob(ends[0], ends[0].head(ends[1]), *ends[2:]), ends[2].head(ends[3])

    return make


@pytest.mark.parametrize("up", [True, False])
def test_a_file_is_compared_with_the_md5_of_an_object(up, pair):
    for by_time in (True, False):
        assert carry(is_proven(*pair(up=up, theirs=b"same", mine=b"same"), by_time=by_time))
        assert not carry(is_proven(*pair(up=up, theirs=b"same", mine=b"else"), by_time=by_time))


@pytest.mark.parametrize("up", [True, False])
def test_stored_modification_time_decides_without_an_md5(up, pair, tmp_path):
    job, found = pair(up=up, theirs=b"12345678", mine=b"12345678", mtime="1234.567891")
    os.utime(tmp_path / "file", ns=(1234567891000, 1234567891000))
    job = replace(job, meta=job.source.head(job.meta.key))
    found = job.target.head(job.to)

    def blind(meta):  # as of an upload in parts
        return replace(meta, etag=f"{meta.etag}-2") if len(meta.etag) == 32 else meta

    assert carry(is_proven(replace(job, meta=blind(job.meta)), blind(found), by_time=True))
    with pytest.raises(Changed):  # contents decide: the version is read that was listed, and there is none of this tag
        carry(is_proven(replace(job, meta=blind(job.meta)), blind(found), by_time=False))
    os.utime(tmp_path / "file", ns=(1234567999000, 1234567999000))
    job, found = replace(job, meta=job.source.head(job.meta.key)), job.target.head(job.to)
    assert not carry(is_proven(replace(job, meta=blind(job.meta)), blind(found), by_time=True))


def test_two_stores_that_wrote_in_the_same_second_prove_nothing(moto_server):
    client = moto_server.client()
    name = f"test-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=name)
    store, _ = open_source(f"s3://{name}/", moto_server.store)
    store.put("a", b"one")
    store.put("b", b"two")
    here, there = (replace(store.head(key), etag="x-2", modified=1.0) for key in "ab")
    assert not carry(is_proven(CopyJob(store, here, store, "b"), there, by_time=True))


def test_a_copy_keeps_the_time_of_its_source_in_both_directions(pair, tmp_path):
    job, _ = pair(up=True, theirs=b"", mine=b"data")
    os.utime(tmp_path / "file", ns=(1500000000123456000, 1500000000123456000))
    job = replace(job, meta=job.source.head(job.meta.key), stamped=True)
    carry(copy(job, lambda _: None, stop=None))
    assert job.target.head("k").metadata == {"mtime": "1500000000.123456"}
    back = CopyJob(job.target, job.target.head("k"), job.source, job.meta.key, stamped=True)
    carry(copy(back, lambda _: None, stop=None))
    assert (tmp_path / "file").stat().st_mtime == back.meta.modified


@pytest.mark.parametrize(("mine", "expected"), [(b"first", True), (b"other", False)])
def test_a_file_is_compared_with_an_object_whose_clock_may_be_another(pair, mine, expected):
    job, _ = pair(up=True, theirs=b"first", mine=mine)
    os.utime(f"/{job.meta.key}", (1e9, 1e9))
    job = replace(job, meta=job.source.head(job.meta.key))
    assert carry(is_there(job, surely=False)) is expected


def test_an_object_that_was_replaced_within_the_error_of_clocks_is_copied_again(bucket):
    source, _ = open_source(bucket.url, bucket.store)
    source.put("a", b"first")
    memory, _ = open_source(f"memory://{uuid.uuid4().hex}/")
    memory.put("a", b"first")
    job = CopyJob(source, replace(source.head("a"), etag="opaque"), memory, "a")
    assert not carry(is_there(job, surely=False))
    long_ago = replace(job.meta, modified=time.time() - 1000)
    assert carry(is_there(replace(job, meta=long_ago), surely=False))


# The rules by which sync takes two objects for one, and two listings side by side.


ONE, TWO = "c4ca4238a0b923820dcc509a6f75849b", "c81e728d9d4c2f636f067f89cc14862c"  # MD5s
STORES = EvidenceRule(checksum=False, one_clock=False, kept=False)
TIMES, CLOCK = STORES._replace(kept=True), STORES._replace(one_clock=True)
CONTENT = TIMES._replace(checksum=True)


def meta(size=5, etag="", modified=1000.0):
    return ObjectMeta("k", size, etag, modified)


@pytest.mark.parametrize(
    ("here", "there", "rule", "found"),
    [
        # Another size is another object, whatever else is said.
        (meta(5, ONE), meta(6, ONE, 9e9), TIMES, "other"),
        (meta(5), meta(6), CONTENT, "other"),
        # Equal contents.
        (meta(5, ONE), meta(5, ONE.upper(), 0.0), STORES, "same"),
        (meta(5, ONE), meta(5, ONE, 0.0), CONTENT, "same"),
        # Contents alone.
        (meta(5, ONE), meta(5, TWO, 9e9), CONTENT, "other"),
        (meta(5, ONE), meta(5, f"{TWO}-3", 9e9), CONTENT, "unsure"),
        (meta(5), meta(5), CONTENT, "unsure"),
        # The same time: where times are kept.
        (meta(5, ONE), meta(5), TIMES, "same"),
        (meta(5), meta(5), STORES, "unsure"),
        (meta(5), meta(5, modified=1000.001), TIMES, "unsure"),
        # Newer, by one clock and by two.
        (meta(5), meta(5, modified=1000.0), CLOCK, "same"),
        (meta(5), meta(5, modified=999.0), CLOCK, "unsure"),
        (meta(5), meta(5, modified=1000.0 + SKEW_S), STORES, "same"),
        (meta(5), meta(5, modified=999.0 + SKEW_S), STORES, "unsure"),
        (meta(5), meta(5, modified=999.0 + SKEW_S), TIMES, "unsure"),
        (meta(5), meta(5, modified=0.0), TIMES, "unsure"),
        # No time.
        (meta(5, modified=None), meta(5, modified=9e9), TIMES, "unsure"),
        (meta(5), meta(5, modified=None), TIMES, "unsure"),
    ],
)
def test_the_rules_in_their_order(here, there, rule, found):
    assert verdict(here, there, rule) == found


def test_content_tag_is_empty_unless_the_etag_is_an_md5():
    assert content_tag(ONE.upper()) == ONE
    assert [content_tag(each) for each in ("", f"{ONE}-2", "0x8DC", ONE[:-1])] == [""] * 4


def test_multipart_etag_gives_the_part_count_and_candidate_part_sizes():
    assert [parts_tag(each) for each in (f"{ONE}-12", ONE, "", "0x8DC-2", f"{ONE}-x", f"{ONE}-")] == [12, 0, 0, 0, 0, 0]
    mib = 1 << 20
    assert part_sizes(100 * mib, 7, 16 * mib) == [15 * mib, 16 * mib]
    assert part_sizes(100 * mib, 3, 40 * mib) == [40 * mib]
    assert part_sizes(100 * mib, 99, 16 * mib) == []


def test_times_are_one_to_six_digits():
    assert same_time(1.7e9, 1.7e9 + 1e-6)
    assert not same_time(1.7e9, 1.7e9 + 1e-5)


def test_merged_listings_pair_entries_with_the_same_key(seed):
    draw = random.Random(seed)
    letters = ["a", "b", "/", "-", "é", "日", "\U0001f642", "\udcff"]
    for _ in range(200):
        names = {"".join(draw.choices(letters, k=draw.randint(1, 4))) for _ in range(draw.randint(0, 12))}
        here, there = ({each for each in names if draw.random() < 0.6} for _ in range(2))
        ordered = [sorted(each, key=lambda key: key.encode("utf-8", "surrogateescape")) for each in (here, there)]
        steps = [CopyStep("s3://b/", ObjectMeta(key, 0), key) for key in ordered[0]]
        found = list(pair_steps(steps, [ObjectMeta(key, 0) for key in ordered[1]]))
        assert {step.to for step, meta in found if step and not meta} == here - there
        assert {meta.key for step, meta in found if meta and not step} == there - here
        assert {step.to for step, meta in found if step and meta and step.to == meta.key} == here & there
        assert len(found) == len(here | there)
