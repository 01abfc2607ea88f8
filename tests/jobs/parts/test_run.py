"""The loop of a job: shares, failures, the last step, and how it ends when it is interrupted."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock.errors import Damaged, Forbidden, NoSpace, NotFound, Unusable
from penstock.events import JobCounts, measured_jobs
from penstock.jobs.parts.records import Records
from penstock.jobs.parts.run import Job, JobOptions, check_apart
from penstock.jobs.syncing.job import sync
from penstock.jobs.syncing.verify import verify
from penstock.observe import JsonLines, OpenTelemetry, to
from penstock.options import StoreOptions
from penstock.testing.faults import FAULTS, FaultServer, Match
from tests.jobs.parts.deadly import Deadly
from tests.trees import contents, plant


@dataclass(frozen=True)
class Failing(Deadly):
    """Parts in ``deadly`` raise."""

    error: type[Exception] = Damaged

    def work(self, part, record, means):
        if part.number in self.deadly:
            raise self.error("broken")
        return super().work(part, record, means)


def done(tmp_path, how=None, **options):
    return Job(Failing(str(tmp_path), **options), f"{tmp_path}/job", how or JobOptions()).work()


def test_the_last_step_is_done_once_all_shares_are(tmp_path):
    assert done(tmp_path, JobOptions("1/2")).parts_done == 3
    assert not (tmp_path / "finished").exists()
    assert done(tmp_path, JobOptions("2/2")).parts_done == 2
    (tmp_path / "finished").unlink()
    assert done(tmp_path).parts_done == 5
    assert not (tmp_path / "finished").exists()


def test_records_that_are_deleted_while_the_job_runs_are_noticed(tmp_path):
    class Removing(Failing):
        def work(self, part, record, means):
            if part.number == 3:
                means.records.remove()
            return super().work(part, record, means)

    with pytest.raises(NotFound, match="records of this job were deleted while it ran"):
        Job(Removing(str(tmp_path)), f"{tmp_path}/job", JobOptions()).work()
    assert not (tmp_path / "finished").exists()


@pytest.mark.parametrize("processes", [0, -1, "2"])
def test_numbers_of_processes_that_make_no_sense_are_refused_before_a_plan_is_made(tmp_path, processes):
    with pytest.raises(Unusable, match="processes must be"):
        done(tmp_path, JobOptions(processes=processes))
    assert not (tmp_path / "job").exists()


def test_a_killed_last_step_is_done_again(tmp_path):
    done(tmp_path)
    (tmp_path / "finished").unlink()
    next((tmp_path / "job" / "finished").iterdir()).unlink()
    done(tmp_path)
    assert (tmp_path / "finished").exists()


def test_a_part_that_fails_as_a_whole_is_set_aside(tmp_path):
    with pytest.raises(Damaged, match="broken; 2 objects failed in 2 parts"):
        done(tmp_path, deadly=(0, 3))
    records = Records(f"{tmp_path}/job", StoreOptions())
    assert (records.numbers(), records.numbers(failed=True)) == ({1, 2, 4}, {0, 3})
    assert not (tmp_path / "finished").exists()
    assert done(tmp_path).parts_done == 5


@pytest.mark.parametrize(("denied", "changed"), ["ab", "ba"])
@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("verb", ["sync", "verify"])
def test_of_several_failures_the_worst_is_raised(tmp_path, verb, in_parts, denied, changed):
    with FaultServer.within() as server:
        server.make("bucket")
        for key in "abc":
            server.put("bucket", f"tree/{key}", b"x")
        server.fail(FAULTS["denied"], when=Match(verb="get", key=f"tree/{denied}", times=None))
        server.fail(FAULTS["etag"], when=Match(verb="get", key=f"tree/{changed}", times=None))
        options = {"store": server.store} | ({"job": f"{tmp_path}/job", "part_objects": 1} if in_parts else {})
        with pytest.raises(Forbidden, match="; 2 objects failed"):
            if verb == "sync":
                sync("s3://bucket/tree", f"{tmp_path}/copy", **options)
            else:
                verify("s3://bucket/tree", **options)


def test_where_every_part_fails_the_others_are_not_tried(tmp_path):
    with pytest.raises(NotFound):
        done(tmp_path, deadly=tuple(range(100)), parts=100, error=NotFound)
    assert len(Records(f"{tmp_path}/job", StoreOptions()).numbers(failed=True)) == 20


def test_without_space_no_further_part_is_tried(tmp_path):
    with pytest.raises(NoSpace):
        done(tmp_path, deadly=(1,), error=NoSpace)
    assert Records(f"{tmp_path}/job", StoreOptions()).numbers() == {0}


PROGRAM = """
import sys, time
from penstock.jobs.parts.run import Job, JobOptions
from tests.jobs.parts.deadly import Deadly
folder = sys.argv[1]
Job(Deadly(folder, pause_s=0.5), folder + "/job", JobOptions()).work()
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_an_interrupted_process_says_how_to_go_on(tmp_path, number, status):
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "0").exists():
        assert process.poll() is None
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == status
    assert f"penstock jobs resume file://{tmp_path}/job/" in errors
    assert done(tmp_path).parts_done == 5


def test_records_in_a_tree_are_refused(tmp_path):
    records = Records(f"{tmp_path}/a/job", StoreOptions())
    check_apart(records, StoreOptions(), f"file://{tmp_path}/b/")
    for tree in (f"file://{tmp_path}/a/", f"file://{tmp_path}/a/job/b/"):
        with pytest.raises(Unusable, match="outside the trees"):
            check_apart(records, StoreOptions(), tree)
    assert not Path(f"{tmp_path}/a").exists()


def test_records_in_a_tree_are_refused_by_any_name_of_their_folder(tmp_path, monkeypatch):
    plant(tmp_path, {"from/file": 5, "to/old": 5}, 0)
    (tmp_path / "link").symlink_to("to")
    (tmp_path / "penstock.toml").write_text("[profiles.files]\nurl = 'to'\n")
    monkeypatch.chdir(tmp_path)
    for folder in ("link/job", "penstock://files/job"):
        with pytest.raises(Unusable, match="outside the trees"):
            sync("from", "to", delete=True, job=folder)
    assert set(contents(tmp_path / "to")) == {"old"}


def test_spans_of_parts_lie_in_the_job_and_counts_become_metrics(tmp_path):
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    meters = MeterProvider([reader], shutdown_on_exit=False)
    for number in range(6):
        (tmp_path / "tree").mkdir(exist_ok=True)
        (tmp_path / "tree" / f"{number}").write_bytes(b"12345")
    before = measured_jobs().get("verify", JobCounts())
    with to(OpenTelemetry(setup=lambda: (tracers, meters)), JsonLines(tmp_path / "events.jsonl")):
        verify(f"{tmp_path}/tree/", job=f"{tmp_path}/job", part_objects=2)
        points = {
            metric.name: {
                point.attributes.get("penstock.job.operation"): point.value for point in metric.data.data_points
            }
            for metric in reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
        }
    found = spans.get_finished_spans()
    (job,) = (each for each in found if each.name == "penstock.job")
    parts = [each for each in found if each.name == "penstock.part"]
    assert {each.parent.span_id for each in parts} == {job.context.span_id}
    assert [each.attributes["penstock.job.part"] for each in parts] == [0, 1, 2]
    assert {each.attributes["penstock.job.operation"] for each in parts} == {"verify"}
    assert [(each.attributes["penstock.job.verified"]) for each in parts] == [2, 2, 2]
    above = {each.context.span_id: each.parent.span_id for each in found if each.parent}
    bodies = [
        each for each in found if each.name == "penstock.request read" and "/tree/" in each.attributes["url.full"]
    ]
    assert len(bodies) == 6
    for body in bodies:
        line = [body.context.span_id]
        while line[-1] in above:
            line.append(above[line[-1]])
        assert line[-2] in {each.context.span_id for each in parts}
        assert line[-1] == job.context.span_id
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["counts"]["verified"] for line in lines if line["event"] == "PartEnded"] == [2, 2, 2]
    done = measured_jobs()["verify"]
    assert (done.parts - before.parts, done.objects - before.objects, done.failed_parts - before.failed_parts) == (
        3,
        6,
        0,
    )
    assert points["penstock.job_parts"]["verify"] == done.parts
    assert points["penstock.job_bytes"]["verify"] == done.size_bytes == before.size_bytes + 30


def test_failed_parts_are_counted(tmp_path):
    before = measured_jobs().get("deadly", JobCounts())
    with pytest.raises(Damaged):
        done(tmp_path, deadly=(0, 3))
    (found,) = [measured_jobs()[name] for name in measured_jobs() if name == Failing.name]
    assert (found.parts - before.parts, found.failed_parts - before.failed_parts) == (5, 2)
