"""Parts on a real Ray cluster, whose workers, machines and drivers are killed: the result is that of one process."""

import os
import pickle
import random
import re
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import zarr

import penstock as ps
from benchmarks import jobs as benchmark
from benchmarks import kills, ray_sync
from benchmarks import server as load_server
from penstock.errors import Unreachable, Unusable
from penstock.interop.zarr import Store
from penstock.jobs.parts import carriers
from penstock.jobs.parts.attempts import PartAttempt
from penstock.jobs.parts.carriers import Here, carrier
from penstock.jobs.parts.operation import JobPart, Means
from penstock.jobs.parts.records import Records
from penstock.jobs.parts.run import Job, JobOptions
from penstock.options import StoreOptions
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from penstock.version import VERSION
from tests.conftest import REQUIRE_SERVERS
from tests.data.shards.archives import tar
from tests.jobs.packed import fill
from tests.jobs.parts.deadly import Deadly
from tests.servers.ray_cluster import RayCluster

EXAMPLES = Path(__file__).parents[3] / "examples" / "ray"
COUNT, PART = 240, 10
PARTS = COUNT // PART
# On two nodes with a processor each.
IN_FLIGHT = 5
KEYS = {"AWS_ACCESS_KEY_ID": "penstock-testing", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_REGION": "us-east-1"}
soak = bool(os.environ.get("PENSTOCK_SOAK"))


@pytest.fixture(scope="module")
def cluster():
    with RayCluster.start(env=KEYS) as running:
        yield running


DEADLY = """
import sys
import penstock as ps
from penstock.jobs.parts.run import Job, JobOptions
from tests.data.shards.archives import tar
from tests.conftest import REQUIRE_SERVERS
from tests.jobs.packed import fill
from tests.jobs.parts.deadly import Deadly
address, folder, deadly, pause_s = sys.argv[1:]
numbers = tuple(map(int, deadly.split(","))) if deadly else ()
operation = Deadly(folder, deadly=numbers, pause_s=float(pause_s))
try:
    print(Job(operation, folder + "/job", JobOptions(on=ps.Ray(address=address, retries=1))).work().parts_done)
except ps.PenstockError as error:
    print(type(error).__name__, error)
"""

# Each in some 24 parts; ``how`` has the options of the store and, on the cluster, the job.
CALLS = {
    "sync": "ps.sync(source, dest, delete=True, part_objects=10, **how).complete",
    "sync_to_another_bucket": "ps.sync(source, dest, delete=True, part_objects=10, **how).complete",
    "verify": "ps.verify(source, part_objects=10, **how).digest",
    "index": 'len(ps.index(source, dest + "x.catalog", format="tar", **how))',
    "pack": "len(ps.pack(source, dest, samples=10, **how))",
    "zarr_copy": 'copy(source + "z", dest + "z", chunks=(1, 8), memory_bytes=2000, **how).complete',
}
WORK = """
import sys
import penstock as ps
from penstock.interop.zarr import copy, parts
from penstock.jobs import index
# Of the plan, which the driver makes.
index._SHARDS, parts._PART_REGIONS = 10, 5
"""
ON_RAY = """
address, source, dest, job, endpoint = sys.argv[1:]
how = {"store": ps.S3Options(endpoint=endpoint), "job": job, "on": ps.Ray(address=address)}
"""
ALONE = """
source, dest, endpoint = sys.argv[1:]
how = {"store": ps.S3Options(endpoint=endpoint)}
"""


def driver(cluster, program, *words):
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program, cluster.address, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=cluster.env,
    )


def told(process, timeout=120, lines=1):
    out, errors = process.communicate(timeout=timeout)
    assert process.returncode == 0, errors
    # Ray itself writes of dead workers to standard output.
    last = out.strip().split("\n")[-lines:]
    return last[0] if lines == 1 else last


def test_parts_run_on_all_nodes_without_torch_and_finish_once(cluster, tmp_path):
    assert told(driver(cluster, DEADLY, tmp_path, "", 0.3)) == "5"
    seen = [(tmp_path / str(number)).read_text().split() for number in range(5)]
    assert {torch for torch, _ in seen} == {"False"}
    assert len({node for _, node in seen}) == 2
    assert (tmp_path / "finished").read_text() == "5"
    (tmp_path / "finished").unlink()
    assert continued(tmp_path) == 5
    assert not (tmp_path / "finished").exists()


def continued(folder):
    """Continue a job of the cluster in this process; return how many parts are done."""
    return Job(Deadly(str(folder)), f"{folder}/job", JobOptions()).work().parts_done


def test_a_part_that_kills_its_workers_is_set_aside_and_the_others_go_on(cluster, tmp_path):
    said = told(driver(cluster, DEADLY, tmp_path, "2", 0))
    assert said.startswith("Transient part 2 was set aside: its worker died 2 times")
    assert (tmp_path / "deaths").read_text().split() == ["2", "2"]
    records = Records(f"{tmp_path}/job", StoreOptions())
    assert (records.numbers(), records.numbers(failed=True)) == ({0, 1, 3, 4}, {2})
    assert not (tmp_path / "finished").exists()
    assert continued(tmp_path) == 5
    assert records.numbers(failed=True) == set()


WARM = """
import sys
import penstock as ps
address, cache, url, endpoint = sys.argv[1:]
store = ps.S3Options(endpoint=endpoint, cache=ps.CacheOptions(path=cache))
done = ps.warm([url], on=ps.Ray(address=address), store=store)
print(done.nodes, done.fetched + done.present, done.failed)
try:
    ps.warm(url + "none", on=ps.Ray(address=address), store=store)
except ps.errors.NotFound as error:
    print(error.url)
"""


def test_each_machine_warms_its_cache_with_everything(cluster, tmp_path):
    with FaultServer.start() as server:
        server.make("bucket")
        for number in range(20):
            server.put("bucket", f"a/{number}", b"x")
        out = told(driver(cluster, WARM, tmp_path / "cache", "s3://bucket/a/", server.store.endpoint), lines=2)
        assert out == ["2 40 0", "s3://bucket/a/none"]
        # One directory for both: each object is there once.
        store = replace(server.store, cache=ps.CacheOptions(path=str(tmp_path / "cache")))
        assert ps.warm("s3://bucket/a/", store=store).present == 20


@pytest.mark.slow
def test_the_benchmark_measures_this_cluster_beside_processes(cluster, tmp_path, capsys):
    if message := load_server.missing():
        (pytest.fail if REQUIRE_SERVERS else pytest.skip)(message)
    (tmp_path / "data").mkdir()
    options = Namespace(objects=40, part_objects=10, rounds=1, parts=20, keys=(10, 20))
    with load_server.serve(tmp_path) as serving:
        benchmark.measure(cluster, serving.plain, tmp_path, options)
        ray_sync.measure([ray_sync.ours(cluster)], serving.plain, tmp_path, options)
    printed = capsys.readouterr().out
    assert "penstock's seconds beside ours: 1.00 (bar 3, missed)" in printed
    assert "MiB more for more keys: " in printed
    assert "CPU seconds, Ray beside local: " in printed
    assert "seconds to the first new part of a driver that goes on: " in printed


def test_the_benchmark_of_kills_finds_nothing_missing(cluster, server, capsys):
    options = Namespace(objects=192, histories=1, seed=1, longest=60, kinds=["worker"])
    kills.measure(kills.ours(cluster), server, options)
    assert re.search(r"\nworker   \| [01] \| 0 \[\] \| 0 \| 0 \| 0 \[\]\n$", capsys.readouterr().out)


def example(cluster, name, *words):
    command = [sys.executable, "-W", "ignore", f"{EXAMPLES}/{name}", *map(str, words), "--address", cluster.address]
    return subprocess.run(command, env=cluster.env, capture_output=True, text=True, timeout=120, check=False)


def test_the_examples_pack_as_one_process_does_and_verify(cluster, tmp_path):
    source, packed = fill(tmp_path / "data"), tmp_path / "packed"
    done = example(cluster, "pack_bucket.py", source, packed, "--job", tmp_path / "pack", "--samples", 5)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("20 samples, the first with cls, jpg\n")
    ps.pack(source, tmp_path / "alone", samples=5)
    shards = sorted(path.name for path in packed.glob("shard-*"))
    assert len(shards) == 4
    assert all((packed / name).read_bytes() == (tmp_path / "alone" / name).read_bytes() for name in shards)

    (packed / "pack.json").write_bytes(b"{}")
    words = tmp_path / "alone", packed, "--job", tmp_path / "verify"
    done = example(cluster, "verify_bucket.py", *words)
    assert done.returncode == 1
    assert "not equal: " in done.stdout
    for name in ("pack.json", "index.catalog"):
        (packed / name).write_bytes((tmp_path / "alone" / name).read_bytes())
    done = example(cluster, "verify_bucket.py", *words)
    assert (done.returncode, done.stdout.partition(",")[0]) == (0, "6 objects are equal")


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_an_interrupted_driver_ends_soon_and_says_how_to_go_on(cluster, tmp_path, number):
    process = driver(cluster, DEADLY, tmp_path, "", 20)
    while not cluster.workers("penstock.deadly"):
        assert process.poll() is None
        time.sleep(0.05)
    began = time.monotonic()
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - began < 15
    assert process.returncode != 0
    assert f"penstock jobs resume file://{tmp_path}/job/" in errors
    while cluster.workers("penstock.deadly"):
        assert time.monotonic() - began < 20
        time.sleep(0.05)


def test_a_driver_whose_own_node_dies_says_what_to_do_and_the_same_call_goes_on(tmp_path):
    with RayCluster.start(1) as other:
        process = driver(other, DEADLY, tmp_path, "", 0.5)
        while not [*(tmp_path / "job").glob("done/*/000000.json")]:
            assert process.poll() is None
            time.sleep(0.02)
        # The head's: drivers on its machine belong to it.
        os.kill(other.raylets()[0], signal.SIGKILL)
        assert re.match(r"Unreachable cannot .* belongs to has died; .*: repeat the same call \[", told(process))
        assert Records(f"{tmp_path}/job", StoreOptions()).numbers() < {*range(5)}
        assert told(driver(other, DEADLY, tmp_path, "", 0)) == "5"


@pytest.fixture
def server():
    with FaultServer.start(Settings(latency_ms=20)) as running:
        for bucket in ("bucket", "other"):
            running.make(bucket)
            for key in ("outside", "to.txt"):
                running.put(bucket, key, b"x")
        yield running


def below(server, prefix, bucket="bucket"):
    return {key.removeprefix(prefix): data for key, data in server.objects(bucket).items() if key.startswith(prefix)}


def filled(server, what, bucket):
    """Put what an operation works on; ``bucket`` has the destination."""
    if what == "zarr_copy":
        array = zarr.create_array(
            Store("s3://bucket/from/z", store=server.store), shape=(COUNT, 8), chunks=(2, 8), dtype="f4"
        )
        array[:] = np.arange(COUNT * 8).reshape(COUNT, 8)
    for number in range(COUNT if what != "zarr_copy" else 0):
        data = tar([(f"{number}.txt", b"x" * number)]) if what == "index" else b"%d" % number * 50
        server.put("bucket", f"from/{number % 7}/{number:04}.{'tar' if what == 'index' else 'bin'}", data)
        if what.startswith("sync") and number % 4 == 0:
            # To be deleted, and to be replaced.
            server.put(bucket, f"to/{number % 8}/{number:04}.{'old' if number % 3 else 'bin'}", b"other")
            # To be deleted, though an object of the source has the name, or the end of the path, and the size.
            server.put(bucket, f"to/{8 + number % 3}/{number:04}.bin", b"%d" % number * 50)
            server.put(bucket, f"to/x{number % 5}/{number % 7}/{number:04}.bin", b"%d" % number * 50)


def alone(server, cluster, what):
    """Do an operation in one process; return what it prints and writes."""
    words = "s3://bucket/from/", "s3://bucket/alone/"
    program = [sys.executable, "-c", WORK + ALONE + f"print({CALLS[what]})", *words, server.store.endpoint]
    ended = subprocess.run(program, env=cluster.env, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip(), below(server, "alone/")


def written(server, bucket):
    """Return what was written, without catalogs, which hold their own URL."""
    return {name: data for name, data in below(server, "to/", bucket).items() if not name.endswith(".catalog")}


@pytest.mark.slow
@pytest.mark.parametrize("what", CALLS)
def test_two_drivers_of_one_job_end_with_its_result(cluster, server, what):
    bucket = "other" if what == "sync_to_another_bucket" else "bucket"
    filled(server, what, bucket)
    expected, there = ("True", below(server, "from/")) if what.startswith("sync") else alone(server, cluster, what)
    program = WORK + ON_RAY + f"print({CALLS[what]})"
    words = "s3://bucket/from/", f"s3://{bucket}/to/", "s3://bucket/jobs/1/", server.store.endpoint
    both = [driver(cluster, program, *words) for _ in range(2)]
    assert [told(each) for each in both] == [expected] * 2
    assert len(below(server, "jobs/1/done/")) == PARTS
    assert written(server, bucket).keys() == {name for name in there if not name.endswith(".catalog")}


# A request of each object that is not made again, for those operations that have one.
ONCE = {"sync": ("put", "to/"), "verify": ("get", "from/"), "pack": ("put", "to/shard")}


@pytest.mark.parametrize(
    ("what", "history"),
    [
        pytest.param(what, history, marks=() if what == "sync_to_another_bucket" and not soak else pytest.mark.slow)
        for what in CALLS
        for history in range(20 if soak else 1)
    ],
)
def test_a_history_of_kills_ends_as_one_process_does(cluster, server, what, history, seed):
    """Of a worker, a machine and the driver, in a bucket that fails 5 % of requests."""
    bucket = "other" if what == "sync_to_another_bucket" else "bucket"
    filled(server, what, bucket)
    source = below(server, "from/")
    expected = ("True", source) if what.startswith("sync") else alone(server, cluster, what)
    server.fail(FAULTS["503"], when=Match(times=None, rate=0.05, seed=1))
    draw, requests = random.Random(f"{seed} {what} {history}"), len(server.seen())
    program = WORK + ON_RAY + f"print({CALLS[what]})"
    words = "s3://bucket/from/", f"s3://{bucket}/to/", "s3://bucket/jobs/1/", server.store.endpoint
    kinds = ["worker", "raylet", "driver"]
    draw.shuffle(kinds)
    before, killed, process = {}, [], driver(cluster, program, *words)
    for kind in kinds:
        wanted = min(len(before) + draw.randrange(2, 6), PARTS - 2)
        while len(before := below(server, "jobs/1/done/")) < wanted and process.poll() is None:
            time.sleep(0.02)
        if kill(kind, cluster, process, what, draw):
            killed.append(kind)
        if kind == "driver":
            process.communicate()
            process = driver(cluster, program, *words)
    out, errors = process.communicate(timeout=200)
    if "belongs to has died" in errors:
        # Ray had put the driver on the machine that was killed.
        out, errors = driver(cluster, program, *words).communicate(timeout=200)
    printed = out.strip().rpartition("\n")[2]
    after = below(server, "jobs/1/done/")
    assert len(after) == PARTS
    assert killed
    # A worker that outlives its driver may record a part that the next one has given out.
    assert len(before.items() - after.items()) <= IN_FLIGHT

    made = below(server, "to/", bucket)
    if what == "pack":
        # They name the place of the shards.
        assert made.pop("index.catalog")
        del expected[1]["index.catalog"]
    assert (printed, made) == expected, errors[-2000:]
    assert below(server, "from/") == source
    for each in ("bucket", "other"):
        outside = {key for key in server.objects(each) if not key.startswith(("from/", "to/", "alone/", "jobs/"))}
        assert outside == {"outside", "to.txt"}
        assert server.uploads(each) == []
    # Names of the source were compared with what was deleted, unless both sides are one bucket.
    assert (bucket == "other") == any(each.key.endswith("/source.sieve") for each in server.seen("get", "bucket"))
    # A part that was done is not done again, but for those that were in flight.
    verb, prefix = ONCE.get(what.partition("_to_")[0], ("none", ""))
    seen = (each for each in server.seen()[requests:] if each.verb == verb and each.status in (200, 206))
    # Of a shard of ps.pack, a record beside it is written twice.
    times = Counter(each.key for each in seen if each.key.startswith(prefix) and not each.key.endswith(".partial"))
    most = len(killed) * IN_FLIGHT * (1 if what == "pack" else PART)
    assert len([key for key, count in times.items() if count > 1]) <= most


def kill(kind, cluster, process, what, draw):
    """Kill a process of a kind; return whether there was one."""
    if kind == "driver":
        process.kill()
        return True
    pids = cluster.workers(f"penstock.{what.partition('_to_')[0]}") if kind == "worker" else cluster.raylets()[1:]
    if not pids:
        return False
    os.kill(draw.choice(pids), signal.SIGKILL)
    if kind == "raylet":
        cluster.add_node()
    return True


@pytest.mark.slow
def test_memory_of_the_driver_does_not_grow_with_the_number_of_keys(cluster, tmp_path):
    few, many = (benchmark.driver_mib(cluster, tmp_path, number) for number in (10_000, 1_000_000))
    assert many - few < 50, (few, many)


class TestRefusals:
    def test_options_with_keys_go_to_no_other_machine(self):
        store = ps.S3Options(access_key="AKIDEXAMPLE", secret_key="very-secret")
        with pytest.raises(Unusable, match=r"secret in it .* pass profile="):
            ps.copy_tree("s3://bucket/a/", "s3://bucket/b/", job="s3://bucket/job/", on=ps.Ray(), store=store)

    def test_a_cluster_that_is_not_there(self, tmp_path, monkeypatch):
        on_ray = carrier(ps.Ray(), Deadly(str(tmp_path)))
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        monkeypatch.setattr(on_ray._ray, "init", failing(ConnectionError("nobody")))
        with pytest.raises(Unreachable, match=r"cannot reach a Ray cluster .*nobody"):
            next(on_ray.carried(Deadly(str(tmp_path)), iter(()), Means(None)))

    @pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "[::1]:1", "127.0.0.1:99999", "auto"])
    def test_a_port_that_nobody_answers_is_refused_at_once(self, tmp_path, monkeypatch, address):
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
        on_ray = carrier(ps.Ray(address), Deadly(str(tmp_path)))
        with pytest.raises(Unreachable, match=r"cannot reach a Ray cluster at .*; start one"):
            next(on_ray.carried(Deadly(str(tmp_path)), iter(()), Means(None)))

    @pytest.mark.parametrize("alive", [True, False])
    def test_the_loss_of_the_driver_s_own_node_ends_the_job_once_ray_has_noticed(self, tmp_path, monkeypatch, alive):
        on_ray = carrier(ps.Ray(), Deadly(str(tmp_path)))
        context = SimpleNamespace(get_node_id=lambda: "one")
        nodes = [{"NodeID": "one", "Alive": alive}, {"NodeID": "two", "Alive": not alive}]
        monkeypatch.setattr(on_ray._ray, "get", lambda _: raised(on_ray._ray.exceptions.LocalRayletDiedError()))
        monkeypatch.setattr(on_ray._ray, "get_runtime_context", lambda: context)
        monkeypatch.setattr(on_ray._ray, "nodes", lambda: nodes)
        means = Means(Records(f"{tmp_path}/job", StoreOptions()))
        attempt = PartAttempt(JobPart(0, (0, 1, 10), again=False))
        if alive:
            assert on_ray._result("ref", attempt, means).deaths == 0
        else:
            with pytest.raises(Unreachable, match="belongs to has died"):
                on_ray._result("ref", attempt, means)

    def test_a_report_of_what_others_copy(self, tmp_path):
        (tmp_path / "from").mkdir()
        with pytest.raises(Unusable, match="report= lists copies of this process"):
            ps.copy_tree(tmp_path / "from", tmp_path / "to", job=tmp_path / "job", on=ps.Ray(), report=tmp_path / "x")

    @pytest.mark.parametrize("run", [ps.warm, lambda what, on: ps.verify(what, job=f"{what}-job", on=on)])
    def test_an_address_in_place_of_a_cluster(self, run, tmp_path):
        with pytest.raises(Unusable, match="on must be ps"):
            run(str(tmp_path), on="auto")

    @pytest.mark.parametrize(
        "options",
        [
            {"address": None},
            {"address": ""},
            {"address": 6379},
            {"cpus_per_part": 0},
            {"cpus_per_part": "2"},
            {"cpus_per_part": float("nan")},
            {"retries": -1},
        ],
    )
    def test_numbers_that_make_no_sense(self, options):
        with pytest.raises(Unusable, match=next(iter(options))):
            ps.Ray(**options)


def raised(error):
    raise error


def failing(error):
    def fail(**_):
        raise error

    return fail


def test_this_process_does_parts_one_after_the_other(tmp_path):
    operation, records = Deadly(str(tmp_path)), Records(f"{tmp_path}/job", StoreOptions(), "0123abcd")
    counted = []
    means = Means(records, count=lambda *numbers: counted.append(numbers))
    parts = iter([JobPart(3, (3, 1, 10), again=False), JobPart(1, (1, 1, 10), again=False)])
    ended = [*Here().carried(operation, parts, means)]
    assert [each.record.part for each in ended] == [3, 1]
    assert counted == [(1, 10), (1, 10)]
    assert records.numbers() == {1, 3}


def test_part_in_a_worker_enters_the_trace_of_its_driver(tmp_path, monkeypatch):
    entered, trace = [], b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    monkeypatch.setattr(carriers, "enter", entered.append)
    blob = pickle.dumps((VERSION, Deadly(str(tmp_path))))
    ended = carriers._part(blob, (f"{tmp_path}/job/", "0123abcd"), JobPart(0, (0, 1, 10), again=False), trace)
    assert (entered, ended.record.part, ended.error) == ([trace], 0, None)
