"""Reports that each rank wrote by itself become one, which names the rank that waited longest."""

from __future__ import annotations

import json

import pytest

import penstock as ps
from penstock.data.loading.group import GroupReport, RankReport
from penstock.errors import Damaged, NotFound, Unusable
from penstock.testing.servers import Scripted
from tests.data.datasets.ranks import free_port, ranks
from tests.data.loading import plants

ONE = RankReport(0, 4, 1.0, 9.0, None, "Nothing.", 10, 80)
TWO = RankReport(2, 4, 5.0, 5.0, "first byte", "Raise <it>.", 10, 80)


def test_two_ranks_write_their_reports_and_the_one_that_waited_longest_is_named(tmp_path):
    with Scripted(plants.objects("none")) as server:
        found = ranks(2, f"tcp://127.0.0.1:{free_port()}", _save, server.url, str(tmp_path))
    assert found == [f"{tmp_path}/{rank}.json" for rank in range(2)]
    group = ps.observe.merge_reports(f"{tmp_path}/*.json")
    assert [(each.rank, each.world, each.batches) for each in group.ranks] == [(0, 2, 3), (1, 2, 3)]
    waited_s = [json.loads((tmp_path / f"{rank}.json").read_text())["waiting_s"] for rank in range(2)]
    assert group.slowest.rank == waited_s.index(max(waited_s))
    assert group.missing == ()


def _save(url, folder):
    from torch import distributed

    loader = plants.loader(("none", "collate")[distributed.get_rank()], url)
    list(loader)
    return loader.report().save(f"{folder}/{{rank}}.json")


def test_the_rank_that_waited_longest_is_named_and_so_are_those_that_are_missing():
    group = GroupReport((ONE, TWO))
    assert (group.slowest, group.missing) == (TWO, (1, 3))
    lines = str(group).splitlines()
    assert lines[0] == "2 ranks. Rank 2 waited longest for its batches, 5.0 s (50% of its time), most for: first byte."
    assert "No report of: 1, 3." in lines
    assert len(lines) == 7
    assert max(map(len, lines)) <= 100
    assert json.loads(group.json())["slowest"] == 2
    assert "Raise &lt;it&gt;." in group.html()


def test_of_two_reports_of_a_rank_the_later_one_counts():
    report = plants.loader("none", "http://127.0.0.1:1").report()
    early, late = (plants.changed(report, batches=count) for count in (3, 7))
    assert [each.batches for each in ps.observe.merge_reports([late, early]).ranks] == [7]
    assert ps.observe.merge_reports(early).slowest.batches == 3


def test_merging_damaged_missing_or_zero_reports_raises(tmp_path):
    (tmp_path / "x.json").write_text('{"rank": 0}')
    (tmp_path / "y.json").write_text("[")
    for name in ("x", "y"):
        with pytest.raises(Damaged, match="cannot read a report"):
            ps.observe.merge_reports(tmp_path / f"{name}.json")
    for name in ("none.json", "none-*.json"):
        with pytest.raises(NotFound):
            ps.observe.merge_reports([tmp_path / name])
    with pytest.raises(Unusable, match="needs at least one report"):
        ps.observe.merge_reports([])


WRITTEN = {
    "rank": 0,
    "world": 2,
    "waiting_s": 1.0,
    "computing_s": 1.0,
    "cause": None,
    "recommendation": "Nothing.",
    "batches": 1,
    "samples": 2,
}


@pytest.mark.parametrize(
    "changed",
    [
        {"rank": "0"},
        {"rank": -1},
        {"rank": 2},
        {"world": 10**13},
        {"waiting_s": float("nan")},
        {"computing_s": -1},
        {"batches": True},
        {"cause": 3},
        {"recommendation": None},
    ],
    ids=str,
)
def test_values_that_no_report_has_are_damage(tmp_path, changed):
    (tmp_path / "x.json").write_text(json.dumps(WRITTEN))
    assert ps.observe.merge_reports(tmp_path / "x.json").missing == (1,)
    (tmp_path / "x.json").write_text(json.dumps(WRITTEN | changed))
    with pytest.raises(Damaged, match="cannot read a report"):
        ps.observe.merge_reports(tmp_path / "x.json")


def test_oversized_or_deeply_nested_report_files_raise_damaged(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 200_000)
    with (tmp_path / "long.json").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("deep", "long"):
        with pytest.raises(Damaged, match="cannot read a report"):
            ps.observe.merge_reports(tmp_path / f"{name}.json")


@pytest.mark.parametrize("given", [5, None])
def test_merge_reports_refuses_arguments_of_wrong_type(given):
    with pytest.raises(Unusable, match="LoaderReports or URLs"):
        ps.observe.merge_reports(given)
