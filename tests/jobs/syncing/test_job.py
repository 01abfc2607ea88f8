"""A sync in parts: whatever is killed or fails, the same call ends with an equal tree, and redoes no part."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypotheses
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import NotFound, PenstockError, Unusable
from penstock.jobs.parts.records import JobPlan, Records
from penstock.jobs.syncing.job import cut_keys, in_parts
from penstock.jobs.syncing.mirror import SyncOptions
from penstock.jobs.syncing.sync import SyncRun
from penstock.options import StoreOptions
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from tests import trees as planted
from tests.amounts import examples

COUNT = 130
SCHEMES = {"s3": "s3", "gcs": "gs", "azure": "az", "oss": "oss"}


@pytest.fixture
def trees(tmp_path):
    """Make a tree of 130 files, and return its folder, that of the copy, and that of the job."""
    draw = random.Random(0)
    for number in range(COUNT):
        path = tmp_path / "from" / f"{number % 7}" / f"{number:04}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.randbytes(draw.randrange(200)))
    return f"{tmp_path}/from", f"{tmp_path}/to", f"{tmp_path}/job"


def contents(folder):
    # A killed process leaves files that no reader sees, which a sync removes a day later.
    return {name: data for name, data in planted.contents(Path(folder)).items() if ".penstock-" not in name}


def copied(trees, **options):
    source, dest, job = trees
    return ps.copy_tree(source, dest, job=job, **{"part_objects": 20} | options)


def records(trees):
    return sorted((Path(trees[2]) / "done").rglob("*.json"))


_PLANNER = """
import os, signal, sys
import penstock as ps
from penstock.jobs.parts import records
from penstock.source import Source

source, dest, job, kill_after = sys.argv[1:]
records._JOURNAL_OBJECTS = 20
write, pages, written = records.PlanJournal.write, Source.pages, []

def note_and_die(self, parts, objects):
    write(self, parts, objects)
    written.append(objects)
    if len(written) == int(kill_after):
        os.kill(os.getpid(), signal.SIGKILL)

def note_start(self, prefix, **options):
    print(options.get("start_after", ""), flush=True)
    return pages(self, prefix, **options)

records.PlanJournal.write, Source.pages = note_and_die, note_start
ps.copy_tree(source, dest, job=job, part_objects=10)
"""


class TestPlanner:
    def test_a_killed_planner_is_continued_from_its_last_journal(self, trees, tmp_path):
        source, dest, job = trees
        starts = []
        for kill_after in (2, 2, 1, 0):
            words = [sys.executable, "-c", _PLANNER, *trees, str(kill_after)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            assert done.returncode == (-signal.SIGKILL if kill_after else 0), done.stderr
            starts.append(done.stdout.splitlines()[0].removeprefix(f"{source}/".removeprefix("/")))
        names = sorted(path.relative_to(source).as_posix() for path in Path(source).rglob("*.bin"))
        assert starts == ["", names[39], names[79], names[99]]
        assert contents(dest) == contents(source)
        assert not (Path(job) / "planning.json").exists()
        ps.copy_tree(source, f"{tmp_path}/other", job=f"{tmp_path}/uninterrupted", part_objects=10)
        plans = [Records(each, StoreOptions()).plan() for each in (job, f"{tmp_path}/uninterrupted")]
        assert plans[0].parts == plans[1].parts

    @pytest.mark.parametrize(
        "journal",
        [b"", b"{", b'{"penstock job": 1, "identity": "0000000000000000", "parts": [["~", 130, 9]]}', b"[]"],
    )
    def test_a_journal_that_is_damaged_or_of_another_job_is_not_used(self, trees, journal):
        source, dest, job = trees
        Path(job).mkdir()
        (Path(job) / "planning.json").write_bytes(journal)
        assert copied(trees).parts == 7
        assert contents(dest) == contents(source)
        Records(job, StoreOptions()).remove()
        assert not (Path(job) / "planning.json").exists()


@pytest.mark.parametrize("most", [1, 3, 8, 200])
def test_neighbours_are_joined_where_parts_are_too_many(most, monkeypatch):
    monkeypatch.setattr("penstock.jobs.syncing.job.MOST_PARTS", most)
    found = in_parts(lambda _: ((f"{name:03}", name) for name in range(100)), 3)
    assert len(found.parts) <= most
    assert (found.objects, found.size_bytes, found.parts[-1][0]) == (100, sum(range(100)), "099")
    assert [sum(each[place] for each in found.parts) for place in (1, 2)] == [100, sum(range(100))]
    names = [name for name, _, _ in found.parts]
    assert names == sorted({*names})


@pytest.mark.parametrize("name", ["{:07}", "/".join(["{:07}"] * 40), "é" * 100 + "{:07}"])
def test_a_plan_has_a_bound_for_any_number_of_large_objects(name):
    for objects in (10_000, 300_000):
        numbers = (name.replace("{:07}", f"{number:07}") for number in range(objects))
        found = in_parts(lambda _: ((each, 5 << 30) for each in numbers), 20_000)  # noqa: B023
        assert (found.objects, found.size_bytes) == (objects, objects * (5 << 30))
        assert sum(count for _, count, _ in found.parts) == objects
        assert len(found.parts) <= min(objects, 131_072)
        plan = JobPlan("sync", {}, found.parts, found.objects, found.size_bytes, "")
        assert len(plan.encoded()) <= 24 << 20
    assert len(found.parts) > 10_000, "still many for many processes"


@given(
    sizes=st.lists(st.integers(0, 100), max_size=60),
    most_objects=st.integers(1, 10),
    most_bytes=st.integers(1, 300),
)
@hypotheses(max_examples=examples(100))
def test_parts_hold_every_key_once_and_no_more_than_allowed(sizes, most_objects, most_bytes):
    metas = [(f"{number:03}", size) for number, size in enumerate(sizes)]
    parts = [*cut_keys(metas, most_objects, most_bytes)]
    assert sum(objects for _, objects, _ in parts) == len(sizes)
    assert sum(taken for *_, taken in parts) == sum(sizes)
    assert [last for last, *_ in parts] == sorted(last for last, *_ in parts)
    for _, objects, taken in parts:
        assert 1 <= objects <= most_objects
        assert taken <= most_bytes or objects == 1


def test_a_tree_is_copied_in_parts_and_no_part_is_looked_at_again(trees):
    done = copied(trees)
    assert (done.copied, done.parts, done.parts_done, done.complete) == (COUNT, 7, 7, True)
    assert contents(trees[1]) == contents(trees[0])
    (Path(trees[1]) / "0" / "0000.bin").unlink()
    again = copied(trees)
    assert (again.copied, again.complete) == (COUNT, True)
    assert not (Path(trees[1]) / "0" / "0000.bin").exists()


def test_a_part_without_a_record_copies_what_is_missing(trees):
    copied(trees)
    (Path(trees[1]) / "0" / "0000.bin").unlink()
    for part in (0, 3):
        records(trees)[part].unlink()
    again = copied(trees)
    assert (again.copied, again.unchanged, again.complete) == (5 * 20 - 10 + 1, 39, True)
    assert contents(trees[1]) == contents(trees[0])


def test_processes_share_the_parts(trees):
    seen = []
    for number in (2, 1, 3):
        done = copied(trees, part=f"{number}/3")
        seen += records(trees)
        assert done.parts == done.parts_done == (3 if number == 1 else 2)
    assert len(set(seen)) == 7
    assert contents(trees[1]) == contents(trees[0])


@pytest.mark.parametrize("wrong", [{"delete": "no"}, {"dry_run": 2}, {"part_objects": 5}])
def test_wrong_arguments_change_nothing(trees, wrong):
    (Path(trees[1]) / "theirs").mkdir(parents=True)
    with pytest.raises(Unusable, match=r"must be True or False|pass job="):
        ps.sync(*trees[:2], **wrong)
    assert not contents(trees[1])


def test_processes_of_this_machine_are_refused_on_a_cluster(trees):
    with pytest.raises(Unusable, match="processes=4 is for one machine"):
        copied(trees, on=ps.Ray(), processes=4)
    assert not Path(trees[2]).exists()


def test_processes_may_all_make_the_plan_and_do_the_same_parts(trees):
    with ThreadPoolExecutor(4) as pool:
        assert all(each.complete for each in pool.map(lambda _: copied(trees, processes=1), range(4)))
    assert contents(trees[1]) == contents(trees[0])


def test_objects_that_are_added_belong_to_the_part_of_their_place(trees):
    copied(trees)
    for name in ("0/0000.bis", "6/9999.bin"):
        (Path(trees[0]) / name).write_bytes(b"new")
    for path in records(trees):
        path.unlink()
    assert copied(trees).copied == 2
    assert contents(trees[1]) == contents(trees[0])


def test_include_exclude_and_a_report(trees, tmp_path):
    done = copied(trees, include="1/*", exclude="**/*5.bin", report=tmp_path / "report.jsonl")
    kept = {name for name in contents(trees[0]) if name.startswith("1/") and not name.endswith("5.bin")}
    assert set(contents(trees[1])) == kept
    lines = [json.loads(line) for line in (tmp_path / "report.jsonl").read_text().splitlines()]
    assert len(lines) == done.copied == len(kept)


def put(folder, *names):
    for name in names:
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"surplus")


def mirrored(trees, **options):
    source, dest, job = trees
    return ps.sync(source, dest, job=job, delete=True, **{"part_objects": 20} | options)


# Before the first object of the source, in the middle, and after the last one.
SURPLUS = ["!", "0/0000.bim", "3/0010.bin.old", "3a/x", "6/9999", "7/x"]


class TestDeletions:
    def test_each_name_of_the_destination_belongs_to_one_part(self, trees, tmp_path):
        put(trees[1], *SURPLUS, "3/kept.tmp")
        put(f"{trees[1]}o", "0/0000.bim")
        (tmp_path / "elsewhere").mkdir()
        for name in ("0/link", "5/link"):
            (Path(trees[0]) / name).symlink_to(tmp_path / "elsewhere")
        done = mirrored(trees, exclude="**/*.tmp", report=tmp_path / "report.jsonl")
        assert (done.copied, done.deleted, done.skipped, done.parts, done.complete) == (COUNT, len(SURPLUS), 2, 7, True)
        assert contents(trees[1]) == {**contents(trees[0]), "3/kept.tmp": b"surplus"}
        assert set(contents(f"{trees[1]}o")) == {"0/0000.bim"}
        told = Counter(json.loads(line)["status"] for line in (tmp_path / "report.jsonl").read_text().splitlines())
        assert told == {"copied": COUNT, "deleted": len(SURPLUS), "skipped": 2}

    def test_a_share_deletes_in_its_parts_only(self, trees):
        put(trees[1], *SURPLUS)
        assert mirrored(trees, part="2/7").deleted == 0
        assert mirrored(trees, part="1/7").deleted == 2
        assert {"3/0010.bin.old", "3a/x", "6/9999", "7/x"} <= set(contents(trees[1]))
        assert [mirrored(trees, part=f"{number}/7").deleted for number in (7, 3, 4, 5, 6)] == [2, 1, 1, 0, 0]
        assert contents(trees[1]) == contents(trees[0])

    def test_a_source_that_is_gone_deletes_nothing(self, trees):
        mirrored(trees, part="1/7")
        before = contents(trees[1])
        for name in contents(trees[0]):
            (Path(trees[0]) / name).unlink()
        with pytest.raises(NotFound, match="delete would empty the destination"):
            mirrored(trees)
        assert contents(trees[1]) == before

    def test_an_empty_source_empties_the_destination_if_that_is_allowed(self, trees, tmp_path):
        put(trees[1], *SURPLUS)
        (tmp_path / "empty").mkdir()
        with pytest.raises(NotFound):
            ps.sync(tmp_path / "empty", trees[1], job=trees[2], delete=True)
        done = ps.sync(tmp_path / "empty", trees[1], job=trees[2], delete=True, allow_empty=True)
        assert (done.deleted, done.parts, done.complete) == (len(SURPLUS), 1, True)
        assert contents(trees[1]) == {}

    def test_an_object_that_the_source_has_again_stays(self, trees):
        ps.sync(*trees[:2])
        late = Path(trees[0], "0", "0007.bin")
        data = late.read_bytes()
        late.unlink()
        put(trees[0], "0/0008.bin")
        run = SyncRun(*trees[:2], SyncOptions(delete=True), ps.StoreOptions(), ("", "1"))
        seen = []
        for outcome in run.outcomes():
            if outcome.status == "copied":
                # Another process adds it to both sides, after this one has listed them.
                late.write_bytes(data)
            seen.append((outcome.status, str(outcome.error or "")))
        assert [status for status, _ in seen] == ["copied", "failed"]
        assert "not deleted: the source has a new object of this name" in seen[1][1]
        assert Path(trees[1], "0", "0007.bin").read_bytes() == data

    def test_a_directory_in_a_file_s_place_in_another_part_is_replaced_by_the_next_call(self, tmp_path):
        trees = f"{tmp_path}/from", f"{tmp_path}/to", f"{tmp_path}/job"
        put(trees[0], "a", "b")
        put(trees[1], "a/x")
        with pytest.raises(Unusable, match="repeat the call"):
            mirrored(trees, part_objects=1)
        assert mirrored(trees, part_objects=1).complete
        assert contents(trees[1]) == contents(trees[0])


class TestStores:
    """Between two buckets of a server that fails, slows down and forgets."""

    @pytest.fixture(params=SCHEMES)
    def server(self, request):
        with FaultServer.start(Settings(dialect=request.param)) as running:
            running.root = f"{SCHEMES[request.param]}://bucket"
            running.make("bucket")
            for number in range(COUNT):
                running.put("bucket", f"from/{number % 7}/{number:04}", b"%d" % number * 50)
            running.put("bucket", "from/unknown ü+%/x", b"odd")
            yield running

    def copied(self, server, **options):
        options |= {"part_objects": 20, "store": server.store}
        root = server.root
        return ps.sync(f"{root}/from/", f"{root}/to/", job=f"{root}/jobs/1/", **options)

    def trees_of(self, server):
        found = {prefix: {} for prefix in ("from/", "to/")}
        for prefix, tree in found.items():
            for meta in ps.list(f"{server.root}/{prefix}", store=server.store):
                with ps.open(meta.url, store=server.store) as file:
                    tree[meta.key[len(prefix) :]] = file.read()
        return found["from/"], found["to/"]

    def test_a_prefix_is_copied_to_another(self, server):
        assert self.copied(server).copied == COUNT + 1
        source, dest = self.trees_of(server)
        assert source == dest

    def test_a_part_with_a_failure_is_recorded_deletes_nothing_and_is_tried_again(self, server):
        surplus = {"to/3/0011", "to/6/9999", "outside"}
        for key in surplus:
            server.put("bucket", key, b"old")
        server.fail(FAULTS["denied"], when=Match(key="to/3/0010"))
        with pytest.raises(PenstockError):
            self.copied(server, delete=True)
        failed = [each.key for each in ps.list(f"{server.root}/jobs/1/failed/", store=server.store)]
        assert len(failed) == 1
        assert surplus & set(server.objects("bucket")) == {"to/3/0011", "outside"}
        server.heal()
        done = self.copied(server, delete=True)
        assert (done.complete, done.parts_failed, done.failed, done.deleted) == (True, 0, 0, 2)
        source, dest = self.trees_of(server)
        assert source == dest
        assert server.objects("bucket")["outside"] == b"old"


PROGRAM = """
import sys, penstock as ps
source, dest, job, processes = sys.argv[1:]
done = ps.sync(source, dest, delete=True, job=job, part_objects=20, processes=int(processes))
print(done.complete, done.copied + done.unchanged)
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_a_copy_that_is_killed_again_and_again_ends_with_an_equal_tree(trees, processes, seed):
    draw, deaths = random.Random(seed), 0
    words = [sys.executable, "-c", PROGRAM, *trees, str(processes)]
    put(trees[1], *SURPLUS)
    for attempt in itertools.count():
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        wanted = draw.randrange(1, 3)
        before = len(records(trees))
        # Killed once it has made some parts; let alone in the end.
        while attempt < 4 and process.poll() is None and len(records(trees)) < before + wanted:
            os.sched_yield()
        if attempt < 4 and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            deaths += 1
        out, _ = process.communicate(timeout=120)
        if process.returncode == 0:
            break
    assert out.split() == ["True", str(COUNT)]
    assert contents(trees[1]) == contents(trees[0])
    assert deaths or attempt == 0


class TestRefusals:
    def test_records_inside_a_tree(self, trees):
        source, dest, _ = trees
        for job in (f"{source}/job", f"{dest}/job", str(Path(source).parent)):
            with pytest.raises(Unusable, match="outside the trees"):
                ps.copy_tree(source, dest, job=job)

    def test_another_copy_with_the_same_records(self, trees):
        copied(trees)
        for other in ({"checksum": True}, {"exclude": "x"}):
            with pytest.raises(Unusable, match="job= has a different job"):
                copied(trees, **other)
        with pytest.raises(Unusable, match="job= has a different job"):
            ps.copy_tree(trees[0], f"{trees[1]}2", job=trees[2])

    def test_words_that_do_not_go_together(self, trees):
        for options, told in (
            ({"dry_run": True, "job": trees[2]}, "leave out job="),
            ({"part": "1/2"}, "pass job="),
            ({"on": ps.Ray()}, "pass job="),
        ):
            with pytest.raises(Unusable, match=told):
                ps.sync(*trees[:2], **options)
        copied(trees)
        with pytest.raises(
            Unusable, match="job= has a different job: sync with delete=False, not sync with delete=True;"
        ):
            mirrored(trees)
        with pytest.raises(TypeError):
            ps.copy_tree(*trees[:2], job=None)

    def test_a_source_with_nothing_in_it(self, trees, tmp_path):
        (tmp_path / "empty").mkdir()
        with pytest.raises(NotFound):
            ps.copy_tree(f"{tmp_path}/empty", trees[1], job=trees[2])
        assert not Path(trees[2]).exists()

    @pytest.mark.parametrize("options", [{"part": "4/3"}, {"part": "x"}, {"part_objects": 0}, {"part_objects": 1.5}])
    def test_parts_that_do_not_exist(self, trees, options):
        with pytest.raises(Unusable):
            copied(trees, **options)
