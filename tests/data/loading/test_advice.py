"""Each cause has one recommendation, which names an option that exists."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import pytest

import penstock as ps
from penstock.data.loading.summary import CAUSES, Setup, advice, common_prefix

SETUPS = [Setup(0, 2, 8, 2, 32), Setup(0, 8, 8, 2, 32), Setup(0, 1, 1, 2, 32), Setup(2, 1, 8, 2, 32)]
SETUPS += [Setup(8, 1, 8, 2, 32), Setup(0, 2, 8, 2, 32, scattered=True)]
ARGUMENTS = {*inspect.signature(ps.DataLoader).parameters, "persistent_workers", "transform"}


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("cause", CAUSES)
def test_a_recommendation_names_an_option_that_exists(cause, setup):
    text = advice(cause, setup)
    named = re.findall(r"(?:(\w+Options)[(.])?(\w+)=", text)
    assert named, text
    for kind, option in named:
        known = {each.name for each in fields(getattr(ps, kind))} if kind else ARGUMENTS | {"ahead_items"}
        assert option in known, text


def test_without_a_cause_nothing_is_to_be_changed():
    assert "nothing is to be changed" in advice(None, SETUPS[0])


def test_more_threads_or_processes_are_recommended_only_where_there_are_processors():
    assert "decode_threads= (now 2) up to 8" in advice("decode", SETUPS[0])
    assert "num_workers=8" in advice("decode", SETUPS[1])
    assert "num_workers" not in advice("decode", SETUPS[2])
    assert "num_workers= (now 2) up to 8" in advice("decode", SETUPS[3])
    assert "num_workers" not in advice("decode", SETUPS[4])


def test_blocks_are_recommended_where_small_samples_of_shards_cost_requests():
    named = {cause for cause in CAUSES if "shuffle=ps.order.Lanes()" in advice(cause, SETUPS[-1])}
    assert named == {"first byte", "throttled", "paced", "retries", "memory budget", "python"}
    assert not any("Lanes" in advice(cause, SETUPS[0]) for cause in CAUSES)


def test_a_slow_prefix_is_named():
    urls = [f"s3://b/train/cold/{number}" for number in range(8)] + ["s3://b/train/warm/1", "s3://b/test/1"]
    assert "s3://b/train/cold/" in advice("first byte", SETUPS[0], urls)
    assert common_prefix(urls) == "s3://b/train/cold/"


@pytest.mark.parametrize(
    "urls",
    [
        [],
        ["s3://b/a/1", "s3://b/a/2"],
        ["s3://b/1", "s3://b/2", "s3://b/3"],
        ["s3://b/a/1", "s3://b/b/1", "s3://b/c/1", "s3://b/d/1"],
        ["nothing", "", "://"],
    ],
)
def test_common_prefix_is_empty_for_urls_without_shared_prefix(urls):
    assert common_prefix(urls) == ""
