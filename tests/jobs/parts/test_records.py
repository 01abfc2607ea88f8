"""Records of a job: one plan, whoever writes it; parts that are done, failed, or neither; nothing else is deleted."""

import json
import re
from dataclasses import replace

import pytest

import penstock as ps
from penstock.errors import Damaged, NotFound, Unusable
from penstock.events import RangeRead, subscribe
from penstock.jobs.parts.records import JobPlan, PartRecord, Records, Share, jobs_below
from penstock.options import StoreOptions
from penstock.schema import COUNT

PLAN = JobPlan("copy_tree", {"source": "s3://a/", "dest": "s3://b/"}, (["m", 3, 30], ["z", 2, 5]), 5, 35, "2026-11-27")


@pytest.fixture
def records(tmp_path):
    return Records(f"{tmp_path}/job", StoreOptions(), PLAN.run)


def test_the_first_plan_is_that_of_all(records):
    assert records.plan() is None
    assert records.planned(lambda _: PLAN, PLAN) == PLAN
    assert records.planned(lambda _: pytest.fail("planned twice"), PLAN) == PLAN


def test_a_plan_that_another_process_publishes_meanwhile_is_taken(records):
    theirs = replace(PLAN, parts=(["z", 5, 35],))

    def slowly(_journal):
        Records(records.url, StoreOptions()).planned(lambda _: theirs, theirs)
        return PLAN

    assert records.planned(slowly, PLAN) == theirs


def test_a_plan_that_no_process_could_read_is_not_published(records, monkeypatch):
    monkeypatch.setattr("penstock.jobs.parts.records._MOST_BYTES", 100)
    with pytest.raises(Unusable, match=r"2 parts have a plan of .* larger parts"):
        records.planned(lambda _: PLAN, PLAN)
    assert records.plan() is None


def test_the_plan_of_another_job_is_refused(records):
    records.planned(lambda _: PLAN, PLAN)
    for other in (replace(PLAN, operation="verify"), replace(PLAN, arguments={"source": "s3://x/"})):
        with pytest.raises(Unusable, match="job= has a different job"):
            records.planned(lambda _: PLAN, other)


# Its run is not one that is drawn.
OTHER = replace(PLAN, run="../../x").encoded()


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "not JSON"),
        (b"{}", "penstock job is missing"),
        (b"[]", "the document must be an object, got a list"),
        (b"{", "not JSON"),
        (b'{"penstock job": 2}', "penstock job must be 1, got 2"),
        (PLAN.encoded().replace(b'"objects": 5', b'"objects": NaN'), "objects must be a whole number from 0, got NaN"),
        (PLAN.encoded().replace(b'["m", 3, 30]', b"7"), "parts[0] must be a list, got 7"),
        (OTHER, "run must be a text like"),
        (PLAN.encoded().replace(b'"part_count": 2', b'"part_count": 3'), "part_count is 3, there are 2 parts"),
    ],
)
def test_anything_else_in_the_place_of_a_plan_is_damaged(records, tmp_path, data, cause):
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "plan.json").write_bytes(data)
    with pytest.raises(Damaged, match=re.escape(f"cannot read the plan of a job: {cause}")) as caught:
        records.plan()
    assert caught.value.url == f"file://{tmp_path}/job/plan.json"


@pytest.mark.parametrize("part", [["m", 3], ["m", 3, -1], [3, 3, 30], ["m", 3, 30, 1], ["m", True, 1], ["m", 1e3, 1]])
def test_parts_that_the_operation_has_not_planned_are_damaged(records, part):
    records.planned(lambda _: replace(PLAN, parts=(["a", 1, 1], part)), PLAN)
    with pytest.raises(Damaged, match=re.escape("cannot read the parts of a job: [1]")):
        records.planned(lambda _: PLAN, PLAN, [str, COUNT, COUNT])


def test_the_same_job_at_another_endpoint_is_another(records):
    there = replace(PLAN, places={"s3://a/": "http://staging:9000"})
    records.planned(lambda _: there, there)
    with pytest.raises(Unusable, match=r"endpoint of s3://a/='http://staging:9000'.*not .*the stores themselves"):
        records.planned(lambda _: PLAN, PLAN)


def test_arguments_that_the_operation_does_not_have_are_damaged():
    assert PLAN.chosen({"source": str, "other?": int}, "s3://jobs/") == {"source": "s3://a/"}
    with pytest.raises(Damaged, match="cannot read the arguments of a job: source must be a whole number, got a text"):
        PLAN.chosen({"source": int}, "s3://jobs/")


def test_a_part_that_failed_is_done_once_it_succeeds(records):
    records.write(PartRecord(0, {"copied": 3}))
    records.write(PartRecord(1, {"copied": 1, "failed": 1}, [{"url": "s3://a/x", "error": "gone"}]))
    assert (records.numbers(), records.numbers(failed=True)) == ({0}, {1})
    assert next(records.read(failed=True)).failures == [{"url": "s3://a/x", "error": "gone"}]
    records.write(PartRecord(1, {"copied": 2}), again=True)
    assert (records.numbers(), records.numbers(failed=True)) == ({0, 1}, set())
    assert [each.counts["copied"] for each in records.read()] == [3, 2]


def test_a_record_that_another_process_writes_anew_while_all_are_read_is_read(records):
    for part in range(3):
        records.write(PartRecord(part, {"copied": 3}))

    def written_anew(part):
        records.write(PartRecord(part, {"copied": 0, "unchanged": 3}))
        return True

    assert [each.counts["unchanged"] for each in records.read(written_anew)] == [3, 3, 3]


def test_a_part_that_another_process_does_while_the_failed_are_read_has_not_failed(records):
    for part in range(3):
        records.write(PartRecord(part, {"copied": 1, "failed": 1}))

    def done(part):
        if part == 1:
            records.write(PartRecord(1, {"copied": 2}), again=True)
        return True

    assert [each.part for each in records.read(done, failed=True)] == [0, 2]


def test_kept_data_comes_back_in_order(records):
    for number in (2, 0, 1):
        records.keep(number, b"%d" % number)
    url = f"{records.url}data/{PLAN.run}/00000"
    assert [*records.kept(3)] == [(f"{url}{number}", b"%d" % number) for number in range(3)]
    assert not records.finished()
    records.finish()
    assert records.finished()


def test_a_single_record_is_read(records):
    assert records.record(3) is None
    records.write(PartRecord(3, {"copied": 1}))
    assert records.record(3).counts == {"copied": 1}


def test_anything_else_in_the_place_of_a_record_is_damaged(records, tmp_path):
    records.write(PartRecord(0, {"copied": 3}))
    path = tmp_path / "job" / "done" / PLAN.run / "000000.json"
    whole = json.loads(path.read_text())
    odd = [{"part": 1}, {"counts": {"copied": "3"}}, {"seconds": float("nan")}, {"notes": {"digest": "xyz"}}]
    odd += [{"failures": ["gone"]}, {"began": 5}, {"host": None}, {"began": "2026-13-01T00:00:00+00:00"}]
    for data in ("[]", "{}", "{", *(json.dumps(whole | each) for each in odd)):
        path.write_text(data)
        with pytest.raises(Damaged, match="cannot read the record of a part") as caught:
            [*records.read()]
        assert caught.value.url == f"file://{path}"
        with pytest.raises(Damaged):
            records.record(0)


def test_only_the_records_are_deleted(records, tmp_path):
    with pytest.raises(NotFound, match="no plan of a job found"):
        records.remove()
    records.planned(lambda _: PLAN, PLAN)
    records.write(PartRecord(0))
    records.write(PartRecord(1, {"failed": 1}))
    records.keep(0, b"data")
    records.finish()
    mine = [tmp_path / "job" / "done" / name for name in ("mine.txt", f"{PLAN.run}/notes.json", "000000.json")]
    for path in mine:
        path.write_text("x")
    assert records.remove() == 5
    assert sorted(path for path in (tmp_path / "job").rglob("*") if path.is_file()) == sorted(mine)


def test_records_of_a_job_that_runs_on_after_it_was_deleted_are_not_those_of_the_next(records):
    records.planned(lambda _: PLAN, PLAN)
    records.remove()
    following = Records(records.url, StoreOptions())
    following.planned(lambda _: replace(PLAN, run="0123abcd"), PLAN)
    for left in (
        lambda: records.write(PartRecord(0)),
        lambda: records.write(PartRecord(1, {"failed": 1})),
        lambda: records.keep(0, b"old"),
        records.finish,
    ):
        left()
        assert (following.numbers(), following.numbers(failed=True), following.finished()) == (set(), set(), False)
    following.keep(0, b"new")
    assert [data for _, data in following.kept(1)] == [b"new"]
    assert following.remove() == 6
    with pytest.raises(NotFound, match="no plan of a job found"):
        following.remove()


def test_jobs_below_a_folder_are_found(tmp_path):
    for name in ("one", "two"):
        Records(f"{tmp_path}/{name}", StoreOptions()).planned(lambda _: PLAN, PLAN)
    (tmp_path / "other").mkdir()
    found = [each.url.rstrip("/").rpartition("/")[2] for each in jobs_below(str(tmp_path), StoreOptions())]
    assert found == ["one", "two"]
    assert len([*jobs_below(f"{tmp_path}/one", StoreOptions())]) == 1


class TestSummary:
    def test_summary_is_the_plan_without_its_parts(self, records):
        assert records.summary() is None
        records.planned(lambda _: PLAN, PLAN)
        records.run = ""
        assert records.summary() == PLAN.summary
        assert (PLAN.summary.part_count, records.run) == (2, PLAN.run)

    @pytest.mark.parametrize("most", [20_000, 4_000])
    def test_summary_costs_the_same_bytes_for_any_number_of_parts(self, records, most):
        large = replace(PLAN, parts=tuple([f"{number:020}", 1, 1] for number in range(most)))
        records.planned(lambda _: large, PLAN)
        read = []
        stop = subscribe(lambda event: read.append(event.size_bytes) if isinstance(event, RangeRead) else None)
        try:
            assert records.summary() == large.summary
        finally:
            stop()
        assert len(large.encoded()) > sum(read) == 64 << 10

    def test_arguments_of_any_size_are_read(self, records):
        large = replace(PLAN, arguments={"include": ["x" * 100_000, ",\n"]})
        records.planned(lambda _: large, large)
        assert records.summary() == large.summary

    @pytest.mark.parametrize("data", [b"", b"{}", b"[,\n", b'{"penstock job": 2,\n'])
    def test_anything_else_in_its_place_is_damaged(self, records, tmp_path, data):
        (tmp_path / "job").mkdir()
        (tmp_path / "job" / "plan.json").write_bytes(data)
        with pytest.raises(Damaged, match="cannot read the plan of a job"):
            records.summary()


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/3", "", "1/2/3"])
def test_shares_that_do_not_exist_are_refused(text):
    with pytest.raises(Unusable, match="part must be like 3/16"):
        Share.of(text)


def test_every_part_belongs_to_one_share():
    shares = [Share.of(f"{number}/3") for number in (1, 2, 3)]
    for part in range(20):
        assert sum(share.has(part) for share in shares) == 1
    assert all(Share.of(None).has(part) for part in range(20))


def test_a_plan_tells_no_secret(tmp_path):
    options = ps.S3Options(access_key="AKIDEXAMPLE", secret_key="very-secret", endpoint="http://127.0.0.1:1")
    records = Records(f"{tmp_path}/job", StoreOptions())
    records.planned(lambda _: PLAN, PLAN)
    text = (tmp_path / "job" / "plan.json").read_text()
    assert options.secret_key not in text
    assert set(json.loads(text)) == {
        *("penstock job", "version", "operation", "arguments", "places", "parts", "objects", "size_bytes", "created"),
        *("run", "part_count"),
    }
