"""The rules by which sync takes two objects for one, and two listings side by side."""

from __future__ import annotations

import random

import pytest

from penstock.jobs.copying.evidence import (
    SKEW_S,
    EvidenceRule,
    content_tag,
    pair_steps,
    part_sizes,
    parts_tag,
    same_time,
    verdict,
)
from penstock.jobs.plan import CopyStep
from penstock.values import ObjectMeta

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
